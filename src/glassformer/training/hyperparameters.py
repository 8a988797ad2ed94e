"""How a model is trained: numbers only, and the learning rate that follows from them. No torch here."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from glassformer.errors import InputError

OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("cosine", "linear", "constant", "slanted-triangle")
PRECISIONS = ("float32", "float64", "bf16", "auto")
PARALLELS = ("ddp", "fsdp")


def option(default: Any, help: str) -> Any:
    """A field with a sentence that says what it is."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train, how fast, on how much at a time."""

    steps: int = option(2000, "How many steps to train.")
    batch: int = option(16, "Rows of a step, over all processes.")
    window: int = option(0, "Tokens of a row; 0: as many as the context holds.")
    micro_batch: int = option(
        0, "Rows that a process takes at once; 0: all its rows. Less needs less memory."
    )
    optimizer: str = option(
        "adamw", "adamw, or muon: Muon for the matrices of the blocks, AdamW for the rest."
    )
    lr: float = option(1e-3, "The highest learning rate.")
    lr_end: float = option(1e-4, "The learning rate at the end (slanted-triangle: also at the start).")
    schedule: str = option(
        "cosine", f"What the learning rate does after the warm-up: {', '.join(SCHEDULES)}."
    )
    warmup: int = option(100, "Steps in which the learning rate rises.")
    weight_decay: float = option(0.1, "AdamW's decay of matrices; biases and gains never decay.")
    beta1: float = option(0.9, "AdamW's memory of gradients.")
    beta2: float = option(0.95, "AdamW's memory of their squares.")
    clip: float = option(1.0, "Longest gradient, as a norm over all parameters; 0: as long as it is.")
    seed: int = option(0, "Decides first weights, order of the text and dropout.")
    precision: str = option(
        "float32", "float32, float64, or auto (or bf16): bf16 where it is safe and measured to be faster."
    )
    compile: bool = option(
        False, "Compile the model first (torch.compile): half a minute, then maybe faster."
    )
    parallel: str = option(
        "ddp", "Under torchrun: ddp (a whole model in each process) or fsdp (a part in each)."
    )

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            _at_least(self, name, 1)
        for name in ("window", "micro_batch", "warmup", "weight_decay", "clip", "seed", "lr_end"):
            _at_least(self, name, 0)
        if self.seed >= 1 << 32:
            raise InputError(f"seed must be less than 2**32, not {self.seed}")
        if not (0 < self.lr < math.inf and self.lr_end <= self.lr):
            raise InputError(
                f"lr must be above 0 and not below lr_end, not {self.lr} with lr_end {self.lr_end}"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise InputError(
                f"beta1 and beta2 must be at least 0 and less than 1, not {self.beta1} and {self.beta2}"
            )
        for name, known in {
            "optimizer": OPTIMIZERS,
            "schedule": SCHEDULES,
            "precision": PRECISIONS,
            "parallel": PARALLELS,
        }.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} {getattr(self, name)!r} is none of {', '.join(known)}")

    def rate(self, step: int) -> float:
        """The learning rate of a step: up in a line, then as the schedule says."""
        if self.schedule == "slanted-triangle":
            rising = step / max(1, self.warmup)
            falling = (self.steps - step) / max(1, self.steps - self.warmup)
            return self.lr_end + (self.lr - self.lr_end) * min(rising, falling)
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.lr_end + (self.lr - self.lr_end) * left


@dataclass(frozen=True, kw_only=True)
class Watch:
    """When to look up from the work: to measure, to save, to stop."""

    eval_every: int = option(
        250, "Measure the loss on held-out text every so many steps; 0: only at the end."
    )
    eval_tokens: int = option(200_000, "On about so many tokens of it, always the same; 0: all of it.")
    patience: int = option(0, "Stop after so many measurements without a better one; 0: never.")
    save_every: int = option(
        0, "Save every so many steps; 0: only by the clock, and when a measurement is the best so far."
    )
    save_minutes: float = option(
        10.0, "Save when so many minutes have passed since the last time; 0: never by the clock."
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            _at_least(self, one.name, 0)


def _at_least(of: Any, name: str, least: int) -> None:
    value = getattr(of, name)
    if not least <= value < math.inf:
        raise InputError(f"{name} must be at least {least}, not {value}")
