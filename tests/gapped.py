"""Views in which something is missing."""

from typing import Any

from glassformer.figures.color import magnitude

PLAIN: dict[str, Any] = {"title": "a", "sentence": "b", "caption": "c", "table": {"columns": [], "rows": []}}


def with_gaps() -> list[dict[str, Any]]:
    """Views in which there is nothing, null, one point or equal values."""
    scale = magnitude("x")
    series = [{"name": "one", "values": [1.0, None, 3.0]}, {"name": "two", "values": [None, None, None]}]
    jobs: list[dict[str, Any]] = [
        {"kind": "bars", "labels": [], "series": [{"name": "", "values": []}]},
        {"kind": "bars", "labels": ["a", "b", "c"], "series": series},
        {"kind": "sparks", "tokens": ["a", "b", "c"], "series": series},
        {"kind": "lines", "x": [1.0, 2.0, 3.0], "series": series},
        {"kind": "lines", "x": ["a"], "series": [{"name": "", "values": [2.0]}]},
        {"kind": "lines", "x": [], "series": []},
        {"kind": "tokens", "tokens": [], "values": [], "scale": scale},
        {"kind": "arcs", "tokens": ["a"], "edges": [[0, 0, 1.0]], "scale": scale},
        {"kind": "boxes", "rows": []},
        {"kind": "folders", "query": "a", "tokens": [], "scores": [], "weights": []},
        {"kind": "tree", "nodes": [], "scale": scale},
        {"kind": "tree", "nodes": [{"parent": None, "label": "", "value": None, "note": ""}], "scale": scale},
        {"kind": "unrolled", "steps": []},
        {"kind": "unrolled", "steps": [{"input": None, "state": "", "output": None}]},
        {"kind": "roll", "notes": []},
        {
            "kind": "roll",
            "notes": [[0, 0, 60, 0]],
            "values": [None],
            "scale": scale,
            "arcs": [[0, 0, 0, 1]],
            "series": [""],
        },
        {"kind": "slots", "groups": [], "columns": [], "names": []},
        {"kind": "slots", "groups": [["a", 1]], "columns": [0, 7], "names": ["", "b"]},
        {"kind": "panels", "panels": []},
        {"kind": "matrix", "rows": ["a"], "columns": ["b"], "values": [[None]], "scale": scale, "void": "–"},
    ]
    return [{"view": 2, **PLAIN, **job} for job in jobs]
