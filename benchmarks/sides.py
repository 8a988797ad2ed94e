"""Sides of a benchmark: each in a process of its own, asked in turn, and asked again if others disturbed it."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

BUSY = 0.10  # share of the machine that other processes may take during a sample
REST = 0.3  # seconds before it, in which the threads of the side before come to rest: some spin for long


class Peer:
    """One side: a child that answers each line of JSON on its stdin with a line on its stdout."""

    def __init__(self, command: list[str], *, threads: int, settings: dict[str, str] | None = None) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"} | (settings or {})
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    @classmethod
    def of(cls, script: str, *arguments: str, threads: int, python: Path | None = None) -> Self:
        """A side that is this script itself, called with --serve."""
        return cls([str(python or sys.executable), script, "--serve", *arguments], threads=threads)

    def sample(self, work: Any) -> tuple[float, float]:
        """Seconds of one run, and the share of the machine that others took meanwhile."""
        time.sleep(REST)
        began, before, own = time.perf_counter(), busy_seconds(), self._cpu()
        seconds = float(self.ask(work))
        others = (busy_seconds() - before) - (self._cpu() - own)
        return seconds, max(0.0, others) / (time.perf_counter() - began) / (os.cpu_count() or 1)

    def ask(self, what: Any) -> Any:
        """Its answer to a line."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(what) + "\n")
        self.child.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Let it go."""
        self.child.kill()
        self.child.wait()

    def _answer(self) -> Any:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            sys.exit("a side of the benchmark ended early")
        return json.loads(line)

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def environment(
    folder: Path,
    *packages: str,
    settings: dict[str, str] | None = None,
    finish: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """The Python of an environment, made if it is not there: what is installed here, and packages that may
    not live with it. `settings` are environment variables of the install, `finish` is called after it.
    """
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        (inside,) = folder.glob("lib/python*/site-packages")
        (inside / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pins = Path(__file__).parents[1] / "constraints.txt"
        wanted = [line for line in pins.read_text().splitlines() if line.startswith("torch==")]
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            *(["--no-cache-dir"] if settings else []),
            *wanted,
        ]
        subprocess.run([*install, *packages], check=True, env=os.environ | (settings or {}))
        finish(folder)
        (folder / "ready").touch()
    return python


def in_turn(
    peers: dict[str, Peer], work: Any, rounds: int, *, busy: float = BUSY, less: Any = None
) -> tuple[dict[str, list[float]], int]:
    """Seconds of every side in every round, and how many samples were disturbed; a first round warms up.

    `less` is a part of the work, measured right behind it and taken off: what is left depends little on how the
    machine changes from minute to minute.
    """
    samples: dict[str, list[float]] = {side: [] for side in peers}
    disturbed = 0
    for turn in range(rounds + 1):
        for side in peers if turn % 2 else reversed(peers):
            for _ in range(4):
                seconds, others = peers[side].sample(work)
                if less is not None:
                    part, more = peers[side].sample(less)
                    seconds, others = seconds - part, max(others, more)
                if others <= busy:
                    break
                disturbed += 1
            if turn:
                samples[side].append(seconds)
    return samples, disturbed


def compare(name: str, tokens: int, samples: dict[str, list[float]], disturbed: int) -> dict[str, Any]:
    """Speeds of all sides, and how many times as fast the first one is as each of the others; printed, and as
    data.
    """
    first, *others = samples
    speed = {side: tokens / statistics.median(samples[side]) for side in samples}
    report: dict[str, Any] = {"tokens/s": speed, "disturbed samples": disturbed, "ratios": {}}
    print(f"{name:<28} {first} {speed[first]:,.1f} tok/s" + f"   ({disturbed} disturbed samples)", flush=True)
    for side in others:
        ratios = [theirs / ours for ours, theirs in zip(samples[first], samples[side], strict=True)]
        report["ratios"][side] = {"median": statistics.median(ratios), "all": ratios}
        print(
            f"{'':<28}   {statistics.median(ratios):.2f} × {side}, {speed[side]:,.1f} tok/s"
            f" (from {min(ratios):.2f} to {max(ratios):.2f})", flush=True,
        )  # fmt: skip
    return report


def arguments(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    return parser


def busy_seconds() -> float:
    """Seconds that all cores together have worked since the start of the machine."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
