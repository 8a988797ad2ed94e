"""Views in one line each: what goes into the JSON of a drawing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.figures.labels import visible_start
from glassformer.figures.marks import Spec
from glassformer.figures.packing import packed, short


def names(tokens: Sequence[str]) -> list[str]:
    """Tokens as pictures show them; of a very long one, the beginning."""
    return [visible_start(token) for token in tokens]


def matrix(rows: Sequence[str], columns: Sequence[str], *, values: Any, scale: Spec, **more: Any) -> Spec:
    """Rows by columns."""
    return {
        "kind": "matrix",
        "rows": list(rows),
        "columns": list(columns),
        "values": packed(values),
        "scale": scale,
        **more,
    }


def panels(parts: Sequence[Spec], **more: Any) -> Spec:
    """Several drawings."""
    return {"kind": "panels", "panels": list(parts), **more}


def bars(labels: Sequence[str], values: Any, **more: Any) -> Spec:
    """One bar a label."""
    return {"kind": "bars", "labels": list(labels), "series": [{"name": "", "values": plain(values)}], **more}


def strip(tokens: Sequence[str], values: Any, *, scale: Spec, **more: Any) -> Spec:
    """Tokens in colors."""
    return {"kind": "tokens", "tokens": names(tokens), "values": plain(values), "scale": scale, **more}


def tree(nodes: Sequence[Spec], *, scale: Spec, **more: Any) -> Spec:
    """Nodes with a `parent`, a `label`, a `value` and a `note`; a parent comes before its children."""
    return {"kind": "tree", "nodes": list(nodes), "scale": scale, **more}


def curves(
    x: Sequence[Any], series: dict[str, Any], *, spread: dict[str, tuple[Any, Any]] | None = None, **more: Any
) -> Spec:
    """Named lines over x; of some, the lowest and the highest of what each value is the mean of."""
    made: list[Spec] = [{"name": name, "values": plain(values)} for name, values in series.items()]
    for one in made:
        if spread is not None and one["name"] in spread:
            low, high = spread[one["name"]]
            one["spread"] = {"low": plain(low), "high": plain(high)}
    return {"kind": "lines", "x": list(x), "series": made, **more}


def roll(notes: Sequence[Sequence[float]], **more: Any) -> Spec:
    """Notes over time: start, end, pitch and voice of each."""
    return {"kind": "roll", "notes": [[round(float(x), 4) for x in note[:4]] for note in notes], **more}


def plain(values: Any) -> list[float | None]:
    """A row of numbers as a view holds them."""
    return [
        short(value) if math.isfinite(value) else None
        for value in np.asarray(values, dtype=np.float64).tolist()
    ]
