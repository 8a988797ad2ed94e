"""The one interface for choosing tokens: what `generation/` knows of a model.

A source (a sentence to translate, neighbors from a database) is not part of it. A model that needs one offers
`given(sources)`, which returns a `Stepper` that is bound to these sources: one for each prompt, in order.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeGuard

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]
Logits = np.ndarray[Any, np.dtype[np.float32]]


class Cache(Protocol):
    """What a model keeps of the tokens it has read, one row per sequence."""

    length: int

    def select(self, rows: Sequence[int]) -> Self:
        """A copy for some rows, in this order; a row may be taken more than once."""


class Stepper(Protocol):
    """A model, as far as choosing tokens goes."""

    @property
    def context(self) -> int | None:
        """The number of tokens it can attend to; None if there is no limit, as in a recurrent network."""

    @property
    def vocab(self) -> int:
        """The number of tokens it scores."""

    def new_cache(self, rows: int, capacity: int, *, padding: Ids | None = None) -> Any:
        """An empty cache; `padding` is the number of padding positions at the left of each row."""

    def cache_size(self, rows: int, capacity: int) -> int:
        """The bytes of such a cache."""

    def step(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the next token."""

    def log_sums(self, logits: Logits) -> Sequence[float]:
        """For each row of logits (B, V), log Σ exp(logit): a logit minus this is a log-probability."""


class Scorer(Stepper, Protocol):
    """A `Stepper` that also scores every position of a text."""

    def logits(self, ids: Ids) -> Logits:
        """Scores of the next token after every position: (B, T) -> (B, T, V)."""


class ReorderableCache(Cache, Protocol):
    """A cache that can exchange its rows in place, which takes less time than a copy."""

    def reorder(self, rows: Sequence[int]) -> None:
        """Make each row a copy of another one, or of itself: as many rows as there are."""


def is_reorderable(cache: Cache) -> TypeGuard[ReorderableCache]:
    """Whether a cache can exchange its rows in place."""
    return hasattr(cache, "reorder")


class RewindableCache(Cache, Protocol):
    """A cache that can go back."""

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""


class PiecewiseStepper(Stepper, Protocol):
    """A model whose logits are the same bits however a text is cut into steps, also after going back.

    Only such a model offers `step_all`: tokens can be read before they are chosen, and no result changes.
    """

    def step_all(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, T, V) of the next token after each of them."""


def is_piecewise(model: Stepper) -> TypeGuard[PiecewiseStepper]:
    """Whether a model makes the promise of a `PiecewiseStepper`."""
    return hasattr(model, "step_all")


class Piece(NamedTuple):
    """Tokens of one row that are read in a step, from a position on; the last `scored` of them get logits."""

    row: int
    start: int
    ids: Sequence[int]
    scored: int = 0


class SlottedStepper(PiecewiseStepper, Protocol):
    """A model that reads pieces of different rows in one step, each at a position of its own.

    The logits of a row do not depend on the other rows: texts can join a batch and leave it at any step. Its
    caches have `copy_row(source, target, length=…)`, after which a row goes on as the other one would.
    """

    def step_pieces(self, pieces: Sequence[Piece], cache: Any) -> Logits:
        """Read pieces of different rows; float32 logits (N, V) of their scored tokens, in order."""


def has_slots(model: Stepper) -> TypeGuard[SlottedStepper]:
    """Whether a model makes the promise of a `SlottedStepper`."""
    return hasattr(model, "step_pieces")
