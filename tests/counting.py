"""The simplest thing to learn: rows that count up."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.data.batches import Batch
from glassformer.models.gpt import Config

SHAPE = Config(layers=1, heads=2, width=16, vocab=13, context=16)


@dataclass
class Counting:
    """A supply of rows that count up, modulo 13; some of their targets may be masked."""

    length: int = 17
    masked: bool = False
    cursor: list[int] = field(default_factory=lambda: [0])

    def draw(self, count: int) -> list[int]:
        rows = list(range(self.cursor[0], self.cursor[0] + count))
        self.cursor[0] += count
        return rows

    def read(self, rows: Sequence[int]) -> Batch:
        ids = np.stack([(np.arange(self.length) + 5 * row) % 13 for row in rows])
        if not self.masked:
            return Batch({"ids": ids}, ids[:, 1:].size)
        mask = np.stack([(np.arange(self.length - 1) + row) % 3 > 0 for row in rows])
        return Batch({"ids": ids, "mask": mask}, int(mask.sum()))
