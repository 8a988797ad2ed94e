"""Files that mean harm, or are damaged: each must be refused in words, and run nothing."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from glassformer.answers.verification import Check
from glassformer.errors import CheckpointError
from glassformer.hub.convert import convert
from glassformer.hub.families import family
from glassformer.hub.folder import CONFIG, WEIGHTS, save_folder
from glassformer.tasks.load import load_torch

Damage = Callable[[Path], object]

MATRIX = "transformer.wte.weight"
SIZES = {"layers": 1, "heads": 2, "width": 8, "vocab": 16, "context": 8}


def hostile_files(work: Path) -> Iterator[Check]:
    """Every kind of such files, made in the folder `work` from a small sound model."""
    sound = work / "sound"
    gpt2 = family("gpt2")
    save_folder(sound, gpt2.build(gpt2.config(**SIZES)).initialize(0))

    yield from pickles(work)
    for name, damages in KINDS.items():
        taken = [load_damaged(sound, damage, work=work) for damage in damages]
        yield Check(
            name=name,
            compared=f"{len(damages)} folders, each with a fault: {WORDS[name]}",
            unit="loaded",
            measured=sum(taken),
            limit=0,
            mutant="the folder without a fault",
            mutant_measured=int(load_damaged(sound, lambda folder: None, work=work)),
        )


def load_damaged(sound: Path, damage: Damage, *, work: Path) -> bool:
    """Whether a copy of a folder, damaged, still loads. Any end but a refusal in words counts as loading."""
    folder = work / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    damage(folder)
    try:
        load_torch(folder)
    except CheckpointError:
        return False
    except Exception:
        return True
    return True


# A pickle that runs a command


def pickles(work: Path) -> Iterator[Check]:
    """A checkpoint whose reading would run code: loaded as a folder, and converted."""
    folder, canary = work / "pickle", work / "canary"
    folder.mkdir()
    evil = folder / "pytorch_model.bin"
    evil.write_bytes(evil_pickle(f"touch '{canary}'"))
    (folder / CONFIG).write_text(json.dumps({"model_type": "gpt2"}))

    taken = sum(not refused(act) for act in (lambda: load_torch(folder), lambda: convert(evil, work / "out")))
    taken += canary.exists()
    # What the file does where it is trusted: Python's own reader, in a process of its own, on our own file.
    subprocess.run([sys.executable, "-m", "pickle", str(evil)], capture_output=True, stdin=subprocess.DEVNULL)
    yield Check(
        name="malicious pickle",
        compared="a pickle that runs a command: loaded, converted",
        unit="taken or run",
        measured=taken,
        limit=0,
        mutant="read by Python's own pickle",
        mutant_measured=int(canary.exists()),
    )


def evil_pickle(command: str) -> bytes:
    """A pickle that calls `posix.system(command)` when it is read."""
    text = command.encode()
    call = b"cposix\nsystem\n" + b"X" + len(text).to_bytes(4, "little") + text + b"\x85R."
    return b"\x80\x02" + call


def refused(act: Callable[[], object]) -> bool:
    """Whether something ends with a refusal in words."""
    try:
        act()
    except CheckpointError:
        return True
    return False


# Damages of the file of weights


def cut(keep: float) -> Damage:
    """Keep only the first part of the file."""

    def damage(folder: Path) -> None:
        path = folder / WEIGHTS
        whole = path.read_bytes()
        path.write_bytes(whole[: int(keep * len(whole))])

    return damage


def lie(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the header and leave the numbers as they are."""

    def damage(folder: Path) -> None:
        path = folder / WEIGHTS
        whole = path.read_bytes()
        size = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])

    return damage


def claim_a_long_header(folder: Path) -> None:
    """A header of an exabyte."""
    path = folder / WEIGHTS
    path.write_bytes((1 << 60).to_bytes(8, "little") + path.read_bytes()[8:])


def reweigh(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change the tensors and write a sound file of them."""

    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return damage


def fill(value: float) -> Damage:
    """One number of a matrix becomes another."""
    return reweigh(lambda tensors: tensors[MATRIX][0].fill_(value))


def widen(folder: Path) -> None:
    """A configuration of another width than the weights have."""
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | {"n_embd": 16}))


KINDS: dict[str, list[Damage]] = {
    "truncated weights": [cut(0.0), cut(0.01), cut(0.5), cut(0.999)],
    "headers that lie": [
        claim_a_long_header,
        lie(lambda header: header[MATRIX].update(shape=[1 << 40, 8])),
        lie(lambda header: header[MATRIX].update(data_offsets=[0, 1 << 50])),
        lie(lambda header: header[MATRIX].update(data_offsets=[4, 4 + 16 * 8 * 4])),
        lie(lambda header: header[MATRIX].update(dtype="F64")),
    ],
    "wrong shapes": [
        reweigh(lambda tensors: tensors.update({MATRIX: tensors[MATRIX].t().contiguous()})),
        reweigh(lambda tensors: tensors.pop(MATRIX)),
        reweigh(lambda tensors: tensors.update(stranger=torch.zeros(3))),
        widen,
    ],
    "non-finite weights": [fill(float("nan")), fill(float("inf")), fill(float("-inf"))],
}
WORDS = {
    "truncated weights": "cut at four places",
    "headers that lie": "lengths, shapes, offsets, types",
    "wrong shapes": "transposed, missing, unknown, another width",
    "non-finite weights": "NaN, ∞, -∞",
}
