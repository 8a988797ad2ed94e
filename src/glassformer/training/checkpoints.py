"""Checkpoints from which a training goes on bit by bit as if it had never stopped.

    step-00000500/
      weights.safetensors     every parameter that is trained, under our names
      training.safetensors    the optimizer's state, and the state of torch's random numbers of every rank
      state.json              step, cursor of the data, best evaluation, random states of Python and NumPy
      manifest.json           sizes and hashes of the three, and of itself

A checkpoint is written into a folder of another name, synced, and only then renamed: a folder with the name
of a checkpoint is complete. On loading every hash is checked; a damaged checkpoint is skipped for the one
before it, and that is reported.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from glassformer import machine
from glassformer.durable import hash_file, read_sealed, replace_folder, write_sealed
from glassformer.errors import CheckpointError, GlassError
from glassformer.files import read_spans
from glassformer.training.distributed import World

WEIGHTS, TRAINING = "weights.safetensors", "training.safetensors"
STATE, MANIFEST = "state.json", "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
KEEP = 2  # the newest ones; the best is kept besides
RANDOM, RANDOM_CUDA = "random", "random on cuda"  # names of torch's random states among the tensors


class HasCursor(Protocol):
    """A stream of batches that knows its position."""

    cursor: list[int]


@dataclass
class State:
    """How far a training is."""

    step: int = 0
    tokens: int = 0  # targets learned from so far
    start: float | None = None  # the loss on held-out text before the first step
    best: float | None = None  # the lowest one after a step
    best_step: int = 0
    waited: int = 0  # evaluations since the best one
    stopped: bool = False  # early, because no evaluation got better

    def note(self, loss: float, *, patience: int) -> bool:
        """Record an evaluation; whether it is the best so far."""
        if self.best is None or loss < self.best:
            self.best, self.best_step, self.waited = loss, self.step, 0
            return True
        self.waited += 1
        self.stopped = bool(patience) and self.waited >= patience
        return False


@dataclass(frozen=True, kw_only=True)
class Trainee:
    """Everything in memory that a checkpoint saves and restores."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: HasCursor
    world: World

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that training changes, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


@dataclass
class CheckpointManager:
    """Saves, finds and removes the checkpoints of a run, in one folder.

    `identity` is what must not change between one start and the next; `defaults` are the values of keys that
    a checkpoint of an earlier version does not have.
    """

    folder: Path
    identity: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    report: Callable[[str], object] = print

    def save(self, trainee: Trainee, state: State) -> Path:
        """Write a checkpoint, whole or not at all, and remove those that are no longer needed."""
        world = trainee.world
        # Every rank gathers, since each holds a part; only rank 0 gets the tensors and writes them.
        weights = {name: world.gather(p).contiguous() for name, p in trainee.trained.items()}
        training, scalars = _optimizer_state(trainee)
        training |= _torch_random(world)
        target = self.path(state.step)
        if not world.is_main:
            return target

        notes = asdict(state) | {
            "cursor": trainee.batches.cursor,
            "scalars": scalars,
            "identity": self.identity,
            "random": _python_random(),
            "versions": {name: machine.installed(name) for name in machine.LIBRARIES},
        }
        try:
            self._write(target, {WEIGHTS: weights, TRAINING: training}, notes)
        except OSError as error:
            raise GlassError(
                f"step {state.step} could not be saved in {self.folder} ({error.strerror or error});"
                f" {self._last_good()}. Make room, then give the same command again to go on"
            ) from None
        self._rotate(state)
        return target

    def restore(self, trainee: Trainee, *, seed: int) -> State:
        """Restore everything from the newest sound checkpoint; a fresh State if there is none."""
        world = trainee.world
        if world.is_main:
            self._remove_leftovers()  # a training whose last save was interrupted saves nothing any more
        found, notes = self._newest() if world.is_main else (None, {})
        notes = json.loads(world.broadcast(json.dumps(notes)))
        if not notes:
            return State()

        tensors = _share_shapes(_read(found) if found is not None else {}, world)
        try:
            state = _state(notes)
            _restore_tensors(trainee, tensors, notes["scalars"])
            trainee.batches.cursor = _cursor(notes["cursor"], rows=len(trainee.batches.cursor))
            _restore_random(notes["random"], tensors, world, seed + state.step)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, GlassError):
                raise
            # It has its own hashes, so no disk did this: another program wrote it.
            raise CheckpointError(
                f"{self.folder}: the newest checkpoint is not one that this program writes ({error})"
            ) from None
        return state

    def weights(self, step: int) -> dict[str, Tensor]:
        """The weights of one checkpoint."""
        folder = self.path(step)
        if (fault := find_fault(folder)) is not None:
            raise CheckpointError(f"{folder}: {fault}")
        return safetensors.torch.load_file(folder / WEIGHTS)

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """The steps that are saved, the newest first."""
        if not self.folder.is_dir():
            return []
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(name[1]) for name in names if name is not None), reverse=True)

    def _write(self, target: Path, tensors: dict[str, dict[str, Tensor]], notes: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        with replace_folder(target) as fresh:
            for name, values in tensors.items():
                try:
                    safetensors.torch.save_file(values, fresh / name)
                except SafetensorError as error:  # how the library reports a full disk
                    raise OSError(str(error)) from None
            write_sealed(fresh / STATE, notes)

            # Last, because it describes the others: a checkpoint without its manifest is never taken for
            # whole.
            files = {name: _describe(fresh / name) for name in (*tensors, STATE)}
            write_sealed(fresh / MANIFEST, {"files": files})

    def _rotate(self, state: State) -> None:
        """Keep the newest two and the best."""
        # Checkpoints newer than this step are damaged, or the training would have gone on from them.
        sound = [step for step in self.steps() if step <= state.step]
        keep = set(sound[:KEEP])
        if state.best is not None:
            keep.add(state.best_step)
        for step in self.steps():
            if step not in keep:
                old = self.path(step)
                trash = self.folder / f".old-{old.name}"
                old.rename(trash)  # at once: a half-removed folder must not have the name of a checkpoint
                shutil.rmtree(trash)

    def _remove_leftovers(self) -> None:
        """Remove hidden folders of checkpoints: a crash left them half written or half removed."""
        for path in self.folder.glob(".*step-*"):
            shutil.rmtree(path)

    def _newest(self) -> tuple[Path | None, dict[str, Any]]:
        steps = self.steps()
        for step in steps:
            folder = self.path(step)
            fault = find_fault(folder)
            if fault is None:
                notes = read_sealed(folder / STATE)
                self._check_identity(folder, notes["identity"])
                return folder, notes
            self.report(f"{folder} is damaged ({fault}) and is skipped")
        if steps:
            raise CheckpointError(
                f"{self.folder}: every checkpoint is damaged; remove the folder to begin anew"
            )
        return None, {}

    def _check_identity(self, folder: Path, identity: dict[str, Any]) -> None:
        theirs, ours = self.defaults | identity, self.defaults | self.identity
        every = ours | theirs  # in the recipe's order
        changed = [name for name in every if theirs.get(name) != ours.get(name)]
        # A key that only one of them has follows from another kind of model, which is named instead.
        shared = [name for name in changed if name in theirs and name in ours]
        if changed:
            listed = [f"{name} = {theirs.get(name)} (now {ours.get(name)})" for name in shared or changed]
            run = self.folder.parent
            further = f"; to train its model further: glass finetune {run} --data TEXT --out FOLDER"
            raise CheckpointError(
                f"{folder} was made with {', '.join(listed)};"
                " go on with what it was, or begin anew in another folder (--out)"
                + (further if changed == ["steps"] else "")
            )

    def _last_good(self) -> str:
        for step in self.steps():
            if find_fault(self.path(step)) is None:
                return f"the checkpoint of step {step} is whole"
        return "there was no checkpoint before it"


def find_fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, if anything: every file must exist, complete, with its hash."""
    try:
        files = read_sealed(folder / MANIFEST)["files"]
        for name in {WEIGHTS, TRAINING, STATE} | set(files):
            if hash_file(folder / name) != files[name]["sha256"]:
                return f"{name}: checksum mismatch"
        read_sealed(folder / STATE)
        for name in (WEIGHTS, TRAINING):
            read_spans(folder / name)
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError) as error:
        return str(error) if isinstance(error, ValueError) else f"{MANIFEST} is incomplete"
    return None


def _describe(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": hash_file(path)}


def _read(folder: Path) -> dict[str, Tensor]:
    weights = safetensors.torch.load_file(folder / WEIGHTS)
    training = safetensors.torch.load_file(folder / TRAINING)
    return weights | training


def _state(notes: dict[str, Any]) -> State:
    """How far the training was, by the notes of a checkpoint."""
    # An earlier version did not save every field; those have their defaults.
    state = State(**{name: notes[name] for name in State.__dataclass_fields__ if name in notes})
    counts = (state.step, state.tokens, state.best_step, state.waited)
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("step, tokens, best_step and waited must be counts")
    losses = (state.start, state.best)
    if not all(isinstance(loss, float | None) for loss in losses) or not isinstance(state.stopped, bool):
        raise ValueError("start and best must be losses, and stopped true or false")
    return state


def _cursor(given: Any, *, rows: int) -> list[int]:
    """The position in the data, by the notes of a checkpoint."""
    if not isinstance(given, list) or not all(type(count) is int and count >= 0 for count in given):
        raise ValueError("cursor must be a list of counts")
    if len(given) != rows:
        raise ValueError(f"cursor has {len(given)} counts for {rows} sources")
    return given


def _check_tensors(trained: Mapping[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that are neither those of this model nor torch's random states."""
    for name, value in tensors.items():
        _, of, parameter = name.rpartition(" of ")
        if name in (RANDOM, RANDOM_CUDA):
            fits = value.dtype == torch.uint8 and value.dim() == 2
        else:
            shapes = (trained[parameter].shape, torch.Size()) if of else (trained[parameter].shape,)
            fits = value.is_floating_point() and value.shape in shapes
        if not fits:
            raise ValueError(f"{name[:100]!r} has another shape or type")


def _share_shapes(tensors: dict[str, Tensor], world: World) -> dict[str, Tensor]:
    """Rank 0's tensors; on other ranks empty ones of the same names, types and shapes, ready to be filled."""
    described = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    described = json.loads(world.broadcast(json.dumps(described)))
    shared = {}
    for name, (dtype, shape) in described.items():
        kind = getattr(torch, dtype.removeprefix("torch."))
        shared[name] = tensors[name] if name in tensors else torch.empty(shape, dtype=kind)
    return shared


def _optimizer_state(trainee: Trainee) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every tensor that the optimizer keeps for a parameter, and every number."""
    state = trainee.optimizer.state
    known = sum(parameter in state for parameter in trainee.trained.values())
    assert known == len(state), "the optimizer and the model do not have the same parameters"

    tensors, scalars = {}, {}
    for name, parameter in trainee.trained.items():
        for key, value in state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key} of {name}"] = trainee.world.gather(value).contiguous()
            else:
                scalars[f"{key} of {name}"] = value
    return tensors, scalars


@torch.no_grad()
def _restore_tensors(trainee: Trainee, tensors: dict[str, Tensor], scalars: dict[str, float]) -> None:
    trained, state = trainee.trained, trainee.optimizer.state
    missing = sorted(trained.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"the checkpoint has no weights for {', '.join(missing[:10])}")
    _check_tensors(trained, tensors)

    for name, value in tensors.items():
        key, _, of = name.partition(" of ")
        if name in trained:
            trained[name].copy_(trainee.world.scatter(value, trained[name]))
        elif of:
            state[trained[of]][key] = trainee.world.scatter(value, trained[of])
    for name, number in scalars.items():
        key, _, of = name.partition(" of ")
        if not isinstance(number, int | float):
            raise ValueError(f"{name[:100]!r} must be a number")
        state[trained[of]][key] = number


def _torch_random(world: World) -> dict[str, Tensor]:
    """The state of torch's generators, a row for every rank."""
    states = {RANDOM: torch.get_rng_state()}
    if world.device.type == "cuda":
        states[RANDOM_CUDA] = torch.cuda.get_rng_state(world.device)
    return {name: world.stack(state) for name, state in states.items()}


def _python_random() -> dict[str, Any]:
    """The state of Python's and NumPy's generators, as JSON can hold it."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def _restore_random(notes: dict[str, Any], tensors: dict[str, Tensor], world: World, seed: int) -> None:
    version, internal, gauss = notes["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = notes["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))

    saved = [name for name in (RANDOM, RANDOM_CUDA) if name in tensors]
    rows = {name: world.scatter(tensors[name], tensors[name]).cpu() for name in saved}  # (ranks, state)
    if len(rows[RANDOM]) != world.size:
        # Saved by another number of ranks: other random numbers, but always the same ones.
        torch.manual_seed(seed * world.size + world.rank)
        return
    torch.set_rng_state(rows[RANDOM][world.rank].clone())  # torch needs a tensor that owns its memory here
    if RANDOM_CUDA in rows and world.device.type == "cuda":
        torch.cuda.set_rng_state(rows[RANDOM_CUDA][world.rank].clone(), world.device)
