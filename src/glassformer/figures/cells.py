"""Play a grid: the composite mark of a matrix as the rectangles and texts of its visible part.

views.js does the same in the browser, where the window can be moved; a test compares both. Whatever needs a
measure (where labels are cut, which text fits) was decided by the layout and is part of the mark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from glassformer.figures.color import Color
from glassformer.figures.labels import quantity
from glassformer.figures.marks import SMALL, TEXT, Mark, Sheet, Spec, tenth
from glassformer.figures.packing import Rows, masked, unpacked


def flat(sheet: Sheet, view: Spec) -> Iterator[Mark]:
    """The marks of a settled sheet, every grid as what it consists of."""
    for mark in sheet.marks:
        if mark["mark"] == "grid":
            yield from Grid(mark, matrix_of(view, mark["of"])).marks()
        else:
            yield mark


def matrix_of(view: Spec, path: list[int]) -> Spec:
    """The matrix in a view that a grid shows."""
    for at in path:
        view = view["panels"][at]
    return view


@dataclass
class Grid:
    """A grid mark with the matrix that it shows."""

    mark: Mark
    view: Spec

    def marks(self) -> Iterator[Mark]:
        """All that is visible."""
        if "overview" in self.mark:
            yield from self._overview()
        yield from self._columns()
        for n in range(self.down):
            yield from self._row(n)
        yield from self._outlines()

    def _color(self, c: int, value: float, ink: bool = False) -> Color:
        """The color of a value in a column, or of a text on it."""
        own = self.view.get("scales")
        scale = own[c] if own else self.view["scale"]
        return {"scale": scale, "value": value, "ink": ink}

    @property
    def top(self) -> int:
        """The first visible row."""
        return int(self.mark["window"][0])

    @property
    def first(self) -> int:
        """The first visible column."""
        return int(self.mark["window"][1])

    @property
    def down(self) -> int:
        """How many rows are visible."""
        return int(self.mark["window"][2])

    @property
    def across(self) -> int:
        """How many columns are visible."""
        return int(self.mark["window"][3])

    def _columns(self) -> Iterator[Mark]:
        """The names of the columns; upright where they are longer than the columns are wide."""
        if "columns" not in self.mark:
            return
        wide, y, head = self.mark["cell"][0], self.mark["y"], self.mark["head"]
        hues = self.view.get("column_hues", {})
        for m in range(self.across):
            c = self.first + m
            x = self.mark["x"] + m * wide
            middle = x + wide / 2
            hue = hues.get(str(c))
            if hue:
                yield _rect((x, y - head), (wide, head - 2), fill=hue)

            look: Mark = {"mono": True, "fill": "black" if hue else "ink", "keys": [f"c{c}"]}
            label = self.view["columns"][c]
            if self.mark["columns"] == "flat":
                yield self._text((middle, y - 5), label, "labels", **look, anchor="middle")
            else:
                yield self._text((middle + 4, y - 3), label, "labels", **look, turn=True)

    def _row(self, n: int) -> Iterator[Mark]:
        """The cells of a row, with its name."""
        wide, high = self.mark["cell"]
        r = self.top + n
        y = self.mark["y"] + n * high
        if self.mark["rows"]:
            place = self.mark["x"] - 6, y + high / 2 + 4
            label = self.view["rows"][r]
            look: Mark = {"anchor": "end", "mono": True, "fill": "ink", "keys": [f"r{r}"]}
            yield self._text(place, label, "labels", **look)
        for m in range(self.across):
            c = self.first + m
            x = self.mark["x"] + m * wide
            value = self.values[n][m]
            if value is None:
                yield from self._void((x, y), r, c)
            else:
                yield from self._cell((x, y), r, c, value)

    @cached_property
    def values(self) -> Rows:
        """The numbers of the visible cells; None is masked."""
        every = unpacked(self.view["values"])
        return masked(every[self.top : self.top + self.down, self.first : self.first + self.across])

    def _void(self, corner: tuple[float, float], r: int, c: int) -> Iterator[Mark]:
        """A masked cell."""
        keys = [f"r{r}", f"c{c}"]
        void = self.mark["void"]
        if self.mark["hatch"]:
            tip = self._tip(r, c, void)
            yield _rect(corner, self.mark["cell"], fill="none", hatch=True, tip=tip, keys=keys)
        if self.mark["void_text"]:
            middle = _middle(corner, self.mark["cell"], lower=4)
            yield _text(middle, void, size=SMALL, anchor="middle", fill="hatch", keys=keys)

    def _cell(self, corner: tuple[float, float], r: int, c: int, value: float) -> Iterator[Mark]:
        """A cell with a value, in its color and with its text."""
        keys = [f"r{r}", f"c{c}"]
        text = self.view["texts"][r][c] if self.view.get("texts") else ""

        fill = self._color(c, value)
        edge = {"stroke": "line"} if self.mark["edge"] else {}
        tip = self._tip(r, c, self._described(value, text))
        yield _rect(corner, self.mark["cell"], fill=fill, **edge, tip=tip, keys=keys)
        if text:
            middle = _middle(corner, self.mark["cell"], lower=3.5)
            ink = self._color(c, value, ink=True)
            look: Mark = {"size": SMALL, "anchor": "middle", "mono": True, "fill": ink, "keys": keys}
            yield self._text(middle, text, "texts", **look)

    def _described(self, value: float, text: str) -> str:
        """The description of a cell: its text where that is the number, else its text and its number."""
        if self.view.get("numeric"):
            return text
        shown = quantity(value, self.view.get("unit"))
        return f"“{text}” {shown}" if text else shown

    def _tip(self, r: int, c: int, described: str) -> str:
        return f"{self.view['rows'][r]} · {self.view['columns'][c]}: {described}"

    def _outlines(self) -> Iterator[Mark]:
        """Frames around some cells."""
        wide, high = self.mark["cell"]
        for r, c in self.view.get("outlined", []):
            n, m = r - self.top, c - self.first
            if 0 <= n < self.down and 0 <= m < self.across:
                corner = self.mark["x"] + m * wide, self.mark["y"] + n * high
                yield _rect(corner, (wide, high), fill="none", stroke="mark")

    def _overview(self) -> Iterator[Mark]:
        """The pooled matrix, a frame around it, one around the window, and a line with its position."""
        little = self.mark["overview"]
        x, y = little["x"], little["y"]
        wide, high = little["cell"]
        patches = masked(unpacked(little["values"]))
        for n, row in enumerate(patches):
            for m, value in enumerate(row):
                yield self._patch((x + m * wide, y + n * high), n, m, value)

        whole = len(patches[0]) * wide, len(patches) * high
        yield _rect((x, y), whole, fill="none", stroke="line")
        by_rows, by_columns = little["by"]
        corner = x + self.first / by_columns * wide, y + self.top / by_rows * high
        size = self.across / by_columns * wide, self.down / by_rows * high
        yield _rect(corner, size, fill="none", stroke="mark")

        rows = f"rows {self.top}–{self.top + self.down - 1}"
        columns = f"columns {self.first}–{self.first + self.across - 1}"
        place = x, y + little["note"]
        yield _text(place, f"below: {rows}, {columns}", size=SMALL, fill="soft")

    def _patch(self, corner: tuple[float, float], n: int, m: int, value: float | None) -> Mark:
        """One patch of the overview; its keys are the target of a click."""
        size = self.mark["overview"]["cell"]
        by_rows, by_columns = self.mark["overview"]["by"]
        r, c = n * by_rows, m * by_columns
        keys = ["overview", f"w{r}.{c}"]
        if value is None:
            return _rect(corner, size, fill="none", hatch=True, tip=self.mark["void"], keys=keys)

        last_row = min(len(self.view["rows"]), r + by_rows) - 1
        last_column = min(len(self.view["columns"]), c + by_columns) - 1
        shown = quantity(value, self.view.get("unit"))
        tip = f"{r}–{last_row} · {c}–{last_column}: {shown}"
        return _rect(corner, size, fill=self._color(c, value), tip=tip, keys=keys)

    def _text(self, place: tuple[float, float], text: str, group: str, **more: object) -> Mark:
        """A text as the layout found room for it."""
        shown, pressed = self.mark[group].get(text, (text, 0.0))
        return _text(place, shown, **more, **({"press": pressed} if pressed else {}))


def _middle(corner: tuple[float, float], size: tuple[float, float], *, lower: float) -> tuple[float, float]:
    """The position of a text in a cell: its base line is a little below the middle."""
    (x, y), (wide, high) = corner, size
    return x + wide / 2, y + high / 2 + lower


def _rect(corner: tuple[float, float], size: tuple[float, float], **more: object) -> Mark:
    (x, y), (w, h) = corner, size
    return {"mark": "rect", "x": tenth(x), "y": tenth(y), "w": tenth(w), "h": tenth(h), **more}


def _text(place: tuple[float, float], text: str, **more: object) -> Mark:
    x, y = place
    return {"mark": "text", "x": tenth(x), "y": tenth(y), "text": text, "size": TEXT, **more}
