"""A sheet of marks: rectangles, texts, lines, arcs and grids at their places. Renderers only play them.

`docs/views.md` ("What marks are") and `marks.schema.json` describe each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.figures.color import PALETTES, Color, Scale
from glassformer.figures.labels import MARKS, cells, is_wide, width

Mark = dict[str, Any]
Spec = dict[str, Any]  # a view, as JSON has it
Point = Sequence[float]
VERSION = 1
TEXT, SMALL = 11.0, 10.0  # sizes
LABEL = 18  # columns of a label, at most
EM = 0.61  # a column of text, in its size
COORDINATES = ("x", "y", "w", "h", "size", "width", "lift", "press", "head", "note")
MONOSPACED = set(MARKS.values()) | set("…–—−·×÷√∞→“”‘’‹›◌")  # that monospaced fonts have in one column


def width_of(text: str, size: float) -> float:
    """How wide a text is, at most."""
    return cells(text) * size * EM


def press(text: str, size: float) -> float:
    """The width into which a monospaced text is pressed; 0 where it fits in any font.

    Some scripts come from a font that the reader's machine chose, whose letters may be wider than planned,
    and are set to the planned width. That would also stretch what is narrower, and the plain letters beside
    them, so it is done only where at least half of the text may need it. One emoji in a word takes a little
    of the space around the word.
    """
    unsure = sum(width(char) for char in text if not _fits(char))
    return tenth(width_of(text, size)) if unsure and 2 * unsure >= cells(text) else 0.0


def _fits(char: str) -> bool:
    """European, Hebrew and Arabic letters fit into one column, East Asian ones into two, emoji do not."""
    emoji = 0x1F300 <= ord(char) <= 0x1FAFF
    return ord(char) < 0x900 or char in MONOSPACED or (is_wide(char) and not emoji)


def tenth(value: float) -> float:
    """A coordinate, to a tenth of a unit; halves go up, as in views.js."""
    return math.floor(value * 10 + 0.5) / 10


def shade(scale: Scale, value: float) -> Color:
    """The color of a value."""
    return {"scale": scale, "value": value}


def ink_over(scale: Scale, value: float) -> Color:
    """The color of a text on the color of a value."""
    return {"scale": scale, "value": value, "ink": True}


@dataclass
class Sheet:
    """Marks, and how far they reach."""

    width: float = 0
    height: float = 0
    marks: list[Mark] = field(default_factory=list)
    scales: list[Scale] = field(default_factory=list)  # that colors name by number, once the sheet is settled

    def reach(self, x: float, y: float) -> None:
        """Make room up to here."""
        self.width = max(self.width, x)
        self.height = max(self.height, y)

    def rect(self, x: float, y: float, *, size: Point, fill: Color = "none", **more: Any) -> None:
        """A rectangle. More: stroke; tip (its description under the pointer), keys (what it belongs to)."""
        w, h = size
        self.marks.append({"mark": "rect", "x": x, "y": y, "w": w, "h": h, "fill": fill, **more})
        self.reach(x + w, y + h)

    def text(self, x: float, y: float, *, text: str, **more: Any) -> None:
        """A text on its base line. More: size, anchor, fill, bold, mono, turn (vertical), keys."""
        mark = {"mark": "text", "x": x, "y": y, "text": text, "size": TEXT, "fill": "ink", **more}
        size = mark["size"]
        pressed = press(text, size) if mark.get("mono") else 0.0
        self.marks.append(mark | ({"press": pressed} if pressed else {}))
        if not mark.get("turn"):
            long = width_of(text, size)
            ahead = {"start": long, "middle": long / 2, "end": 0.0}[mark.get("anchor", "start")]
            self.reach(x + ahead, y + size * 0.25)

    def note(self, x: float, y: float, *, text: str, **more: Any) -> None:
        """A small text in a soft color."""
        self.text(x, y, text=text, **{"size": SMALL, "fill": "soft", **more})

    def line(self, points: Sequence[Point], stroke: Color, **more: Any) -> None:
        """A line through points. More: width, dash, fill, tip, keys."""
        path = [list(point) for point in points]
        self.marks.append({"mark": "line", "points": path, "stroke": stroke, **more})
        for x, y in points:
            self.reach(x, y)

    def arc(self, start: Point, end: Point, *, lift: float, stroke: Color, **more: Any) -> None:
        """A bow from one place to another: upward, or with `right` to that side. More: width, tip, keys."""
        ends = [list(start), list(end)]
        self.marks.append({"mark": "arc", "points": ends, "lift": lift, "stroke": stroke, **more})

    def add(self, other: "Sheet", *, x: float, y: float) -> None:
        """Put another sheet on this one, with its corner here."""
        self.marks.extend(_moved(mark, x, y) for mark in other.marks)
        self.reach(x + other.width, y + other.height)

    def settled(self) -> "Sheet":
        """The same sheet as JSON can have it: coordinates to a tenth, scales by their number."""
        scales: list[Scale] = []
        marks = [_settled(mark, scales) for mark in self.marks]
        return Sheet(tenth(self.width), tenth(self.height), marks, scales)

    def to_json(self) -> Spec:
        """The sheet as plain data, with the colors of both themes."""
        size = {"version": VERSION, "width": self.width, "height": self.height}
        return {**size, "palettes": PALETTES, "scales": self.scales, "marks": self.marks}


def _moved(mark: Mark, x: float, y: float) -> Mark:
    if "points" in mark:
        return {**mark, "points": [[px + x, py + y] for px, py in mark["points"]]}

    moved = {**mark, "x": mark["x"] + x, "y": mark["y"] + y}
    if "overview" in mark:
        moved["overview"] = _moved(mark["overview"], x, y)
    return moved


def _settled(mark: Mark, scales: list[Scale]) -> Mark:
    made = dict(mark)
    for key in COORDINATES:
        if key in mark:
            made[key] = tenth(mark[key])
    for key in ("fill", "stroke"):
        if isinstance(mark.get(key), dict):
            made[key] = _numbered(mark[key], scales)
    if "points" in mark:
        made["points"] = [[tenth(x), tenth(y)] for x, y in mark["points"]]
    if "overview" in mark:
        made["overview"] = _settled(mark["overview"], scales)
    return made


def _numbered(named: Mark, scales: list[Scale]) -> Mark:
    """A color with the number of its scale in place of the scale."""
    if named["scale"] not in scales:
        scales.append(named["scale"])
    return {**named, "scale": scales.index(named["scale"])}
