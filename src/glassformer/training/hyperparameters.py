"""How a model is trained: numbers only, and the learning rate that follows from them. No torch here."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from glassformer.errors import InputError

OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("cosine", "linear", "constant", "slanted-triangle", "inverse-sqrt")
PRECISIONS = ("float32", "float64", "bf16", "auto")
PARALLELS = ("ddp", "fsdp")
FORCINGS = ("teacher", "scheduled", "parallel", "professor")
DECAYS = ("linear", "exponential", "inverse-sigmoid")

CHOICES = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "parallel": PARALLELS,
}


def option(default: Any, help: str) -> Any:
    """A field of a dataclass with a sentence that explains it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How long to train, how fast, on how much text at a time."""

    steps: int = option(2000, "Number of optimizer steps.")
    batch: int = option(16, "Rows per step, over all processes.")
    window: int = option(0, "Tokens per row; 0: the model's context, or 256 where it has no limit.")
    micro_batch: int = option(
        0, "Rows that a process computes at once; 0: all its rows. Fewer rows need less memory."
    )
    optimizer: str = option(
        "adamw", "adamw, or muon: Muon for the matrices of the blocks, AdamW for the rest."
    )
    lr: float = option(1e-3, "The highest learning rate.")
    lr_end: float = option(1e-4, "The learning rate at the end (slanted-triangle: also at the start).")
    schedule: str = option("cosine", f"Learning-rate schedule after the warm-up: {', '.join(SCHEDULES)}.")
    warmup: int = option(100, "Steps in which the learning rate rises.")
    weight_decay: float = option(0.1, "AdamW's decay of matrices; biases and gains never decay.")
    beta1: float = option(0.9, "AdamW's decay rate of the mean gradient.")
    beta2: float = option(0.95, "AdamW's decay rate of the mean squared gradient.")
    clip: float = option(1.0, "Gradient-norm clipping; 0 disables it.")
    layer_decay: float = option(
        1.0,
        "How many times slower each block learns than the one above it, and the head fastest (ULM-FiT: 2.6).",
    )
    unfreeze: float = option(
        0.0, "Epochs after which one more block is trained, from the top (ULM-FiT: 1); 0: all from the start."
    )
    label_smoothing: float = option(0.0, "Share of every target that is spread over the whole vocabulary.")
    seed: int = option(0, "Decides the initial weights, the order of the text and dropout.")
    precision: str = option(
        "float32", "float32, float64, or auto (or bf16): bf16 where it is safe and measured to be faster."
    )
    compile: bool = option(
        False, "Compile the model first (torch.compile): half a minute, then maybe faster."
    )
    parallel: str = option(
        "ddp", "Under torchrun: ddp (the whole model in each process) or fsdp (a shard in each)."
    )

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            _at_least(self, name, 1)
        for name in ("window", "micro_batch", "warmup", "weight_decay", "clip", "seed", "lr_end"):
            _at_least(self, name, 0)
        if self.seed >= 1 << 32:
            raise InputError(f"seed must be less than 2**32, not {self.seed}")
        if not 0 < self.lr < math.inf:
            raise InputError(f"lr must be above 0, not {self.lr}")
        if self.lr < self.lr_end:
            raise InputError(f"lr = {self.lr:g} is below lr_end = {self.lr_end:g}; give a lower lr_end too")
        _at_least(self, "layer_decay", 1)
        _at_least(self, "unfreeze", 0)
        if not 0 <= self.label_smoothing < 1:
            raise InputError(
                f"label_smoothing must be at least 0 and less than 1, not {self.label_smoothing}"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise InputError(
                f"beta1 and beta2 must be at least 0 and less than 1, not {self.beta1} and {self.beta2}"
            )
        for name, known in CHOICES.items():
            chosen = getattr(self, name)
            if chosen not in known:
                raise InputError(f"{name} {chosen!r} is none of {', '.join(known)}")

    def rate(self, step: int) -> float:
        """The learning rate of a step: a linear warm-up, then the schedule."""
        span = self.lr - self.lr_end
        falling_steps = max(1, self.steps - self.warmup)

        if self.schedule == "slanted-triangle":
            rising = step / max(1, self.warmup)
            falling = (self.steps - step) / falling_steps
            return self.lr_end + span * min(rising, falling)

        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "inverse-sqrt":  # of Attention Is All You Need
            return self.lr * math.sqrt(max(1, self.warmup) / (step + 1))

        done = (step - self.warmup) / falling_steps
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.lr_end + span * left


@dataclass(frozen=True, kw_only=True)
class DecoderInputs:
    """What a decoder reads while it learns: see training/forcing.py."""

    forcing: str = option(
        "teacher",
        "What the decoder reads: true tokens (teacher), ever more of its own (scheduled; parallel, in two"
        " passes), or true ones beside a discriminator (professor).",
    )
    decay: str = option(
        "linear",
        f"How the share of true tokens falls, in scheduled and parallel forcing: {', '.join(DECAYS)}.",
    )
    decay_k: float = option(
        0.0,
        "k of the decay at step i: k - c i, k^i, or k / (k + e^(i/k)); 0: half are true at half-time.",
    )
    decay_c: float = option(0.0, "c of the linear decay; 0: 1 / steps.")
    true_end: float = option(0.0, "The share of true tokens below which the decay does not go.")
    professor_weight: float = option(1.0, "How much it counts to deceive the discriminator.")

    def __post_init__(self) -> None:
        for name, known in (("forcing", FORCINGS), ("decay", DECAYS)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} {getattr(self, name)!r} is none of {', '.join(known)}")
        for name in ("decay_k", "decay_c", "professor_weight"):
            _at_least(self, name, 0)
        if not 0 <= self.true_end <= 1:
            raise InputError(f"true_end must be from 0 to 1, not {self.true_end}")
        if self.decay == "exponential" and self.decay_k >= 1:
            raise InputError(f"decay_k of an exponential decay must be less than 1, not {self.decay_k}")
        if self.decay == "inverse-sigmoid" and 0 < self.decay_k < 1:
            raise InputError(f"decay_k of an inverse-sigmoid decay must be at least 1, not {self.decay_k}")

    @property
    def samples(self) -> bool:
        """Whether a share of the inputs, which changes from step to step, are the model's own tokens."""
        return self.forcing in ("scheduled", "parallel")

    def true_share(self, step: int, steps: int) -> float:
        """The share of true tokens among the inputs of one step of a training (Bengio et al., 2015)."""
        k = self.decay_k
        if self.decay == "linear":
            share = (k or 1.0) - (self.decay_c or 1 / steps) * step
        elif self.decay == "exponential":
            share = (k or 0.5 ** (2 / steps)) ** step
        else:
            k = k or _halved_at(steps / 2)
            share = k / (k + math.exp(min(step / k, 700.0)))
        return min(1.0, max(self.true_end, share))


def _halved_at(step: float) -> float:
    """The k of an inverse-sigmoid decay that is 1/2 at a step: k ln k = step, by Newton's method."""
    k = math.e + step
    for _ in range(50):
        k = (k + step) / (math.log(k) + 1)
    return max(1.0, k)


@dataclass(frozen=True, kw_only=True)
class EvalSchedule:
    """When to evaluate on held-out text, when to save, and when to stop early."""

    eval_every: int = option(
        250,
        "Steps between two evaluations on the held-out text; 0: only before the first and after the last.",
    )
    eval_tokens: int = option(
        200_000, "Held-out tokens of an evaluation, about, always the same ones; 0: all of them."
    )
    patience: int = option(0, "Stop after this number of evaluations without a better one; 0: never.")
    save_every: int = option(
        0, "Steps between two checkpoints; 0: by the clock, and when an evaluation is the best so far."
    )
    save_minutes: float = option(10.0, "Minutes after which a checkpoint is due; 0: never by the clock.")

    def __post_init__(self) -> None:
        for one in fields(self):
            _at_least(self, one.name, 0)

    def evaluates_at(self, step: int) -> bool:
        """Whether an evaluation is due after a step (the last step always has one)."""
        return bool(self.eval_every) and step % self.eval_every == 0

    def saves_at(self, step: int, *, minutes: float) -> bool:
        """Whether a checkpoint is due after a step, `minutes` after the one before it."""
        by_step = bool(self.save_every) and step % self.save_every == 0
        by_clock = bool(self.save_minutes) and minutes > self.save_minutes
        return by_step or by_clock


def _at_least(section: Any, name: str, least: int) -> None:
    value = getattr(section, name)
    if not least <= value < math.inf:
        raise InputError(f"{name} must be at least {least}, not {value}")
