"""What the adapters of all peers share: the commands, the prompts, the clock and the weights of a checkpoint.

    python X_peer.py prepare CHECKPOINT TARGET KIND
    python X_peer.py serve TARGET KIND THREADS
    python X_peer.py first TARGET KIND THREADS

`prepare` turns a folder with a GPT-2 into what the peer runs. `serve` answers each line `[prompt, new, rows]`
with the seconds of a greedy run, and the line `"memory"` with the peak of its memory in MB. `first` writes
one token after a prompt of 8.
"""

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Engine(Protocol):
    """A model that is loaded: it makes room for a run, which is not timed, and runs."""

    vocab: int

    def room(self, rows: int, length: int) -> None:
        """Make room for so many rows of so many tokens."""

    def run(self, ids: list[list[int]], new: int) -> list[list[int]]:
        """So many greedy tokens after each row of ids; all rows have one length."""


def main(
    prepare: Callable[[Path, Path, str], None],
    load: Callable[[Path, str, int], Engine],
    *,
    needs_torch: bool = False,
) -> None:
    """Obey the command line."""
    command, *rest = sys.argv[1:]
    if command == "prepare":
        checkpoint, target, kind = rest
        make(prepare, Path(checkpoint), Path(target), kind)
        return
    if not needs_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]  # a peer that finds it may load it, and needs it for nothing here
    folder, kind, threads = rest
    engine = load(Path(folder), kind, int(threads))
    if command == "first":
        print(json.dumps(sample(engine, 8, 1, 1)[1][0][0]), flush=True)
    elif command == "serve":
        serve(engine)
    else:
        sys.exit(f"no command {command!r}: it is prepare, serve or first")


def make(prepare: Callable[[Path, Path, str], None], checkpoint: Path, target: Path, kind: str) -> None:
    """Prepare a target if it is not there; it appears only when it is whole."""
    if target.exists():
        return
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    prepare(checkpoint, part, kind)
    part.rename(target)


def serve(engine: Engine) -> None:
    """Answer requests on stdin."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what = json.loads(line)
        answer: Any
        if isinstance(what, dict):
            answer = engine.ask(**what)  # type: ignore[attr-defined]  # ours alone is asked for more
        elif what == "memory":
            answer = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        else:
            answer, _ = sample(engine, *what)
        print(json.dumps(answer), flush=True)


def sample(engine: Engine, prompt: int, new: int, rows: int) -> tuple[float, list[list[int]]]:
    """Seconds of a run, and what it wrote."""
    ids = [[(7 * i + 13 * row) % (engine.vocab - 1) for i in range(prompt)] for row in range(rows)]
    engine.room(rows, prompt + new)
    began = time.perf_counter()
    made = engine.run(ids, new)
    seconds = time.perf_counter() - began
    assert [len(row) for row in made] == [new] * rows, (
        f"{[len(row) for row in made]} tokens came out, not {new} in {rows} rows"
    )
    return seconds, made


def read(checkpoint: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a GPT-2, and its weights in fp32 by their short names."""
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    tensors = load_file(checkpoint / "model.safetensors")
    return config, {
        name.removeprefix("transformer."): tensor.astype("float32") for name, tensor in tensors.items()
    }
