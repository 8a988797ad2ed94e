"""Shapes: how recurrent networks read and write: one to many, many to one, many to many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.answers.answer import Answer, Cell, Column, Table, answer
from glassformer.errors import counted
from glassformer.explain.shapes import Steps, steps_of
from glassformer.figures.marks import Spec
from glassformer.figures.specs import names, panels

LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Example:
    """A network, the tokens that it is run with, and what they are called in a picture (x₁, x₂, …)."""

    net: Any
    task: str
    texts: list[list[int]]  # one text, or a source and a target
    inputs: list[str] | None = None
    outputs: list[str] | None = None  # "" where none is shown


@dataclass(frozen=True)
class Shape:
    """What a run of a network showed."""

    name: str
    task: str
    network: str  # its kind and cell
    reads: int
    writes: int
    both_ways: bool
    steps: list[Spec]


@answer
class Shapes(Answer):
    """One shape or several."""

    kind = "shapes"

    shapes: list[Shape]

    def make_table(self) -> Table:
        """A row for every shape."""
        columns = [
            Column("shape", key=True),
            Column("for example"),
            Column("network"),
            Column("inputs", "count"),
            Column("states", "count"),
            Column("outputs", "count"),
        ]
        rows: list[list[Cell]] = [
            [one.name, one.task, one.network, one.reads, len(one.steps), one.writes] for one in self.shapes
        ]
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Each network unrolled: inputs below its states, outputs above them."""
        parts = [
            {"kind": "unrolled", "steps": one.steps, "note": f"{one.task} · {one.network}"}
            for one in self.shapes
        ]
        if len(parts) == 1:
            return parts[0]
        titled = [
            part | {"title": one.name, "room": 460.0} for part, one in zip(parts, self.shapes, strict=True)
        ]
        return panels(titled, across=2, gap=30)

    def finding(self) -> str:
        """What each reads and writes."""
        found = [
            f"{one.name} reads {counted(one.reads, 'input')} and writes {counted(one.writes, 'output')}"
            for one in self.shapes
        ]
        return "; ".join(found)


def shapes(examples: Sequence[Example], *, model: str = "") -> Shapes:
    """The shapes of networks, each found by a run of it."""
    found = [_shape(one) for one in examples]
    own = [step for one in found for step in one.steps if step.get("own")]
    title = "the shapes of their tasks" if len(found) > 1 else found[0].name
    caption = f"{model or 'recurrent networks'}: {title}"
    dashed = "Dashed: what a network reads of its own output, a step later." if own else ""
    about = f"\nBelow: inputs. Middle: states, each made of the one before it. Above: outputs. {dashed}"
    return Shapes(caption=caption + about.rstrip(), tokens=[], shapes=found)


def _shape(example: Example) -> Shape:
    steps = steps_of(example.net, *example.texts)
    inputs = names(example.inputs or _numbered("x", steps.read))
    outputs = names(example.outputs or _numbered("y", steps.scored))
    config = example.net.config
    return Shape(
        name=steps.name,
        task=example.task,
        network=f"{example.net.kind}, {config.cell.upper()}",
        reads=steps.read,
        writes=steps.scored,
        both_ways=steps.both_ways,
        steps=_drawn(steps, inputs, outputs),
    )


def _drawn(steps: Steps, inputs: list[str], outputs: list[str]) -> list[Spec]:
    """A column for every state."""
    states = _numbered("h", steps.read)
    back = [{"both_ways": True} if steps.both_ways else {}] * (steps.read - 1) + [{}]
    if not steps.wrote:
        last = [None] * (steps.read - 1) + [outputs[0]]
        above = outputs if steps.scored == steps.read else last
        return [
            _step(given, state, output) | way
            for given, state, output, way in zip(inputs, states, above, back, strict=True)
        ]

    written = _numbered("s", steps.wrote)
    before = [None, *outputs[:-1]]  # what the decoder reads: the word that it wrote a step before
    wrote = [
        _step(own, state, output) | ({"own": True} if own is not None else {})
        for own, state, output in zip(before, written, outputs, strict=True)
    ]
    if steps.read == 1:  # the one input makes the first state
        return [wrote[0] | {"input": inputs[0]}, *wrote[1:]]
    read = [
        _step(given, state, None) | {"network": "encoder"} | way
        for given, state, way in zip(inputs, states, back, strict=True)
    ]
    return [*read, *(one | {"network": "decoder"} for one in wrote)]


def _step(given: str | None, state: str, output: str | None) -> Spec:
    return {"input": given, "state": state, "output": output or None}


def _numbered(letter: str, count: int) -> list[str]:
    """x₁, x₂, …"""
    return [letter + str(n).translate(LOWERED) for n in range(1, count + 1)]
