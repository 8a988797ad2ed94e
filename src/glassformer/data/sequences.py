"""Pairs that are written as one sequence each, for a decoder: source, tag, target, end.

    I am a student <to-fr> je suis étudiant <|endoftext|>

The tag is a special token that says what is to be done. The source and the tag are read and not learned: the
loss is that of the target, with its end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from glassformer.data.batches import Batch
from glassformer.data.pairs import Ids, Rows, filled, shortest_first


class Written(NamedTuple):
    """One example as a sequence of token ids, of which the first `given` are read and not learned."""

    ids: list[int]
    given: int


def write(source: Sequence[int], target: Sequence[int], *, tag: int, end: int | None) -> Written:
    """A pair as one sequence; `end` is None where the target was cut: that is no place to learn its end."""
    ends = [] if end is None else [end]
    return Written([*source, tag, *target, *ends], len(source) + 1)


@dataclass(frozen=True)
class Sequences:
    """Many sequences, and how many of the first ids of each are only given."""

    rows: Rows
    given: Ids
    pad: int  # fills up short rows on the right, where nothing that is learned can see it
    noun: ClassVar[str] = "pairs"

    @classmethod
    def of(cls, examples: Sequence[Written], *, pad: int) -> "Sequences":
        """Examples, as rows."""
        given = np.array([one.given for one in examples], dtype=np.int64)
        return cls(Rows.of([one.ids for one in examples]), given, pad)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ids:
        """The number of ids of each row."""
        return self.rows.lengths

    @property
    def learned(self) -> int:
        """How many ids are learned, in all rows together."""
        return int((self.lengths - self.given).sum())

    @property
    def longest(self) -> int:
        """The most ids that are read at once: those of a row without the last, which is only predicted."""
        return int(self.lengths.max(initial=1)) - 1

    def batch(self, rows: Sequence[int]) -> Batch:
        """Some rows as arrays: `ids` (B, T + 1), and `mask` (B, T), True at the ids that are learned."""
        ids = filled([self.rows[row] for row in rows], self.pad)
        lengths = np.array([len(self.rows[row]) for row in rows])
        places = np.arange(1, ids.shape[1])
        mask = (places >= self.given[list(rows), None]) & (places < lengths[:, None])
        return Batch({"ids": ids, "mask": mask}, int(mask.sum()))

    def in_order(self, *, batch: int, tokens: int = 0) -> Iterator[Batch]:
        """Every row once, shortest first; or rows with about `tokens` ids that are learned, evenly spread."""
        share = tokens / max(1, self.learned)
        wanted = round(share * int(self.lengths.sum()))
        for rows in shortest_first(self.lengths, batch=batch, tokens=wanted):
            yield self.batch(rows)
