"""Whoever waits for long work: they may leave, and they are told how far it is.

An explanation may run a model hundreds of times. Before each run it asks here whether somebody still waits
for it, and between them it reports how much is done. Who waits says so around the work, for its thread alone:

    waits = Waiting()
    with waited_for(waits): answer = ask("saliency", text)
    waits.done, waits.total; waits.left.set()     in another thread
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from glassformer.errors import GlassError


class Left(GlassError):
    """Nobody waits for the work any more."""


@dataclass(eq=False)
class Waiting:
    """One who waits: whether they have left, whether the work has begun, and how much of it is done."""

    left: threading.Event = field(default_factory=threading.Event)
    begun: bool = False
    done: int = 0
    total: int = 0  # 0: unknown

    def check(self) -> None:
        """End the work if nobody waits for it any more."""
        if self.left.is_set():
            raise Left("nobody waits for the answer any more")


_waiting: ContextVar[Waiting | None] = ContextVar("who waits", default=None)


@contextmanager
def waited_for(waits: Waiting) -> Iterator[None]:
    """Inside, the work is for one who waits."""
    waits.check()
    waits.begun = True
    before = _waiting.set(waits)
    try:
        yield
    finally:
        _waiting.reset(before)


def go_on() -> None:
    """Before another run of a model: end here if whoever waited has left."""
    waits = _waiting.get()
    if waits is not None:
        waits.check()


def is_left() -> bool:
    """Whether whoever waited has left; for work that ends by itself when it is asked to."""
    waits = _waiting.get()
    return waits is not None and waits.left.is_set()


def report(done: int, total: int) -> None:
    """Tell whoever waits how much is done; a total of 0 is unknown."""
    waits = _waiting.get()
    if waits is not None:
        waits.check()
        waits.done, waits.total = done, total
