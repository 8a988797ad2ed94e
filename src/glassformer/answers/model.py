"""A model from outside: where its parameters are."""

from typing import Protocol

from glassformer.answers.answer import Answer, Cell, Column, Table, answer
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars


class Row(Protocol):
    """One tensor of a file, or one that recurs in every block."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def parameters(self) -> int: ...


class Outline(Protocol):
    """The tensors of a model's files, counted; nothing is loaded."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def block(self) -> "list[Row]": ...
    @property
    def whole(self) -> "list[Row]": ...


@answer
class Parameters(Answer):
    """Where a model's parameters are: one entry for each tensor, those of the blocks counted together."""

    kind = "parameters"

    tensors: list[str]
    shapes: list[tuple[int, ...]]
    times: list[int]  # in how many blocks the tensor is
    parameters: list[int]  # in all of them together

    def make_table(self) -> Table:
        """A row for every tensor."""
        columns = [
            Column("tensor", key=True),
            Column("shape"),
            Column("times", "count"),
            Column("parameters", "count"),
        ]
        rows: list[list[Cell]] = []
        for n, name in enumerate(self.tensors):
            shape = " × ".join(map(str, self.shapes[n]))
            rows.append([name, shape, self.times[n], self.parameters[n]])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """A bar for every tensor."""
        return bars(self.tensors, self.parameters)


def parameters(outline: Outline) -> Parameters:
    """Where a model's parameters are."""
    count = outline.blocks
    before = [(row.name, row, 1) for row in outline.whole[:2]]
    blocks = [(f"{count} × {row.name}", row, count) for row in outline.block]
    after = [(row.name, row, 1) for row in outline.whole[2:]]

    found = [*before, *blocks, *after]
    return Parameters(
        caption=f"{outline.name}: {outline.total:,} parameters, {outline.dtype}",
        tokens=[],
        tensors=[name for name, _, _ in found],
        shapes=[row.shape for _, row, _ in found],
        times=[times for _, _, times in found],
        parameters=[row.parameters * times for _, row, times in found],
    )
