"""Checkpoints from which a training goes on bit by bit as if it had never stopped.

    step-00000500/
      weights.safetensors     every parameter that is trained, under our names
      training.safetensors    the optimizer's state, and the state of torch's random numbers of every rank
      state.json              step, cursor of the data, best measurement, Python's and NumPy's random numbers, versions
      manifest.json           sizes and hashes of the three, and of itself

It is written into a folder of another name, put on the disk, and only then renamed: whoever finds a checkpoint finds a whole
one. On loading every hash is checked; a damaged checkpoint is passed over for the one before it, and that is said.
"""

import errno
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from glassformer import machine
from glassformer.durable import hash_file, read_sealed, sync, write_sealed
from glassformer.errors import CheckpointError, GlassError
from glassformer.training.distributed import World

WEIGHTS, TRAINING, STATE, MANIFEST = (
    "weights.safetensors",
    "training.safetensors",
    "state.json",
    "manifest.json",
)
NAME = re.compile(r"step-(\d{8,})")
KEEP = 2  # the newest ones; the best is kept besides
CRASH_AT = os.environ.get("GLASSFORMER_CRASH_AT", "").split(
    ":"
)  # name of a failpoint, how often it is passed, what happens
passed: dict[str, int] = {}


class HasCursor(Protocol):
    """A stream of batches that knows where it stands."""

    cursor: list[int]


@dataclass
class State:
    """Where a training stands."""

    step: int = 0
    tokens: int = 0  # targets learned from so far
    best: float | None = None  # the lowest loss on held-out text
    best_step: int = 0
    waited: int = 0  # measurements since the best one
    stopped: bool = False  # early, for want of a better one


@dataclass
class Keeper:
    """Keeps the checkpoints of a run in a folder. `identity` is what must not change between one start and the next."""

    folder: Path
    identity: dict[str, Any]
    say: Callable[[str], object] = print

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: HasCursor,
        state: State,
        world: World,
    ) -> Path:
        """Write a checkpoint, whole or not at all, and remove those that are no longer needed."""
        weights = {
            name: world.whole(p).contiguous() for name, p in model.named_parameters() if p.requires_grad
        }
        training, scalars = _optimizer_state(model, optimizer, world)
        training |= _torch_random(world)
        target = self.path(state.step)
        if world.first:
            notes = asdict(state) | {"cursor": batches.cursor, "scalars": scalars, "identity": self.identity}
            notes |= {
                "random": _random_state(),
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

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: HasCursor,
        world: World,
        *,
        seed: int,
    ) -> State:
        """Put everything back as the newest sound checkpoint has it; a fresh State if there is none."""
        found, notes = self._newest() if world.first else (None, {})
        notes = json.loads(world.tell(json.dumps(notes)))
        if not notes:
            return State()
        failpoint("load.found")
        tensors = self._read(found) if found is not None else {}
        described = json.loads(
            world.tell(json.dumps({n: [str(t.dtype), list(t.shape)] for n, t in tensors.items()}))
        )
        tensors = {
            n: tensors.get(n, torch.empty(s, dtype=getattr(torch, d.split(".")[1])))
            for n, (d, s) in described.items()
        }
        failpoint("load.read")
        _put_back(model, optimizer, tensors, notes["scalars"], world)
        failpoint("load.applied")
        batches.cursor = list(notes["cursor"])
        _set_random(notes["random"], tensors, world, seed + notes["step"])
        return State(**{name: notes[name] for name in State.__dataclass_fields__})

    def weights(self, step: int) -> dict[str, Tensor]:
        """The weights of one checkpoint."""
        folder = self.path(step)
        if (fault := find_fault(folder)) is not None:
            raise CheckpointError(f"{folder}: {fault}")
        return safetensors.torch.load_file(folder / WEIGHTS)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """The steps that are saved, the newest first."""
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir()) if self.folder.is_dir() else ()
        return sorted((int(name[1]) for name in names if name is not None), reverse=True)

    def _write(self, target: Path, tensors: dict[str, dict[str, Tensor]], notes: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        fresh = self.folder / f".new-{target.name}"
        failpoint("save.begin")
        try:
            fresh.mkdir()
            failpoint("save.folder")
            for name, values in tensors.items():
                try:
                    safetensors.torch.save_file(values, fresh / name)
                except SafetensorError as error:  # what the library makes of a full disk
                    raise OSError(str(error)) from None
                failpoint(f"save.{name}")
                sync(fresh / name)
                failpoint(f"save.{name}.synced")
            write_sealed(fresh / STATE, notes)
            failpoint("save.state")
            names = [*tensors, STATE]
            files = {
                name: {"size": (fresh / name).stat().st_size, "sha256": hash_file(fresh / name)}
                for name in names
            }
            failpoint("save.hashed")
            write_sealed(fresh / MANIFEST, {"files": files})
            failpoint("save.manifest")
            sync(fresh)
            if target.exists():  # a damaged one, which was passed over
                shutil.rmtree(target)
            failpoint("save.ready")
            fresh.rename(target)
            failpoint("save.renamed")
            sync(self.folder)
            failpoint("save.done")
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _rotate(self, state: State) -> None:
        """Keep the newest two and the best."""
        sound = [
            step for step in self.steps() if step <= state.step
        ]  # newer ones are damaged and were passed over
        keep = {*sound[:KEEP], state.best_step if state.best is not None else -1}
        failpoint("rotate.begin")
        for step in self.steps():
            if step not in keep:
                old = self.path(step)
                trash = self.folder / f".old-{old.name}"
                old.rename(trash)  # so that it is whole or not there
                failpoint("rotate.moved")
                (trash / MANIFEST).unlink(missing_ok=True)
                failpoint("rotate.half")
                shutil.rmtree(trash)
                failpoint("rotate.removed")
        failpoint("rotate.end")

    def _sweep(self) -> None:
        """Remove what a crash left half done."""
        for path in self.folder.glob(".*-step-*"):
            shutil.rmtree(path)

    def _newest(self) -> tuple[Path | None, dict[str, Any]]:
        failpoint("load.begin")
        steps = self.steps()
        for step in steps:
            folder = self.path(step)
            fault = find_fault(folder)
            if fault is None:
                failpoint("load.checked")
                notes = read_sealed(folder / STATE)
                self._check_identity(folder, notes["identity"])
                return folder, notes
            self.say(f"{folder} is damaged ({fault}) and is passed over")
        if steps:
            raise CheckpointError(
                f"{self.folder}: every checkpoint is damaged; remove the folder to begin anew"
            )
        return None, {}

    def _check_identity(self, folder: Path, theirs: dict[str, Any]) -> None:
        for name in sorted({*theirs, *self.identity}):
            if theirs.get(name) != self.identity.get(name):
                raise CheckpointError(
                    f"{folder} was made with {name} = {theirs.get(name)}, now it is {self.identity.get(name)};"
                    " go on with what it was, or begin anew in another folder (--out)"
                )

    def _read(self, folder: Path) -> dict[str, Tensor]:
        return safetensors.torch.load_file(folder / WEIGHTS) | safetensors.torch.load_file(folder / TRAINING)

    def _last_good(self) -> str:
        good = [step for step in self.steps() if find_fault(self.path(step)) is None]
        return f"the checkpoint of step {good[0]} is whole" if good else "there was no checkpoint before it"


def find_fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, if anything: every file is there, whole, and has its hash."""
    try:
        files = read_sealed(folder / MANIFEST)["files"]
        for name in {WEIGHTS, TRAINING, STATE} | set(files):
            if hash_file(folder / name) != files[name]["sha256"]:
                return f"{name} is not as it was written"
        read_sealed(folder / STATE)
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError) as error:
        return str(error) if isinstance(error, ValueError) else f"{MANIFEST} is not whole"
    return None


def failpoint(name: str) -> None:
    """A moment with a name, at which a test ends the process as a power cut would, or fills the disk."""
    if CRASH_AT[0] != name:
        return
    passed[name] = passed.get(name, 0) + 1
    if passed[name] == int(CRASH_AT[1] if len(CRASH_AT) > 1 else 1):
        if CRASH_AT[-1] == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.SIGKILL)


def _optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, world: World
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every tensor that the optimizer keeps for a parameter, and every number."""
    tensors, scalars = {}, {}
    moving = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    known = sum(parameter in optimizer.state for parameter in moving.values())
    assert known == len(optimizer.state), "the optimizer and the model do not have the same parameters"
    for name, parameter in moving.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key} of {name}"] = world.whole(value).contiguous()
            else:
                scalars[f"{key} of {name}"] = value
    return tensors, scalars


@torch.no_grad()
def _put_back(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    scalars: dict[str, float],
    world: World,
) -> None:
    moving = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    missing = sorted(moving.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"the checkpoint has no weights for {', '.join(missing[:10])}")
    for name, value in tensors.items():
        if name in moving:
            moving[name].copy_(world.spread(value, moving[name]))
        elif " of " in name:
            key, _, of = name.partition(" of ")
            like = moving[of]
            optimizer.state[like][key] = world.spread(value, like)
    for name, number in scalars.items():
        key, _, of = name.partition(" of ")
        optimizer.state[moving[of]][key] = number


def _torch_random(world: World) -> dict[str, Tensor]:
    """The state of torch's generators, a row for every rank."""
    states = {"random": torch.get_rng_state()}
    if world.device.type == "cuda":
        states["random on cuda"] = torch.cuda.get_rng_state(world.device)
    return {name: world.rows(state) for name, state in states.items()}


def _random_state() -> dict[str, Any]:
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def _set_random(notes: dict[str, Any], tensors: dict[str, Tensor], world: World, seed: int) -> None:
    version, internal, gauss = notes["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = notes["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    rows = {
        name: world.spread(tensors[name], tensors[name]).cpu()
        for name in ("random", "random on cuda")
        if name in tensors
    }
    if len(rows["random"]) != world.size:  # saved by another number of ranks: new, but always the same
        torch.manual_seed(seed * world.size + world.rank)
        return
    torch.set_rng_state(rows["random"][world.rank].clone())  # torch wants memory of its own here
    if "random on cuda" in rows and world.device.type == "cuda":
        torch.cuda.set_rng_state(rows["random on cuda"][world.rank].clone(), world.device)
