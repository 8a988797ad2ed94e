"""Several processes train one model together: the same numbers as one alone, and no port is open beyond this
machine.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import crash
import numpy as np
import pytest
from listening import listening

from glassformer.errors import InputError
from glassformer.training.distributed import World

HOW: dict[str, Any] = {
    "dropout": 0.0,
    "precision": "float64",
    "batch": 8,
    "micro_batch": 3,
    "preview_tokens": 0,
}
HOW |= {"eval_every": 10, "save_every": 25, "schedule": "constant"}


def losses(out: Path, key: str = "loss") -> Any:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return np.array([line[key] for line in lines if key in line])


def log_of(out: Path) -> str:
    return Path(f"{out}.log").read_text()


@pytest.fixture(scope="module")
def alone(shared: Path, text: str) -> Path:
    """A hundred steps by one process, in float64."""
    os.environ["GLASSFORMER_HOME"] = str(shared / "home")
    assert crash.run(shared / "alone", data=[text], steps=100, **HOW) == 0
    return shared / "alone"


@pytest.mark.parametrize("parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_ranks_equal_one(parallel: str, tmp_path: Path, text: str, alone: Path) -> None:
    """A hundred steps in float64, every part taken in parts again: losses and measurements within 1e-9."""
    out = tmp_path / "run"
    assert crash.run_ranks(out, 2, data=[text], steps=100, parallel=parallel, **HOW) == [0, 0], log_of(out)
    for key in ("loss", "held_out", "norm"):
        right = losses(alone, key)
        assert len(right) == (11 if key == "held_out" else 100)
        np.testing.assert_allclose(losses(out, key), right, rtol=1e-9, atol=0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_equal_one_with_muon(parallel: str, tmp_path: Path, text: str) -> None:
    """A matrix that lies in parts on two ranks is turned as a whole."""
    how = HOW | {"optimizer": "muon", "steps": 20, "data": [text]}
    assert crash.run(tmp_path / "one", **how) == 0
    assert crash.run_ranks(tmp_path / "two", 2, parallel=parallel, **how) == [0, 0], log_of(tmp_path / "two")
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-9, atol=0)


def test_two_ranks_equal_one_in_float32(tmp_path: Path, text: str) -> None:
    """Within 1e-3 of each loss, after a hundred steps."""
    how = HOW | {"precision": "float32", "steps": 100, "data": [text]}
    assert crash.run(tmp_path / "one", **how) == 0
    assert crash.run_ranks(tmp_path / "two", 2, **how) == [0, 0]
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-3)


@pytest.mark.parametrize("parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_a_checkpoint_of_two_ranks_loads_on_one_and_four(
    parallel: str, tmp_path: Path, text: str, alone: Path
) -> None:
    """Saved by two, it goes on with one, two or four, to the same end; it holds no trace of how many there
    were.
    """
    how = HOW | {"steps": 40, "data": [text], "parallel": parallel}
    codes = crash.run_ranks(tmp_path / "two", 2, crash="saved:2", **how)
    assert codes[0] == -signal.SIGKILL
    newest = max(int(path.name.split("-")[1]) for path in (tmp_path / "two" / "checkpoints").glob("step-*"))
    assert newest == 20
    for ranks in (1, 4):
        out = tmp_path / f"to{ranks}"
        shutil.copytree(tmp_path / "two", out)
        assert crash.run_ranks(out, ranks, **how) == [0] * ranks, log_of(out)
        np.testing.assert_allclose(losses(out), losses(alone)[:40], rtol=1e-9, atol=0)


def test_resumed_ranks_have_the_same_bits(tmp_path: Path, text: str) -> None:
    """Two ranks with dropout, one of them killed: the other ends too; started again, every loss and the model
    are the same.
    """
    how = {"steps": 16, "data": [text]}
    assert crash.run_ranks(tmp_path / "whole", 2, **how) == [0, 0]
    out = tmp_path / "run"
    codes = crash.run_ranks(out, 2, crash="fsync state.json:6", **how)
    assert codes[0] == -signal.SIGKILL
    assert codes[1] == 1
    assert "another process of this training has gone" in log_of(out)
    assert crash.run_ranks(out, 2, **how) == [0, 0], log_of(out)
    assert crash.results(out) == crash.results(tmp_path / "whole")


@pytest.mark.parametrize(
    ("size", "rank", "words"),
    [("x", "0", "WORLD_SIZE must be"), ("0", "0", "WORLD_SIZE must be"), ("-1", "0", "WORLD_SIZE must be"), ("\u0663", "0", "WORLD_SIZE must be"),
     ("9" * 5000, "0", "WORLD_SIZE must be"), ("2", "x", "RANK must be"), ("2", "-1", "RANK must be"), ("2", "2", "RANK 2 is out of range")],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_a_world_that_cannot_be(monkeypatch: pytest.MonkeyPatch, size: str, rank: str, words: str) -> None:
    """What torchrun would never put into the environment is refused by name."""
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(InputError, match=f"^{words}"):
        World.join()


def test_rows_must_be_divisible(tmp_path: Path, text: str) -> None:
    """Three rows cannot be shared by two; all ranks report it and end."""
    assert crash.run_ranks(tmp_path / "run", 2, data=[text], batch=3) == [2, 2]
    assert "batch must be a multiple of the 2 processes" in log_of(tmp_path / "run")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc/net to see who listens")
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_killed_rank_ends_the_others_and_all_listen_on_loopback(
    parallel: str, tmp_path: Path, text: str
) -> None:
    """While they train, no socket listens but on 127.0.0.1; kill one, and the other is gone within a minute,
    saying why.
    """
    out = tmp_path / "run"
    processes = crash.start_ranks(out, 2, data=[text], steps=100_000, parallel=parallel)
    while not (out / "metrics.jsonl").exists():
        assert all(process.is_alive() for process in processes), log_of(out)
        time.sleep(0.05)
    assert listening([process.pid for process in processes]) == {"0100007F"}
    processes[1].kill()
    began = time.monotonic()
    processes[0].join(60)
    assert time.monotonic() - began < 60
    assert processes[0].exitcode == 1
    assert "another process of this training has gone" in log_of(out)


def torchrun(folder: Path, *arguments: str, ranks: int = 2) -> subprocess.Popen[str]:
    """The command of the documentation: `torchrun` that meets in a file and opens no port."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-conf",
        "store_type=file", "--rdzv-endpoint", str(folder / "meeting"), "--local-addr", "127.0.0.1", "-m", "glassformer",
    ]  # fmt: skip
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, path.read_text().split())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_same_command_under_torchrun(parallel: str, tmp_path: Path, text: str, alone: Path) -> None:
    """`torchrun … -m glassformer train …`: no port is open beyond loopback, torchrun's included; the losses are
    those of one.
    """
    out = tmp_path / "run"
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in (crash.FLAGS | HOW).items()
        if name != "tensorboard"
    ]
    flags += [
        "--data",
        text,
        "--steps=100",
        "--no-tensorboard",
        "--parallel",
        parallel,
        "--out",
        str(out),
        "--json",
    ]
    run = torchrun(tmp_path, "train", *flags)
    seen = set()
    while run.poll() is None:
        with contextlib.suppress(OSError):  # one of them has just gone
            seen |= listening(children(run.pid))
        time.sleep(0.05)
    printed, log = run.communicate()
    assert run.returncode == 0, log
    assert json.loads(printed)["step"] == 100
    assert seen == {"0100007F"}
    np.testing.assert_allclose(losses(out), losses(alone), rtol=1e-9, atol=0)


@pytest.mark.slow
def test_torchrun_ends_when_a_rank_is_killed(tmp_path: Path, text: str) -> None:
    """Within a minute, all of it."""
    out = tmp_path / "run"
    run = torchrun(
        tmp_path,
        "train",
        "--data",
        text,
        "--steps=100000",
        "--no-tensorboard",
        "--out",
        str(out),
        "--vocab=280",
    )
    while not (out / "metrics.jsonl").exists():
        time.sleep(0.1)
    victim = [pid for pid in children(run.pid) if pid != run.pid][-1]
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    run.wait(60)
    assert run.returncode != 0
    assert time.monotonic() - began < 60
    assert "another process of this training has gone" in run.communicate()[1]
