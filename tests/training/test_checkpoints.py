"""A training that is killed, at any moment, loses nothing but time: the same losses and the same model, bit by bit."""

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
from pathlib import Path
from types import SimpleNamespace

import crash
import pytest
import torch
from safetensors import safe_open

import glassformer.training.resume as resume
from glassformer.durable import read_sealed

SOURCE = Path(resume.__file__).read_text()
FAILPOINTS = [name for name in re.findall(r'failpoint\(f?"([^"]+)"\)', SOURCE) if "{" not in name]
FAILPOINTS += [f"save.{name}{end}" for name in (resume.WEIGHTS, resume.TRAINING) for end in ("", ".synced")]


@pytest.fixture(scope="module")
def whole(shared: Path, text: str) -> Path:
    """A run that nobody disturbed."""
    os.environ["GLASSFORMER_HOME"] = str(shared / "home")
    assert crash.run(shared / "whole", data=[text]) == 0
    return shared / "whole"


def killed_and_resumed(out: Path, text: str, whole: Path) -> None:
    assert crash.run(out, data=[text]) == 0, Path(f"{out}.log").read_text()
    assert crash.results(out) == crash.results(whole)
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.startswith(".")]


def test_there_are_enough_failpoints() -> None:
    """Moments of saving, rotating and loading, each with a name."""
    assert len(set(FAILPOINTS)) == len(FAILPOINTS) >= 20
    assert {name.split(".")[0] for name in FAILPOINTS} == {"save", "rotate", "load"}


@pytest.mark.parametrize("point", FAILPOINTS)
def test_killed_at_every_failpoint(point: str, tmp_path: Path, text: str, whole: Path) -> None:
    """SIGKILL at the third time that the moment comes; while loading, at the first."""
    out = tmp_path / "run"
    loading = point.startswith("load")
    assert crash.run(out, data=[text], crash="save.done:3" if loading else f"{point}:3") == -signal.SIGKILL
    if loading:
        assert crash.run(out, data=[text], crash=point) == -signal.SIGKILL
    killed_and_resumed(out, text, whole)


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
    assert list(measured) == [4, 8, 12, 16]
    assert sum("preview" in line for line in lines) == 4
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
    """Weights, optimizer, cursor, schedule, every random state, versions: as safetensors and JSON, nothing else."""
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
    assert resume.find_fault(good) is None
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
        assert resume.find_fault(bad) is not None, (file.name, number)
        shutil.rmtree(bad)


@pytest.mark.parametrize(
    "file", ["weights.safetensors", "training.safetensors", "state.json", "manifest.json"]
)
def test_a_damaged_checkpoint_is_passed_over(file: str, tmp_path: Path, text: str, whole: Path) -> None:
    """The one before it is taken, that is said, and the end is the same."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="save.done:4") == -signal.SIGKILL
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    data = bytearray((newest / file).read_bytes())
    data[len(data) // 2] ^= 16
    (newest / file).write_bytes(data)
    killed_and_resumed(out, text, whole)
    assert f"{newest} is damaged" in Path(f"{out}.log").read_text()


def test_when_all_are_damaged(tmp_path: Path, text: str) -> None:
    """It does not quietly begin anew."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="save.done:2") == -signal.SIGKILL
    for folder in (out / "checkpoints").glob("step-*"):
        (folder / "weights.safetensors").unlink()
    assert crash.run(out, data=[text]) == 2
    assert "every checkpoint is damaged" in Path(f"{out}.log").read_text()


SAVES = [
    name for name in FAILPOINTS if name.startswith("save.") and name not in ("save.renamed", "save.done")
]


@pytest.mark.parametrize("point", SAVES[::4])
def test_a_full_disk(point: str, tmp_path: Path, text: str, whole: Path) -> None:
    """Wherever in a save it fills up: one sentence, the checkpoint before it is whole, nothing half done; it goes on later."""
    fill_the_disk(point, tmp_path / "run", text, whole)


@pytest.mark.slow
@pytest.mark.parametrize("point", SAVES)
def test_a_full_disk_at_every_moment(point: str, tmp_path: Path, text: str, whole: Path) -> None:
    """At each named moment of a save."""
    fill_the_disk(point, tmp_path / "run", text, whole)


def fill_the_disk(point: str, out: Path, text: str, whole: Path) -> None:
    assert crash.run(out, data=[text], crash=f"{point}:3:full") == 1
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
        crash.run(out, data=[text], steps=100_000, crash="save.done") == -signal.SIGKILL
    )  # the lock died with its owner


def test_a_checkpoint_of_another_training(tmp_path: Path, text: str) -> None:
    """What has changed is named; neither folder nor recipe is touched."""
    out = tmp_path / "run"
    assert crash.run(out, data=[text], crash="save.done:2") == -signal.SIGKILL
    before = (out / "recipe.toml").read_text()
    assert crash.run(out, data=[text], lr=2e-2) == 2
    assert "was made with lr = 0.01, now it is 0.02" in Path(f"{out}.log").read_text()
    other = tmp_path / "other.txt"
    other.write_text(crash.TEXT + "And more.")
    assert crash.run(out, data=[str(other)]) == 2
    assert "was made with text (sha256)" in Path(f"{out}.log").read_text()
    assert (out / "recipe.toml").read_text() == before


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(sign: signal.Signals, tmp_path: Path, text: str) -> None:
    """SIGTERM and Ctrl-C: it saves, says how to go on, and exits as a program does that was asked to."""
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
    said = re.search(
        rf"Stopped after step ([\d,]+) and saved. Go on:  glass train {re.escape(str(out))}", log.read_text()
    )
    assert said is not None, log.read_text()
    assert (out / "checkpoints" / f"step-{int(said[1].replace(',', '')):08d}").is_dir()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == int(said[1].replace(",", ""))


ORDER = """
import json, os, sys, pathlib
from glassformer.training import resume
import torch
keeper = resume.Keeper(pathlib.Path(sys.argv[1]), {})
model = torch.nn.Linear(3, 2)
batches = type("Batches", (), {"cursor": [0]})()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
keeper.save(model, optimizer, batches, resume.State(step=1), resume.World())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: the order of system calls cannot be seen"
)
def test_the_order_on_the_way_to_the_disk(tmp_path: Path) -> None:
    """As the system sees it: files are synced, then the manifest, then their folder; it is renamed, and its parent synced."""
    trace = tmp_path / "trace"
    command = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(trace),
        "-e",
        "trace=fsync,rename,renameat,renameat2",
        sys.executable,
        "-c",
        ORDER,
    ]
    subprocess.run([*command, str(tmp_path / "run")], check=True)
    calls = [line for line in trace.read_text().splitlines() if str(tmp_path / "run") in line]
    seen = []
    for call in calls:
        if "fsync(" in call:
            seen.append("sync " + Path(re.search(r"<([^>]+)>", call)[1]).name)  # type: ignore[index]
        elif call.count('step-00000001"') == 2:
            seen.append("rename")  # of the folder; the library that writes tensors renames its files before
    assert seen == [
        "sync weights.safetensors", "sync training.safetensors", "sync state.json", "sync manifest.json",
        "sync .new-step-00000001", "rename", "sync run",
    ]  # fmt: skip


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
    keeper = resume.Keeper(tmp_path, {})
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    stream = SimpleNamespace(cursor=[0])
    keeper.save(model, optimizer, stream, resume.State(step=300), resume.World())
    for step in (400, 500):
        keeper.path(step).mkdir()
    keeper.save(model, optimizer, stream, resume.State(step=350), resume.World())
    assert {350, 300} <= set(keeper.steps())
    assert resume.find_fault(keeper.path(350)) is None


def test_a_damaged_best_is_replaced_by_the_newest(tmp_path: Path, text: str) -> None:
    """A training that gets worse, and then loses its best checkpoint: the newest becomes the model, and that is said."""
    out = tmp_path / "run"
    wild = {"lr": 2.0, "lr_end": 2.0, "schedule": "constant", "warmup": 12}
    assert crash.run(out, data=[text], **wild) == 0
    best = read_sealed(out / "checkpoints" / "step-00000016" / "state.json")["best_step"]
    assert best < 16
    (out / "checkpoints" / f"step-{best:08d}" / "weights.safetensors").write_bytes(b"")
    assert crash.run(out, data=[text], **wild) == 0
    assert "the newest becomes the model instead" in Path(f"{out}.log").read_text()
