"""Training jobs: what is trained, on what, to do what. Loop, checkpoints and recipe are the same for all."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from glassformer.errors import InputError
from glassformer.hub.families import Family
from glassformer.hub.families import family as find_family
from glassformer.hub.folder import outline
from glassformer.hub.locate import locate
from glassformer.tasks.load import base_of
from glassformer.tasks.recipe import Recipe
from glassformer.training.loop import Batches, HeldOut, Objective

Progress = Callable[[str, int, int], object]  # what is being prepared, how much of it is done, of how much


class Job(Protocol):
    """What a training of one kind adds to the loop. One class for each objective and form of data."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def unit(self) -> str: ...  # what the loop counts: targets
    @property
    def measure(self) -> str: ...  # what a loss is given in

    def build(self, device: torch.device) -> nn.Module:
        """The model before the first step, the same one every time."""

    def batches(self, net: Any) -> Batches:
        """What the model is trained on."""

    def held_out(self, net: Any, *, rows: int) -> HeldOut | None:
        """What the model is evaluated on, `rows` rows at a time; None if nothing is held out."""

    def identity(self) -> dict[str, Any]:
        """What besides the recipe must be the same at every start of a run: hashes of the data."""

    def sizes(self) -> tuple[int, int]:
        """How much there is to learn from, and how much is held out, in tokens."""

    def messages(self) -> list[str]:
        """What was done to the data that people should know before the first step, a sentence each."""

    def check_preview(self, net: Any) -> None:
        """Refuse a preview that could not be made, before the first step."""

    def preview(self, net: Any) -> str:
        """A sample of what the model does by now, for people."""

    def export(self, folder: Path, net: Any, *, about: str) -> None:
        """Write the model as a folder that loads, with a card; `about` says how far it was trained."""

    def with_recipe(self, recipe: Recipe) -> "Job":
        """The same job after the recipe was settled (precision)."""


# What a family learns, or the task of a decoder -> the class of its job. To add one: a class with `prepare`,
# and a line here.
JOBS = {
    "next_token": "glassformer.tasks.language_modeling.LanguageModeling",
    "target_token": "glassformer.tasks.translation.Translation",
    "labels": "glassformer.tasks.labeling.Labeling",
    "translate": "glassformer.tasks.tagged_pairs.TaggedPairs",
    "summarize": "glassformer.tasks.tagged_pairs.TaggedPairs",
    "examples": "glassformer.tasks.transfer.Transfer",
}


def prepare_job(recipe: Recipe, out: Path, *, offline: bool, progress: Progress) -> Job:
    """The job of a recipe, with its data prepared."""
    family = family_of_recipe(recipe, offline=offline)
    if recipe.task and family.objective != "next_token":
        raise InputError(
            f"task {recipe.task}: {recipe.model.base} is no decoder but a {family.title}, which has its own"
        )
    module, _, name = JOBS[recipe.task or family.objective].rpartition(".")
    kind = getattr(import_module(module), name)
    job: Job = kind.prepare(recipe, out, offline=offline, progress=progress)
    return job


def family_of_recipe(recipe: Recipe, *, offline: bool = False) -> Family:
    """The family of the model that a recipe trains: that of its base, or the kind that it names.

    A recipe of examples gives its base a head, and one of an encoder-decoder makes both halves of a decoder:
    its kind decides what is learned.
    """
    named = find_family(recipe.model.kind)
    if not recipe.model.base or named.objective == "examples":
        return named
    folder = base_of(locate(recipe.model.base, offline=offline), offline=offline)
    model, _, _ = outline(folder)
    return named if named.made_of == model.kind else find_family(model.kind)
