"""A training that is killed, at any moment, loses nothing but time: the same losses and the same model, bit
by bit.
"""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crash
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from glassformer.durable import hash_file, read_sealed, write_sealed
from glassformer.errors import CheckpointError
from glassformer.training.checkpoints import CheckpointManager, State, Trainee, find_fault
from glassformer.training.distributed import World

# Every file operation of a save that changes the disk, in the order in which they happen, as tests/crash.py
# sees them; files are synced once when they are written (if the package writes them) and once with their
# folder.
FILES = ("weights.safetensors", "training.safetensors", "state.json", "manifest.json")
SAVE = [
    "mkdir step", "save weights.safetensors", "save training.safetensors", "write state.json", "fsync state.json",
    "write manifest.json", "fsync manifest.json", *(f"fsync {name}" for name in FILES), "fsync step", "rename step step",
    "fsync checkpoints",
]  # fmt: skip
ROTATE = ["rename step old-step", *(f"remove {name}" for name in FILES), "rmdir old-step"]
# Every one of a load, which changes nothing: it finds, checks, and reads.
LOAD = [
    "list checkpoints", "list checkpoints", *(f"read {name}" for name in FILES), "read state.json", "read state.json",
    "read weights.safetensors", "read training.safetensors", "load weights.safetensors", "load training.safetensors",
]  # fmt: skip
CHANGES = re.compile("mkdir step|(save|write|fsync|rename|remove|rmdir) .*")


def numbered(moments: list[str]) -> list[tuple[str, int]]:
    """Each moment, and how often it has come by then."""
    return [(moment, moments[: number + 1].count(moment)) for number, moment in enumerate(moments)]


def named(pair: object) -> str:
    return str(pair).replace(" ", "-")


@pytest.fixture(scope="module")
def whole(shared: Path, text: str) -> Path:
    """A run without an interruption."""
    os.environ["GLASSFORMER_HOME"] = str(shared / "home")
    assert crash.run(shared / "whole", data=[text]) == 0
    return shared / "whole"


def killed_and_resumed(out: Path, text: str, whole: Path) -> None:
    assert crash.run(out, data=[text]) == 0, Path(f"{out}.log").read_text()
    assert crash.results(out) == crash.results(whole)
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def record(shared: Path, text: str) -> list[str]:
    """The file operations of a whole run, among its checkpoints."""
    os.environ["GLASSFORMER_HOME"] = str(shared / "home")
    assert crash.run(shared / "recorded", data=[text], crash="record") == 0
    return crash.operations(shared / "recorded")


def third_save(record: list[str]) -> tuple[int, int]:
    """Where in a record the third save begins and ends: it is the first that also removes a checkpoint."""
    saves = [number for number, moment in enumerate(record) if moment == "saved"]
    return saves[1] + 1, saves[2]


def at(record: list[str], moment: tuple[str, int]) -> str:
    """A crash at a moment of the third save: how often this operation has come in the whole run by then."""
    name, number = moment
    begin, _ = third_save(record)
    return f"{name}:{record[:begin].count(name) + number}"


def test_every_file_operation_is_known(record: list[str], shared: Path, text: str) -> None:
    """The moments at which it is killed below are all there are: a new one in the package must be added here."""
    begin, end = third_save(record)
    changes = [moment for moment in record[begin:end] if CHANGES.fullmatch(moment)]
    assert sorted(changes) == sorted(SAVE + ROTATE)
    out = shared / "loaded"
    assert crash.run(out, data=[text], crash="saved:3") == -signal.SIGKILL
    assert crash.run(out, data=[text], crash="record") == 0
    resumed = crash.operations(out)
    assert sorted(resumed[: resumed.index("mkdir checkpoints")]) == sorted(LOAD)


def test_synced_before_renamed(record: list[str]) -> None:
    """Every file and then their folder, before it gets its name; the folder around it after that."""
    begin, end = third_save(record)
    save = record[begin:end]
    renamed = save.index("rename step step")
    for name in FILES:
        touched = [moment for moment in save[:renamed] if moment.endswith(f" {name}")]
        assert touched[-1] == f"fsync {name}"
    assert save[renamed - 1] == "fsync step"
    after = [moment for moment in save[renamed + 1 :] if CHANGES.fullmatch(moment)]
    assert after[0] == "fsync checkpoints"


@pytest.mark.parametrize("moment", numbered(SAVE) + numbered(ROTATE), ids=named)
def test_killed_while_saving(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """SIGKILL just before every file operation of a save and of removing an old checkpoint."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash=at(record, moment)) == -signal.SIGKILL
    killed_and_resumed(out, text, whole)


@pytest.mark.parametrize("moment", numbered(LOAD), ids=named)
def test_killed_while_loading(moment: tuple[str, int], tmp_path: Path, text: str, whole: Path) -> None:
    """SIGKILL just before every file operation of a resume."""
    out = tmp_path / "run"
    name, number = moment
    assert crash.run(out, data=[text], crash="saved:3") == -signal.SIGKILL
    assert crash.run(out, data=[text], crash=f"{name}:{number}") == -signal.SIGKILL
    killed_and_resumed(out, text, whole)


def cut_the_power(moment: tuple[str, int], out: Path, text: str, whole: Path, record: list[str]) -> None:
    assert crash.run(out, data=[text], crash=f"{at(record, moment)}:cut") == -signal.SIGKILL
    killed_and_resumed(out, text, whole)
    assert "damaged" not in Path(f"{out}.log").read_text()


@pytest.mark.parametrize("moment", numbered(SAVE)[1::6], ids=named)
def test_a_power_cut(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """What was not synced is lost too; no checkpoint is found damaged, because none had its name by then."""
    cut_the_power(moment, tmp_path / "run", text, whole, record)


@pytest.mark.slow
@pytest.mark.parametrize("moment", numbered(SAVE) + numbered(ROTATE), ids=named)
def test_a_power_cut_at_every_moment(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """At each file operation of a save."""
    cut_the_power(moment, tmp_path / "run", text, whole, record)


def kill_at_random_moments(out: Path, text: str, whole: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    done = 0
    while done < kills:
        process = crash.start(out, data=[text])
        process.join(draw.uniform(0.02, 0.5))
        if process.is_alive():
            process.kill()
            process.join()
            done += 1
        else:  # it came to its end
            assert process.exitcode == 0, Path(f"{out}.log").read_text()
            assert crash.results(out) == crash.results(whole)
            shutil.rmtree(out)
    killed_and_resumed(out, text, whole)


def test_killed_while_the_last_checkpoint_was_rotated(tmp_path: Path, text: str, whole: Path) -> None:
    """All steps are done, so nothing is saved again: what was being removed goes at the next start."""
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / ".old-step-00000012").mkdir()
    killed_and_resumed(tmp_path / "run", text, whole)


def test_killed_at_random_moments(tmp_path: Path, text: str, whole: Path) -> None:
    """Six times, wherever it happens to be."""
    kill_at_random_moments(tmp_path / "run", text, whole, 6, seed=1)


@pytest.mark.slow
def test_killed_at_two_hundred_random_moments(tmp_path: Path, text: str, whole: Path) -> None:
    """Two hundred times."""
    kill_at_random_moments(tmp_path / "run", text, whole, 200, seed=2)


def test_the_run_means_something(whole: Path) -> None:
    """It learned, measured, previewed, and kept the newest two checkpoints and the best."""
    lines, _ = crash.results(whole)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 16
    assert losses[-1] < losses[0] - 0.5
    measured = {line["step"]: line["held_out"] for line in lines if "held_out" in line}
    assert list(measured) == [0, 4, 8, 12, 16]
    assert sum("preview" in line for line in lines) == 5
    assert measured.pop(0) > max(measured.values())  # before the first step, and never a checkpoint
    best = min(measured, key=measured.__getitem__)
    kept = {int(path.name.split("-")[1]) for path in (whole / "checkpoints").iterdir()}
    assert kept == {best, *sorted({*range(3, 17, 3), *measured})[-2:]}


def test_looking_and_saving_change_no_loss(tmp_path: Path, text: str, whole: Path) -> None:
    """Without measurements, previews and checkpoints in between, every loss has the same bits."""
    how = {"eval_every": 0, "preview_tokens": 0, "save_every": 0}
    assert crash.run(tmp_path / "run", data=[text], **how) == 0
    plain = [line["loss"].hex() for line in crash.results(tmp_path / "run")[0] if "loss" in line]
    assert plain == [line["loss"].hex() for line in crash.results(whole)[0] if "loss" in line]


def test_a_checkpoint_holds_all_that_decides_the_next_step(whole: Path) -> None:
    """Weights, optimizer, cursor, schedule, every random state, versions: as safetensors and JSON, nothing
    else.
    """
    folder = whole / "checkpoints" / "step-00000016"
    assert {path.name for path in folder.iterdir()} == {
        "weights.safetensors",
        "training.safetensors",
        "state.json",
        "manifest.json",
    }
    with (
        safe_open(folder / "weights.safetensors", "pt") as weights,
        safe_open(folder / "training.safetensors", "pt") as training,
    ):
        names = set(weights.keys())
        assert {"tokens.weight", "blocks.0.attn.qkv.weight", "norm.bias"} <= names
        kinds = ("exp_avg", "exp_avg_sq", "step")
        assert set(training.keys()) == {f"{kind} of {name}" for name in names for kind in kinds} | {"random"}
        assert training.get_tensor("step of norm.bias").item() == 16
    state = read_sealed(folder / "state.json")
    assert state["cursor"] == [16 * 4]
    assert {"step", "tokens", "best", "best_step", "waited", "random", "identity", "versions"} <= set(state)
    assert set(state["random"]) == {"python", "numpy"}
    assert state["identity"]["lr"] == 1e-2


def test_damage_is_always_seen(whole: Path, tmp_path: Path) -> None:
    """A thousand flipped bits and cut ends, in every file of a checkpoint: not one is loaded."""
    good = whole / "checkpoints" / "step-00000016"
    assert find_fault(good) is None
    draw = random.Random(3)
    files = sorted(good.iterdir())
    for number in range(1000):
        file = files[number % len(files)]
        bad = tmp_path / "bad"
        bad.mkdir()
        for other in files:
            (bad / other.name).hardlink_to(other)
        data = bytearray(file.read_bytes())
        if number % 3:
            place = draw.randrange(8 * len(data))
            data[place // 8] ^= 1 << place % 8
        else:
            del data[draw.randrange(len(data)) :]
        (bad / file.name).unlink()
        (bad / file.name).write_bytes(data)
        assert find_fault(bad) is not None, (file.name, number)
        shutil.rmtree(bad)


@pytest.mark.parametrize(
    "file", ["weights.safetensors", "training.safetensors", "state.json", "manifest.json"]
)
def test_a_damaged_checkpoint_is_skipped(file: str, tmp_path: Path, text: str, whole: Path) -> None:
    """The one before it is loaded, that is reported, and the end is the same."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="saved:4") == -signal.SIGKILL
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    data = bytearray((newest / file).read_bytes())
    data[len(data) // 2] ^= 16
    (newest / file).write_bytes(data)
    killed_and_resumed(out, text, whole)
    assert f"{newest} is damaged" in Path(f"{out}.log").read_text()


def test_when_all_are_damaged(tmp_path: Path, text: str) -> None:
    """It does not quietly begin anew."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="saved:2") == -signal.SIGKILL
    for folder in (out / "checkpoints").glob("step-*"):
        (folder / "weights.safetensors").unlink()
    assert crash.run(out, data=[text]) == 2
    assert "every checkpoint is damaged" in Path(f"{out}.log").read_text()


BEFORE_RENAMED = numbered(SAVE[: SAVE.index("rename step step") + 1])
AFTER = [*numbered(SAVE)[len(BEFORE_RENAMED) :], *numbered(ROTATE)]


@pytest.mark.parametrize("moment", BEFORE_RENAMED[::4], ids=named)
def test_a_full_disk(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """Wherever in a save it fills up: one sentence, the checkpoint before it is whole, nothing half done; it
    goes on.
    """
    fill_the_disk(moment, tmp_path / "run", text, whole, record)


@pytest.mark.slow
@pytest.mark.parametrize("moment", BEFORE_RENAMED, ids=named)
def test_a_full_disk_at_every_moment(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """At each file operation of a save."""
    fill_the_disk(moment, tmp_path / "run", text, whole, record)


def fill_the_disk(moment: tuple[str, int], out: Path, text: str, whole: Path, record: list[str]) -> None:
    assert crash.run(out, data=[text], crash=f"{at(record, moment)}:full") == 1
    log = Path(f"{out}.log").read_text()
    assert re.search(
        r"error: step 6 could not be saved in \S+ \(No space left on device\); the checkpoint of step 4 is whole",
        log,
    )
    assert "Traceback" not in log
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == [
        f"step-{step:08d}" for step in (3, 4)
    ]
    killed_and_resumed(out, text, whole)


@pytest.mark.parametrize("moment", AFTER[::3], ids=named)
def test_a_disk_that_fails_after_a_save(
    moment: tuple[str, int], tmp_path: Path, text: str, whole: Path, record: list[str]
) -> None:
    """The new checkpoint has its name by then: one sentence, and it goes on from there."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash=f"{at(record, moment)}:full") == 1
    log = Path(f"{out}.log").read_text()
    assert "No space left on device" in log
    assert "Traceback" not in log
    assert find_fault(out / "checkpoints" / "step-00000006") is None
    killed_and_resumed(out, text, whole)


def test_a_file_that_may_not_grow(tmp_path: Path, text: str) -> None:
    """A limit of the system (as a quota is) ends it in one sentence, with nothing half done."""
    assert crash.run(tmp_path / "run", data=[text], largest_file=20_000) == 1
    log = Path(f"{tmp_path / 'run'}.log").read_text()
    assert re.search(r"error: step 3 could not be saved .*; there was no checkpoint before it", log), log
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_two_trainers_in_one_folder(tmp_path: Path, text: str) -> None:
    """The second refuses, in one sentence; the first is not disturbed."""
    out = tmp_path / "run"
    first = crash.start(out, data=[text], steps=100_000)
    while not (out / "metrics.jsonl").exists():
        time.sleep(0.01)
    assert crash.run(out, data=[text], steps=100_000) == 2
    assert f"error: {out}: another process trains there" in Path(f"{out}.log").read_text()
    assert first.is_alive()
    first.kill()
    first.join()
    assert (
        crash.run(out, data=[text], steps=100_000, crash="saved") == -signal.SIGKILL
    )  # the lock died with its owner


def test_a_checkpoint_of_another_training(tmp_path: Path, text: str) -> None:
    """What has changed is named; neither folder nor recipe is touched."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="saved:2") == -signal.SIGKILL
    before = (out / "recipe.toml").read_text()
    assert crash.run(out, data=[text], lr=2e-2) == 2
    assert "was made with lr = 0.01 (now 0.02); go on" in Path(f"{out}.log").read_text()
    other = tmp_path / "other.txt"
    other.write_text(crash.TEXT + "And more.")
    assert crash.run(out, data=[str(other)]) == 2
    assert "was made with text (sha256)" in Path(f"{out}.log").read_text()
    assert (out / "recipe.toml").read_text() == before


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(sign: signal.Signals, tmp_path: Path, text: str) -> None:
    """SIGTERM and Ctrl-C: it saves, prints how to go on, and exits with the usual code."""
    out, log = tmp_path / "run", tmp_path / "log"
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in crash.FLAGS.items()
        if name not in ("tensorboard", "steps")
    ]
    process = crash.command(
        "train",
        "--data",
        text,
        "--steps",
        "4000",
        "--no-tensorboard",
        "--out",
        str(out),
        "--save-minutes",
        "0",
        *flags,
        log=log,
    )
    while not (out / "checkpoints").exists():
        time.sleep(0.01)
    os.kill(process.pid, sign)
    process.join(30)
    assert process.exitcode == 128 + sign
    printed = re.search(
        rf"Stopped after step ([\d,]+), saved as .*\nGo on:  glass train {re.escape(str(out))}",
        log.read_text(),
    )
    assert printed is not None, log.read_text()
    assert (out / "checkpoints" / f"step-{int(printed[1].replace(',', '')):08d}").is_dir()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == int(printed[1].replace(",", ""))


ORDER = """
import pathlib, sys
import torch
from glassformer.training.checkpoints import CheckpointManager, State, Trainee, World
model = torch.nn.Linear(3, 2)
batches = type("Batches", (), {"cursor": [0]})()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
trainee = Trainee(model=model, optimizer=optimizer, batches=batches, world=World())
CheckpointManager(pathlib.Path(sys.argv[1])).save(trainee, State(step=1))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: the order of system calls cannot be seen"
)
def test_the_order_on_the_way_to_the_disk(tmp_path: Path) -> None:
    """As the system sees it: all files are synced, then their folder; it is renamed, and its parent synced."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fsync,rename,renameat,renameat2"]
    subprocess.run([*command, sys.executable, "-c", ORDER, str(tmp_path / "run")], check=True)
    calls = [line for line in trace.read_text().splitlines() if str(tmp_path / "run") in line]
    seen = []
    for call in calls:
        if "fsync(" in call:
            seen.append("sync " + Path(re.search(r"<([^>]+)>", call)[1]).name)  # type: ignore[index]
        elif 'step-00000001"' in call:
            seen.append("rename")  # of the folder; the library that writes tensors renames its files before
    assert {f"sync {name}" for name in FILES} == set(seen[:-3])
    assert seen[-3].startswith("sync .step-00000001.")
    assert seen[-2:] == ["rename", "sync run"]


def test_no_pickle_in_a_checkpoint(whole: Path) -> None:
    """Every file of a run is JSON, TOML or safetensors, to the last byte."""
    for path in (whole / "checkpoints").rglob("*.*"):
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            (size,) = struct.unpack("<Q", data[:8])
            header = json.loads(data[8 : 8 + size])
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            assert 8 + size + max(ends) == len(data)
        else:
            assert path.suffix == ".json"
            json.loads(data)


def test_rotation_never_counts_damaged_ones(tmp_path: Path) -> None:
    """Two damaged checkpoints, newer than the sound one: what is saved next is kept, and so is the sound one."""
    checkpoints = CheckpointManager(tmp_path)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    stream = SimpleNamespace(cursor=[0])
    trainee = Trainee(model=model, optimizer=optimizer, batches=stream, world=World())
    checkpoints.save(trainee, State(step=300))
    for step in (400, 500):
        checkpoints.path(step).mkdir()
    checkpoints.save(trainee, State(step=350))
    assert {350, 300} <= set(checkpoints.steps())
    assert find_fault(checkpoints.path(350)) is None


def test_a_key_that_an_earlier_version_did_not_have(tmp_path: Path) -> None:
    """A checkpoint without it had its default; any other value is another training."""
    model = torch.nn.Linear(3, 2)
    trainee = Trainee(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        batches=SimpleNamespace(cursor=[0]),
        world=World(),
    )
    CheckpointManager(tmp_path, {"lr": 1.0}).save(trainee, State(step=1))
    defaults = {"kind": "gpt2"}
    same = CheckpointManager(tmp_path, {"lr": 1.0, "kind": "gpt2"}, defaults)
    assert same.restore(trainee, seed=0).step == 1
    with pytest.raises(CheckpointError, match=r"was made with kind = gpt2 \(now gpt3\)"):
        CheckpointManager(tmp_path, {"lr": 1.0, "kind": "gpt3"}, defaults).restore(trainee, seed=0)
    # All that changed, in the order of the defaults (a recipe); a key of the other kind alone is not listed.
    other = CheckpointManager(tmp_path, {"stride": 4, "lr": 2.0, "kind": "gpt3"}, defaults)
    with pytest.raises(CheckpointError, match=r"with kind = gpt2 \(now gpt3\), lr = 1.0 \(now 2.0\);"):
        other.restore(trainee, seed=0)


def sealed_again(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the notes of a checkpoint as a program would, with new hashes."""
    notes = read_sealed(folder / "state.json")
    change(notes)
    write_sealed(folder / "state.json", notes)
    files = read_sealed(folder / "manifest.json")["files"]
    described = {name: {"size": 0, "sha256": hash_file(folder / name)} for name in files}
    write_sealed(folder / "manifest.json", {"files": described})


def tiny_checkpoint(folder: Path) -> tuple[Trainee, CheckpointManager]:
    """A trainee and its only checkpoint."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    trainee = Trainee(model=model, optimizer=optimizer, batches=SimpleNamespace(cursor=[0]), world=World())
    checkpoints = CheckpointManager(folder, report=len)
    checkpoints.save(trainee, State(step=1))
    return trainee, checkpoints


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", "1"), ("step", -1), ("tokens", None), ("best", "low"), ("stopped", 1), ("cursor", [0, 0]), ("cursor", "00"), ("cursor", [-1]),
     ("scalars", {"step of weight": "x"}), ("scalars", {"step of nothing": 1}), ("random", {}), ("random", {"python": [3, [1], None], "numpy": []})],
    ids=str,
)  # fmt: skip
def test_notes_that_another_program_wrote(tmp_path: Path, key: str, value: Any) -> None:
    """With their own hashes, so that they are not damaged: one sentence all the same."""
    trainee, checkpoints = tiny_checkpoint(tmp_path)
    sealed_again(checkpoints.path(1), len)
    assert checkpoints.restore(trainee, seed=0).step == 1
    sealed_again(checkpoints.path(1), lambda notes: notes.update({key: value}))
    with pytest.raises(CheckpointError, match="not one that this program writes"):
        checkpoints.restore(trainee, seed=0)


@pytest.mark.parametrize(
    "changed",
    [{"weight": torch.ones(2, 2)}, {"bias": torch.ones(2, dtype=torch.int64)}, {"another": torch.ones(2)}, {"exp_avg of another": torch.ones(2)}],
    ids=str,
)  # fmt: skip
def test_tensors_that_another_program_wrote(tmp_path: Path, changed: dict[str, torch.Tensor]) -> None:
    """Of other shapes, types and names."""
    trainee, checkpoints = tiny_checkpoint(tmp_path)
    path = checkpoints.path(1) / "weights.safetensors"
    save_file(load_file(path) | changed, path)
    sealed_again(checkpoints.path(1), len)
    with pytest.raises(CheckpointError, match="not one that this program writes"):
        checkpoints.restore(trainee, seed=0)


def test_a_header_that_another_program_wrote(tmp_path: Path) -> None:
    """No safetensors file, although its hash is right: damaged."""
    _, checkpoints = tiny_checkpoint(tmp_path)
    (checkpoints.path(1) / "weights.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}more")
    sealed_again(checkpoints.path(1), len)
    assert "longer than its header says" in (find_fault(checkpoints.path(1)) or "")


def test_a_damaged_best_is_replaced_by_the_newest(tmp_path: Path, text: str) -> None:
    """A training that gets worse, and then loses its best checkpoint: the newest becomes the model, and that
    is reported.
    """
    out = tmp_path / "run"
    wild = {"lr": 2.0, "lr_end": 2.0, "schedule": "constant", "warmup": 12}
    assert crash.run(out, data=[text], **wild) == 0
    best = read_sealed(out / "checkpoints" / "step-00000016" / "state.json")["best_step"]
    assert best < 16
    (out / "checkpoints" / f"step-{best:08d}" / "weights.safetensors").write_bytes(b"")
    assert crash.run(out, data=[text], **wild) == 0
    assert "the newest becomes the model instead" in Path(f"{out}.log").read_text()
