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
from glassformer.errors import InputError


class Written(NamedTuple):
    """One example as a sequence of token ids, of which the first `given` are read and not learned."""

    ids: list[int]
    given: int


def write(source: Sequence[int], target: Sequence[int], *, tag: int, end: int | None) -> Written:
    """A pair as one sequence; `end` is None where the target was cut: that is no place to learn its end."""
    ends = [] if end is None else [end]
    return Written([*source, tag, *target, *ends], len(source) + 1)


class Room(NamedTuple):
    """How many tokens a model reads at once (None: any number), and how many a summary may have."""

    context: int | None
    room: int


def cut_source(ids: list[int], *, context: int | None, room: int, behind: int = 1) -> tuple[list[int], int]:
    """The beginning of a text that leaves room for what is behind it, a tag and a summary; and what is lost.

    The rule is one for training and for use: a model is asked what it was taught.
    """
    if context is None:
        return ids, 0
    most = context - behind - room
    if most < 1:
        raise InputError(
            f"a summary of {room:,} tokens leaves no room for a text in a context of {context:,};"
            " allow fewer (max_new_tokens; room in a recipe)"
        )
    return ids[:most], max(0, len(ids) - most)


class WrittenSummary(NamedTuple):
    """A text and its summary as one sequence, and how many tokens of both were cut off."""

    row: Written
    cut_source: int
    cut_target: int


def write_summary(
    source: list[int], target: list[int], *, tag: int, end: int | None, context: int | None, room: int
) -> WrittenSummary:
    """The beginning of a text, and as much of its summary as has room, with its end if it is whole."""
    kept, left = cut_source(source, context=context, room=room)
    if len(target) < room:
        return WrittenSummary(write(kept, target, tag=tag, end=end), left, 0)
    return WrittenSummary(write(kept, target[:room], tag=tag, end=None), left, 1 + len(target) - room)


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
