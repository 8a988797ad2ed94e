"""A tiny training in a process that may be killed, forked from a server that has imported everything already.

A crash is named by a file operation inside the folder of the checkpoints, how often it comes, and what
happens then:

    "rename step:3"            killed (SIGKILL) just before the third rename of a checkpoint
    "fsync state.json:3:cut"   a power cut: also, every file that was written and not yet synced is empty
    "mkdir step:3:full"        the operation fails: no space left on device
    "saved:3"                  killed when the third checkpoint is reported

The package has no part in this: operations are seen by Python's audit hooks, and by a wrapper around
`os.fsync`.
"""

import errno
import hashlib
import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from glassformer.verification.crash import TEXT

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "glassformer.cli.train",
        "glassformer.hub.gpt2",
        "glassformer.tasks.language_modeling",
        "glassformer.tasks.train",
        "pytest",
        "torch._dynamo",  # which optimizers load
        "torch.nn.parallel",
        "crash",
    ]
)
FLAGS = {
    "vocab": 280, "held_out": 0.1, "layers": 1, "heads": 2, "width": 16, "context": 16, "dropout": 0.1, "steps": 16, "batch": 4,
    "micro_batch": 3, "lr": 1e-2, "lr_end": 1e-3, "warmup": 4, "eval_every": 4, "eval_tokens": 200, "save_every": 3,
    "preview": "The big", "preview_tokens": 5, "tensorboard": False, "seed": 7,
}  # fmt: skip


def start(
    out: Path,
    *,
    crash: str = "",
    largest_file: int = 0,
    environment: dict[str, str] | None = None,
    **changes: Any,
) -> Any:
    """Start the training (or go on with it) in a process of its own."""
    environment = dict(os.environ) | (environment or {})
    process = SERVER.Process(
        target=_train, args=(str(out), crash, largest_file, FLAGS | changes, environment)
    )
    process.start()
    return process


def run(out: Path, **how: Any) -> int:
    """Train to the end, or until it is killed; the exit code."""
    process = start(out, **how)
    process.join()
    return int(process.exitcode)


def start_ranks(out: Path, ranks: int, **how: Any) -> list[Any]:
    """Start it in several processes that train together, as `torchrun` would."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return [
        start(out, environment=shared | {"RANK": str(r), "LOCAL_RANK": str(r)}, **how) for r in range(ranks)
    ]


def run_ranks(out: Path, ranks: int, **how: Any) -> list[int]:
    """Train together to the end; the exit codes."""
    processes = start_ranks(out, ranks, **how)
    for process in processes:
        process.join()
    return [int(process.exitcode) for process in processes]


def command(*arguments: str, log: Path) -> Any:
    """Start a command line in a process of its own."""
    process = SERVER.Process(target=_command, args=(arguments, str(log), dict(os.environ)))
    process.start()
    return process


def results(out: Path) -> tuple[list[dict[str, Any]], str]:
    """Everything that was measured, except times, and the hash of the model."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("tokens_per_second", None)
    return lines, hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def write_text(folder: Path) -> Path:
    """The text that it learns."""
    path = folder / "text.txt"
    path.write_text(TEXT)
    return path


def operations(out: Path) -> list[str]:
    """Every file operation among the checkpoints of a run that was started with `crash="record"`, in order."""
    return Path(f"{out}.operations").read_text().splitlines()


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
AUDITED = {  # Python's audit event -> what to call it here, and how many of its arguments are paths
    "os.mkdir": ("mkdir", 1),
    "os.rename": ("rename", 2),
    "os.remove": ("remove", 1),
    "os.rmdir": ("rmdir", 1),
    "os.listdir": ("list", 1),
}


class Saboteur:
    """Sees every file operation inside a folder just before it happens, and crashes the process at one of
    them.
    """

    def __init__(self, folder: Path, log: Path, crash: str) -> None:
        self.folder, self.log = str(folder), log
        parts = crash.split(":")
        self.what = parts[0]
        self.times = int(parts[1]) if len(parts) > 1 else 1
        self.how = parts[2] if len(parts) > 2 else "kill"
        self.seen = 0
        self.busy = False
        self.synced = {path.stat().st_ino for path in folder.rglob("*")}
        sys.addaudithook(self.audit)
        self.patch_what_is_not_audited()

    def patch_what_is_not_audited(self) -> None:
        """`fsync`, and the library that reads and writes tensors without Python's help."""
        import safetensors.torch as tensors

        fsync, save_file, load_file = os.fsync, tensors.save_file, tensors.load_file

        def sync(descriptor: int) -> None:
            self.meet("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)
            self.synced.add(os.fstat(descriptor).st_ino)

        def save(values: Any, path: Path, **how: Any) -> None:
            self.meet("save", str(path))
            save_file(values, path, **how)

        def load(path: Path, **how: Any) -> Any:
            self.meet("load", str(path))
            return load_file(path, **how)

        os.fsync, tensors.save_file, tensors.load_file = sync, save, load

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:
            return
        if event == "open" and isinstance(arguments[0], str):
            path, _, flags = arguments
            self.meet("write" if flags & WRITING else "read", path)
        elif event in AUDITED:
            name, count = AUDITED[event]
            paths = [str(path) for path in arguments[:count]]
            folder = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
            if folder != -1:  # rmtree gives a name and the descriptor of an open folder
                paths = [f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}" for path in paths]
            self.meet(name, *paths)

    def meet(self, name: str, *paths: str) -> None:
        """An operation is about to happen. Checkpoints are called `step`, whatever their number and suffix."""
        if any(path.startswith(self.folder) for path in paths):
            names = [re.sub(r"^\.?(old-)?(step)-.*", r"\1\2", Path(path).name) for path in paths]
            self.reach(" ".join([name, *names]))

    def reach(self, moment: str) -> None:
        """Write the moment down, or crash if it is the one."""
        if self.what == "record":
            self.busy = True
            with self.log.open("a") as file:
                print(moment, file=file)
            self.busy = False
        elif moment == self.what:
            self.seen += 1
            if self.seen == self.times:
                self.crash()

    def crash(self) -> None:
        if self.how == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.busy = True
        if self.how == "cut":
            for path in Path(self.folder).rglob("*"):
                if path.is_file() and path.stat().st_ino not in self.synced:
                    os.truncate(path, 0)
        os.kill(os.getpid(), signal.SIGKILL)


def _prepare(log: str, environment: dict[str, str]) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = open(log, "a", buffering=1)  # noqa: SIM115


def _train(
    out: str, crash: str, largest_file: int, flags: dict[str, Any], environment: dict[str, str]
) -> None:
    _prepare(f"{out}.log", environment)
    from glassformer.errors import GlassError
    from glassformer.tasks.recipe import Recipe
    from glassformer.tasks.train import train

    saboteur = Saboteur(Path(out) / "checkpoints", Path(f"{out}.operations"), crash) if crash else None
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        for event in train(Recipe().changed(**flags), Path(out)):
            if type(event).__name__ == "Message":
                print(event.text)
            if saboteur is not None and type(event).__name__ == "Saved":
                saboteur.reach("saved")
    except GlassError as error:
        print(f"error: {error}")
        sys.exit(error.code)


def _command(arguments: tuple[str, ...], log: str, environment: dict[str, str]) -> None:
    _prepare(log, environment)
    from glassformer.cli import run

    sys.exit(run(list(arguments)))
