"""Alignment: which words of the source each word of a translation was written from, by two measures."""

from collections.abc import Sequence

import numpy as np

from glassformer.answers.answer import Array, Cell, Column, Drawing, Table, Text, answer
from glassformer.answers.attention import FromTo, join_groups
from glassformer.errors import InputError
from glassformer.explain import saliency as salient
from glassformer.explain.alignment import alignments, alignments_within
from glassformer.explain.faithfulness import spearman
from glassformer.figures.color import magnitude
from glassformer.figures.labels import percent
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, names, panels

METHOD = "grad_x_input"
CAUTION = (
    "Attention is not an explanation: it shows where the decoder looked,"
    " saliency which source tokens the written one depends on."
)


@answer
class Alignment(FromTo):
    """Attention and saliency side by side: N written tokens (or words), S of the source."""

    kind = "alignment"

    weights: Array  # (N, S) attention while a token was written; each row adds up to 1
    saliency: Array  # (N, S) shares of the token's saliency
    correlation: Array  # (N,) Spearman's, of the two rows
    # (N,) of a decoder that reads the source as its own text: the share of its attention that the source has,
    # of which the weights are shares; the rest is for the tag and for what was written before.
    to_source: Array | None = None

    @property
    def agreement(self) -> float:
        """How far both order the source alike: the mean rank correlation, 1 for the same order."""
        return float(self.correlation.mean())

    def make_table(self) -> Table:
        """A row for every written token: the strongest source by either measure."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("attends most to", "token", group=1),
            Column("weight", "share", group=1),
            Column("most salient", "token", group=2),
            Column("share", "share", group=2),
            Column("rank correlation", "number"),
        ]
        rows: list[list[Cell]] = []
        for n, token in enumerate(self.tokens):
            row: list[Cell] = [n, token]
            for values in (self.weights[n], self.saliency[n]):
                best = int(values.argmax())
                row += [self.sources[best], float(values[best])]
            rows.append([*row, float(self.correlation[n])])
        return Table(columns, rows)

    def every(self) -> Table:
        """All pairs of a written token and one of the source."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("source position", "count", key=True),
            Column("source", "token"),
            Column("attention", "share"),
            Column("saliency", "share"),
        ]
        rows: list[list[Cell]] = []
        for n, at in np.ndindex(self.weights.shape):
            both = [float(self.weights[n, at]), float(self.saliency[n, at])]
            rows.append([n, self.tokens[n], at, self.sources[at], *both])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """Both measures side by side, or one of them."""
        return {"both": self.draw, "attention": self.draw_attention, "saliency": self.draw_saliency}

    def draw(self) -> Spec:
        """Attention and, beside it, saliency."""
        return panels(
            [
                self.draw_attention() | {"title": "attention", "room": 460},
                self.draw_saliency() | {"title": f"saliency ({METHOD})", "room": 460},
            ],
            across=2,
        )

    def draw_attention(self) -> Spec:
        """A row is a written token, a column one of the source."""
        return self._draw(self.weights, "of the attention of a row")

    def draw_saliency(self) -> Spec:
        """The same for saliency."""
        return self._draw(self.saliency, "of the saliency of a row")

    def _draw(self, values: Array, name: str) -> Spec:
        scale = magnitude(name, float(values.max(initial=0)) or 1.0)
        return matrix(names(self.tokens), names(self.sources), values=values, scale=scale, unit="percent")

    def finding(self) -> str:
        """The clearest pair, and how far the measures agree."""
        row, column = divmod(int(self.weights.argmax()), self.weights.shape[1])
        pair = f"{self.tokens[row]!r} attends to {self.sources[column]!r}"
        same = int((self.weights.argmax(1) == self.saliency.argmax(1)).sum())
        return (
            f"{pair} with {percent(float(self.weights[row, column]))}, the most of all;"
            f" attention and saliency name the same source for {same} of {len(self.tokens)},"
            f" rank correlation {_signed(self.agreement)}; attention is not an explanation"
        )


def alignment(
    text: Text,
    *,
    layer: int | None = None,
    head: int | None = None,
    by_word: bool = False,
    then: int | None = None,
) -> Alignment:
    """Which source tokens the decoder attended to when it wrote each token, with saliency beside it.

    Without a layer or a head, their mean. `then` is the token that was written last and never read, such as
    the end token.
    """
    written = [*text.generated] if then is None else [*text.generated, then]
    reading = (text if then is not None else text.replayed()).reading()
    target, source = Text(text.lm, written), source_of(text)
    size, within = len(source.ids), text.source is None
    every = alignments_within(reading, size) if within else alignments(reading)
    given, where = _chosen(every, layer, head)
    first = text.prompt - 1  # the position at which the first token was written
    targets = [salient.Target(first + n, token) for n, token in enumerate(written)]
    found = salient.saliency(reading, targets, method=METHOD, blank=source.blank, source=not within)

    weights, shares, tokens, sources = given[first:], found.shares[:, :size], target.labels, source.labels
    if by_word:
        (rows, tokens), (columns, sources) = target.words(), source.words()
        weights, shares = (join_groups(one, rows=rows, columns=columns) for one in (weights, shares))
    to_source = None
    if within:
        to_source = weights.sum(1)
        weights, shares = _shares_of(weights), _shares_of(shares)
    correlation = np.array([spearman(a, b) for a, b in zip(weights, shares, strict=True)])
    agreed = f"Rank correlation of attention and saliency: {_signed(float(correlation.mean()))}."
    if to_source is not None:
        agreed = f"The source has {percent(float(to_source.mean()))} of the attention. {agreed}"
    return Alignment(
        caption=f"{text.name}: alignment{where}\n{agreed} {CAUTION}",
        tokens=tokens,
        source=sources,
        weights=weights,
        saliency=shares,
        correlation=correlation,
        to_source=to_source,
    )


def source_of(text: Text) -> Text:
    """The source: a text of its own, or, in a decoder, what was given before the tag."""
    if text.source is not None:
        return text.source_text()
    special = {} if text.lm.tokenizer is None else text.lm.tokenizer.special
    given = text.ids[: text.prompt]
    if given and given[-1] in special.values():
        del given[-1]
    if not given:
        raise InputError("there is no source before what was written")
    return Text(text.lm, given)


def _shares_of(values: Array) -> Array:
    """Each row (N, S) in shares of its sum; a row of zeros stays one."""
    sums = values.sum(1, keepdims=True)
    shares: Array = np.divide(values, sums, out=np.zeros_like(values), where=sums > 0)
    return shares


def _chosen(every: Array, layer: int | None, head: int | None) -> tuple[Array, str]:
    """One pattern (T, S) of all (L, H, T, S): that of a head, or a mean; and which it is."""
    layers = _numbers("layer", layer, every.shape[0])
    heads = _numbers("head", head, every.shape[1])
    chosen: Array = every[layers][:, heads].mean((0, 1))
    if every.shape[:2] == (1, 1):
        return chosen, ", step by step"
    which_layer = "mean of all layers" if layer is None else f"layer {layer}"
    which_head = "mean of all heads" if head is None else f"head {head}"
    return chosen, f", {which_layer}, {which_head}"


def _numbers(name: str, value: int | None, count: int) -> Sequence[int]:
    if value is None:
        return list(range(count))
    if not 0 <= value < count:
        raise InputError(f"{name} {value} is out of range (0 to {count - 1})")
    return [value]


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
