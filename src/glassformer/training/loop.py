"""The training loop, the only one.

    for event in fit(model, batches, next_token, Plan(steps=1000)):
        print(event)

It trains while being iterated over: the caller hears of every step, every measurement and every checkpoint, prints, draws,
samples, and stops when it likes. Nothing that the caller does in between changes the training.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from glassformer.errors import GlassError, InputError
from glassformer.training.distributed import World
from glassformer.training.optim import optimizer_of
from glassformer.training.plan import Plan, Watch
from glassformer.training.precision import autocast
from glassformer.training.resume import Keeper, State

Objective = Callable[[nn.Module, dict[str, Tensor]], Tensor]  # the loss of a batch, summed over its targets


class Batch(Protocol):
    """Arrays by name, and how many targets they hold."""

    @property
    def arrays(self) -> dict[str, Any]: ...
    @property
    def count(self) -> int: ...


class Batches(Protocol):
    """An endless supply of rows, in an order that the cursor alone decides."""

    cursor: list[int]

    def draw(self, count: int) -> Sequence[Any]: ...
    def read(self, rows: Sequence[Any]) -> Batch: ...


class TrainingFailed(GlassError):
    """The numbers went wrong; nothing was updated with them."""


@dataclass(frozen=True)
class Stepped:
    """What one step did."""

    step: int  # how many are done
    loss: float  # mean over the targets of the step, over all ranks
    lr: float
    norm: float  # of the gradient, before clipping
    tokens: int  # targets so far
    tokens_per_second: float


@dataclass(frozen=True)
class Measured:
    """The loss on held-out text. The model is in evaluation mode while the caller looks at this."""

    step: int
    loss: float
    best: bool


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on the disk."""

    step: int
    folder: Path
    best: bool  # whether it is the best one by now, or the newest where nothing is measured


@dataclass(frozen=True)
class Finished:
    """The plan is fulfilled, or no better measurement is to be expected."""

    step: int
    tokens: int
    best: float | None  # the lowest loss on held-out text, and when
    best_step: int
    early: bool


Event = Stepped | Measured | Saved | Finished


def fit(
    model: nn.Module,
    batches: Batches,
    objective: Objective,
    plan: Plan,
    *,
    watch: Watch | None = None,
    held_out: Callable[[], Iterable[Batch]] | None = None,
    keeper: Keeper | None = None,
    world: World | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train in place, from the keeper's newest checkpoint if there is one, until the plan or `stop` says so."""
    world = world or World()
    model.train()
    try:
        with contextlib.closing(
            _train(model, batches, objective, plan, watch or Watch(), held_out, keeper, world, stop)
        ) as run:
            for event in run:
                with torch.random.fork_rng([world.device] if world.device.type == "cuda" else []):
                    yield event
    finally:
        model.eval()


def _train(
    model: nn.Module,
    batches: Batches,
    objective: Objective,
    plan: Plan,
    watch: Watch,
    held_out: Callable[[], Iterable[Batch]] | None,
    keeper: Keeper | None,
    world: World,
    stop: Callable[[], bool],
) -> Generator[Event]:
    if plan.batch % world.size:
        raise InputError(
            f"batch must be a multiple of the {world.size} processes that share it, not {plan.batch}"
        )
    torch.manual_seed(plan.seed * world.size + world.rank)
    forward = world.wrap(model, plan.parallel)
    optimizer = optimizer_of(model, plan)
    state = (
        keeper.restore(model, optimizer, batches, world, seed=plan.seed) if keeper is not None else State()
    )
    if plan.compile:
        forward = torch.compile(forward)  # type: ignore[assignment]
    saved_at = time.monotonic()
    while state.step < plan.steps and not state.stopped:
        began = time.perf_counter()
        loss, norm, count = _step(forward, model, optimizer, batches, objective, plan, state.step, world)
        state.step += 1
        state.tokens += count
        yield Stepped(
            state.step,
            loss,
            plan.rate(state.step - 1),
            norm,
            state.tokens,
            count / (time.perf_counter() - began),
        )
        last, improved = state.step == plan.steps, False
        if held_out is not None and (last or (watch.eval_every and state.step % watch.eval_every == 0)):
            measured = evaluate(forward, held_out(), objective, plan, world)
            improved = _note(state, measured, watch)
            yield Measured(state.step, measured, improved)
            model.train()
        by_clock = watch.save_minutes and time.monotonic() - saved_at > 60 * watch.save_minutes
        ending, due = (bool(votes) for votes in world.sum(stop(), bool(by_clock)))
        due = due or ending or last or improved or state.stopped
        if keeper is not None and (due or (watch.save_every and state.step % watch.save_every == 0)):
            folder = keeper.save(model, optimizer, batches, state, world)
            saved_at = time.monotonic()
            yield Saved(state.step, folder, improved or state.best is None)
        if ending and not last:
            return
    yield Finished(state.step, state.tokens, state.best, state.best_step, state.stopped)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], objective: Objective, plan: Plan, world: World | None = None
) -> float:
    """The mean loss over all targets of some batches. Leaves the model in evaluation mode and no random number used."""
    world = world or World()
    model.eval()
    total, count = 0.0, 0
    batches = iter(batches)
    while group := list(itertools.islice(batches, world.size)):  # one for each rank
        mine = group[
            world.rank % len(group)
        ]  # at the end there may be too few: all must take part, but none counts twice
        with autocast(plan, world.device):
            loss = objective(model, _tensors(mine, world.device)).item()
        if world.rank < len(group):
            total, count = total + loss, count + mine.count
    world.settle(model)
    total, targets = world.sum(total, count)
    if not targets:
        raise InputError(
            "held-out text: no token of it is to be learned; a larger eval_tokens, or 0, would have some"
        )
    return total / targets


def _step(
    forward: nn.Module,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    objective: Objective,
    plan: Plan,
    step: int,
    world: World,
) -> tuple[float, float, int]:
    """One update from one batch, taken in as many parts as needed; mean loss, norm of the gradient, number of targets."""
    rows = world.share(batches.draw(plan.batch))
    size = plan.micro_batch or len(rows)
    parts = [batches.read(rows[start : start + size]) for start in range(0, len(rows), size)]
    (count,) = world.sum(sum(part.count for part in parts))
    if not count:
        raise TrainingFailed(
            f"step {step + 1}: no token of the batch is to be learned (prompts alone); begin anew with a larger batch"
        )
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for number, part in enumerate(parts, 1):
        with world.together(forward, last=number == len(parts)):
            with autocast(plan, world.device):
                loss = objective(forward, _tensors(part, world.device))
            (loss * (world.size / count)).backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    (total,) = world.sum(total)
    norm = _clip(model, plan.clip)
    if not math.isfinite(total + norm):
        what = "loss" if not math.isfinite(total) else "gradient"
        raise TrainingFailed(
            f"step {step + 1}: the {what} is {total if what == 'loss' else norm}, so the weights were not changed by it;"
            f" a smaller lr (now {plan.rate(step):.2g}) or clip ({plan.clip:g}) may help"
        )
    for group in optimizer.param_groups:
        group["lr"] = plan.rate(step)
    optimizer.step()
    return total / count, norm, int(count)


def _clip(model: nn.Module, longest: float) -> float:
    """Shorten the gradient to `longest`, if that is not 0; its norm before that."""
    moving = [parameter for parameter in model.parameters() if parameter.grad is not None]
    length = nn.utils.get_total_norm([parameter.grad for parameter in moving if parameter.grad is not None])
    norm = float(length.full_tensor() if isinstance(length, DTensor) else length)
    if longest and norm > longest:
        nn.utils.clip_grads_with_norm_(moving, longest, length)
    return norm


def _note(state: State, measured: float, watch: Watch) -> bool:
    """Remember a measurement; whether it is the best so far."""
    if state.best is None or measured < state.best:
        state.best, state.best_step, state.waited = measured, state.step, 0
        return True
    state.waited += 1
    state.stopped = bool(watch.patience) and state.waited >= watch.patience
    return False


def _tensors(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    return {name: torch.as_tensor(array, device=device) for name, array in batch.arrays.items()}
