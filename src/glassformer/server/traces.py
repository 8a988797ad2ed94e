"""Answers that are too large for one response: kept for a while, fetched in pieces, never listed."""

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

MOST_BYTES = 64 << 20  # of all traces together
LIFETIME = 600.0  # seconds


@dataclass
class Trace:
    """The answers to one request's questions, by name."""

    answers: dict[str, Any]
    size: int
    made: float = field(default_factory=time.monotonic)


class Traces:
    """A store with a bound; the oldest go first. An id cannot be guessed, and nothing tells which exist."""

    def __init__(self, *, most: int = MOST_BYTES, lifetime: float = LIFETIME) -> None:
        self.most, self.lifetime = most, lifetime
        self._kept: OrderedDict[str, Trace] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of what is kept."""
        return sum(trace.size for trace in self._kept.values())

    def keep(self, answers: dict[str, Any], size: int) -> str | None:
        """Keep answers; None if they are larger than the store."""
        if size > self.most:
            return None
        self._expire()
        while self.size + size > self.most:
            self._kept.popitem(last=False)
        id = f"trace_{secrets.token_hex(16)}"
        self._kept[id] = Trace(answers, size)
        return id

    def find(self, id: str) -> Trace | None:
        """A trace by its id."""
        self._expire()
        return self._kept.get(id)

    def drop(self, id: str) -> bool:
        """Forget a trace; whether there was one."""
        return self._kept.pop(id, None) is not None

    def _expire(self) -> None:
        now = time.monotonic()
        for id in [id for id, trace in self._kept.items() if now - trace.made > self.lifetime]:
            del self._kept[id]
