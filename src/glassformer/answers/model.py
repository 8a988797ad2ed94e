"""A model from outside: where its parameters are."""

from collections.abc import Sequence
from typing import Protocol

from glassformer.answers.answer import Answer, Cell, Column, Table, answer
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars


class TensorSummary(Protocol):
    """A tensor of a file."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def parameters(self) -> int: ...


class PartSummary(Protocol):
    """The tensors of one block of a stack, which all its blocks have; or tensors outside of all blocks."""

    @property
    def stack(self) -> str: ...
    @property
    def blocks(self) -> int: ...
    @property
    def tensors(self) -> "Sequence[TensorSummary]": ...


class ModelSummary(Protocol):
    """The tensors of a model's files, counted; nothing is loaded."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def parts(self) -> "Sequence[PartSummary]": ...


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


def parameters(summary: ModelSummary) -> Parameters:
    """Where a model's parameters are."""
    found = [(part, tensor) for part in summary.parts for tensor in part.tensors]
    return Parameters(
        caption=", ".join(filter(None, [f"{summary.name}: {summary.total:,} parameters", summary.dtype])),
        tokens=[],
        tensors=[_title(part, tensor) for part, tensor in found],
        shapes=[tensor.shape for _, tensor in found],
        times=[part.blocks for part, _ in found],
        parameters=[tensor.parameters * part.blocks for part, tensor in found],
    )


def _title(part: PartSummary, tensor: TensorSummary) -> str:
    """`wte.weight`; `12 × ln_1.weight` in a block; `6 × encoder.fc1.weight` beside another stack."""
    if not part.stack:
        return tensor.name
    stack = "" if part.stack == "blocks" else f"{part.stack}."
    return f"{part.blocks} × {stack}{tensor.name}"
