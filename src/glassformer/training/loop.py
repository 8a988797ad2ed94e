"""The training loop, the only one."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.training.optim import adamw, warmup_cosine


class Batches(Protocol):
    """Batches by number, so that a run can start anywhere."""

    def __getitem__(self, step: int, /) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]": ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long to train, and how fast."""

    steps: int
    lr: float = 1e-3
    lr_floor: float = 1e-4
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0


@dataclass(frozen=True)
class Progress:
    """What one step did."""

    step: int
    loss: float
    lr: float
    tokens_per_second: float


def fit(
    model: nn.Module, batches: Batches, objective: Callable[[nn.Module, Tensor], Tensor], schedule: Schedule
) -> Iterator[Progress]:
    """Train in place while being iterated over: the caller hears of every step, prints, saves, and stops when it likes."""
    optimizer = adamw(model, lr=schedule.lr, weight_decay=schedule.weight_decay)
    device = next(model.parameters()).device
    model.train()
    try:
        for step in range(schedule.steps):
            began = time.perf_counter()
            lr = warmup_cosine(step, steps=schedule.steps, warmup=schedule.warmup, peak=schedule.lr, floor=schedule.lr_floor)
            for group in optimizer.param_groups:
                group["lr"] = lr
            batch = torch.as_tensor(batches[step], device=device)
            loss = objective(model, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
            optimizer.step()
            yield Progress(step, loss.item(), lr, batch.numel() / (time.perf_counter() - began))
    finally:
        model.eval()
