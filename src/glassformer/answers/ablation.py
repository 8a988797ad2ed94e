"""Head ablation: what a model's score becomes without each of its heads, one at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Progress, Reader, Table, answer
from glassformer.figures.color import signed
from glassformer.figures.labels import number
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, panels
from glassformer.waiting import report

ATTENTION = {"attn": "self-attention", "cross": "cross-attention"}  # parts of a block, as articles name them
Measure = Callable[[list[dict[str, str]]], float]


@dataclass(frozen=True)
class Head:
    """One head, and the score of the model without it."""

    stack: str
    part: str
    layer: int
    head: int
    site: str
    score: float


@answer
class HeadAblation(Answer):
    """The score of a model as it is, and without each head."""

    kind = "head_ablation"

    metric: str
    score: float  # of the model as it is
    heads: list[Head]

    def make_table(self) -> Table:
        """A row for every head, in the order of the stacks."""
        columns = [
            Column("stack", key=True),
            Column("attention", key=True),
            Column("layer", "count", key=True),
            Column("head", "count", key=True),
            Column("site"),
            Column(self.metric, "number"),
            Column("difference", "signed"),
        ]
        rows: list[list[Cell]] = []
        for one in self.heads:
            place: list[Cell] = [one.stack, ATTENTION[one.part], one.layer, one.head, one.site]
            rows.append([*place, one.score, one.score - self.score])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Layers by heads, for each kind of attention; the last layer on top."""
        most = max((abs(one.score - self.score) for one in self.heads), default=0.0)
        scale = signed(f"difference of {self.metric} without the head", most)
        kinds = list(dict.fromkeys((one.stack, one.part) for one in self.heads))
        parts = []
        for n, (stack, part) in enumerate(kinds):
            found = self._differences(stack, part)[::-1]
            layers, heads = found.shape
            drawn = matrix(
                [f"layer {layer}" for layer in reversed(range(layers))],
                [str(head) for head in range(heads)],
                values=found,
                scale=scale,
                texts=[[_signed(value) for value in row] for row in found.tolist()],
                numeric=True,
                cell=[44.0, 24.0],
                title=f"{stack}: {ATTENTION[part]}",
                x_title="heads",
                legend=n == len(kinds) - 1,
            )
            parts.append(drawn | {"room": 460})
        return panels(parts, across=3)

    def _differences(self, stack: str, part: str) -> Array:
        """(L, H): how the score changes."""
        own = [one for one in self.heads if (one.stack, one.part) == (stack, part)]
        found = np.zeros((1 + own[-1].layer, 1 + own[-1].head))
        for one in own:
            found[one.layer, one.head] = one.score - self.score
        return found

    def finding(self) -> str:
        """The head that costs most, and how many cost nothing."""
        worst = min(self.heads, key=lambda one: one.score)
        free = sum(one.score >= self.score for one in self.heads)
        return (
            f"{self.metric} {number(self.score)} falls most without {worst.site}, to {number(worst.score)};"
            f" {free} of {len(self.heads)} heads can be left out one at a time without a loss"
        )


def _signed(value: float) -> str:
    """A difference with one digit behind the point, and its sign."""
    shown = f"{value:+.1f}".replace("-", "−")
    return "0" if shown in ("+0.0", "−0.0") else shown


def head_ablation(
    lm: Reader,
    *,
    measure: Measure,
    metric: str,
    progress: Progress = report,
) -> HeadAblation:
    """Switch off one head at a time: `measure` gives the score of the model with edits; higher is better."""
    places = [
        (stack, part, layer, head)
        for stack in lm.net.stacks
        for part in stack.attention
        for layer in range(stack.layers)
        for head in range(stack.heads)
    ]
    score = measure([])
    progress(1, 1 + len(places))
    heads = []
    for done, (stack, part, layer, head) in enumerate(places, 2):
        site = f"{stack.site(layer, part.name)}.{part.values}[{head}]"
        without = measure([{"site": site, "do": "zero"}])
        heads.append(Head(stack.name, part.name, layer, head, site, without))
        progress(done, 1 + len(places))
    return HeadAblation(
        caption=f"{lm.name}: {metric} without each head, one at a time; {number(score)} with all\n",
        tokens=[],
        metric=metric,
        score=score,
        heads=heads,
    )
