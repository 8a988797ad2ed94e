"""Unroll: a recurrent network reads a source state by state, and writes the target word by word."""

import numpy as np

from glassformer.answers.answer import Array, Cell, Column, Table, Text, answer
from glassformer.answers.attention import FromTo
from glassformer.explain import unroll as unrolling
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import cells, percent
from glassformer.figures.marks import LABEL, Spec
from glassformer.figures.specs import matrix, names, panels

WIDE = 380.0  # of a picture of states, at most


@answer
class Unroll(FromTo):
    """Both networks step by step: S tokens are read, then N are written."""

    kind = "unroll"

    read: Array  # (S, E) states of the encoder
    wrote: Array  # (N, D) states of the decoder
    context: Array | None  # (N, E) what each step got of the source
    pattern: Array | None  # (N, S) the weights of attention
    probability: Array  # (N,) of the written tokens

    def make_table(self) -> Table:
        """A row for every step: reading first, then writing."""
        columns = [
            Column("network", key=True),
            Column("step", "count", key=True),
            Column("token", "token", key=True),
            Column("norm of state", "number"),
            Column("change", "number"),
            Column("norm of context", "number"),
            Column("attends most to", "token"),
            Column("weight", "share"),
            Column("probability", "share"),
        ]
        rows: list[list[Cell]] = []
        for at, token in enumerate(self.sources):
            rows.append(["encoder", at, token, *_moved(self.read, at), None, None, None, None])
        for at, token in enumerate(self.tokens):
            context = None if self.context is None else float(np.linalg.norm(self.context[at]))
            row: list[Cell] = ["decoder", at, token, *_moved(self.wrote, at), context, None, None]
            if self.pattern is not None:
                best = int(self.pattern[at].argmax())
                row[-2:] = [self.sources[best], float(self.pattern[at, best])]
            rows.append([*row, float(self.probability[at])])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """States as rows of colors; beside the decoder's, what each step got of the source."""
        most = max(float(np.abs(one).max()) for one in (self.read, self.wrote))
        parts = [
            self._states(self.read, self.sources, "reads: a state of the encoder after each token", most)
        ]
        if self.pattern is not None:
            scale = magnitude("of the attention of a step", float(self.pattern.max()))
            title = "attends: how much of each of these states a step takes"
            weights = matrix(
                names(self.tokens), names(self.sources), values=self.pattern, scale=scale, unit="percent"
            )
            parts.append(weights | {"title": title, "room": 460})
        title = "writes: a state of the decoder for each token"
        parts.append(self._states(self.wrote, self.tokens, title, most))
        if self.context is not None:
            title = "the context vector of each step"
            parts.append(self._states(self.context, self.tokens, title, float(np.abs(self.context).max())))
        return panels(parts, across=2)

    def _states(self, values: Array, tokens: list[str], title: str, most: float) -> Spec:
        width = values.shape[1]
        rows = names(tokens)
        return matrix(
            rows,
            [str(n) for n in range(width)],
            values=values,
            scale=signed("a number of the vector", most),
            title=title,
            cell=[max(1.0, WIDE / max(width, 16)), 16.0],
            column_labels=False,
            label_columns=min(LABEL, max(map(cells, rows))),
            room=max(460.0, width + 120.0),
        )

    def finding(self) -> str:
        """How much is read and written, and by what the decoder knows of it."""
        kept = f"{self.read.shape[1]} numbers a token"
        given = "the last of these states alone" if self.context is None else "a context vector in every step"
        sure = percent(float(self.probability.mean()))
        return (
            f"{len(self.sources)} tokens become {kept}, of which the decoder gets {given};"
            f" it writes {len(self.tokens)} with a mean probability of {sure}"
        )


def _moved(states: Array, at: int) -> list[Cell]:
    """The norm of a state, and how far it is from the one before; before the first there is none."""
    norm = float(np.linalg.norm(states[at]))
    return [norm, float(np.linalg.norm(states[at] - states[at - 1])) if at else None]


def unroll(text: Text, *, then: int | None = None) -> Unroll:
    """Every step of a recurrent network; `then` is the token that was written last and never read."""
    written = [*text.generated] if then is None else [*text.generated, then]
    found = unrolling.unroll((text if then is not None else text.replayed()).reading())
    steps = slice(text.prompt - 1, None)  # the first token was written at the last position of the prompt
    chances = np.exp(found.logprobs[steps][np.arange(len(written)), written])
    return Unroll(
        caption=f"{text.name}: unrolled, {len(found.read)} tokens read, {len(written)} written",
        tokens=Text(text.lm, written).labels,
        source=text.source_text().labels,
        read=found.read,
        wrote=found.wrote[steps],
        context=None if found.context is None else found.context[steps],
        pattern=None if found.pattern is None else found.pattern[steps],
        probability=chances,
    )
