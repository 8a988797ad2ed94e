"""Train: a recipe becomes a job, and a job a model, in a folder from which the training can be resumed.

runs/shakespeare/
  recipe.toml       everything that decides the training
  tokenizer.json    the vocabulary, if a new one was learned
  metrics.jsonl     every step, evaluation and preview
  checkpoints/      the newest two and the best: see training/checkpoints.py
  model/            the result: the best model by held-out loss, or the newest
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from glassformer.durable import hash_json, replace_file
from glassformer.errors import GlassError, InputError, counted
from glassformer.tasks.jobs import Job, Progress, prepare_job
from glassformer.tasks.load import find_device
from glassformer.tasks.metrics import MetricsLog
from glassformer.tasks.recipe import Recipe, flag_homes
from glassformer.training.checkpoints import CheckpointManager, find_fault
from glassformer.training.distributed import World
from glassformer.training.forcing import without_discriminator
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.loop import Batches, Begun, Evaluated, Event, Finished, Saved, Setup, Stepped, run
from glassformer.training.precision import autocast, choose_precision

__all__ = ["Evaluated", "Finished", "Message", "Preview", "Saved", "Started", "Stepped", "train"]

RECIPE, MODEL, CHECKPOINTS = "recipe.toml", "model", "checkpoints"
# Sections that must not change between one start and the next.
DECIDING = ("text", "model", "lora", "train", "inputs")
MAY_CHANGE = {
    "data",
    "validation",
    "base",
    "parallel",
    "micro_batch",
}  # except for these: text and weights are compared by hash


@dataclass(frozen=True)
class Message:
    """A sentence for people."""

    text: str


@dataclass(frozen=True)
class Started:
    """What is about to be trained, on what."""

    parameters: int
    trained: int
    tokens: int
    held_out: int
    steps: int
    folder: Path
    resumed: int = 0  # steps that were done before, by an earlier start
    unit: str = "token"  # what is counted and predicted
    measure: str = "nats a token"  # what a loss is given in


@dataclass(frozen=True)
class Preview:
    """A sample of what the model does by now."""

    step: int
    text: str


TrainingEvent = Event | Message | Started | Preview


def train(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    offline: bool = False,
    progress: Progress = lambda what, done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[TrainingEvent]:
    """Train as the recipe says, into the folder `out`; a training that was stopped there is resumed."""
    if not recipe.text.data:
        raise InputError("data: name at least one text to learn from: --data FILE, or data in the recipe")
    find_device(device)
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    with ExitStack() as stack:
        if alone or os.environ.get("RANK", "0") == "0":
            stack.enter_context(_claim(out))
        # Preparing may take hours, so the ranks meet only after it: each then has its data.
        job = prepare_job(recipe, out, offline=offline, progress=progress)
        world = World.join(device)
        stack.callback(world.leave)
        with world.expect_peers():
            yield from _Run(job, out, world).events(stop)


class _Run:
    """A training in its folder: what happens around the loop."""

    def __init__(self, job: Job, out: Path, world: World) -> None:
        self.out, self.world = out, world
        self.messages = job.messages()
        self.net = job.build(world.device)
        self.build = partial(job.build, world.device)
        self.batches = job.batches(self.net)
        job.check_preview(self.net)
        self.checkpoints = CheckpointManager(
            out / CHECKPOINTS,
            defaults=_facts(Recipe.of({"model": {"kind": job.recipe.model.kind}})) | _facts(Recipe()),
            report=self.messages.append,
        )
        self.job = job.with_recipe(self._settled(job))
        self.recipe = self.job.recipe
        self.checkpoints.identity = _identity(self.job, self.net)
        self._check_ranks_agree()
        # With fsdp a process has only shards of the model: it can neither preview nor export it.
        self.has_whole_model = world.is_main and (self.recipe.train.parallel == "ddp" or world.size == 1)
        self.metrics: MetricsLog | None = None

    def events(self, stop: Callable[[], bool]) -> Iterator[TrainingEvent]:
        """Everything that happens, as it happens."""
        try:
            for event in run(self._setup(stop)):
                yield from self._pending_messages()
                if isinstance(event, Begun):
                    yield self._begin(event)
                    continue
                self._log(event)
                yield event
                yield from self._react(event)
        except OSError as error:
            raise GlassError(
                f"{self.out} cannot be written to ({error.strerror or error});"
                " give the same command again to go on"
            ) from None
        finally:
            if self.metrics is not None:
                self.metrics.close()

    def _setup(self, stop: Callable[[], bool]) -> Setup:
        hyperparameters = self.recipe.train
        rows = hyperparameters.micro_batch or max(1, hyperparameters.batch // self.world.size)
        return Setup(
            model=self.net,
            batches=self.batches,
            objective=self.job.objective,
            hyperparameters=hyperparameters,
            schedule=self.recipe.evaluation,
            held_out=self.job.held_out(self.net, rows=rows),
            checkpoints=self.checkpoints,
            world=self.world,
            stop=stop,
        )

    def _begin(self, event: Begun) -> Started:
        """Write the first files: only now is it certain that this training can run."""
        if self.world.is_main:
            if not event.step or not (self.out / RECIPE).is_file():
                replace_file(self.out / RECIPE, self.recipe.to_toml())
            self.metrics = MetricsLog(self.out, tensorboard=self.recipe.show.tensorboard)
        with without_discriminator(self.net):
            named = dict(self.net.named_parameters())
        own = sum(p.numel() for name, p in named.items() if "lora_" not in name)  # without what LoRA adds
        trained = sum(p.numel() for p in named.values() if p.requires_grad)
        tokens, held_out = self.job.sizes()
        return Started(
            own,
            trained,
            tokens,
            held_out,
            self.recipe.train.steps,
            self.out,
            event.step,
            unit=self.job.unit,
            measure=self.job.measure,
        )

    def _pending_messages(self) -> Iterator[Message]:
        yield from map(Message, self.messages)
        self.messages.clear()

    def _log(self, event: Event) -> None:
        if self.metrics is None:
            return
        if isinstance(event, Stepped):
            self.metrics.write(**vars(event))
        elif isinstance(event, Evaluated):
            self.metrics.write(event.step, held_out=event.loss)

    def _react(self, event: Event) -> Iterator[TrainingEvent]:
        """Preview after an evaluation, export after the best checkpoint so far and at the end."""
        if isinstance(event, Evaluated) and self.has_whole_model and self.recipe.show.preview_tokens:
            preview = Preview(event.step, self.job.preview(self.net))
            assert self.metrics is not None
            self.metrics.write(event.step, preview=preview.text)
            yield preview
        elif isinstance(event, Saved) and event.best and self.has_whole_model:
            steps = f"step {event.step:,} of {self.recipe.train.steps:,}"
            about = f"Saved after {steps}, before the training ended."
            self.job.export(self.out / MODEL, self.net, about=about)
        elif isinstance(event, Finished) and self.world.is_main:
            yield from self._finish(event)

    def _finish(self, event: Finished) -> Iterator[TrainingEvent]:
        """Export the best checkpoint; the newest, if nothing was evaluated or the best is damaged."""
        step = event.step if event.best is None else event.best_step
        folder = self.checkpoints.path(step)
        fault = find_fault(folder)
        if fault is not None and step != event.step:
            yield Message(f"{folder}, the best, is damaged ({fault}); the newest becomes the model instead")
            step = event.step
        # From the file, into a model built anew: this one may be sharded, and is not the best one.
        net = _load(self.build(), self.checkpoints.weights(step))
        self.job.export(self.out / MODEL, net, about=_ending(event, self.job, step=step))

    def _settled(self, job: Job) -> Recipe:
        """The recipe as it is carried out: what was decided at the first start stays decided."""
        recipe, path = job.recipe, self.out / RECIPE
        resumed = self.world.is_main and self.checkpoints.steps() and path.is_file()
        before = Recipe.read(path).train.precision if resumed else "new"
        before = self.world.broadcast(before)  # only rank 0 is sure to have the run's folder
        if before != "new":
            open_choice = recipe.train.precision in ("auto", "bf16")
            return replace(recipe, train=replace(recipe.train, precision=before)) if open_choice else recipe

        rehearse = partial(_rehearse, self.net, self.batches, job.objective, self.world)
        chosen, why = choose_precision(recipe.train, self.world.device, rehearse=rehearse)
        chosen = replace(chosen, precision=self.world.broadcast(chosen.precision))
        if why:
            self.messages.append(f"precision {why}")
        if chosen.warmup > chosen.steps:
            self.messages.append(
                f"warmup ({counted(chosen.warmup, 'step')}) is longer than the training"
                f" ({counted(chosen.steps, 'step')}): the learning rate rises only to"
                f" {chosen.rate(chosen.steps - 1):.2g}, not to lr = {chosen.lr:g}"
            )
        return replace(recipe, train=chosen)

    def _check_ranks_agree(self) -> None:
        mine = hash_json(self.checkpoints.identity)
        if self.world.broadcast(mine) != mine:
            raise InputError(f"rank {self.world.rank}: the text or the recipe is not the same as rank 0's")


@contextmanager
def _claim(out: Path) -> Iterator[None]:
    """Only one process may train in a folder. What ends before the first step leaves no new file there."""
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    before = set(out.iterdir()) if out.is_dir() else set()
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"{out}: another process trains there; wait for it, or give another folder (--out)"
        ) from None
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror})") from None
    try:
        yield
    except (GlassError, KeyboardInterrupt):
        if not (out / RECIPE).exists():  # it is written when the training begins
            _remove(set(out.iterdir()) - before)
            for folder in missing:
                with suppress(OSError):  # another process has put something there
                    folder.rmdir()
        raise
    finally:
        lock.release()


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _ending(event: Finished, job: Job, *, step: int) -> str:
    """When and why a training ended, which step became the model, and its loss."""
    recipe = job.recipe
    day = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    patience = counted(recipe.evaluation.patience, "evaluation")
    why = f"{patience} in a row had no better loss" if event.early else "all steps were done"
    text = f"The training ended after step {event.step:,} of {recipe.train.steps:,} ({day}): {why}."
    if event.best is None or step != event.best_step:
        return f"{text} This is the model of step {step:,}."
    before = "" if event.start is None else f" ({event.start:.4f} before the first step)"
    measure = job.measure + (" of its vocabulary" if job.unit == "token" else "")
    return (
        f"{text} This is the model of step {step:,}, the best one:"
        f" its loss on held-out text is {event.best:.4f} {measure}{before}."
    )


def _rehearse(
    net: nn.Module, batches: Batches, objective: Any, world: World, hyperparameters: Hyperparameters
) -> None:
    """The work of a step, without its consequences: what was drawn is put back, no weight changes."""
    cursor = list(batches.cursor)
    rows = world.share(batches.draw(hyperparameters.batch))
    batches.cursor = cursor
    part = batches.read(rows[: hyperparameters.micro_batch or len(rows)])
    tensors = {name: torch.as_tensor(array, device=world.device) for name, array in part.arrays.items()}
    with autocast(hyperparameters, world.device):
        loss = objective(net, tensors)
    loss.backward()
    net.zero_grad(set_to_none=True)


def _identity(job: Job, net: nn.Module) -> dict[str, Any]:
    """What must not change between one start and the next: the recipe, the data, the base's weights."""
    given = [p for name, p in net.named_parameters() if job.recipe.model.base and "lora_" not in name]
    weights = [hashlib.sha256(p.detach().cpu().contiguous().numpy().tobytes()).hexdigest() for p in given]
    return _facts(job.recipe) | job.identity() | {"the base's weights (sha256)": hash_json(weights)}


def _facts(recipe: Recipe) -> dict[str, Any]:
    """Flag -> value, of every key of a recipe that decides the outcome; tuples as lists, as JSON has them."""
    facts = {}
    for flag, (section, key) in flag_homes(recipe.sections).items():
        if section in DECIDING and flag not in MAY_CHANGE:
            value = getattr(getattr(recipe, section), key)
            facts[flag] = list(value) if isinstance(value, tuple) else value
    return facts


@torch.no_grad()
def _load(net: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """The model with the weights of a checkpoint, which has those that were trained."""
    for name, parameter in net.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
    return net
