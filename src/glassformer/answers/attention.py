"""Attention: where heads attend, what kind of head each is, and one query step by step."""

from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Drawing, Table, Text, answer
from glassformer.errors import InputError, counted
from glassformer.explain import attention as attending
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import cells, number, percent, quoted
from glassformer.figures.labels import visible as shown
from glassformer.figures.marks import LABEL, Spec
from glassformer.figures.specs import bars, matrix, names, panels, plain
from glassformer.figures.view import short

STRONGEST = 3  # sources of a token in the table
ARCS = 4  # of a token, at most
WEAK = 0.04  # of the strongest: weaker ones get no arc
NEAR = 48  # tokens whose arcs are drawn one by one
SMALL = 16  # rows and columns of a head among many, at most
MOST_CELLS = 40_000  # of all heads together
SHORT = {
    "previous": "prev.",
    "first": "first",
    "duplicate": "dup.",
    "induction": "ind.",
}  # kinds of heads, over a small pattern
CLEARLY = 2  # times the share of uniform attention that a kind of head has at least
FEWEST = 2  # queries whose mean a kind of head is: one alone may be chance
FOLDERS = 10  # sources that a picture of folders shows
UNITS = {"entropy": "nats", "distance": "tokens"}


# attention and rollout: how much every token takes from every other


@answer
class FromTo(Answer):
    """An answer about attention from the tokens of a text to those of the same text or of another."""

    source: list[str] | None = None  # the tokens attended to, where they are those of another text

    @property
    def sources(self) -> list[str]:
        """The tokens that are attended to."""
        return self.tokens if self.source is None else self.source

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it; `source` is there where it is another text."""
        source = {} if self.source is None else {"source": self.source}
        return super().to_dict() | source


@answer
class Attention(FromTo):
    """How much each token (or word) takes from each: (T, S), a row attends, a column is attended to."""

    kind = "attention"

    weights: Array
    visible: Array  # (T, S) whether a row may attend to a column at all
    value_weighted: bool = False  # lengths of what is passed on, not shares of a row

    def data(self) -> dict[str, Any]:
        """The weights; which of them are masked is for the drawing."""
        return {"weights": self.weights, "value_weighted": self.value_weighted}

    def make_table(self) -> Table:
        """The strongest sources of every token."""
        count = min(STRONGEST, len(self.sources))
        columns = [Column("position", "count", key=True), Column("token", "token", key=True)]
        for n in range(1, count + 1):
            columns.append(Column(f"attends to {n}", "token", group=n))
            columns.append(Column(f"weight {n}", "share", group=n))

        rows: list[list[Cell]] = []
        for at, name in enumerate(self.tokens):
            row: list[Cell] = [at, name]
            sources = np.flatnonzero(self.visible[at])
            for source in sources[np.argsort(-self.weights[at, sources], kind="stable")][:count]:
                row += [self.sources[source], float(self.weights[at, source])]
            while len(row) < len(columns):  # the first tokens have fewer sources
                row += ["", np.nan]
            rows.append(row)
        return Table(columns, rows)

    def every(self) -> Table:
        """The whole matrix."""
        columns = [Column("position", "count", key=True), Column("token", "token", key=True)]
        columns += [Column(f"{n} {name}", "share") for n, name in enumerate(self.sources)]
        rows: list[list[Cell]] = []
        for at, (name, row) in enumerate(zip(self.tokens, self.weights.tolist(), strict=True)):
            rows.append([at, name, *row])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """A matrix, or, within one text, arcs from token to token."""
        arcs: dict[str, Drawing] = {"arcs": self.draw_arcs} if self.source is None else {}
        return {"matrix": self.draw_matrix} | arcs

    def draw_matrix(self) -> Spec:
        """A row attends, a column is attended to."""
        scale = (
            "norm of weight × value" if self.value_weighted else "attention weight; a row adds up to 100 %"
        )
        return matrix(
            names(self.tokens),
            names(self.sources),
            values=_masked(self.weights, self.visible),
            y_title="query, the token that attends",
            x_title="key, the token attended to",
            void="masked",
            **self._scale(scale + self._masked_note()),
        )

    def _masked_note(self) -> str:
        """What hatched cells are, if there are any."""
        if self.visible.all():
            return ""
        causal = np.array_equal(self.visible, np.tri(*self.visible.shape, dtype=bool))
        return "; hatched: masked, the future" if causal else "; hatched: masked"

    def draw_arcs(self) -> Spec:
        """Arcs from every token to its sources; in a long text between groups, and among the last tokens."""
        tokens = names(self.tokens)
        strongest = float(self.weights.max(initial=0)) or 1.0
        weight = "norm of weight × value" if self.value_weighted else "of a token's attention"
        scale = self._scale(f"{weight}; arrows lead to the tokens attended to")
        if len(tokens) <= NEAR:
            return {"kind": "arcs", "tokens": tokens, "edges": _edges(self.weights, strongest), **scale}

        size = -(-len(tokens) // NEAR)
        starts = list(range(0, len(tokens), size))
        labels = [f"{start} {''.join(tokens[start : start + size])}" for start in starts]
        groups = [range(at, min(at + size, len(tokens))) for at in starts]
        pooled = join_groups(self.weights, rows=groups, columns=groups)
        overview = {"kind": "arcs", "tokens": labels, "edges": _edges(pooled, strongest), **scale}

        last = len(tokens) - NEAR
        edges = _edges(self.weights[last:, last:], strongest)
        detail = {"kind": "arcs", "tokens": tokens[last:], "edges": edges, **scale}
        return panels(
            [
                overview | {"title": f"by {size} tokens", "legend": False},
                detail | {"title": f"the last {NEAR} tokens"},
            ]
        )

    def _scale(self, name: str) -> Spec:
        high = float(self.weights.max(initial=0))
        return {"scale": magnitude(name, high), "unit": "" if self.value_weighted else "percent"}

    def finding(self) -> str:
        """The strongest pair; a token with one source, as the first in a causal model, does not count."""
        choice = self.visible.sum(1) > 1
        weights = np.where(choice[:, None], self.weights, -1.0) if choice.any() else self.weights
        row, column = divmod(int(weights.argmax()), weights.shape[1])
        weight = float(self.weights[row, column])
        given = number(weight) if self.value_weighted else percent(weight)
        among = "" if choice.all() else " of a token that has several sources"
        return f"{self.tokens[row]!r} gives {given} to {self.sources[column]!r}, the largest weight{among}"


@answer
class Rollout(Attention):
    """Attention through all layers: from which tokens a position's vector is made."""

    kind = "rollout"


def attention(
    text: Text,
    *,
    layer: int,
    head: int | None = None,
    by_word: bool = False,
    values: bool = False,
    stack: str = "",
    part: str = "attn",
) -> Attention:
    """Where one head attends, or a layer on average; with `values`, how much each source passes on.

    `part` is "cross" for the attention of a decoder to the source text.
    """
    reading = text.reading()
    if head is not None:
        reading.check_head(head, stack=stack)
    what = "attention"
    heads_of = attending.patterns(reading, layers=[layer], stack=stack, part=part)[0]  # (H, T, S)
    if values:
        what = "value-weighted attention"
        heads_of = attending.value_weighted(reading, layer=layer, stack=stack, part=part)

    which = "mean of all heads" if head is None else f"head {head}"
    visible = attending.masks(reading, layers=[layer], stack=stack, part=part)[0]
    axes = _Axes(text, stack=stack, part=part, by_word=by_word)
    return Attention(
        caption=f"{text.name_of(stack, part)}: layer {layer}, {which}: {what}",
        tokens=axes.tokens,
        weights=axes.joined(heads_of.mean(0) if head is None else heads_of[head]),
        visible=axes.joined(visible) > 0,
        value_weighted=values,
        source=axes.sources if reading.crosses(stack=stack, part=part) else None,
    )


def rollout(text: Text, *, layer: int | None = None, by_word: bool = False, stack: str = "") -> Rollout:
    """Attention through all layers up to one: from which tokens a position's vector is made."""
    reading = text.reading()
    if layer is not None:
        reading.check_layer(layer, stack=stack)
    through = attending.rollout(attending.patterns(reading, stack=stack))
    last = len(through) - 1 if layer is None else layer
    # What no layer may attend to stays masked through all of them: masks roll out as patterns do.
    reached = attending.rollout(attending.masks(reading, stack=stack)[:, None].astype(float))
    axes = _Axes(text, stack=stack, by_word=by_word)
    return Rollout(
        caption=f"{text.name_of(stack)}: through layers 0 to {last}: attention rollout",
        tokens=axes.tokens,
        weights=axes.joined(through[last]),
        visible=axes.joined(reached[last]) > 0,
    )


class _Axes:
    """Both axes of a pattern, token by token or word by word."""

    def __init__(self, text: Text, *, stack: str, part: str = "attn", by_word: bool = False) -> None:
        queries, sources = text.axes(stack=stack, part=part)
        self.by_word = by_word
        self.tokens, self.sources = queries.labels, sources.labels
        if by_word:
            self.rows, self.tokens = queries.words()
            self.columns, self.sources = sources.words()

    def joined(self, weights: Array) -> Array:
        """A matrix between tokens as one between these tokens or words."""
        return join_groups(weights, rows=self.rows, columns=self.columns) if self.by_word else weights


def join_groups(weights: Array, *, rows: list[range], columns: list[range]) -> Array:
    """Between groups: a group takes the mean over its rows, and gives the sum over its columns."""
    sums = np.add.reduceat(weights, [group.start for group in columns], 1)
    sums = np.add.reduceat(sums, [group.start for group in rows], 0)
    sizes = np.array([[len(group)] for group in rows])
    joined: Array = sums / sizes
    return joined


def _masked(weights: Array, visible: Array) -> Array:
    """What a row may not attend to is nan."""
    return np.where(visible, weights, np.nan)


def _edges(weights: Array, strongest: float) -> list[list[float]]:
    """(from, to, weight) of the strongest sources of every token."""
    found: list[list[float]] = []
    for query, row in enumerate(weights):
        for source in np.argsort(-row, kind="stable")[:ARCS]:
            if row[source] >= WEAK * strongest:
                found.append([query, int(source), short(float(row[source]))])
    return found


# heads: what kind of head each is


@answer
class Heads(FromTo, attending.HeadStatistics):
    """What kind of head each is on a text: arrays (L, H), made of the patterns (L, H, T, S)."""

    kind = "heads"

    patterns: Array
    visible: Array  # (L, T, S) whether a token may attend to another at all
    uniform: attending.HeadStatistics  # (L, 1) of a head that attends alike to all it may see
    queries: dict[str, Array]  # (L,) by kind: the tokens whose mean a share is

    @property
    def kinds(self) -> list[str]:
        """The statistics that these patterns have: between two texts no token is the one before."""
        return KINDS if self.source is None else ["first", "entropy"]

    @property
    def shares(self) -> list[str]:
        """The statistics that are shares of the attention: kinds of heads."""
        return [kind for kind in self.kinds if kind in SHORT]

    def most(self, layer: int, head: int) -> tuple[str, float]:
        """The token of another text that a head attends to most, and how much."""
        given = self.patterns[layer, head].mean(0)
        return self.sources[int(given.argmax())], float(given.max())

    def strongest(self, layer: int, head: int) -> tuple[str, float] | None:
        """The strongest pattern of a head that is clearly above uniform attention, and its share."""
        found = []
        for kind in self.shares:
            share = float(getattr(self, kind)[layer, head])
            limit = CLEARLY * float(getattr(self.uniform, kind)[layer, 0])
            if share >= limit and self.queries[kind][layer] >= FEWEST:
                found.append((kind, share))
        return max(found, key=lambda one: one[1], default=None)

    def make_table(self) -> Table:
        """A row for every head."""
        columns = [Column("layer", "count", key=True), Column("head", "count", key=True)]
        columns += [
            Column(kind, "share") if kind in SHORT else Column(f"{kind} ({UNITS[kind]})", "number")
            for kind in self.kinds
        ]
        if self.source is not None:
            columns += [Column("attends most to", "token"), Column("weight", "share")]

        rows: list[list[Cell]] = []
        for layer, head in np.ndindex(self.first.shape):
            row: list[Cell] = [layer, head]
            row += [float(getattr(self, kind)[layer, head]) for kind in self.kinds]
            row += [] if self.source is None else self.most(layer, head)
            rows.append(row)
        return Table(columns, rows)

    def data(self) -> dict[str, Any]:
        """The statistics, and of how many queries; patterns are for the drawing."""
        return {kind: getattr(self, kind) for kind in self.kinds} | {"queries": self.queries}

    @property
    def views(self) -> dict[str, Drawing]:
        """All heads small, or a table of shares."""
        return {"patterns": self.draw_patterns, "table": self.draw_table}

    def draw_patterns(self) -> Spec:
        """All heads small, a layer a row; each with the strongest of its patterns."""
        layers, count, *sizes = self.patterns.shape
        size = max(sizes)
        across = max(4, min(SMALL, int((MOST_CELLS / (count * layers)) ** 0.5)))
        by = -(-size // across)  # tokens that share a cell
        side = float(max(3, int(min(84, 920 / count - 8) // -(-size // by))))
        parts = [self._small_pattern(layer, head, by, side) for layer, head in np.ndindex((layers, count))]
        about = "the strongest of four patterns (previous token, first token, same token, induction) with"
        about = f"{about} at least twice uniform attention, over at least {FEWEST} queries"
        if self.source is not None:
            about = "the token it attends to most"
        title = f"{self._title}; LAYER.HEAD and {about}"
        if by > 1:
            title += f"; cells are the strongest of {by} × {by}"
        return panels(parts, across=count, gap=8, title=title, scale=magnitude("attention"), unit="percent")

    def _small_pattern(self, layer: int, head: int, by: int, side: float) -> Spec:
        pattern = self.patterns[layer, head]
        rows, columns = (np.arange(0, size, by) for size in pattern.shape)
        pooled = np.maximum.reduceat(np.maximum.reduceat(pattern, rows, 0), columns, 1)
        visible = np.logical_or.reduceat(np.logical_or.reduceat(self.visible[layer], rows, 0), columns, 1)

        label = self.strongest(layer, head) if self.source is None else self.most(layer, head)
        named = "" if label is None else f" {shown(SHORT.get(label[0], label[0]))} {label[1]:.0%}"
        return matrix(
            [str(start) for start in rows],
            [str(start) for start in columns],
            values=_masked(pooled, visible),
            scale=magnitude("attention"),
            title=f"{layer}.{head}{named}",
            small=True,
            cell=[side, side],
            row_labels=False,
            column_labels=False,
            legend=False,
            unit="percent",
        )

    def draw_table(self) -> Spec:
        """The shares of every head, in colors."""
        rows = [f"{layer}.{head}" for layer, head in np.ndindex(self.first.shape)]
        shares = np.stack([getattr(self, kind).reshape(-1) for kind in self.shares], 1)
        texts = [["" if share != share else percent(share) for share in row] for row in shares.tolist()]
        return matrix(
            rows,
            self.shares,
            values=np.nan_to_num(shares),
            scale=magnitude("of its attention"),
            texts=texts,
            numeric=True,
            unit="percent",
            title=f"{self._title}; LAYER.HEAD",
        )

    @property
    def _title(self) -> str:
        return self.caption.partition("\n")[0]

    def finding(self) -> str:
        """The head that attends most to the previous token or, of another text, to one of its tokens."""
        if self.source is not None:
            layer, head, *_, token, share = self.table().largest("weight")
            return f"the largest mean weight is that of head {layer}.{head} on {token!r}, {percent(share)}"
        layer, head, share, *_ = self.table().largest("previous")
        if share != share:
            return "there is only one token"
        return f"head {layer}.{head} has the largest share on the previous token, {percent(share)}"


KINDS = [one.name for one in fields(attending.HeadStatistics)]


def heads(text: Text, *, stack: str = "", part: str = "attn") -> Heads:
    """What kind of head each is, on this text; `part` is as in `attention`."""
    reading = text.reading()
    crosses = reading.crosses(stack=stack, part=part)
    queries, sources = text.axes(stack=stack, part=part)
    patterns = attending.patterns(reading, stack=stack, part=part)
    visible = attending.masks(reading, stack=stack, part=part)
    ids = None if crosses else queries.ids
    found = attending.head_statistics(patterns, ids, mask=visible)
    uniform = attending.head_statistics(_uniform(visible)[:, None], ids, mask=visible)
    able = attending.queries_of_kinds(visible, ids)

    tokens = counted(len(queries.ids), "token")
    size = f", from {tokens} to {len(sources.ids)}" if crosses else f" on {tokens}"
    return Heads(
        caption=f"{text.name_of(stack, part)}: kinds of heads{size}\n{_uniform_shares(uniform, able)}",
        tokens=queries.labels,
        patterns=patterns,
        visible=visible,
        uniform=uniform,
        queries=able,
        source=sources.labels if crosses else None,
        **vars(found),
    )


def _uniform_shares(uniform: attending.HeadStatistics, able: dict[str, Array]) -> str:
    """What a share is compared with: uniform attention, the mean over the layers; and its queries."""
    known = []
    for kind, queries in able.items():
        share = float(getattr(uniform, kind).mean())
        if share == share:
            known.append(f"{kind} {percent(share)} ({queries.max():,})")
    return f"uniform attention would have (number of queries): {', '.join(known)}" if known else ""


# find_heads: which heads attend from one word to another


@answer
class FoundHeads(Answer):
    """The heads that attend most from one word to another."""

    kind = "find_heads"

    heads: list[attending.Found]
    uniform: float  # the weight of a head that attends alike to all it may see; the mean over the layers

    def make_table(self) -> Table:
        """The heads, the strongest first."""
        columns = [
            Column("layer", "count", key=True),
            Column("head", "count", key=True),
            Column("weight", "share"),
        ]
        return Table(columns, [[one.layer, one.head, one.weight] for one in self.heads])

    def draw(self) -> Spec:
        """A bar for every head, and a line at uniform attention."""
        labels = [f"layer {one.layer}, head {one.head}" for one in self.heads]
        line = {"value": short(self.uniform), "label": "uniform attention"}
        return bars(labels, [one.weight for one in self.heads], unit="percent", reference=line)

    def finding(self) -> str:
        """The strongest head, beside uniform attention."""
        layer, head, weight = self.rows[0]
        uniform = f"uniform attention would give {percent(self.uniform)}"
        return f"head {layer}.{head} gives most, {percent(float(weight or 0))}; {uniform}"


def find_heads(
    text: Text,
    *,
    source: str | int,
    target: str | int,
    k: int = 10,
    stack: str = "",
    part: str = "attn",
) -> FoundHeads:
    """Which heads attend from one word (or position) to another; `part` is as in `attention`."""
    asking, asked = text.axes(stack=stack, part=part)
    queries, sources = asking.positions(source), asked.positions(target)
    reading = text.reading()
    visible = attending.masks(reading, stack=stack, part=part)  # (L, T, S)
    hidden = not visible[:, queries][..., sources].any()
    if hidden and reading.stack(stack).causal and not reading.crosses(stack=stack, part=part):
        raise InputError(f"{target!r} comes after {source!r}; attention only looks back")
    patterns = attending.patterns(reading, stack=stack, part=part)
    find = partial(attending.find_heads, queries=queries, sources=sources, mask=visible)
    found = find(patterns)
    uniform = float(np.mean([one.weight for one in find(_uniform(visible)[:, None])]))
    caption = f"{text.name_of(stack, part)}: attention from {source!r} to {target!r}"
    return FoundHeads(
        caption=caption,
        tokens=asking.labels,
        table_note=f"uniform attention would give {percent(uniform)}",
        heads=found[:k],
        uniform=uniform,
    )


def _uniform(visible: Array) -> Array:
    """(L, T, S): the pattern of a head that attends alike to all that a query may see."""
    alike: Array = visible / np.maximum(1, visible.sum(-1, keepdims=True))
    return alike


# steps: one query from its keys to its values


@answer
class Steps(Answer, attending.Steps):
    """The five steps of one query: q·k, ÷ √K, mask, softmax, values. Its tokens are the sources."""

    kind = "steps"

    position: int
    query_token: str

    def make_table(self) -> Table:
        """A row for every source."""
        columns = [
            Column("position", "count", key=True),
            Column("source", "token", key=True),
            Column("q·k", "number"),
            Column("÷ √K", "number"),
            Column("masked", "number"),
            Column("softmax", "share"),
            Column("|w·v|", "number"),
        ]
        values = self._columns().tolist()
        return Table(columns, [[at, name, *values[at]] for at, name in enumerate(self.tokens)])

    def _columns(self) -> Array:
        lengths = np.linalg.norm(self.weighted, axis=1)
        return np.stack([self.dots, self.scaled, self.masked, self.weights, lengths], 1)  # (S, 5)

    @property
    def views(self) -> dict[str, Drawing]:
        """The steps with their numbers, or the article's picture: a query looks through folders."""
        return {"steps": self.draw, "folders": self.draw_folders}

    def draw_folders(self) -> Spec:
        """The sources with the most weight, in the order of the text, as folders that the query opens."""
        seen = np.flatnonzero(np.isfinite(self.masked))
        strongest = seen[np.argsort(-self.weights[seen], kind="stable")][:FOLDERS]
        chosen = np.sort(strongest)
        others = counted(len(seen) - len(chosen), "other source")
        rest = percent(float(self.weights[seen].sum() - self.weights[chosen].sum()))
        return {
            "kind": "folders",
            "query": shown(self.query_token),
            "tokens": names([self.tokens[at] for at in chosen]),
            "scores": plain(self.scaled[chosen]),
            "weights": plain(self.weights[chosen]),
        } | ({"rest": f"{others}: {rest}"} if len(seen) > len(chosen) else {})

    def draw(self) -> Spec:
        """Query, keys and values; then the steps as columns, and the values that are added up beside them."""
        inputs = [
            self._draw_vectors("q", [shown(self.query_token)], self.query[None]),
            self._draw_vectors("k", names(self.tokens), self.keys),
            self._draw_vectors("v", names(self.tokens), self.values),
        ]
        steps = [self._draw_steps(), self._draw_values()]
        return panels([panels(inputs, across=3), panels(steps, across=2)])

    def _draw_vectors(self, name: str, rows: list[str], vectors: Array) -> Spec:
        """The vectors of the query, the keys or the values, a row each."""
        most = float(np.abs(vectors).max())
        return self._thin(rows, vectors, banner=[name, name], scale=signed(name, most), legend=True)

    def _draw_steps(self) -> Spec:
        columns = self._columns()
        longest = float(columns[:, 4].max()) or 1.0
        scales = [*self._score_scales(), magnitude("softmax"), magnitude("|w·v|", longest)]
        return matrix(
            names(self.tokens),
            ["q·k", "÷ √K", "masked", "softmax", "|w·v|"],
            values=columns,
            scale=scales[0],
            scales=scales,
            texts=[[_decimals(value) for value in row] for row in columns.tolist()],
            numeric=True,
            column_hues={"0": "q", "4": "v"},
            cell=[54.0, 18.0],
            window=self._window(),
        )

    def _score_scales(self) -> list[Spec]:
        """Of q·k, ÷ √K and the masked scores: one on both sides of 0; one each where all it sees are below.

        On both sides of 0 the lowest of negative scores had the strongest color, as if it weighed more.
        """
        if self.masked.max() > 0:
            most = float(np.abs(self.dots).max())
            return [signed(name, most) for name in ("q·k, ÷ √K, masked", "÷ √K", "masked")]
        about = "q·k; all below 0: a stronger color is higher"
        found = []
        for name, scores in ((about, self.dots), ("÷ √K", self.scaled), ("masked", self.masked)):
            finite = scores[np.isfinite(scores)]
            found.append(magnitude(name, float(finite.max()), low=float(finite.min())))
        return found

    def _draw_values(self) -> Spec:
        most = max(float(np.abs(self.weighted).max()), float(np.abs(self.mix).max()))
        scale = signed("softmax × v, and their sum", most)
        sources = names(self.tokens)
        given = self._thin(sources, self.weighted, scale=scale, banner=["v", "softmax × v"], legend=False)
        mixed = self._thin(["sum"], self.mix[None], scale=scale, banner=["v", "their sum"], legend=True)
        return panels([given, mixed], gap=6)

    def _thin(self, rows: list[str], values: Array, **more: Any) -> Spec:
        """Rows of narrow cells without numbers."""
        width = values.shape[1]
        # As much room for every name: on a phone these are below each other, and their columns in line.
        longest = max(map(cells, [*names(self.tokens), shown(self.query_token)]))
        return matrix(
            rows,
            [str(n) for n in range(width)],
            values=values,
            window=self._window() if len(rows) > 1 else [0, 0],
            cell=[float(max(2, 160 // width)), 18.0],
            label_columns=min(LABEL, longest),
            column_labels=False,
            **more,
        )

    def _window(self) -> list[int]:
        """Of a long text, the part that ends with the last source that the query may see."""
        last = int(np.flatnonzero(~np.isneginf(self.masked))[-1])
        return [max(0, last - 39), 0]

    def finding(self) -> str:
        """The source with the largest weight."""
        row = self.table().largest("softmax")
        return f"it gives {percent(row[5])} to {row[1]!r}"


def _decimals(value: float) -> str:
    """A number of a step with as many decimals as in the table, so that both show the same."""
    return "−∞" if value == -np.inf else f"{value:.3f}".replace("-", "−")


def steps(
    text: Text, *, layer: int, head: int, position: str | int = -1, stack: str = "", part: str = "attn"
) -> Steps:
    """The five steps of one query, at a position or of a word's last token; `part` is as in `attention`."""
    reading = text.reading()
    at = text.read_by(stack).position(position)
    found = attending.query_steps(reading, layer=layer, head=head, position=at, stack=stack, part=part)
    queries, sources = text.axes(stack=stack, part=part)
    where = f"layer {layer}, head {head}, query {quoted(queries.labels[at])} at {at}"
    caption = f"{text.name_of(stack, part)}: {where}"
    token = queries.labels[at]
    return Steps(caption=caption, tokens=sources.labels, position=at, query_token=token, **vars(found))


# robot: the article's own table

ROBOT = ["robot", "must", "obey", "orders"]
ROBOT_SCORES = [
    [0.11, 0.00, 0.81, 0.79],
    [0.19, 0.50, 0.30, 0.48],
    [0.53, 0.98, 0.95, 0.14],
    [0.81, 0.86, 0.38, 0.90],
]
ROBOT_WIDTH = 16  # the article's percentages come out with scores ÷ √16


@answer
class Robot(Answer):
    """The article's "robot must obey orders": raw scores, scaled, masked, softmax; (4, 4) each."""

    kind = "robot"

    raw: Array
    scaled: Array
    masked: Array
    weights: Array

    def make_table(self) -> Table:
        """Four steps for every query."""
        columns = [Column("query", "token", key=True), Column("step", key=True)]
        columns += [Column(name, "share") for name in self.tokens]
        rows: list[list[Cell]] = []
        for at, query in enumerate(self.tokens):
            for step, table in self.data().items():
                rows.append([query, step, *table[at].tolist()])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The four tables of the article, with the step between."""
        titles = {"raw": "1 raw scores", "scaled": "2 ÷ √16", "masked": "3 masked", "weights": "4 softmax"}
        parts = []
        for step, title in titles.items():
            table: Array = getattr(self, step)
            texts = [[_decimals(value) for value in row] for row in table.tolist()]
            parts.append(
                matrix(
                    self.tokens,
                    self.tokens,
                    values=table,
                    scale=magnitude("score"),
                    texts=texts,
                    numeric=True,
                    legend=False,
                    title=title,
                    cell=[44.0, 24.0],
                )
            )
        return panels(parts, across=2, title="robot must obey orders: from scores to weights")


def robot() -> Robot:
    """The article's "robot must obey orders", with the step that its picture leaves out."""
    table: dict[str, Any] = attending.softmax_table(ROBOT_SCORES, ROBOT_WIDTH)
    return Robot(caption="raw scores, ÷ √16, masked, softmax", tokens=ROBOT, **table)
