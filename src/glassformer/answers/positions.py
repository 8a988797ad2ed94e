"""Positions: the waves that tell a Transformer where a token is, in both published layouts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Drawing, Table, answer
from glassformer.errors import InputError
from glassformer.explain.positions import layouts
from glassformer.figures.color import signed
from glassformer.figures.labels import number
from glassformer.figures.marks import Spec
from glassformer.figures.specs import curves, matrix, names, panels

TITLES = {
    "alternating": "alternating: sin, cos, sin, cos, … (the paper)",
    "halves": "halves: all sines, then all cosines (tensor2tensor, Marian)",
}
FEW = 8  # numbers of a vector that a table shows; a picture of so few has their values in it
MOST = 4096  # positions, and numbers of a vector


@answer
class Positions(Answer):
    """The position vectors (T, D) in both layouts; its tokens are the positions."""

    kind = "positions"

    alternating: Array
    halves: Array

    def make_table(self) -> Table:
        """The first numbers of every vector, in the paper's layout."""
        shown = min(FEW, self.alternating.shape[1])
        columns = [Column("position", "count", key=True), Column("token", key=True)]
        columns += [Column(f"{'cos' if n % 2 else 'sin'} {n // 2}", "number") for n in range(shown)]
        rows: list[list[Cell]] = []
        for at, row in enumerate(self.alternating[:, :shown].tolist()):
            rows.append([at, self.tokens[at], *row])
        return Table(columns, rows)

    def every(self) -> Table:
        """A row for every position and number of its vector, in both layouts."""
        columns = [
            Column("position", "count", key=True),
            Column("number", "count", key=True),
            Column("alternating", "number"),
            Column("halves", "number"),
        ]
        rows: list[list[Cell]] = []
        for position, at in np.ndindex(self.alternating.shape):
            both = [float(self.alternating[position, at]), float(self.halves[position, at])]
            rows.append([position, at, *both])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """Colors, or how near every position is to the middle one."""
        return {"table": self.draw, "similarity": self.draw_similarity}

    def draw(self) -> Spec:
        """A row is a position, a column one number of its vector."""
        parts = [self._draw(name) | {"title": title} for name, title in TITLES.items()]
        few = self.alternating.shape[1] <= FEW
        return panels(parts, across=2 if few else 1)

    def _draw(self, layout: str) -> Spec:
        values: Array = getattr(self, layout)
        width = values.shape[1]
        across = [str(n) for n in range(width)]
        rows = [name if at % 8 == 0 else "" for at, name in enumerate(names(self.tokens))]
        how: Spec = {"cell": [max(1.0, min(24.0, 840.0 / width)), 9.0], "column_labels": False}
        if width <= FEW:
            rows = names(self.tokens)
            texts = [[f"{value:.2f}".replace("-", "−") for value in row] for row in values.tolist()]
            how = {"texts": texts, "numeric": True, "cell": [52.0, 20.0]}
        return matrix(rows, across, values=values, scale=signed("sine or cosine", 1.0), **how)

    def draw_similarity(self) -> Spec:
        """Dot products of the middle position with all: they fall with the distance, alike on both sides."""
        middle = len(self.tokens) // 2
        products = self.alternating @ self.alternating[middle]
        return curves(
            list(range(len(self.tokens))),
            {"": products},
            x_title="position",
            y_title=f"dot product with position {middle}",
        )

    def finding(self) -> str:
        """What the layouts share."""
        width = self.alternating.shape[1]
        near, far = (float(self.alternating[0] @ self.alternating[at]) for at in (1, -1))
        return (
            f"every vector has the length √{width // 2}, and both layouts hold the same numbers;"
            f" the product of position 0 with 1 is {number(near)},"
            f" with {len(self.tokens) - 1} it is {number(far)}"
        )


def positions(
    *, count: int = 64, width: int = 128, base: float = 10_000.0, words: Sequence[str] = ()
) -> Positions:
    """The position vectors of a Transformer; `words` name the first positions, and set their count."""
    size = len(words) or count
    for name, value, least in (("count", size, 2), ("width", width, 2)):
        if not least <= value <= MOST:
            raise InputError(f"{name} must be between {least} and {MOST:,}, not {value}")
    if base <= 1:
        raise InputError(f"base must be above 1, not {base:g}")
    made: dict[str, Any] = layouts(size, width, base=base)
    labels = list(words) or [str(at) for at in range(size)]
    caption = f"sinusoidal positions, width {width}, base {base:,g}"
    return Positions(caption=caption, tokens=labels, **made)
