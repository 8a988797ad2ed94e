"""Rows by columns: who looks at whom, what every layer says, which neurons fire."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.figures import color
from glassformer.figures.labels import cells, cut, wrap
from glassformer.figures.marks import LABEL, SMALL, TEXT, Sheet, Spec, width_of, written

Rows = list[list[float | None]]
FLOATS = {"half": "<f2", "single": "<f4"}
DETAIL = 40  # rows or columns that are shown one by one, where all are too many
MOST = 96  # rows that are shown one by one


def numbers(given: Any) -> Rows:
    """Rows of numbers; many of them come packed as floats of 16 or 32 bits, in base64. What is not a number is None."""
    if not isinstance(given, dict):
        return list(given)
    rows, columns = given["shape"]
    kind = "half" if "half" in given else "single"
    values = np.frombuffer(base64.b64decode(given[kind]), FLOATS[kind]).astype(float).reshape(rows, columns)
    return [[None if math.isnan(value) else value for value in row] for row in values.tolist()]


def matrix(view: Spec, room: float, theme: str) -> Sheet:
    """Rows by columns, each cell in the color of its value; too many of them are pooled, with a part in detail below."""
    values = numbers(view["values"])
    rows, columns = view["rows"], view["columns"]
    left = (
        max((width_of(cut(label, LABEL), TEXT) for label in rows), default=0) + 6
        if view.get("row_labels", True)
        else 0.0
    )
    cell = cell_size(view, room - left)
    fits = int((room - left) / cell[0] + 1e-6)
    if len(columns) <= fits and len(rows) <= MOST:
        return grid(view, values, range(len(rows)), range(len(columns)), left, cell, theme)
    top, first = view.get("window", [len(rows), len(columns)])  # the end, unless another part was asked for
    down = span(top, min(len(rows), DETAIL), len(rows))
    across = span(first, min(fits, DETAIL), len(columns))
    sheet = Sheet(theme)
    overview(sheet, view, values, down, across, min(room, 420.0))
    detail = grid(view, values, down, across, left, cell, theme)
    sheet.add(detail, 0, sheet.height + 14)
    return sheet


def span(start: int, count: int, size: int) -> range:
    """So many from a start on; from further ahead, if there are not so many."""
    first = max(0, min(start, size - count))
    return range(first, min(size, first + count))


def cell_size(view: Spec, room: float) -> list[float]:
    """Width and height of a cell: as asked for, as its text needs, or as there is room for a square."""
    if "cell" in view:
        wide, high = view["cell"]
        return [min(wide, room / max(1, len(view["columns"]))), high]
    if "texts" in view:
        longest = max((cells(text) for row in view["texts"] for text in row), default=1)
        wanted = max(24.0, width_of("x" * min(longest, 12), SMALL) + 6)
        return [min(wanted, max(34.0, float(int(room / max(1, len(view["columns"])))))), 18.0]
    side = min(24.0, max(13.0, float(int(room / max(1, len(view["columns"]))))))
    return [side, side]


def grid(
    view: Spec, values: Rows, down: range, across: range, left: float, cell: Sequence[float], theme: str
) -> Sheet:
    """The cells of some rows and columns, with their labels."""
    sheet, (wide, high) = Sheet(theme), cell
    texts, scales, void = view.get("texts"), view.get("scales"), view.get("void", "−∞")
    head = columns_above(sheet, view, across, left, wide) if view.get("column_labels", True) else 0.0
    if "banner" in view:
        hue, told = view["banner"]
        head = TEXT + 6
        sheet.rect(left, 0, wide * len(across), head - 2, color.HUES[hue])
        sheet.text(left + wide * len(across) / 2, head - 5, told, anchor="middle", mono=True, fill="#000000")
    for n, r in enumerate(down):
        y = head + n * high
        if left:
            label = cut(view["rows"][r], LABEL)
            sheet.text(left - 6, y + high / 2 + 4, label, anchor="end", mono=True, keys=[f"r{r}"])
        for m, c in enumerate(across):
            value, x = values[r][c], left + m * wide
            where: Spec = {"tip": f"{view['rows'][r]} · {view['columns'][c]}: ", "keys": [f"r{r}", f"c{c}"]}
            if value is None:
                where["tip"] += void
                if not view.get("small"):
                    sheet.rect(x, y, wide, high, sheet.color("paper"), hatch=True, **where)
                if wide >= 20 and high >= 12:
                    look = {"anchor": "middle", "fill": sheet.color("hatch"), "keys": where["keys"]}
                    sheet.text(x + wide / 2, y + high / 2 + 4, void, size=SMALL, **look)
                continue
            scale = scales[c] if scales else view["scale"]
            text = texts[r][c] if texts else ""
            fill = color.at(scale, value, theme)
            told = written(value, view.get("unit"))
            where["tip"] += text if view.get("numeric") else f"“{text}” {told}" if text else told
            edge = {"stroke": sheet.color("line")} if wide >= 8 and high >= 8 else {}
            sheet.rect(x, y, wide, high, fill, **edge, **where)
            if text:
                shown, look = (
                    cut(text, int((wide - 2) / width_of("x", SMALL))),
                    {"mono": True, "fill": color.ink_on(fill), "keys": where["keys"]},
                )
                sheet.text(x + wide / 2, y + high / 2 + 3.5, shown, size=SMALL, anchor="middle", **look)
    for r, c in view.get("outlined", []):
        if r in down and c in across:
            place = left + (c - across.start) * wide, head + (r - down.start) * high
            sheet.rect(*place, wide, high, "none", stroke=sheet.color("mark"))
    return sheet


def columns_above(sheet: Sheet, view: Spec, across: Sequence[int], left: float, wide: float) -> float:
    """The names of the columns, upright where they are longer than the columns are wide; how high they stand."""
    labels = [cut(view["columns"][c], LABEL) for c in across]
    longest = max((width_of(label, TEXT) for label in labels), default=0)
    flat = longest + 4 <= wide
    head = TEXT + 6 if flat else longest + 6
    hues = view.get("column_hues", {})
    for m, (c, label) in enumerate(zip(across, labels, strict=True)):
        middle = left + m * wide + wide / 2
        hue = hues.get(str(c))
        if hue:
            sheet.rect(left + m * wide, 0, wide, head - 2, color.HUES[hue])
        ink = "#000000" if hue else sheet.color("ink")
        if flat:
            sheet.text(middle, head - 5, label, anchor="middle", mono=True, keys=[f"c{c}"], fill=ink)
        else:
            sheet.text(middle + 4, head - 3, label, turn=True, mono=True, keys=[f"c{c}"], fill=ink)
    sheet.reach(left, head)
    return head


def overview(sheet: Sheet, view: Spec, values: Rows, down: range, across: range, given: float) -> None:
    """All rows and columns in little, the strongest of every patch; a frame shows where the detail below is from."""
    rows, columns = len(values), len(values[0])
    most = int(given / 4)
    scales = view.get("scales")  # columns that have a scale each are not mixed
    by = [
        max(1, math.ceil(rows / min(most, 128))),
        1 if scales else max(1, math.ceil(columns / min(most, 128))),
    ]
    wide = min(12.0, given / math.ceil(columns / by[1]))
    high = (
        max(wide, min(12.0, 4 * wide))
        if rows < columns / 4
        else wide
        if rows <= 4 * columns
        else max(3.0, wide / 4)
    )
    room = wide * math.ceil(columns / by[1])
    for r in range(0, rows, by[0]):
        for c in range(0, columns, by[1]):
            patch = [
                value for row in values[r : r + by[0]] for value in row[c : c + by[1]] if value is not None
            ]
            place = (c / by[1] * wide, r / by[0] * high, wide, high)
            if not patch:
                look = {"hatch": True, "tip": view.get("void", "−∞"), "keys": ["overview", f"w{r}.{c}"]}
                sheet.rect(*place, sheet.color("paper"), **look)
            else:
                strongest = max(patch, key=abs)
                where = f"{r}–{min(rows, r + by[0]) - 1} · {c}–{min(columns, c + by[1]) - 1}"
                tip = f"{where}: {written(strongest, view.get('unit'))}"
                fill = color.at(scales[c] if scales else view["scale"], strongest, sheet.theme)
                sheet.rect(*place, fill, tip=tip, keys=["overview", f"w{r}.{c}"])
    tall = math.ceil(rows / by[0]) * high
    sheet.rect(0, 0, room, tall, "none", stroke=sheet.color("line"))
    x, y = across.start / by[1] * wide, down.start / by[0] * high
    sheet.rect(x, y, len(across) / by[1] * wide, len(down) / by[0] * high, "none", stroke=sheet.color("mark"))
    told = f"all {rows} × {columns}" + (f", the strongest of every {by[0]} × {by[1]}" if by != [1, 1] else "")
    told += f"; below: rows {down.start}–{down.stop - 1}, "
    told += f"columns {across.start}–{across.stop - 1}"
    for n, line in enumerate(wrap(told, int(given / width_of("x", SMALL)))):
        sheet.text(0, tall + 14 + n * 13, line, size=SMALL, fill=sheet.color("soft"))
