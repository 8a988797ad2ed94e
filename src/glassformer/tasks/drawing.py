"""Which picture an answer is: of every kind of answer, its drawings as views. The first one is the usual."""

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import number, percent, readable, visible
from glassformer.figures.specs import bars, curves, matrix, names, panels, plain, strip
from glassformer.figures.view import VERSION, View, short
from glassformer.tasks.sentences import sentence
from glassformer.tasks.sketches import (
    MOST_STRIPS,
    cache,
    curve,
    embedding,
    journey,
    merges,
    parameters,
    some,
    top,
    written,
)

if TYPE_CHECKING:
    from glassformer.tasks.look import Look

Spec = dict[str, Any]
MOST_BARS, MOST_NEURONS = 24, 40
LITTLE, MOST_CELLS = 16, 40_000  # rows and columns of a head among many; cells of all heads
NEAR = 48  # tokens whose bows are drawn one by one
SHORT = {"previous": "prev.", "first": "first", "duplicate": "same", "induction": "ind."}  # kinds of heads
WEAK = 0.04  # attention below which there is no bow


def view_of(look: "Look", drawing: str | None = None) -> View:
    """An answer as a view; `drawing` names one of several."""
    known = DRAWINGS[look.kind]
    if drawing is None:
        drawing = next(iter(known))
    if drawing not in known:
        raise InputError(f"{drawing!r} is not a drawing of {look.kind}; there is {', '.join(known)}")
    title, _, rest = look.caption.partition("\n")
    title = readable(title)
    told = [readable(rest), look.made, f"Glassformer {version('glassformer')}"]
    spec = {
        "view": VERSION,
        "title": title,
        "sentence": readable(sentence(look)),
        "caption": " · ".join(filter(None, told)),
    }
    drawn = known[drawing](look)
    if "title" in drawn:
        drawn["title"] = readable(drawn["title"])
    return View(spec | drawn | {"table": look.table()})


def _ahead(table: Any) -> Any:
    """What lies ahead is masked."""
    return np.where(np.tri(len(table)) > 0, table, np.nan)


def attention(look: "Look") -> Spec:
    """Who looks at whom: a row looks, a column is looked at."""
    tokens, table = names(look.tokens), np.asarray(look.numbers)
    return matrix(tokens, tokens, _ahead(table), **_amount(look, "; −∞: masked, so 0"))


def _amount(look: "Look", note: str = "") -> Spec:
    """What the numbers of a pattern are: shares of a row's attention, or how much is handed over."""
    top = float(np.asarray(look.numbers).max(initial=0))
    if look.seen == "handed over":
        return {"scale": magnitude(f"handed over{note}", top), "unit": ""}
    return {"scale": magnitude(f"of the attention of a row{note}", top), "unit": "percent"}


def arcs(look: "Look") -> Spec:
    """Bows from every token to where it looks; of a long text in groups, and the last tokens one by one."""
    tokens, table = names(look.tokens), np.asarray(look.numbers)
    top, more = float(table.max(initial=0)) or 1.0, _amount(look)
    if len(tokens) <= NEAR:
        return {"kind": "arcs", "tokens": tokens, "edges": _edges(table, top), **more}
    size = -(-len(tokens) // NEAR)
    groups = [range(at, min(at + size, len(tokens))) for at in range(0, len(tokens), size)]
    pooled = np.array(
        [
            [table[one.start : one.stop, two.start : two.stop].sum(1).mean() for two in groups]
            for one in groups
        ]
    )
    labels = [f"{group.start} {''.join(tokens[group.start : group.stop])}" for group in groups]
    whole = {"kind": "arcs", "tokens": labels, "edges": _edges(pooled, top), **more}
    last = len(tokens) - NEAR
    detail = {"kind": "arcs", "tokens": tokens[last:], "edges": _edges(table[last:, last:], top), **more}
    titles = {"title": f"by {size} tokens", "legend": False}, {"title": f"the last {NEAR} tokens"}
    return panels([whole | titles[0], detail | titles[1]])


def _edges(table: Any, top: float, most: int = 4) -> list[list[float]]:
    """The strongest bows of every token."""
    found = []
    for query, row in enumerate(table):
        for source in np.argsort(-row, kind="stable")[:most]:
            if row[source] >= WEAK * top:
                found.append([query, int(source), short(float(row[source]))])
    return found


def heads(look: "Look") -> Spec:
    """All heads in little, a layer a row; each with the kind that it is most."""
    patterns = look.seen  # (L, H, T, T)
    count, size = patterns.shape[1], patterns.shape[-1]
    across = max(4, min(LITTLE, int((MOST_CELLS / (count * len(patterns))) ** 0.5)))
    by = -(-size // across)
    side = float(max(3, int(min(84, 920 / count - 8) // -(-size // by))))
    parts = []
    for layer, row in enumerate(patterns):
        for head, table in enumerate(row):
            little = np.array(
                [
                    [table[r : r + by, c : c + by].max() for c in range(0, size, by)]
                    for r in range(0, size, by)
                ]
            )
            shares = {kind: float(np.nan_to_num(getattr(look.numbers, kind)[layer, head])) for kind in SHORT}
            kind = max(shares, key=shares.__getitem__)
            title = f"{layer}.{head} {SHORT[kind]} {shares[kind]:.0%}"
            rows = [f"{r * by}" for r in range(len(little))]
            more = {
                "cell": [side, side],
                "row_labels": False,
                "column_labels": False,
                "legend": False,
                "unit": "percent",
            }
            parts.append(
                matrix(rows, rows, _ahead(little), magnitude("attention"), title=title, small=True, **more)
            )
    title = f"{look.caption}; LAYER.HEAD, what it gives most to" + (
        f"; cells are the strongest of {by} × {by}" if by > 1 else ""
    )
    return panels(parts, across=count, gap=8, title=title, scale=magnitude("attention"), unit="percent")


def statistics(look: "Look") -> Spec:
    """What kind of head each is, as a table in colors."""
    kinds = [name for name in look.columns[2:] if name not in ("entropy", "distance")]
    rows = [f"{row[0]}.{row[1]}" for row in look.rows]
    values = np.array([[row[look.columns.index(kind)] for kind in kinds] for row in look.rows])
    texts = [["" if value != value else percent(value) for value in row] for row in values.tolist()]
    return matrix(
        rows,
        kinds,
        np.nan_to_num(values),
        magnitude("of its attention"),
        texts=texts,
        numeric=True,
        unit="percent",
    )


def search(look: "Look") -> Spec:
    """The heads that look there most."""
    return bars(
        [f"layer {one.layer}, head {one.head}" for one in look.numbers],
        [one.weight for one in look.numbers],
        unit="percent",
    )


def robot(look: "Look") -> Spec:
    """The four tables of the article, with the step between."""
    titles = {"raw": "1 raw scores", "scaled": "2 ÷ √16", "masked": "3 masked", "weights": "4 softmax"}
    parts = []
    for step, title in titles.items():
        table = np.asarray(look.numbers[step])
        texts = [["−∞" if value == -np.inf else f"{value:.2f}" for value in row] for row in table.tolist()]
        more = {"texts": texts, "numeric": True, "legend": False, "title": title, "cell": [44.0, 24.0]}
        parts.append(matrix(look.tokens, look.tokens, table, magnitude("score"), **more))
    return panels(parts, across=2, title="robot must obey orders: from scores to shares")


def steps(look: "Look") -> Spec:
    """One query from its keys to its values, token by token."""
    found, tokens = look.numbers, names(look.tokens)
    most = float(np.abs(found.dots).max()) or 1.0
    lengths = np.linalg.norm(found.weighted, axis=1)
    columns = [found.dots, found.scaled, found.masked, found.weights, lengths]
    scales = [
        signed("q·k", most), signed("÷ √K", most), signed("masked", most), magnitude("softmax"),
        magnitude("|w·v|", float(lengths.max()) or 1.0),
    ]  # fmt: skip
    texts = [
        ["−∞" if value == -np.inf else number(float(value)) for value in row]
        for row in zip(*columns, strict=True)
    ]
    more = {
        "scales": scales,
        "texts": texts,
        "numeric": True,
        "legend": False,
        "column_hues": {"0": "q", "4": "v"},
    }
    more |= {"cell": [54.0, 18.0]}
    last = max(0, look.seen - 39)
    more |= {"window": [last, 0]}  # of a long text, the part that ends at the query
    five = matrix(
        tokens, ["q·k", "÷ √K", "masked", "softmax", "|w·v|"], np.stack(columns, 1), scales[0], **more
    )
    width = float(max(2, 160 // found.values.shape[1]))
    thin = {
        "window": [last, 0],
        "cell": [width, 18.0],
        "row_labels": False,
        "column_labels": False,
        "legend": False,
    }
    across = [str(n) for n in range(found.values.shape[1])]
    top = float(np.abs(found.weighted).max()) or 1.0
    given = matrix(
        tokens, across, found.weighted, signed("weight × value", top), banner=["v", "softmax × v"], **thin
    )
    mixed = matrix(
        ["sum"], across, found.mix[None], signed("weight × value", top), banner=["v", "their sum"], **thin
    )
    return panels([five, panels([given, mixed | {"legend": True}], gap=6)], across=2)


def _lens(what: str) -> Callable[["Look"], Spec]:
    """What every layer would say, the last one on top: the likeliest token, and in color how sure, or how near it is."""

    def drawn(look: "Look") -> Spec:
        found = look.numbers
        values, scale, unit = {
            "probability": (
                np.exp(found.top_logprobs[..., 0]),
                magnitude("probability of the likeliest"),
                "percent",
            ),
            "rank": (1 / found.ranks, magnitude("= 1 ÷ rank of the token that came"), ""),
            "entropy": (found.entropy, magnitude("entropy, nats", float(found.entropy.max())), ""),
            "divergence": (
                found.divergence,
                magnitude("divergence from the last, nats", float(found.divergence.max())),
                "",
            ),
        }[what]
        texts = [names(row) for row in look.seen[::-1]]
        rows = [stage.removeprefix("blocks.") for stage in found.stages[::-1]]
        return matrix(rows, names(look.tokens), values[::-1], scale, texts=texts, unit=unit)

    return drawn


def rankings(look: "Look") -> Spec:
    """The rank of every written token in every layer."""
    ranks = np.asarray(look.numbers["ranks"])[::-1]
    rows = [stage.removeprefix("blocks.") for stage in look.numbers["stages"][::-1]]
    scale = magnitude("= 1 ÷ (1 + log₁₀ rank)")
    texts = [[f"{rank:,}" for rank in row] for row in ranks.tolist()]
    return matrix(rows, names(look.tokens), 1 / (1 + np.log10(ranks)), scale, texts=texts, numeric=True)


def watched(look: "Look") -> Spec:
    """Ranks over the layers, 1 on top."""
    x = [stage.removeprefix("blocks.") for stage in look.numbers["stages"]]
    words = names([name[1:-1] for name in look.columns[1:]])
    series = dict(zip(words, np.asarray(look.numbers["ranks"]).T, strict=True))
    return curves(x, series, log=True, down=True, y_title="rank", low=1)


def parts(look: "Look") -> Spec:
    """Who spoke for a token, and against it."""
    rows = look.rows[:MOST_BARS]
    return bars(
        [row[0] for row in rows], [row[1] for row in rows], **some(look, len(rows), len(look.rows), "parts")
    )


def saliency(look: "Look") -> Spec:
    """For every written token, what it is owed to, and the test: how fast it falls when that is taken away."""
    shares, found = np.asarray(look.numbers["shares"]), look.numbers["saliency"]
    most = float(np.abs(shares).max()) or 1.0
    against = bool((shares < 0).any())
    scale = signed("share, for or against", most) if against else magnitude("share", most)
    tested, parts = look.numbers.get("curves"), []
    for n, target in enumerate(found.targets[:MOST_STRIPS]):
        there = [
            value if end <= target.position + 1 else None
            for value, end in zip(shares[n], look.numbers["ends"], strict=True)
        ]
        upto = [at for at, value in enumerate(there) if value is not None]
        title = f"“{visible(look.seen[n])}” because of"
        values = [shares[n][at] for at in upto]
        parts.append(
            strip(
                [look.tokens[at] for at in upto],
                values,
                scale,
                title=title,
                unit="percent",
                legend=False,
                room=560,
            )
        )
        if tested is not None:
            both = {"deletion": tested.deletion[n], "insertion": tested.insertion[n]}
            more = {
                "height": 60,
                "width": 300,
                "low": 0,
                "high": max(1e-9, float(max(map(max, both.values())))),
                "unit": "percent",
                "x_title": "share of tokens, strongest first",
            }
            parts.append(curves([float(x) for x in tested.fractions], both, **more))
    told = some(look, min(MOST_STRIPS, len(found.targets)), len(found.targets), "tokens")
    return panels(parts, across=1 if tested is None else 2, scale=scale, unit="percent") | told


def neurons(look: "Look") -> Spec:
    """The neurons that fire most, token by token."""
    found = look.numbers
    best = {(row[2], row[3]): 0.0 for row in sorted(look.rows, key=lambda row: -row[4])[:MOST_NEURONS]}
    rows = [f"{layer}.{neuron}" for layer, neuron in best]
    values = np.stack([found.values[found.layers.index(layer), :, neuron] for layer, neuron in best])
    scale = signed("activation", float(np.abs(values).max()))
    return matrix(
        rows,
        names(look.tokens),
        values,
        scale,
        title=f"{look.caption}: the {len(rows)} strongest, LAYER.NEURON",
    )


def sparks(look: "Look") -> Spec:
    """One curve over the tokens for each factor or group."""
    name = look.columns[0]
    series = [{"name": f"{name} {n}", "values": plain(row)} for n, row in enumerate(look.seen)]
    return {"kind": "sparks", "tokens": names(look.tokens), "series": series}


def pushes(look: "Look") -> Spec:
    """The tokens that a neuron pushes."""
    return bars(names(look.tokens), [row[1] for row in look.rows])


def passages(look: "Look") -> Spec:
    """Stretches of text around the token at which a neuron fires."""
    scale = magnitude("activation", max(row[0] for row in look.rows))
    parts = [
        strip(
            row[2:5],
            [np.nan, row[0], np.nan],
            scale,
            title=f"{number(row[0])} in text {row[1]}",
            legend=False,
        )
        for row in look.rows
    ]
    return panels(parts, scale=scale, gap=8)


def edit(look: "Look") -> Spec:
    """The next token with and without the edits."""
    both = [
        {"name": name, "values": plain([row[at] for row in look.rows])}
        for at, name in ((1, "before"), (2, "after"))
    ]
    return {"kind": "bars", "labels": names([row[0] for row in look.rows]), "series": both, "unit": "percent"}


def sweep(look: "Look") -> Spec:
    """How much of the answer comes back, place by place."""
    restored = look.numbers.restored[::-1]
    most = float(np.nanmax(np.abs(restored), initial=1.0))
    sites = [site.removeprefix("blocks.") for site in look.numbers.sites[::-1]]
    return matrix(sites, names(look.tokens), restored, signed("restored", most), unit="percent", void="–")


def diff(look: "Look") -> Spec:
    """Where the other model likes a token more, or less; and how far apart their heads look."""
    found = look.numbers
    most = float(np.abs(found.logprobs).max()) or 1.0
    scale = signed("log-probability, the other less this one, nats", most)
    parts = [strip(look.tokens, [np.nan, *found.logprobs], scale, title="token by token")]
    if found.attention is not None:
        layers, heads = found.attention.shape
        rows, columns = [f"layer {n}" for n in range(layers)], [f"head {n}" for n in range(heads)]
        far = magnitude("of the attention goes elsewhere", float(found.attention.max()) or 1.0)
        parts.append(
            matrix(
                rows, columns, found.attention, far, unit="percent", title="how far apart their heads look"
            )
        )
    return panels(parts)


Drawings = dict[str, Callable[["Look"], Spec]]
SEVERAL: dict[str, Drawings] = {
    "attention": {"matrix": attention, "arcs": arcs},
    "heads": {"patterns": heads, "table": statistics},
    "lens": {what: _lens(what) for what in ("probability", "rank", "entropy", "divergence")},
    "factors": {"curves": sparks},
    "clusters": {"curves": sparks},
}
ALONE: tuple[Callable[["Look"], Spec], ...] = (
    search, robot, steps, rankings, watched, parts, journey, embedding, cache, saliency, neurons, pushes, passages,
    edit, sweep, diff, written, top, merges, parameters, curve,
)  # fmt: skip
DRAWINGS: dict[str, Drawings] = SEVERAL | {one.__name__: {one.__name__: one} for one in ALONE}
