"""Fine-tuning: gentle defaults for a model that knows something, and how long to train on a small text."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.tasks.recipe import HEAD_DEFAULTS, ExampleText, Recipe

DEFAULT_RANK = 8
# Small steps, and few.
GENTLE = {"steps": 500, "batch": 8, "lr": 1e-4, "lr_end": 0.0, "warmup": 20, "eval_every": 100}
GENTLE_HEAD = HEAD_DEFAULTS | {"eval_every": 100}
GENTLE_LORA = {"lr": 1e-3}  # few weights, which begin at zero: they can take larger steps

# What is chosen for a text whose number of epochs is left open.
EPOCHS, MOST_EPOCHS, LEAST_STEPS = 3, 25, 50
ROW = 256  # tokens of a row for a model that reads rows of any length


def gentle(sections: dict[str, Any]) -> dict[str, Any]:
    """The defaults of fine-tuning by a recipe of these sections."""
    return GENTLE_HEAD if sections["text"] is ExampleText else GENTLE


def gentle_recipe(kind: str, *, lora: bool) -> Recipe:
    """A recipe for fine-tuning a model of a kind, before anything is chosen."""
    recipe = Recipe().changed(kind=kind)
    return recipe.changed(**gentle(recipe.sections) | (GENTLE_LORA if lora else {}))


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How long to train: by epochs or by steps; what is None is chosen by the size of the text."""

    epochs: int | None = None
    steps: int | None = None
    batch: int | None = None


def fit_to_text(recipe: Recipe, amount: Amount, *, out: Path, offline: bool = True) -> tuple[Recipe, int]:
    """The recipe with rows, steps and a schedule that suit its text, and the epochs that these are.

    The text is tokenized for this, which a training afterwards finds done.
    """
    from glassformer.hub.folder import outline
    from glassformer.hub.locate import locate
    from glassformer.tasks.jobs import prepare_job
    from glassformer.tasks.load import base_of

    job = prepare_job(recipe, out, offline=offline, progress=lambda what, done, total: None)
    tokens, _ = job.sizes()
    base, _, _ = outline(base_of(locate(recipe.model.base, offline=offline), offline=offline))
    window = min(recipe.train.window or base.context or ROW, tokens - 1)  # a row needs one token more
    if window < 1:
        raise InputError("the text is too short to learn from: it has no token after the first")

    rows = max(1, tokens // window)
    batch = amount.batch or min(recipe.train.batch, rows)
    epoch = rows / batch  # steps
    if amount.steps is not None:
        steps = amount.steps
    else:
        epochs = amount.epochs or min(MOST_EPOCHS, max(EPOCHS, math.ceil(LEAST_STEPS / epoch)))
        steps = max(1, math.ceil(epochs * epoch))
    chosen = recipe.changed(
        window=window,
        batch=batch,
        steps=steps,
        warmup=min(recipe.train.warmup, steps // 5),
        eval_every=max(1, steps // 10),
        save_every=max(1, steps // 10),
    )
    return chosen, amount.epochs or max(1, round(steps / epoch))
