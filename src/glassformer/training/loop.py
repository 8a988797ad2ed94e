"""The training loop, the only one.

    for event in fit(model, batches, objective=next_token, hyperparameters=Hyperparameters(steps=1000)):
        print(event)

It trains while it is iterated over: the caller gets every step, every evaluation and every checkpoint as an
event, prints, draws, samples, and stops when it likes. Nothing that the caller does in between changes the
training.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from glassformer.errors import GlassError, InputError
from glassformer.training.checkpoints import CheckpointManager, State, Trainee
from glassformer.training.distributed import World
from glassformer.training.hyperparameters import EvalSchedule, Hyperparameters
from glassformer.training.optim import optimizer_of
from glassformer.training.precision import autocast

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


HeldOut = Callable[[], Iterable[Batch]]  # the batches of one evaluation, the same ones every time


class TrainingFailed(GlassError):
    """A number went wrong; the weights were not updated with it."""


@dataclass(frozen=True)
class Begun:
    """Nothing is in the way: the model is built, and filled from the newest checkpoint if there is one."""

    step: int  # number of steps done before, which is 0 for a new training


@dataclass(frozen=True)
class Stepped:
    """One step is done."""

    step: int  # number of steps done
    loss: float  # mean over the targets of the step, over all ranks
    lr: float
    norm: float  # of the gradient, before clipping
    tokens: int  # targets so far
    tokens_per_second: float


@dataclass(frozen=True)
class Evaluated:
    """The loss on held-out text. The model is in evaluation mode while the caller has this event."""

    step: int  # 0: before the first step
    loss: float
    best: bool


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on the disk."""

    step: int
    folder: Path
    best: bool  # whether it is the best one by now, or the newest where nothing is evaluated


@dataclass(frozen=True)
class Finished:
    """All steps are done, or the evaluations stopped getting better."""

    step: int
    tokens: int
    start: float | None  # the loss on held-out text before the first step
    best: float | None  # the lowest one after a step, and that step
    best_step: int
    early: bool


Event = Begun | Stepped | Evaluated | Saved | Finished


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that a training needs; without `held_out` or `checkpoints` it evaluates or saves nothing."""

    model: nn.Module
    batches: Batches
    objective: Objective
    hyperparameters: Hyperparameters
    schedule: EvalSchedule = field(default_factory=EvalSchedule)
    held_out: HeldOut | None = None
    checkpoints: CheckpointManager | None = None
    world: World = field(default_factory=World)
    stop: Callable[[], bool] = lambda: False  # asked after every step: save and end?


def fit(
    model: nn.Module,
    batches: Batches,
    *,
    objective: Objective,
    hyperparameters: Hyperparameters,
    schedule: EvalSchedule | None = None,
    held_out: HeldOut | None = None,
    checkpoints: CheckpointManager | None = None,
) -> Iterator[Event]:
    """Train a model in place, in this process; from the newest checkpoint if there is one.

    `run(Setup(…))` is the same with more to choose: several processes (`world`), a request to stop (`stop`).
    """
    return run(
        Setup(
            model=model,
            batches=batches,
            objective=objective,
            hyperparameters=hyperparameters,
            schedule=schedule or EvalSchedule(),
            held_out=held_out,
            checkpoints=checkpoints,
        )
    )


def run(setup: Setup) -> Iterator[Event]:
    """Train in place, from the newest checkpoint if there is one, until all steps are done or `stop()`."""
    device = setup.world.device
    setup.model.train()
    try:
        with contextlib.closing(_Training(setup).events()) as events:
            for event in events:
                # The caller may draw random numbers before it asks for the next event (a preview does);
                # the fork gives the training its own state back.
                with torch.random.fork_rng([device] if device.type == "cuda" else []):
                    yield event
    finally:
        setup.model.eval()


class _Training:
    """A training that has begun: the setup, and what changes from step to step."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.hyperparameters, self.world = setup, setup.hyperparameters, setup.world
        seed, ranks = self.hyperparameters.seed, self.world.size
        if self.hyperparameters.batch % ranks:
            raise InputError(
                f"batch must be a multiple of the {ranks} processes that share it,"
                f" not {self.hyperparameters.batch}"
            )

        # The order matters: sharding replaces the parameters, so the optimizer comes after it, and a
        # checkpoint fills both; the seed comes before the checkpoint, which restores the random state of its
        # step.
        torch.manual_seed(seed * ranks + self.world.rank)
        self.forward = self.world.wrap(setup.model, self.hyperparameters.parallel)
        self.optimizer = optimizer_of(setup.model, self.hyperparameters)
        self.trainee = Trainee(
            model=setup.model, optimizer=self.optimizer, batches=setup.batches, world=self.world
        )
        self.frozen_for = _steps_frozen(setup)
        self.state = State()
        if setup.checkpoints is not None:
            self.state = setup.checkpoints.restore(self.trainee, seed=seed)
        if self.hyperparameters.compile:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]
        self.saved_at = time.monotonic()

    def events(self) -> Generator[Event]:
        """Step, evaluate where it is due, save where it is due, until the end."""
        state, schedule = self.state, self.setup.schedule
        yield Begun(state.step)
        if self.setup.held_out is not None and state.step == 0:
            yield self._evaluate_untrained(self.setup.held_out)
            self.forward.train()

        while state.step < self.hyperparameters.steps and not state.stopped:
            yield self._step()
            last = state.step == self.hyperparameters.steps

            improved = False
            if self.setup.held_out is not None and (last or schedule.evaluates_at(state.step)):
                evaluated = self._evaluate(self.setup.held_out)
                improved = evaluated.best
                yield evaluated
                self.forward.train()  # also what DDP puts around the model: objectives ask it

            # Clocks and signals differ between ranks, but saving takes all of them at once: they vote.
            minutes = (time.monotonic() - self.saved_at) / 60
            stopping, due = self.world.any(self.setup.stop(), schedule.saves_at(state.step, minutes=minutes))
            # Whatever ends the training, or becomes the model that is exported, must be on the disk first.
            due = due or stopping or last or improved or state.stopped
            if self.setup.checkpoints is not None and due:
                folder = self.setup.checkpoints.save(self.trainee, state)
                self.saved_at = time.monotonic()
                yield Saved(state.step, folder, improved or state.best is None)

            # Asked to stop after the very last step, a training is finished all the same.
            if stopping and not last:
                return
        yield Finished(
            step=state.step,
            tokens=state.tokens,
            start=state.start,
            best=state.best,
            best_step=state.best_step,
            early=state.stopped,
        )

    def _step(self) -> Stepped:
        """One update from one batch, computed in as many parts as memory asks for."""
        began = time.perf_counter()
        rate = self.hyperparameters.rate(self.state.step)
        parts = self._draw()
        (count,) = self.world.sum(sum(part.count for part in parts))
        if not count:
            raise TrainingFailed(
                f"step {self.state.step + 1}: no token of the batch is to be learned (prompts alone);"
                " begin anew with a larger batch"
            )

        self.optimizer.zero_grad(set_to_none=True)
        total = self._backward(parts, int(count))
        self._keep_frozen()
        norm = clip_gradients(self.setup.model, self.hyperparameters.clip)
        self._check_finite(total, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate / group["slower"]
        with autocast(self.hyperparameters, self.world.device):  # Muon's products too, which are as costly
            self.optimizer.step()

        self.state.step += 1
        self.state.tokens += int(count)
        speed = count / (time.perf_counter() - began)
        return Stepped(self.state.step, total / count, rate, norm, self.state.tokens, speed)

    def _draw(self) -> list[Batch]:
        """This rank's share of the next batch, in parts of at most `micro_batch` rows."""
        rows = self.world.share(self.setup.batches.draw(self.hyperparameters.batch))
        size = self.hyperparameters.micro_batch or len(rows)
        starts = range(0, len(rows), size)
        return [self.setup.batches.read(rows[start : start + size]) for start in starts]

    def _backward(self, parts: list[Batch], count: int) -> float:
        """Sum up the gradients of all parts; the summed loss over all ranks."""
        total = 0.0
        for number, part in enumerate(parts, 1):
            with self.world.accumulate(self.forward, last=number == len(parts)):
                with autocast(self.hyperparameters, self.world.device):
                    loss = self.setup.objective(self.forward, _tensors(part, self.world.device))
                # Divided by the targets of the whole batch, so that parts and ranks with fewer of them weigh
                # less; times the ranks, because DDP and FSDP average gradients where we need their sum.
                (loss * (self.world.size / count)).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        (total,) = self.world.sum(total)
        return total

    def _keep_frozen(self) -> None:
        """Gradual unfreezing: what is not trained yet gets no gradient, and so no step and no momentum."""
        if not self.frozen_for:
            return
        trained = self.state.step // self.frozen_for  # the head, and this many blocks
        for group in self.optimizer.param_groups:
            if group["depth"] > trained:
                for parameter in group["params"]:
                    parameter.grad = None

    def _check_finite(self, loss: float, norm: float) -> None:
        if math.isfinite(loss + norm):
            return
        what, value = ("gradient", norm) if math.isfinite(loss) else ("loss", loss)
        raise TrainingFailed(
            f"step {self.state.step + 1}: the {what} is {value}, so the weights were not changed by it;"
            f" a smaller lr (now {self.hyperparameters.rate(self.state.step):.2g})"
            f" or clip ({self.hyperparameters.clip:g}) may help"
        )

    def _evaluate_untrained(self, held_out: HeldOut) -> Evaluated:
        """What later evaluations are compared with. It is never the best: it has no checkpoint."""
        self.state.start = self._held_out_loss(held_out)
        return Evaluated(0, self.state.start, best=False)

    def _evaluate(self, held_out: HeldOut) -> Evaluated:
        loss = self._held_out_loss(held_out)
        best = self.state.note(loss, patience=self.setup.schedule.patience)
        return Evaluated(self.state.step, loss, best)

    def _held_out_loss(self, held_out: HeldOut) -> float:
        return evaluate(
            self.forward,
            held_out(),
            objective=self.setup.objective,
            hyperparameters=self.hyperparameters,
            world=self.world,
        )


def _steps_frozen(setup: Setup) -> int:
    """Steps after which one more block is trained; 0: all are, from the start."""
    epochs = setup.hyperparameters.unfreeze
    if not epochs:
        return 0
    steps: int | None = getattr(setup.batches, "epoch_steps", None)
    if steps is None:
        raise InputError("unfreeze counts epochs, which a plain text has not; it is for pairs and examples")
    return max(1, round(epochs * steps))


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    objective: Objective,
    hyperparameters: Hyperparameters,
    world: World | None = None,
) -> float:
    """The mean loss over all targets of some batches. Leaves the model in evaluation mode."""
    world = world or World()
    model.eval()
    total, count = 0.0, 0
    batches = iter(batches)
    while group := list(itertools.islice(batches, world.size)):  # one batch for each rank
        # The last group may be too small: a sharded model needs every rank in every forward pass, so a rank
        # without a batch computes another one's again, and does not count it.
        mine = group[world.rank % len(group)]
        with autocast(hyperparameters, world.device):
            loss = objective(model, _tensors(mine, world.device)).item()
        if world.rank < len(group):
            total, count = total + loss, count + mine.count
    world.reshard(model)
    total, targets = world.sum(total, count)
    if not targets:
        raise InputError(
            "held-out text: no token of it is to be learned; a larger eval_tokens, or 0, would have some"
        )
    return total / targets


def clip_gradients(model: nn.Module, limit: float) -> float:
    """Scale the gradient down to the norm `limit`, unless that is 0; its norm before that."""
    updated = [parameter for parameter in model.parameters() if parameter.grad is not None]
    length = nn.utils.get_total_norm([p.grad for p in updated if p.grad is not None])
    norm = float(length.full_tensor() if isinstance(length, DTensor) else length)
    if limit and norm > limit:
        nn.utils.clip_grads_with_norm_(updated, limit, length)
    return norm


def _tensors(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    return {name: torch.as_tensor(array, device=device) for name, array in batch.arrays.items()}
