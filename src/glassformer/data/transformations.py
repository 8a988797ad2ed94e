"""GPT-1's input transformations: every task becomes sequences of one text, and these become batches.

classify   <|start|> text <|extract|>
entail     <|start|> premise <|delimiter|> hypothesis <|extract|>
similar    <|start|> one <|delimiter|> other <|extract|>, and once more with both exchanged
choose     <|start|> context <|delimiter|> answer <|extract|>, once for every answer
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from glassformer.data.batches import Batch
from glassformer.data.pairs import Ids, Rows, filled, shortest_first
from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.extend import DELIMITER, EXTRACT, START
from glassformer.tokenizers.train import PADDING

SPECIAL = (START, DELIMITER, EXTRACT, PADDING)


@dataclass(frozen=True)
class Transformation:
    """How the texts of a task are written for one model.

    A vocabulary without the special tokens, of a model that was trained elsewhere, does without them.
    """

    task: str
    tokenizer: Tokenizer
    context: int | None = None
    cut: bool = False  # what is too long is cut, at the end of its longest text; or else refused

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """The sequences of one example: one, or one for each order or answer."""
        encoded = [self.tokenizer.encode(text) for text in texts]
        if self.task == "similar":
            return [self._row(encoded), self._row(encoded[::-1])]
        if self.task == "choose":
            context, *answers = encoded
            return [self._row([context, answer]) for answer in answers]
        return [self._row(encoded)]

    def is_cut(self, texts: Sequence[str]) -> bool:
        """Whether the texts are too long for the context, so that they are cut."""
        if self.context is None:
            return False
        whole = replace(self, context=None).rows(texts)
        return max(map(len, whole)) > self.context

    def _row(self, texts: Sequence[list[int]]) -> list[int]:
        marks = [self._mark(START), self._mark(DELIMITER), self._mark(EXTRACT)]
        start, between, end = marks
        if self.context is not None:
            extra = len(start) + (len(texts) - 1) * len(between) + len(end)
            texts = self._fitted(texts, room=self.context - extra)
        row = list(start)
        for number, text in enumerate(texts):
            row += [*between, *text] if number else text
        return row + end

    def _mark(self, name: str) -> list[int]:
        return [self.tokenizer.special[name]] if name in self.tokenizer.special else []

    def _fitted(self, texts: Sequence[list[int]], *, room: int) -> Sequence[list[int]]:
        over = sum(map(len, texts)) - room
        if over <= 0:
            return texts
        if not self.cut:
            assert self.context is not None
            size = self.context + over
            raise InputError(
                f"{size} tokens are {over} more than the model's context of {self.context};"
                " shorten the text, or cut it (--cut)"
            )
        shorter = [list(text) for text in texts]
        for _ in range(over):  # the longest gives way, so that a short hypothesis stays whole
            max(shorter, key=len).pop()
        return shorter


@dataclass(frozen=True)
class Examples:
    """Examples as token ids: each has one row or several, and a target."""

    rows: Rows
    ends: Ids  # (N,) behind the last row of each example
    targets: "np.ndarray[Any, Any]"  # (N,) whole numbers of classes or answers, or numbers
    pad: int
    noun: ClassVar[str] = "examples"

    @classmethod
    def of(cls, rows: Sequence[Sequence[Sequence[int]]], targets: Sequence[float], *, pad: int) -> "Examples":
        """The rows of every example, and the targets."""
        ends = np.cumsum([len(one) for one in rows], dtype=np.int64)
        kind = np.float32 if any(isinstance(target, float) for target in targets) else np.int64
        every = Rows.of([row for one in rows for row in one])
        return cls(every, ends, np.array(targets, dtype=kind), pad)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> Ids:
        """The tokens of each example, of all its rows."""
        tokens = np.concatenate([[0], self.rows.ends])[self.ends]
        lengths: Ids = np.diff(tokens, prepend=0)
        return lengths

    def batch(self, rows: Sequence[int]) -> Batch:
        """Some examples as arrays: `ids` (R, T) of all their rows, and `target` (B,).

        `at` (R,) is where each row ends. `rows` (B, K) says which rows belong to an example; −1 fills up.
        """
        groups = [range(int(self.ends[one - 1]) if one else 0, int(self.ends[one])) for one in rows]
        given = [self.rows[row] for group in groups for row in group]
        firsts = np.cumsum([0, *map(len, groups)])
        own = [np.arange(first, first + len(group)) for first, group in zip(firsts, groups, strict=False)]
        arrays = {
            "ids": filled(given, self.pad),
            "at": np.array([len(row) - 1 for row in given]),
            "rows": filled(own, -1),
            "target": self.targets[list(rows)],
        }
        return Batch(arrays, len(groups))

    def in_order(self, *, batch: int, tokens: int = 0) -> Iterator[tuple[list[int], Batch]]:
        """Every example once, shortest first; or about `tokens` tokens of them, evenly spread.

        With each batch, which examples they are.
        """
        for rows in shortest_first(self.lengths, batch=batch, tokens=tokens):
            yield rows, self.batch(rows)
