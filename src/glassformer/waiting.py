"""Long work can be cancelled, and reports its progress.

An explanation may run a model hundreds of times. Before each run it checks here whether its caller still
waits, and between them it reports how much is done. The caller says so around the work, for its thread alone:

    waits = Waiting()
    with cancellable(waits): answer = ask("saliency", text)
    waits.done, waits.total; waits.cancelled.set()     in another thread
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from glassformer.errors import GlassError


class Cancelled(GlassError):
    """The caller has left: the work was cancelled."""


@dataclass(eq=False)
class Waiting:
    """A caller that waits: whether it has left, whether the work has begun, and how much of it is done."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    begun: bool = False
    done: int = 0
    total: int = 0  # 0: unknown

    def check(self) -> None:
        """End the work if the caller has left."""
        if self.cancelled.is_set():
            raise Cancelled("the request was cancelled")


_waiting: ContextVar[Waiting | None] = ContextVar("who waits", default=None)


@contextmanager
def cancellable(waits: Waiting) -> Iterator[None]:
    """Inside, the work is for this caller."""
    waits.check()
    waits.begun = True
    before = _waiting.set(waits)
    try:
        yield
    finally:
        _waiting.reset(before)


def raise_if_cancelled() -> None:
    """Before another run of a model: end here if the caller has left."""
    waits = _waiting.get()
    if waits is not None:
        waits.check()


def is_cancelled() -> bool:
    """Whether the caller has left; for work that ends by itself when it is asked to."""
    waits = _waiting.get()
    return waits is not None and waits.cancelled.is_set()


def report(done: int, total: int) -> None:
    """Report to the caller how much is done; a total of 0 is unknown."""
    waits = _waiting.get()
    if waits is not None:
        waits.check()
        waits.done, waits.total = done, total
