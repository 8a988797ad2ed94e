"""Two models on one text: where they disagree."""

from collections.abc import Sequence

import numpy as np

from glassformer.answers.answer import Answer, Cell, Column, Subject, Table, answer, labels
from glassformer.errors import InputError
from glassformer.explain import difference as differing
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import number
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, panels, strip


@answer
class Diff(Answer, differing.Difference):
    """Two models on one text, token by token and head by head."""

    kind = "diff"

    models: tuple[str, str]

    def make_table(self) -> Table:
        """Probability and rank of every token in both models."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column(self.models[0], "share"),
            Column(self.models[1], "share"),
            Column("log-prob difference", "signed"),
            Column(f"rank in {self.models[0]}", "rank"),
            Column(f"rank in {self.models[1]}", "rank"),
        ]
        chances = np.exp(np.stack([self.one.logprobs[-1, :-1], self.other.logprobs[-1, :-1]], -1))
        rows: list[list[Cell]] = []
        for at, difference in enumerate(self.logprobs.tolist()):
            ranks = self.ranks[at].tolist()
            rows.append([at + 1, self.tokens[at + 1], *chances[at].tolist(), difference, *ranks])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Where the second model gives a token more or less, and how far apart their heads attend."""
        most = float(np.abs(self.logprobs).max()) or 1.0
        scale = signed("log-probability difference, nats", most)
        title = f"every token: {self.models[1]} minus {self.models[0]}"
        parts = [strip(self.tokens, [np.nan, *self.logprobs], scale=scale, title=title)]
        if self.attention is not None:
            layers, heads = self.attention.shape
            parts.append(
                matrix(
                    [f"layer {n}" for n in range(layers)],
                    [f"head {n}" for n in range(heads)],
                    values=self.attention,
                    scale=magnitude("total variation", float(self.attention.max()) or 1.0),
                    unit="percent",
                    title="distance of the attention patterns, head by head",
                )
            )
        return panels(parts)

    def finding(self) -> str:
        """The token that they differ most about."""
        row = self.table().largest("log-prob difference", abs)
        return f"they differ most about {row[1]!r}, by {number(row[4])} nats"


def diff(lm: Subject, text: str | Sequence[int], *, other: Subject) -> Diff:
    """Two models on one text, token by token."""
    ids = lm.encode(text)
    if lm.tokenizer is not None and other.tokenizer is not None and other.encode(text) != ids:
        raise InputError(
            f"{lm.name} and {other.name} cut this text into different tokens, "
            "so they cannot be compared on it"
        )
    found = differing.difference(lm.reading(ids), other.reading(ids))
    name = other.name if other.name != lm.name else f"{other.name} (the other)"
    return Diff(
        caption=f"{lm.name} and {name}",
        tokens=labels(lm.tokenizer, ids),
        models=(lm.name, name),
        **vars(found),
    )
