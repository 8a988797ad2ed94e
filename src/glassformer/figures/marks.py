"""A sheet of marks: rectangles, texts, lines and arcs at their places. Both renderers make the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.figures.color import THEMES
from glassformer.figures.labels import cells, number, percent

Mark = dict[str, Any]
Spec = dict[str, Any]  # a view, as JSON has it
TEXT, SMALL = 11.0, 10.0  # sizes
LABEL = 18  # columns of a label, at most
EM = 0.61  # a column of text, in its size


def width_of(text: str, size: float) -> float:
    """How wide a text is, at most."""
    return cells(text) * size * EM


def written(value: float, unit: str | None) -> str:
    """A value with its unit."""
    return percent(value) if unit == "percent" else number(value)


@dataclass
class Sheet:
    """Marks, and how far they reach."""

    theme: str
    width: float = 0
    height: float = 0
    marks: list[Mark] = field(default_factory=list)

    def color(self, name: str) -> str:
        """A color of the theme."""
        return THEMES[self.theme][name]

    def reach(self, x: float, y: float) -> None:
        """Make room up to here."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def rect(self, x: float, y: float, w: float, h: float, fill: str, **more: Any) -> None:
        """A rectangle. More: stroke, hatch; tip (what it says when asked), keys (what it belongs to)."""
        self.marks.append({"mark": "rect", "x": x, "y": y, "w": w, "h": h, "fill": fill, **more})
        self.reach(x + w, y + h)

    def text(
        self, x: float, y: float, text: str, *, size: float = 11, anchor: str = "start", **more: Any
    ) -> None:
        """A text on its base line; `turn` stands it up. More: fill, bold, mono, keys."""
        mark = {
            "mark": "text",
            "x": x,
            "y": y,
            "text": text,
            "size": size,
            "anchor": anchor,
            "fill": self.color("ink"),
        }
        self.marks.append(mark | more)
        long = width_of(text, size)
        if not more.get("turn"):
            self.reach(x + {"start": long, "middle": long / 2, "end": 0.0}[anchor], y + size * 0.25)

    def line(self, points: Sequence[Sequence[float]], stroke: str, **more: Any) -> None:
        """A line through points. More: width, dash, fill, tip, keys."""
        self.marks.append(
            {"mark": "line", "points": [list(point) for point in points], "stroke": stroke, **more}
        )
        for x, y in points:
            self.reach(x, y)

    def arc(
        self, start: Sequence[float], end: Sequence[float], lift: float, stroke: str, **more: Any
    ) -> None:
        """A bow from one place to another: upward, or with `right` to that side. More: width, tip, keys."""
        self.marks.append(
            {"mark": "arc", "points": [list(start), list(end)], "lift": lift, "stroke": stroke, **more}
        )

    def add(self, other: "Sheet", x: float, y: float) -> None:
        """Put another sheet on this one."""
        for mark in other.marks:
            moved = dict(mark)
            if "points" in mark:
                moved["points"] = [[px + x, py + y] for px, py in mark["points"]]
            else:
                moved |= {"x": mark["x"] + x, "y": mark["y"] + y}
            self.marks.append(moved)
        self.reach(x + other.width, y + other.height)
