"""A tiny training in a process that may be killed, forked from a server that has imported everything already."""

import hashlib
import json
import multiprocessing
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["glassformer.tasks.train", "glassformer.cli.train", "torch.nn.parallel", "pytest", "crash"]
)
TEXT = "".join(f"The {a} {b} saw {c} in the {d}.\n" for a in ("big", "old", "red") for b in ("dog", "cat", "owl", "fox")
               for c in ("Lily", "Tom", "Ben") for d in ("park", "wood", "house", "rain")) * 3  # fmt: skip
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
    from glassformer.training import resume

    resume.CRASH_AT = crash.split(":")
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        for event in train(Recipe().changed(**flags), Path(out)):
            if type(event).__name__ == "Said":
                print(event.text)
    except GlassError as error:
        print(f"error: {error}")
        sys.exit(error.code)


def _command(arguments: tuple[str, ...], log: str, environment: dict[str, str]) -> None:
    _prepare(log, environment)
    from glassformer.cli import run

    sys.exit(run(list(arguments)))
