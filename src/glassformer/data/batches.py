"""Rows of tokens to batches: shuffled, mixed by weight, from an explicit cursor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassformer.data.shards import Ids, Row
from glassformer.errors import InputError


class Window(NamedTuple):
    """A stretch of one of the rows."""

    row: int
    start: int


@dataclass(frozen=True)
class Batch:
    """Arrays by name, as an objective wants them, and how many targets they hold."""

    arrays: dict[str, "np.ndarray[Any, Any]"]
    count: int


class Stream:
    """An endless stream of windows of `context` tokens, each with the token after it.

    A row is cut into windows without gap or overlap; an epoch takes each of them once, in an order of its own
    and cut at a place of its own. Given the token that precedes every document (`beginning`), windows begin
    there instead, and go on into the next document where one ends early. Several rows are mixed so that at
    every moment each has had its share, to within one window. What comes next depends on the seed and the
    `cursor` alone: how many windows each row has given so far.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        context: int,
        seed: int,
        weights: Sequence[float] = (),
        beginning: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        for number, row in enumerate(rows):
            if len(row) <= context:
                name = names[number] if names else f"row {number}"
                raise InputError(
                    f"{name}: {len(row):,} tokens of text are too few for windows of {context + 1}"
                )
        weights = weights or [len(row) for row in rows]
        positive = all(0 < weight < float("inf") for weight in weights)
        if len(weights) != len(rows) or not positive:
            raise InputError(f"weights: {len(rows)} sources need as many weights, each above 0")

        self.rows = list(rows)
        self.context = context
        self.seed = seed
        self.shares = np.array(weights, dtype=np.float64) / sum(weights)
        self.starts: list[Ids | None] = [None] * len(rows)
        if beginning is not None:
            self.starts = [aligned(row.places(beginning), length=len(row), context=context) for row in rows]
        self.least = 1 / max(1, 2 * len(rows) - 2)  # how far behind a row must be before it may be chosen
        self.cursor = [0] * len(rows)
        self._epochs: dict[int, _Epoch] = {}  # the current one of each row, which the cursor alone decides

    def draw(self, count: int) -> list[Window]:
        """The next `count` windows; the cursor moves on."""
        windows = []
        for _ in range(count):
            row = self._next_row()
            start = self._start(row, self.cursor[row])
            windows.append(Window(row, start))
            self.cursor[row] += 1
        return windows

    def read(self, windows: Sequence[Window]) -> Batch:
        """The tokens of windows: (B, T + 1), T inputs and, shifted by one, T targets."""
        length = self.context + 1
        return batch_of([self.rows[row].read(start, length) for row, start in windows])

    def _next_row(self) -> int:
        """The row that is due next, so that none is ever a whole window off its share (Tijdeman, 1980).

        Among the rows far enough behind their share, it is the one that would soonest be too far behind.
        Choosing the row that is furthest behind looks simpler, but with many rows it can be off by more than
        a window.
        """
        given = np.array(self.cursor)
        total = sum(self.cursor) + 1  # with the window that is chosen now
        behind = self.shares * total - given
        deadline = (given + 1 - self.least) / self.shares  # the total at which it would be too far behind

        eligible = behind >= self.least - 1e-9  # the margin is for rounding: one row is always eligible
        urgency = np.where(eligible, deadline, np.inf)
        return int(np.argmin(urgency))

    def _start(self, row: int, number: int) -> int:
        """Where the `number`-th window of a row begins, counted over all epochs."""
        starts = self.starts[row]
        per_epoch = len(self.rows[row]) // self.context if starts is None else len(starts)
        number_of_epoch, number = divmod(number, per_epoch)
        epoch = self._epoch(row, number_of_epoch, per_epoch)
        window = int(epoch.order[number])
        if starts is not None:
            return int(starts[window])
        # May lie beyond the end: the row is read as a ring, so that every epoch can be cut at another place.
        return epoch.cut + window * self.context

    def _epoch(self, row: int, epoch: int, windows: int) -> "_Epoch":
        """An epoch's order. It follows from seed, row and epoch: a checkpoint need not store it."""
        known = self._epochs.get(row)
        if known is not None and known.number == epoch:
            return known
        key = np.array([self.seed, row << 32 | epoch], dtype=np.uint64)
        draw = np.random.Generator(np.random.Philox(key=key))
        cut = int(draw.integers(len(self.rows[row])))
        order = draw.permutation(windows).astype(np.uint32)  # smaller than int64: it is kept for an epoch
        self._epochs[row] = _Epoch(epoch, cut, order)
        return self._epochs[row]


class _Epoch(NamedTuple):
    """One pass over a row: where the row is cut, and the order of its windows."""

    number: int
    cut: int
    order: Any


def aligned(places: Ids, *, length: int, context: int) -> Ids:
    """Where windows begin: at every document, and every `context` tokens further on in one that is longer.

    The last window of a long document is moved back so that it ends with the document: otherwise it would
    hold a few tokens of it and much of the next one.
    """
    ends = np.append(places[1:], length - 1)  # of each document; the last token of a row has no next one
    lengths = ends - places
    counts = np.maximum(1, -(-lengths // context))  # windows of each document, rounded up

    # One entry per window from here on: number 0, 1, … within its document.
    first = np.repeat(np.cumsum(counts) - counts, counts)
    number = np.arange(counts.sum()) - first
    starts: Ids = np.repeat(places, counts) + number * context

    is_last = number + 1 == np.repeat(counts, counts)
    moved = is_last & (number > 0)  # a document of a single window stays where it begins
    starts[moved] = np.repeat(ends, counts)[moved] - context
    return starts[starts < length - 1]


def in_order(
    rows: Sequence[Row], *, context: int, batch: int, tokens: int = 0, beginning: int | None = None
) -> Iterator[Batch]:
    """Every window of the rows once, in order, the last one short; or about `tokens`, evenly spread.

    Given a `beginning`, windows are those that a stream draws: what begins elsewhere was never learned.
    """
    total = sum(map(len, rows))
    for row in rows:
        starts = list(range(0, len(row) - 1, context))
        whole = beginning is not None and len(row) > context  # each window is, as the row is read as a ring
        if beginning is not None and whole:
            starts = aligned(row.places(beginning), length=len(row), context=context).tolist()
        if tokens and tokens < total:
            wanted = max(1, round(len(starts) * tokens / total))
            chosen = [number * len(starts) // wanted for number in range(wanted)]
            starts = [starts[number] for number in chosen]

        # A short last window cannot be stacked with the others: it becomes a batch of its own.
        targets = len(row) - 1
        short = [starts.pop()] if not whole and targets - starts[-1] < context else []
        groups = [starts[i : i + batch] for i in range(0, len(starts), batch)]
        if short:
            groups.append(short)
        for group in groups:
            # One length for all windows of a group.
            length = context + 1 if whole else min(context + 1, len(row) - group[0])
            yield batch_of([row.read(start, length) for start in group])


def batch_of(windows: "Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]") -> Batch:
    """Windows of one length as a batch; it has a `mask` (B, T) only if some target is not to be learned."""
    ids = np.stack([ids for ids, _ in windows])  # (B, T + 1)
    everything = np.ones(ids.shape[1], bool)
    masks = [everything if mask is None else mask for _, mask in windows]
    mask = np.stack(masks)[:, 1:]  # (B, T): the first token of a window is no target
    if mask.all():
        return Batch({"ids": ids}, mask.size)
    return Batch({"ids": ids, "mask": mask}, int(mask.sum()))
