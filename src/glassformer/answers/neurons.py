"""Neurons of the feed-forward layers: which fire where, what they have in common, what one promotes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from glassformer.answers.answer import (
    Answer,
    Array,
    Cell,
    Column,
    Drawing,
    Progress,
    Subject,
    Table,
    Text,
    answer,
    label,
    labels,
)
from glassformer.data.sources import read_corpus
from glassformer.errors import InputError
from glassformer.explain import neurons as firing
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import number, percent
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, matrix, names, panels, plain, strip
from glassformer.waiting import report

MOST_NEURONS = 40
FIRST = 128  # neurons of a layer that the raw grid shows
MOST_GRIDS = 6  # layers whose raw grids a picture shows


# neurons: which fire at which tokens


@answer
class Neurons(Answer):
    """How strongly the neurons of some layers fired at every token; `.factors` and `.clusters` group them."""

    kind = "neurons"

    layers: list[int]
    ids: list[int]
    activations: Array  # (L, T, N)
    k: int  # neurons of a token in the table
    first: int = FIRST  # neurons of a layer in the raw grid

    @property
    def fires(self) -> Array:
        """(L,) the share of activations above 0 in each layer: how often a neuron fires."""
        share: Array = (self.activations > 0).mean((1, 2))
        return share

    def make_table(self) -> Table:
        """The strongest neurons of every token."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("layer", "count"),
            Column("neuron", "count"),
            Column("activation", "number"),
        ]
        found = self._activations()
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.tokens):
            rows += [[at, name, *strongest] for strongest in found.top(at, self.k)]
        return Table(columns, rows)

    def _activations(self) -> firing.Activations:
        return firing.Activations(self.layers, self.ids, self.activations)

    @property
    def views(self) -> dict[str, Drawing]:
        """The neurons that fire most, or the first ones as they are."""
        return {"strongest": self.draw, "grid": self.draw_grid}

    def draw_grid(self) -> Spec:
        """The first neurons of every layer in a raw grid: a row is a token, a column a neuron."""
        shown = self.activations[:MOST_GRIDS, :, : self.first]
        scale = signed("activation", float(np.abs(shown).max()) or 1.0)
        every = self.activations.shape[2]
        parts = []
        for layer, values, share in zip(self.layers, shown, self.fires, strict=False):
            count = values.shape[1]
            fires = f"at a token, {percent(float(share))} of all {every:,} fire"
            part = matrix(
                names(self.tokens),
                [str(n) for n in range(count)],
                values=values,
                scale=scale,
                title=f"layer {layer}: the first {count:,} neurons; {fires}",
                cell=[float(max(2, min(14, 800 // count))), 14.0],
                column_labels=False,
                legend=False,
            )
            parts.append(part)
        return panels(parts, scale=scale)

    def draw(self) -> Spec:
        """The neurons that fire most, token by token."""
        strongest = sorted(self.rows, key=lambda row: -float(row[4] or 0))
        places = [(int(row[2] or 0), int(row[3] or 0)) for row in strongest[:MOST_NEURONS]]
        places = list(dict.fromkeys(places))  # a neuron may be strong at several tokens
        values = np.stack([self.activations[self.layers.index(layer), :, at] for layer, at in places])
        return matrix(
            [f"{layer}.{at}" for layer, at in places],
            names(self.tokens),
            values=values,
            scale=signed("activation", float(np.abs(values).max())),
            title=f"{self.caption}: the {len(places)} strongest, LAYER.NEURON",
        )

    def finding(self) -> str:
        """The neuron that fires most."""
        _, token, layer, at, value = self.table().largest("activation")
        return f"neuron {at} of layer {layer} fires most, {number(value)} at {token!r}"

    def factors(self, count: int, *, seed: int = 0) -> "Factors":
        """A few patterns over the tokens, of which all neurons are mixtures (non-negative factorization)."""
        with _scikit_learn():
            found = self._activations().nmf(count, seed=seed)
        explained = f"{1 - found.error:.0%} of the activations"
        return Factors(
            caption=f"{self.caption}: {count} factors, seed {seed}, {explained}",
            tokens=self.tokens,
            made=self.made,
            **vars(found),
        )

    nmf = factors  # Ecco's name

    def clusters(self, count: int, *, seed: int = 0) -> "Clusters":
        """Neurons that fire at the same tokens, in groups (k-means)."""
        with _scikit_learn():
            members = self._activations().clusters(count, seed=seed)  # (L, N)
        rows = np.maximum(self.activations, 0).transpose(0, 2, 1)  # (L, N, T)
        return Clusters(
            caption=f"{self.caption}: {count} clusters, seed {seed}",
            tokens=self.tokens,
            made=self.made,
            layers=self.layers,
            members=members,
            means=np.stack([rows[members == group].mean(0) for group in range(count)]),
        )


def neurons(
    text: Text,
    *,
    layers: int | Sequence[int] | None = None,
    k: int = 5,
    first: int = FIRST,
    stack: str = "",
) -> Neurons:
    """The neurons that fire most at every token; a raw grid shows the `first` ones of a layer."""
    for name, value in (("k", k), ("first", first)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    found = firing.activations(text.reading(), layers=layers, stack=stack)
    which = "all layers" if layers is None else _layers(found.layers)
    return Neurons(
        caption=f"{text.name_of(stack)}: neurons of {which}",
        tokens=text.read_by(stack).labels,
        layers=found.layers,
        ids=found.ids,
        activations=found.values,
        k=k,
        first=first,
    )


def _layers(layers: Sequence[int]) -> str:
    """`layer 0`, `layers 0, 1`."""
    listed = ", ".join(map(str, layers))
    return f"layer {listed}" if len(layers) == 1 else f"layers {listed}"


@contextmanager
def _scikit_learn() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise InputError(
            "factors and clusters need one more library: pip install 'glassformer[explain]'"
        ) from None


# factors and clusters: what neurons have in common


@answer
class Factors(Answer, firing.Factors):
    """F patterns over T tokens, and how much of each every neuron is."""

    kind = "factors"

    def make_table(self) -> Table:
        """The strength of every factor at every token."""
        columns = [
            Column("factor", "count", key=True),
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("strength", "number"),
        ]
        rows: list[list[Cell]] = []
        for factor, at in np.ndindex(self.patterns.shape):
            rows.append([factor, at, self.tokens[at], float(self.patterns[factor, at])])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """A curve for every factor."""
        return {"curves": self.draw}

    def draw(self) -> Spec:
        """A curve over the tokens for every factor."""
        return _sparks(self.tokens, "factor", self.patterns)

    def finding(self) -> str:
        """Where each factor is highest."""
        return _peaks(self.tokens, "factor", self.patterns)


@answer
class Clusters(Answer):
    """Groups of neurons that fire at the same tokens."""

    kind = "clusters"

    layers: list[int]
    members: Array  # (L, N) the group of every neuron; -1 for those that never fire
    means: Array  # (groups, T) the mean activation of a group

    def make_table(self) -> Table:
        """The tokens at which each group fires most."""
        columns = [
            Column("cluster", "count", key=True),
            Column("neurons", "count"),
            Column("position", "count"),
            Column("token", "token"),
            Column("activation", "number"),
        ]
        rows: list[list[Cell]] = []
        for group, mean in enumerate(self.means):
            size = int((self.members == group).sum())
            for at in np.argsort(-mean, kind="stable")[:3]:
                rows.append([group, size, int(at), self.tokens[at], float(mean[at])])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """A curve for every group."""
        return {"curves": self.draw}

    def draw(self) -> Spec:
        """A curve over the tokens for every group."""
        return _sparks(self.tokens, "cluster", self.means)

    def finding(self) -> str:
        """Where each group is highest."""
        return _peaks(self.tokens, "cluster", self.means)


def _sparks(tokens: list[str], name: str, values: Array) -> Spec:
    series = [{"name": f"{name} {n}", "values": plain(row)} for n, row in enumerate(values)]
    return {"kind": "sparks", "tokens": names(tokens), "series": series}


def _peaks(tokens: list[str], name: str, values: Array) -> str:
    highest = [tokens[int(np.argmax(row))] for row in values]
    return "; ".join(f"{name} {n} is highest at {token!r}" for n, token in enumerate(highest))


def factors(
    text: Text, *, count: int, layers: int | Sequence[int] | None = None, seed: int = 0, stack: str = ""
) -> Factors:
    """A few patterns over the tokens, of which all neurons are mixtures."""
    return neurons(text, layers=layers, stack=stack).factors(count, seed=seed)


def clusters(
    text: Text, *, count: int, layers: int | Sequence[int] | None = None, seed: int = 0, stack: str = ""
) -> Clusters:
    """Neurons that fire at the same tokens, in groups."""
    return neurons(text, layers=layers, stack=stack).clusters(count, seed=seed)


# promotes: which tokens one neuron makes likelier


@answer
class Promotes(Answer):
    """The tokens that a neuron makes likelier when it fires."""

    kind = "promotes"

    layer: int
    neuron: int
    ids: Array
    logits: Array  # what a unit of activation adds to each, before the norm's scale

    def make_table(self) -> Table:
        """The tokens, the strongest first."""
        columns = [Column("token", "token", key=True), Column("logit", "signed")]
        rows: list[list[Cell]] = []
        for name, logit in zip(self.tokens, self.logits.tolist(), strict=True):
            rows.append([name, logit])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """A bar for every token."""
        return bars(names(self.tokens), self.logits)


def promotes(lm: Subject, *, layer: int, neuron: int, k: int = 10) -> Promotes:
    """The tokens that a neuron makes likelier when it fires."""
    ids, logits = firing.promoted(lm.net, layer=layer, neuron=neuron, k=k)
    which = f"neuron {neuron}, layer {layer}"
    return Promotes(
        caption=f"{lm.name}: tokens promoted by {which}; logits per unit of activation",
        tokens=[label(lm.tokenizer, id) for id in ids.tolist()],
        layer=layer,
        neuron=neuron,
        ids=ids,
        logits=logits,
    )


# examples: where in many texts one neuron fires most


@answer
class Examples(Answer):
    """Where in many texts a neuron fires most."""

    kind = "examples"

    layer: int
    neuron: int
    examples: list[firing.Example]
    pieces: list[list[str]]  # the tokens of each example

    def make_table(self) -> Table:
        """The examples, the strongest first."""
        columns = [
            Column("activation", "number", key=True),
            Column("document", "count"),
            Column("before", "token"),
            Column("token", "token"),
            Column("after", "token"),
        ]
        rows: list[list[Cell]] = []
        for one, pieces in zip(self.examples, self.pieces, strict=True):
            before, after = pieces[: one.position], pieces[one.position + 1 :]
            text = ["".join(before), pieces[one.position], "".join(after)]
            rows.append([one.activation, one.document, *text])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The texts around the token at which the neuron fires."""
        strongest = [one.activation for one in self.examples]
        # GELU lets a little below 0 through: where that is the most there is, it gets a color of its own.
        below = min(strongest) < 0
        most = max(map(abs, strongest))
        scale = signed("activation", most) if below else magnitude("activation", most)
        parts = []
        for one, pieces in zip(self.examples, self.pieces, strict=True):
            title = f"activation {number(one.activation)}, document {one.document}"
            values = np.full(len(pieces), np.nan)
            values[one.position] = one.activation
            parts.append(strip(pieces, values, scale=scale, title=title, legend=False))
        return panels(parts, scale=scale, gap=8)


def examples(
    lm: Subject,
    documents: str | Path | Iterable[str | Path],
    *,
    layer: int,
    neuron: int,
    k: int = 5,
    progress: Progress = report,
) -> Examples:
    """Where in many texts, or files of them, a neuron fires most. Progress: tokens read, of 0 (unknown)."""
    listed = [documents] if isinstance(documents, str | Path) else documents
    texts = (lm.encode(text) for text in read_corpus(listed) if text)
    place = (layer, neuron)
    by_neuron = firing.examples(
        lm.net, texts, neurons=[place], k=k, progress=lambda done: progress(done, 0), lock=lm.lock
    )
    found = by_neuron[place]
    if not found:
        raise InputError("there is no text to search: the corpus is empty")
    return Examples(
        caption=f"{lm.name}: top activating examples of neuron {neuron}, layer {layer}",
        tokens=[],
        layer=layer,
        neuron=neuron,
        examples=found,
        pieces=[labels(lm.tokenizer, one.ids) for one in found],
    )
