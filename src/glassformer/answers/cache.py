"""The KV cache: what each step of a generation computes, and what it reuses."""

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Table, Text, answer
from glassformer.errors import counted
from glassformer.explain import cache as caching
from glassformer.figures.color import magnitude
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, matrix, names, panels


@answer
class Cache(Answer):
    """What the KV cache held and saved while a text was generated, step by step."""

    kind = "cache"

    steps: list[caching.CacheStep]
    text: list[str]  # the tokens of prompt and answer together

    def make_table(self) -> Table:
        """A row for every step."""
        columns = [
            Column("step", "count", key=True),
            Column("token", "token", key=True),
            Column("computed", "count"),
            Column("reused", "count"),
            Column("saved", "share"),
            Column("bytes per layer", "count"),
            Column("bytes in total", "count"),
        ]
        rows: list[list[Cell]] = []
        for one, name in zip(self.steps, self.tokens, strict=True):
            counts = [_each(one.computed), _each(one.reused), one.saved, _each(one.bytes)]
            rows.append([one.step, name, *counts, int(one.bytes.sum())])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """A row for every step, a column for every position: outlined where new, solid where reused."""
        last = self.steps[-1]
        size = int(last.computed[0] + last.reused[0])
        reused = np.array([np.arange(size) < one.reused[0] for one in self.steps], dtype=float)
        outlined = []
        for n, one in enumerate(self.steps):
            first = int(one.reused[0])
            outlined += [[n, at] for at in range(first, first + int(one.computed[0]))]

        generated = zip(self.steps, names(self.tokens), strict=True)
        filled = matrix(
            [f"step {one.step} → {token}" for one, token in generated],
            names(self.text)[:size],
            values=reused,
            scale=magnitude("reused"),
            outlined=outlined,
            y_title="a step and the token it generated",
            x_title="the token whose keys and values are read",
            title="keys and values of every step: solid reused, outlined computed",
            legend=False,  # the title says what both look like
        )
        layers = [f"layer {n}" for n in range(len(last.bytes))]
        sizes = bars(layers, last.bytes, title="KV cache at the end, bytes per layer")
        return panels([filled, sizes])

    def finding(self) -> str:
        """What the last step does."""
        step, _, computed, reused, _, _, size = self.rows[-1]
        found = f"each layer computes {computed} and reuses {reused} positions"
        return f"in step {step} {found}; {size:,} bytes in all"


def _each(layers: Array) -> int | str:
    """One number where all layers are alike, and all of them where not."""
    first, *others = layers.tolist()
    alike = all(one == first for one in others)
    return int(first) if alike else " ".join(map(str, (first, *others)))


def cache(text: Text) -> Cache:
    """What the KV cache held and saved while a text was generated, step by step."""
    reading = text.reading()
    return Cache(
        caption=f"{text.name}: KV cache of {counted(reading.stack().layers, 'layer')}",
        tokens=text.labels[text.prompt :] if text.prompt else [],
        steps=caching.steps(reading),
        text=text.labels,
    )
