"""Targets: the one-hot rows that a training asks for, and what a model predicts before and after it."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Table, Text, answer
from glassformer.explain.targets import before_training, logprobs
from glassformer.figures.color import magnitude
from glassformer.figures.labels import number
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, names, panels

TITLES = {"target": "target: one-hot", "untrained": "untrained model", "trained": "trained model"}


@answer
class Targets(Answer):
    """N tokens of a target, C tokens of a small vocabulary: a row is a distribution over these alone."""

    kind = "targets"

    vocabulary: list[str]  # (C,)
    target: Array  # (N, C)
    untrained: Array  # (N, C)
    trained: Array  # (N, C)
    share: Array  # (N,) of the trained model's probability that these tokens have of the whole vocabulary
    loss: dict[str, float]  # cross-entropy over the whole vocabulary: "untrained", "trained"

    def make_table(self) -> Table:
        """A row for every token of the target: what its own probability is."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("untrained", "share"),
            Column("trained", "share"),
            Column("likeliest", "token"),
            Column("of the whole vocabulary", "share"),
        ]
        rows: list[list[Cell]] = []
        for at, token in enumerate(self.tokens):
            own = int(self.target[at].argmax())
            both = [float(self.untrained[at, own]), float(self.trained[at, own])]
            likeliest = self.vocabulary[int(self.trained[at].argmax())]
            rows.append([at, token, *both, likeliest, float(self.share[at])])
        return Table(columns, rows)

    def every(self) -> Table:
        """All cells of the three tables."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("column", "count", key=True),
            Column("predicted", "token"),
            *(Column(name, "share") for name in TITLES),
        ]
        rows: list[list[Cell]] = []
        for at, column in np.ndindex(self.target.shape):
            three = [float(getattr(self, name)[at, column]) for name in TITLES]
            rows.append([at, self.tokens[at], column, self.vocabulary[column], *three])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Three tables of the same form."""
        parts = []
        for name, title in TITLES.items():
            values: Array = getattr(self, name)
            parts.append(
                matrix(
                    [f"{at + 1} {token}" for at, token in enumerate(names(self.tokens))],
                    names(self.vocabulary),
                    values=values,
                    scale=magnitude("probability"),
                    texts=[[f"{value:.2f}" for value in row] for row in values.tolist()],
                    numeric=True,
                    legend=False,
                    title=title,
                    cell=[40.0, 22.0],
                )
            )
        return panels(parts, across=3)

    def finding(self) -> str:
        """The loss before and after, and how many rows have the right token on top."""
        right = int((self.trained.argmax(1) == self.target.argmax(1)).sum())
        before, after = (number(self.loss[name]) for name in ("untrained", "trained"))
        return (
            f"among these {len(self.vocabulary)} tokens the trained model puts the right one first in {right}"
            f" of {len(self.tokens)} rows; its loss over the whole vocabulary is {after}, untrained {before}"
        )


def targets(text: Text, *, vocabulary: Sequence[int] = (), then: int | None = None, seed: int = 0) -> Targets:
    """One-hot rows for what follows the prompt, and what an untrained and the trained model predict there.

    The columns are the tokens of the target and of `vocabulary`; a row is the softmax over these alone.
    `then` is the token behind the last one, `seed` that of the untrained weights.
    """
    written = [*text.generated] if then is None else [*text.generated, then]
    columns = list(dict.fromkeys([*written, *vocabulary]))
    reading = (text if then is not None else text.replayed()).reading()
    first, rows = text.prompt - 1, np.arange(len(written))
    small, whole = (partial(logprobs, vocabulary=one) for one in (columns, None))
    before = before_training(reading, seed=seed)
    every = {"untrained": whole(before)[first:], "trained": whole(reading)[first:]}
    return Targets(
        caption=f"{text.name}: targets of a training, and what is predicted",
        tokens=Text(text.lm, written).labels,
        vocabulary=text.labels_of(columns),
        target=(np.array(written)[:, None] == columns).astype(float),
        untrained=np.exp(small(before)[first:]),
        trained=np.exp(small(reading)[first:]),
        share=np.exp(every["trained"])[:, columns].sum(1),
        loss={name: -float(values[rows, written].mean()) for name, values in every.items()},
    )
