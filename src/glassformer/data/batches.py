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

    A row is cut into windows without gap or overlap; an epoch takes each of them once, in an order of its own and cut at
    a place of its own. Given the token that stands before every document, windows begin there instead, and go on into the
    next document where one ends early. Several rows are mixed so that at every moment each has had its share, to within one
    window. What comes next depends on the seed and the `cursor` alone: how many windows each row has given so far.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        context: int,
        seed: int,
        weights: Sequence[float] = (),
        beginning: int | None = None,
    ) -> None:
        for number, row in enumerate(rows, 1):
            if len(row) <= context:
                raise InputError(
                    f"data {number}: {len(row):,} tokens of text are too few for windows of {context + 1}"
                )
        weights = weights or [len(row) for row in rows]
        if len(weights) != len(rows) or not all(0 < weight < float("inf") for weight in weights):
            raise InputError(f"weights: {len(rows)} sources need as many weights, each above 0")
        self.rows, self.context, self.seed = list(rows), context, seed
        self.shares = np.array(weights, dtype=np.float64) / sum(weights)
        self.starts = [
            None if beginning is None else aligned(row.places(beginning), len(row), context) for row in rows
        ]
        self.least = 1 / max(1, 2 * len(rows) - 2)
        self.cursor = [0] * len(rows)
        self._orders: dict[
            int, tuple[int, int, Any]
        ] = {}  # row -> its epoch, where that is cut, the order of its windows

    def draw(self, count: int) -> list[Window]:
        """The next `count` windows; the cursor moves on."""
        windows = []
        for _ in range(count):
            behind = self.shares * (sum(self.cursor) + 1) - self.cursor
            due = (
                np.array(self.cursor) + 1 - self.least
            ) / self.shares  # of those behind, whose turn ends first (Tijdeman 1980)
            row = int(np.argmin(np.where(behind >= self.least - 1e-9, due, np.inf)))
            windows.append(Window(row, self._place(row, self.cursor[row])))
            self.cursor[row] += 1
        return windows

    def read(self, windows: Sequence[Window]) -> Batch:
        """The tokens of windows: (B, T + 1), T to read and, shifted by one, T to write."""
        return batch_of([self.rows[window.row].read(window.start, self.context + 1) for window in windows])

    def _place(self, row: int, number: int) -> int:
        starts = self.starts[row]
        per_epoch = len(self.rows[row]) // self.context if starts is None else len(starts)
        epoch, number = divmod(number, per_epoch)
        if self._orders.get(row, (-1,))[0] != epoch:
            draw = np.random.Generator(
                np.random.Philox(key=np.array([self.seed, row << 32 | epoch], dtype=np.uint64))
            )
            self._orders[row] = (
                epoch,
                int(draw.integers(len(self.rows[row]))),
                draw.permutation(per_epoch).astype(np.uint32),
            )
        _, cut, order = self._orders[row]
        return cut + int(order[number]) * self.context if starts is None else int(starts[order[number]])


def aligned(places: Ids, length: int, context: int) -> Ids:
    """Where windows begin: at every document, and in one that is longer than a window also further on, the last at its end."""
    ends = np.append(places[1:], length - 1)
    counts = np.maximum(1, -(-(ends - places) // context))
    number = np.arange(counts.sum()) - np.repeat(
        np.cumsum(counts) - counts, counts
    )  # of a window in its document
    starts: Ids = np.repeat(places, counts) + number * context
    last = (number + 1 == np.repeat(counts, counts)) & (number > 0)
    starts[last] = np.repeat(ends, counts)[last] - context
    starts = starts[starts < length - 1]
    return starts


def in_order(rows: Sequence[Row], *, context: int, batch: int, tokens: int = 0) -> Iterator[Batch]:
    """Every window of the rows once, from beginning to end, the last one as short as it is; or about `tokens`, evenly spread."""
    for row in rows:
        starts = list(range(0, len(row) - 1, context))
        if tokens and tokens < sum(map(len, rows)):
            wanted = max(1, round(len(starts) * tokens / sum(map(len, rows))))
            starts = [starts[i * len(starts) // wanted] for i in range(wanted)]
        short = [starts.pop()] if len(row) - 1 - starts[-1] < context else []
        groups = [starts[i : i + batch] for i in range(0, len(starts), batch)] + [short] * bool(short)
        for group in groups:
            yield batch_of([row.read(start, min(context + 1, len(row) - start)) for start in group])


def batch_of(windows: "Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]") -> Batch:
    """Windows of one length as a batch; `mask` (B, T) is there only if some target is not to be learned."""
    ids = np.stack([ids for ids, _ in windows])
    if all(mask is None or mask[1:].all() for _, mask in windows):
        return Batch({"ids": ids}, ids[:, 1:].size)
    masks = [np.ones(ids.shape[1], bool) if mask is None else mask for _, mask in windows]
    mask = np.stack(masks)[:, 1:]
    return Batch({"ids": ids, "mask": mask}, int(mask.sum()))
