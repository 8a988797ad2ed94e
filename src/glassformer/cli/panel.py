"""The progress of a training: one live panel on a terminal, plain lines elsewhere."""

import itertools
import math
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from glassformer.cli.printing import stderr
from glassformer.errors import counted
from glassformer.figures.labels import readable

EVERY = 5.0  # seconds between plain lines
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40


class Follower:
    """Gets every event of a training, and shows it on stderr."""

    def __init__(self, out: Path, *, quiet: bool = False) -> None:
        self.out, self.quiet, self.console = out, quiet, stderr()
        self.live = (
            None if quiet or not sys.stderr.isatty() else Live(console=self.console, auto_refresh=False)
        )
        self.start: Any = None  # the event Started
        self.at: Any = None  # the newest Stepped
        self.origin = (0.0, 0)  # time and step from which the time left is estimated
        self.losses: list[float] = []
        self.speeds: list[float] = []
        self.held_out: Any = None  # the newest Evaluated
        self.saved: Any = None  # the newest Saved
        self.shown = time.monotonic()

    def __enter__(self) -> "Follower":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.update(self._panel() if self.at is not None else "", refresh=True)
            self.live.stop()

    def progress(self, what: str, *, done: int, total: int) -> None:
        """How far the preparation is."""
        share = min(1.0, done / max(1, total))
        if self._due():
            if self.live is None:
                self._say(f"{what}: {share:.0%}")
            else:
                self.live.update(
                    Group(f"{what}: {share:.0%}", ProgressBar(total=1, completed=share, width=60)),
                    refresh=True,
                )

    def show(self, event: Any) -> None:
        """Show what happened."""
        # By name: the classes live in rooms that import torch, and this one is loaded before it is needed.
        match type(event).__name__:
            case "Message":
                self._say(event.text)
            case "Started":
                self._start(event)
            case "Stepped":
                self._step(event)
            case "Evaluated":
                self.held_out = event
                note = "  the best so far" if event.best else "  before training" if not event.step else ""
                self._say(f"step {event.step:,}  held-out loss {event.loss:.4f}{note}")
            case "Saved":
                self.saved = event
            case "Preview" if event.text:  # a head has none without a text
                self._say("\n".join(f"  {readable(line)}" for line in event.text.split("\n")))
            case "Finished":
                self._finish(event)

    def stopped(self, signal: int) -> int:
        """Say that the training was stopped, what was saved, and how to resume it; the exit code."""
        if self.saved is None:
            self._say("Stopped before the first step: there is nothing to save.")
        else:
            self._say(f"Stopped after step {self.saved.step:,}, saved as {self.saved.folder}.")
            self._say(f"Go on:  glass train {self.out}")
        return 128 + signal

    def _say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text)

    def _due(self) -> bool:
        if time.monotonic() - self.shown < (EVERY if self.live is None else 0.25):
            return False
        self.shown = time.monotonic()
        return True

    def _start(self, event: Any) -> None:
        self.start = event
        part = "" if event.trained == event.parameters else f", {event.trained:,} of them trained"
        self._say(
            f"{counted(event.parameters, 'parameter')}{part}; {counted(event.tokens, 'token')} to learn from,"
            f" {event.held_out:,} held out; {counted(event.steps, 'step')} into {event.folder}"
        )
        if event.resumed == event.steps:
            self._say(f"All {counted(event.steps, 'step')} were done already; nothing to train.")
        elif event.resumed:
            self._say(f"Resumed after step {event.resumed:,}.")

    def _finish(self, event: Any) -> None:
        best = ""
        if event.best is not None:
            best = f"; best held-out loss {event.best:.4f} {self.start.measure}, at step {event.best_step:,}"
        if event.best is not None and event.start is not None:
            better = "" if event.best < event.start else ", which was better"
            best += f" ({event.start:.4f} before training{better})"
        early = "Ended early, no evaluation got better" if event.early else "Done"
        self._say(f"{early}: {counted(event.step, 'step')}, {counted(event.tokens, self.start.unit)}{best}.")

    def _step(self, event: Any) -> None:
        if self.at is None:
            self.origin = (time.monotonic(), event.step)
        self.at = event
        self.losses.append(event.loss)
        self.speeds = [*self.speeds[-19:], event.tokens_per_second]
        if not self._due() and event.step != self.start.steps:
            return
        if self.live is not None:
            self.live.update(self._panel(), refresh=True)
            return
        self._say(
            f"step {event.step:,}/{self.start.steps:,}  loss {event.loss:.4f}  lr {event.lr:.2e}"
            f"  {self._speed():,.0f} {self.start.unit}s/s  {self._left()} left"
        )

    def _panel(self) -> RenderableType:
        event, table = self.at, Table.grid(padding=(0, 2))
        held_out = (
            "not yet" if self.held_out is None else f"{self.held_out.loss:.4f} at step {self.held_out.step:,}"
        )
        table.add_row("step", f"{event.step:,} of {self.start.steps:,}")
        table.add_row("", ProgressBar(total=self.start.steps, completed=event.step, width=SPARK_WIDTH + 8))
        table.add_row("loss", f"{event.loss:.4f}  {spark(self.losses, SPARK_WIDTH)}")
        table.add_row("held out", held_out)
        table.add_row("learning rate", f"{event.lr:.2e}")
        table.add_row("speed", f"{self._speed():,.0f} {self.start.unit}s/s")
        table.add_row("time left", self._left())
        return Panel(table, title=str(self.out), title_align="left", expand=False)

    def _speed(self) -> float:
        """Targets a second in the last steps, without the time for evaluating and saving."""
        return sum(self.speeds) / len(self.speeds)

    def _left(self) -> str:
        when, step = self.origin
        done = self.at.step - step
        return clock((time.monotonic() - when) / done * (self.start.steps - self.at.step)) if done else "?"


def clock(seconds: float) -> str:
    """Seconds as people say them."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def spark(values: list[float], width: int) -> str:
    """A curve in one line: means of equal parts, the lowest as the lowest block."""
    parts = min(width, len(values))
    edges = [i * len(values) // parts for i in range(parts + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means), max(means) - min(means) or 1.0
    return "".join(SPARKS[min(7, int((mean - low) / span * 8))] for mean in means)
