"""The one interface for choosing tokens: what `generation/` knows of a model."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]
Logits = np.ndarray[Any, np.dtype[np.float32]]


class Cache(Protocol):
    """What a model keeps of the tokens it has read, one row per sequence."""

    length: int

    def select(self, rows: Sequence[int]) -> Self:
        """The cache of some rows, in this order; a row may be taken more than once."""

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""


class Stepper(Protocol):
    """A model, as far as choosing tokens goes. It may also have `log_sums(logits)`, if it is faster than `sampling.log_sum`."""

    @property
    def context(self) -> int:
        """How many tokens it can look at."""

    @property
    def vocab(self) -> int:
        """How many tokens it scores."""

    def new_cache(self, rows: int, capacity: int, padding: Ids | None = None) -> Any:
        """An empty cache; `padding` says how many positions at the left of each row are void."""

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of such a cache."""

    def step(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the token that comes next."""
