"""What all training jobs share: a model to begin with, its vocabulary, and the folder that it becomes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from filelock import FileLock

from glassformer import machine
from glassformer.durable import remove_leftovers, replace_file
from glassformer.errors import InputError
from glassformer.hub.families import family
from glassformer.hub.folder import load_folder, parse_dtype, save_folder
from glassformer.hub.generation_config import read_generation_config, write_generation_config
from glassformer.hub.locate import locate, shipped
from glassformer.hub.lora import LoraWeights, is_adapter, save_adapter
from glassformer.hub.vocabulary import SOURCE, load_tokenizer, tokenizer_files
from glassformer.tasks.load import base_of, load_adapted
from glassformer.tasks.recipe import Recipe
from glassformer.tokenizers import Tokenizer
from glassformer.training.lora import adapted_layers, attach
from glassformer.training.optim import freeze

if TYPE_CHECKING:
    from glassformer.nn.net import Net

VOCABULARY, VOCABULARY_NOTE = "tokenizer.json", "vocabulary.sha256"


@dataclass(frozen=True)
class TrainingJob:
    """A recipe and a vocabulary: the half of a job (see tasks/jobs.py) that does not depend on its data."""

    recipe: Recipe
    tokenizer: Tokenizer
    offline: bool

    unit: ClassVar[str] = "token"  # what the loop counts

    @property
    def measure(self) -> str:
        """What a loss is given in."""
        return f"nats a {self.unit}"

    def describe_data(self) -> list[str]:
        """What it is trained on: lines of the model's card."""
        raise NotImplementedError

    def messages(self) -> list[str]:
        """What was done to the data that people should know before the first step, a sentence each."""
        return []

    def vocabulary_fields(self) -> dict[str, Any]:
        """The fields of a new model's configuration that follow from the vocabulary and the data."""
        return {"vocab": len(self.tokenizer)}

    def with_recipe(self, recipe: Recipe) -> Self:
        """The same job after the recipe was settled."""
        return replace(self, recipe=recipe)

    def build(self, device: torch.device) -> "Net":
        """The model before the first step, the same one every time."""
        lora, seed = self.recipe.lora, self.recipe.train.seed
        net = self._base() if self.recipe.model.base else self._new()
        if lora.rank:
            attach(
                net,
                lora.targets,
                rank=lora.rank,
                scale=lora.alpha / lora.rank,
                dropout=lora.lora_dropout,
                seed=seed,
            )
        freeze(net, self.recipe.model.freeze)
        return net.to(device)

    def _new(self) -> "Net":
        shape, dtype = self.recipe.model, self.dtype
        kind = family(shape.kind)
        keys = {one.name for one in fields(kind.config)} & {one.name for one in fields(shape)}
        chosen = {key: getattr(shape, key) for key in keys}
        fixed = {key: value for key, value in kind.small.items() if key not in keys}
        config = kind.config(**chosen, **fixed, **self.vocabulary_fields())

        # Four numbers for each parameter: itself, its gradient, and the optimizer's two.
        needed = 4 * config.parameters * dtype.itemsize
        machine.check_memory(needed, what=f"training {config.parameters:,} parameters")
        return kind.build(config).initialize(self.recipe.train.seed).to(dtype)

    def _base(self) -> "Net":
        name = self.recipe.model.base
        folder = locate(name, offline=self.offline)
        model = self.recipe.model  # some kinds have no dropout
        dropout = {
            key: getattr(model, key) for key in ("dropout", "attention_dropout") if hasattr(model, key)
        }
        how: dict[str, Any] = {"dtype": self.dtype} | dropout
        if not is_adapter(folder):
            net = load_folder(folder, **how).model
        elif self.recipe.lora.rank:
            raise InputError(
                f"{name} is a LoRA folder, and LoRA beside LoRA cannot be kept;"
                " train without it, or merge first"
            )
        else:
            net = load_adapted(folder, offline=self.offline, **how).model
        for parameter in net.parameters():
            # One layout in memory, whatever the file had: sums run in the same order, the same bits at every
            # start.
            parameter.data = parameter.data.contiguous()
        return net

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that are trained."""
        return parse_dtype("float64" if self.recipe.train.precision == "float64" else "float32")

    def export(self, folder: Path, net: "Net", *, about: str) -> None:
        """Write the model, or what LoRA learned, as a folder that `glass generate` loads."""
        remove_leftovers(folder)
        card = self._card(folder.parent.name, about)
        if not self.recipe.lora.rank:
            save_folder(folder, net, tokenizer=self.tokenizer, card=card, generation=self._generation())
            return
        layers = adapted_layers(net)
        weights = {name: LoraWeights(layer.lora_a, layer.lora_b, layer.scale) for name, layer in layers}
        base = self.recipe.model.base
        if Path(base).is_dir() and not shipped(base):
            base = str(locate(base).resolve())
        dropout = self.recipe.lora.lora_dropout
        save_adapter(folder, weights, base=base, family=family(net.kind), dropout=dropout, card=card)

    def _generation(self) -> dict[str, Any]:
        """How its base is meant to generate; a new model has no settings of its own."""
        if not self.recipe.model.base:
            return {}
        base = base_of(locate(self.recipe.model.base, offline=self.offline), offline=self.offline)
        return write_generation_config(*read_generation_config(base))

    def _card(self, name: str, about: str) -> str:
        lines = [f"# {name}", "", f"Trained by Glassformer. {about}"]
        lines += ["", "## Text", "", *self.describe_data()]
        # A default of today may be another one tomorrow, and readers of a card do not know it.
        listed = {"steps", "batch", "lr"} | ({"rank", "alpha", "targets"} if self.recipe.lora.rank else set())
        recipe = _portable(self.recipe).to_toml(always=listed)
        lines += ["", "## Recipe", "", "```toml", recipe.rstrip(), "```", ""]
        return "\n".join(lines)


def _portable(recipe: Recipe) -> Recipe:
    """A recipe without the folders of this machine: a card may be published."""
    base = recipe.model.base
    named: dict[str, Any] = {"base": Path(base).name if Path(base).is_absolute() else base}
    for key in ("data", "validation"):
        if hasattr(recipe.text, key):
            named[key] = [Path(source).name for source in getattr(recipe.text, key)]
    return recipe.changed(**named)


def named_vocabulary(name: str, *, offline: bool) -> Tokenizer:
    """The vocabulary of a model; of a LoRA folder, its base's."""
    found = load_tokenizer(base_of(locate(name, offline=offline), offline=offline))
    if found is None:
        raise InputError(f"{name}: the model has no vocabulary")
    return found


def own_vocabulary(out: Path, wanted: str, *, learn: Callable[[], Tokenizer]) -> Tokenizer:
    """The vocabulary in a run's folder, learned if it does not exist or is not the `wanted` one, by hash."""
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / "vocabulary.lock"):  # every rank comes here: the first learns it, the others read it
        path, note = out / VOCABULARY, out / VOCABULARY_NOTE
        # Once there is a checkpoint the vocabulary must stay; whether the text still fits it is checked by
        # hash.
        begun = any((out / "checkpoints").glob("step-*"))
        fits = begun or (note.is_file() and note.read_text() == wanted)
        if not path.is_file() or not fits:
            files = tokenizer_files(learn())
            if SOURCE not in files:
                (out / SOURCE).unlink(missing_ok=True)  # of a vocabulary that is no longer wanted
            for name, content in files.items():
                replace_file(out / name, content)
            replace_file(note, wanted)
    found = load_tokenizer(out)
    assert found is not None
    return found
