"""A tiny training that is killed and resumed must end with the same losses and the same bits.

    python -m glassformer.verification.crash FOLDER

trains four times in FOLDER, each in a fork of one process that has imported torch already: uninterrupted,
killed, resumed, and resumed from a checkpoint that was tampered with.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.answers.verification import Check
from glassformer.durable import hash_file, read_sealed, write_sealed
from glassformer.errors import GlassError
from glassformer.files import read_json_lines

SECONDS = 240
KILL_AFTER = 5  # steps; the newest checkpoint is then that of step 3
SENTENCES = "".join(
    f"The {size} {animal} saw {name} in the {place}.\n"
    for size in ("big", "old", "red")
    for animal in ("dog", "cat", "owl", "fox")
    for name in ("Lily", "Tom", "Ben")
    for place in ("park", "wood", "house", "rain")
)
TEXT = 3 * SENTENCES
# Dropout, an accumulated batch and a schedule: all that has a state which a resume could lose.
BATCH = 4
RECIPE: dict[str, Any] = {
    "vocab": 280, "layers": 1, "heads": 2, "width": 16, "context": 16, "dropout": 0.1, "steps": 9,
    "batch": BATCH, "micro_batch": 3, "lr": 1e-2, "lr_end": 1e-3, "warmup": 4, "held_out": 0.1, "seed": 7,
    "eval_every": 3, "eval_tokens": 200, "save_every": 3, "preview_tokens": 0, "tensorboard": False,
    "precision": "float32",
}  # fmt: skip


def crash_and_resume(work: Path) -> Iterator[Check]:
    """Train in child processes, and compare what the trainings measured and made."""
    command = [sys.executable, "-m", "glassformer.verification.crash", str(work)]
    # A home of its own, one thread and one process: nothing of this training is left, or depends on others.
    own = {"GLASSFORMER_HOME": str(work / "home"), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1", "RANK": "0"}
    try:
        child = subprocess.run(
            command,
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise GlassError(f"the training to be killed did not end within {SECONDS} seconds") from None
    if child.returncode:
        raise GlassError(f"the training to be killed failed: {child.stderr.strip()[-300:]}")

    right = results(work / "uninterrupted")
    losses = len(right) - 1
    yield Check(
        name="crash and resume",
        compared=f"{losses} losses and the model: killed at step {KILL_AFTER} and resumed, never killed",
        unit="that differ",
        measured=differing(results(work / "killed"), right),
        limit=0,
        mutant="resumed one batch too far",
        mutant_measured=differing(results(work / "mutant"), right),
    )


def results(out: Path) -> list[Any]:
    """Everything that a training measured, except times, and the hash of the model."""
    lines = read_json_lines(out / "metrics.jsonl")
    for line in lines:
        line.pop("tokens_per_second", None)
    return [*lines, hash_file(out / "model" / "model.safetensors")]


def differing(ours: list[Any], right: list[Any]) -> int:
    """In how many places two lists of results differ."""
    unequal = [one for one, other in zip(ours, right, strict=False) if one != other]
    return abs(len(ours) - len(right)) + len(unequal)


# In the child process


def main(work: Path) -> None:
    """All four trainings, one after the other."""
    import glassformer.tasks.language_modeling  # noqa: F401  (once, before the forks)

    text = work / "text.txt"
    text.write_text(TEXT)
    expect(0, in_fork(text, work / "uninterrupted"))
    expect(-signal.SIGKILL, in_fork(text, work / "killed", kill_after=KILL_AFTER))
    shutil.copytree(work / "killed", work / "mutant")
    tamper(work / "mutant" / "checkpoints")
    expect(0, in_fork(text, work / "killed"))
    expect(0, in_fork(text, work / "mutant"))


def in_fork(text: Path, out: Path, *, kill_after: int = 0) -> int:
    """Train in a fork of this process; its exit code, below 0 if a signal ended it."""
    child = os.fork()
    if child == 0:
        try:
            train(text, out, kill_after=kill_after)
            os._exit(0)
        except BaseException as error:
            print(f"{out.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train(text: Path, out: Path, *, kill_after: int) -> None:
    """Train to the end, or to a step after which this process is killed as by a power cut."""
    from glassformer.tasks.recipe import Recipe
    from glassformer.tasks.train import Stepped
    from glassformer.tasks.train import train as run

    for event in run(Recipe().changed(data=[str(text)], **RECIPE), out, offline=True):
        if kill_after and isinstance(event, Stepped) and event.step == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


def tamper(checkpoints: Path) -> None:
    """Move the newest checkpoint's place in the data on by a batch, and seal it again with a right hash."""
    newest = max(checkpoints.glob("step-*"))
    state = read_sealed(newest / "state.json")
    state["cursor"] = [place + BATCH for place in state["cursor"]]
    write_sealed(newest / "state.json", state)
    manifest = read_sealed(newest / "manifest.json")
    described = {"size": (newest / "state.json").stat().st_size, "sha256": hash_file(newest / "state.json")}
    manifest["files"]["state.json"] = described
    write_sealed(newest / "manifest.json", manifest)


def expect(code: int, actual: int) -> None:
    """Every training must end as planned, the killed one by its signal."""
    if code != actual:
        sys.exit(f"a training ended with {actual}, not {code}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
