"""Drawings of what a model reads, keeps, writes, is made of and has learned."""

from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import cut, number, percent
from glassformer.figures.specs import bars, curves, matrix, names, panels, strip

if TYPE_CHECKING:
    from glassformer.tasks.look import Look

Spec = dict[str, Any]
MOST_STRIPS, MOST_BOXES = 12, 4000


def some(look: "Look", shown: int, there: int, what: str) -> Spec:
    """The title, if not all is shown."""
    return {} if shown >= there else {"title": f"{look.caption}; the first {shown} of {there} {what}"}


def journey(look: "Look") -> Spec:
    """A vector on its way up: how long it is, what each half of a block added, and what it would say."""
    found = look.numbers
    rows = [stage.removeprefix("blocks.") for stage in found["stages"][::-1]]
    columns = {
        "length": found["length"],
        "added": found["added"],
        "kept": found["kept"],
        "probability": found["probability"],
    }
    values = np.stack([np.asarray(one)[::-1] for one in columns.values()], 1)
    high = max(float(values[:, :2].max()), 1e-9)
    scales: list[Any] = [magnitude("", high), magnitude("", high), magnitude(""), magnitude("")]
    words = names(found["likeliest"][::-1])
    texts = [
        [number(a), number(b), number(c), f"{word} {percent(d)}"]
        for (a, b, c, d), word in zip(values.tolist(), words, strict=True)
    ]
    names_of = ["length", "added", "cosine", "would say"]
    return matrix(
        rows,
        names_of,
        values,
        magnitude(""),
        scales=scales,
        texts=texts,
        numeric=True,
        legend=False,
        cell=[124.0, 18.0],
    )


def embedding(look: "Look") -> Spec:
    """The token's row, the position's row, and their sum, which goes in."""
    tokens, made = names(look.tokens), []
    most = max(float(np.abs(look.numbers[name]).max()) for name in ("token", "position", "sum"))
    size = look.numbers["sum"].shape[1]
    by = -(-size // 800)
    wide = float(max(1, 720 // -(-size // by)))
    columns = [str(n) if by == 1 else f"{n}–{min(size, n + by) - 1}" for n in range(0, size, by)]
    for at, token in enumerate(tokens[:MOST_STRIPS]):
        rows = np.stack([look.numbers[name][at] for name in ("token", "position", "sum")])
        groups = [rows[:, n : n + by] for n in range(0, size, by)]
        strongest = np.stack(
            [np.take_along_axis(one, np.abs(one).argmax(1)[:, None], 1)[:, 0] for one in groups], 1
        )
        more = {"cell": [wide, 16.0], "column_labels": False, "legend": False}
        labels = [cut(token, 16), f"+ position {at}", "= input"]
        made.append(
            matrix([label.rjust(16) for label in labels], columns, strongest, signed("", most), **more)
        )
    what = "each number of a vector" if by == 1 else f"the strongest of every {by} numbers of a vector"
    return panels(made, gap=6, scale=signed(what, most)) | some(look, len(made), len(tokens), "tokens")


def cache(look: "Look") -> Spec:
    """Every step a row, every position a column: outlined where keys and values are new, solid where they were kept."""
    found, tokens = look.numbers, names(look.seen)
    size = int(found[-1].computed[0] + found[-1].reused[0])
    reused = np.array([[1.0 if at < one.reused[0] else 0.0 for at in range(size)] for one in found])
    new = [
        [n, at] for n, one in enumerate(found) for at in range(one.reused[0], one.reused[0] + one.computed[0])
    ]
    rows = [f"{one.step}: writes {token}" for one, token in zip(found, names(look.tokens), strict=True)]
    scale = magnitude("kept (solid); outlined: computed in this step")
    filled = matrix(
        rows,
        tokens[:size],
        reused,
        scale,
        outlined=new,
        title="which keys and values a step finds",
        legend=False,
    )
    sizes = {f"layer {n}": float(part) for n, part in enumerate(found[-1].bytes)}
    kept = bars(list(sizes), list(sizes.values()), title="bytes in the drawer of every layer at the end")
    return panels([filled, kept])


def written(look: "Look") -> Spec:
    """What was written, each token in the color of its probability."""
    return strip(look.tokens, look.numbers["probability"], magnitude("probability"), unit="percent")


def top(look: "Look") -> Spec:
    """The likeliest next tokens, and where the choice is cut off."""
    more: Spec = {"unit": "percent"}
    if look.numbers["cut"] is not None:
        more["cut"] = look.numbers["cut"]
    return bars(names(look.tokens), look.numbers["probability"], **more)


def merges(look: "Look") -> Spec:
    """A word from its bytes to its tokens."""
    rows: list[Spec] = []
    room = MOST_BOXES
    for note, pieces, made in look.seen:
        room -= len(pieces)
        if room < 0:
            rows.append({"note": "…", "pieces": [f"{len(look.seen) - len(rows)} more steps"], "made": None})
            break
        rows.append({"note": note, "pieces": names(pieces), "made": made})
    return {"kind": "boxes", "rows": rows}


def parameters(look: "Look") -> Spec:
    """Where the parameters are."""
    return bars([row[0] for row in look.rows], [row[3] for row in look.rows])


def curve(look: "Look") -> Spec:
    """Loss over tokens."""
    x, series = (
        look.numbers["millions of tokens"],
        {name: look.numbers[name] for name in ("training", "held out")},
    )
    title, high = {}, look.numbers["high"]
    if high is not None:
        series = {
            name: np.where(np.asarray(values) > high, np.nan, values) for name, values in series.items()
        }
        title = {"title": f"{look.caption}; what lies above {number(high)} is left out"}
    return curves(x, series, x_title="millions of tokens", y_title="loss, nats a token", height=260, **title)
