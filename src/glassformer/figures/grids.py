"""Rows by columns: which token attends to which, what every layer predicts, which neurons are active.

A matrix becomes one composite mark, a `grid`: where its cells lie and which of them are visible. The numbers
stay in the view, so a matrix of a million cells is in a page once, however many layouts that has, and moving
the visible window needs no new layout. `cells.py` and views.js play it as rectangles and texts.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.errors import counted
from glassformer.figures.labels import axis_titles, cells, cut, wrap
from glassformer.figures.marks import LABEL, SMALL, TEXT, Mark, Sheet, Spec, press, tenth, width_of
from glassformer.figures.packing import Array, packed, unpacked

DETAIL = 40  # rows or columns that are shown one by one, where all are too many
MOST = 96  # rows that are shown one by one
OVERVIEW = 420.0  # width of an overview, at most
PATCHES = 128  # of an overview in one direction, at most
NARROWEST = 46.0  # column with texts, where it must give way: seven letters

NUMBER = re.compile(r"[−+-]?[\d.,]+(e[−+-]?\d+)?( ?%)?")


@dataclass(frozen=True)
class Window:
    """The rows and columns that are visible: the first ones and how many."""

    top: int
    first: int
    down: int
    across: int


def matrix(view: Spec, room: float) -> Sheet:
    """Rows by columns, each cell in the color of its value; if too many, an overview and a window."""
    sheet = Sheet()
    left = _label_width(view) if view.get("row_labels", True) else 0.0
    cell = cell_size(view, room - left)
    window = _window(view, int((room - left) / cell[0] + 1e-6))
    grid = _grid(view, cell, window)

    all_visible = (window.down, window.across) == (len(view["rows"]), len(view["columns"]))
    if not all_visible:
        grid["overview"] = _overview(sheet, view, window, min(room, OVERVIEW))
    y = 0.0 if all_visible else sheet.height + 14
    y = _axis_titles(sheet, view, y=y, room=min(room, max(300.0, left + window.across * cell[0])))

    head = _head(sheet, view, grid, (left, y))
    grid |= {"x": left, "y": y + head}
    sheet.marks.append(grid)
    sheet.reach(left + window.across * cell[0], y + head + window.down * cell[1])
    return sheet


def _axis_titles(sheet: Sheet, view: Spec, *, y: float, room: float) -> float:
    """What rows and columns are, above them; where that ends."""
    titles = axis_titles(view)
    for line in wrap(titles, int(room / width_of("x", SMALL))) if titles else []:
        sheet.note(0, y + SMALL, text=line)
        y += 13
    return y + 3 if titles else y


def _label_width(view: Spec) -> float:
    """Room for the names of rows; panels that ask for the same number of columns are in line."""
    least = width_of("x" * view.get("label_columns", 0), TEXT)
    return max(least, _longest(view["rows"])) + 6


def _longest(labels: Iterable[str]) -> float:
    """Width of the longest label, as it is shown."""
    return max((width_of(cut(label, LABEL), TEXT) for label in labels), default=0.0)


def cell_size(view: Spec, room: float) -> tuple[float, float]:
    """Width and height of a cell: as the view asks, as its text needs, or as there is room for a square."""
    columns = max(1, len(view["columns"]))
    if "cell" in view:
        wide, high = view["cell"]
        return min(wide, room / columns), high

    each = float(int(room / columns))
    if "texts" in view:
        longest = max((cells(text) for row in view["texts"] for text in row), default=1)
        wanted = max(24.0, width_of("x" * min(longest, 12), SMALL) + 6)
        return min(wanted, max(NARROWEST, each)), 18.0

    side = min(24.0, max(13.0, each))
    return side, side


def _window(view: Spec, fits: int) -> Window:
    """Everything, or the part that is shown in detail: the end, unless the view asks for another one."""
    rows, columns = len(view["rows"]), len(view["columns"])
    if columns <= fits and rows <= MOST:
        return Window(0, 0, rows, columns)

    down, across = min(rows, DETAIL), min(columns, fits, DETAIL)
    if view["rows"] == view["columns"]:
        # A text beside itself: a square on the diagonal. Of a causal pattern, all above that is masked.
        down = across = min(down, across)
    top, first = view.get("window", [rows, columns])
    top = _start(top, down, rows)
    first = _start(first, across, columns)
    return Window(top, first, down, across)


def _start(wanted: int, count: int, size: int) -> int:
    """The first of `count` among `size`: the wanted one, or an earlier one so that the window is full."""
    return max(0, min(wanted, size - count))


def _grid(view: Spec, cell: tuple[float, float], window: Window) -> Mark:
    """The composite mark, still without its place."""
    wide, high = cell
    void = view.get("void", "−∞")
    grid: Mark = {
        "mark": "grid",
        "of": [],  # the way to the matrix: which panel, and which panel of that
        "cell": [round(wide, 4), high],
        "window": [window.top, window.first, window.down, window.across],
        "void": void,
        "hatch": not view.get("small", False),
        "edge": wide >= 8 and high >= 8,
        "void_text": wide >= width_of(void, SMALL) + 7 and high >= 12,
        "rows": bool(view.get("row_labels", True)),
        "labels": _shown([*view["rows"], *view["columns"]], LABEL, TEXT),
    }
    if "texts" in view:
        room = int((wide - 2) / width_of("x", SMALL))
        grid["texts"] = _shown((text for row in view["texts"] for text in row), room, SMALL)
    return grid


def _shown(texts: Iterable[str], room: int, size: float) -> dict[str, list[Any]]:
    """How texts are shown that are not shown as they are: cut to `room` columns, pressed into a width.

    A number is pressed rather than cut.
    """
    made = {}
    for text in dict.fromkeys(texts):
        if room < cells(text) <= 2 * room and NUMBER.fullmatch(text):
            made[text] = [text, tenth(width_of("x" * room, size))]  # half of a number would be another one
            continue
        short = cut(text, room)
        pressed = press(short, size)
        if short != text or pressed:
            made[text] = [short, pressed]
    return made


def _head(sheet: Sheet, view: Spec, grid: Mark, corner: tuple[float, float]) -> float:
    """What is drawn above the cells; its height.

    Its height is that of the longest name of any column, visible or not: nothing moves when the window does.
    """
    left, y = corner
    wide, across = grid["cell"][0], grid["window"][3]
    if "banner" in view:
        hue, name = view["banner"]
        head = TEXT + 6
        sheet.rect(left, y, size=(wide * across, head - 2), fill=hue)
        middle = left + wide * across / 2
        sheet.text(middle, y + head - 5, text=name, anchor="middle", mono=True, fill="black")
        return head

    if not view.get("column_labels", True):
        return 0.0
    longest = _longest(view["columns"])
    flat = longest + 4 <= wide
    head = TEXT + 6 if flat else longest + 6
    grid |= {"columns": "flat" if flat else "upright", "head": head}
    return head


def _overview(sheet: Sheet, view: Spec, window: Window, room: float) -> Mark:
    """All rows and columns in little: the strongest value of every patch; a frame shows the window."""
    rows, columns = len(view["rows"]), len(view["columns"])
    most = min(int(room / 4), PATCHES)
    down = max(1, math.ceil(rows / most))
    # Columns that have a scale each are not mixed.
    across = 1 if view.get("scales") else max(1, math.ceil(columns / most))

    pooled = strongest(unpacked(view["values"]), down=down, across=across)
    wide = min(12.0, room / pooled.shape[1])
    high = _patch_height(wide, rows, columns)
    tall = pooled.shape[0] * high
    sheet.reach(pooled.shape[1] * wide, tall)

    about = f"all {rows} × {columns}"
    if (down, across) != (1, 1):
        about += f", the strongest of every {down} × {across}"
    if window.across < columns:
        left = columns - window.across
        about += f"; {counted(left, 'column')} {'is' if left == 1 else 'are'} not shown below"
    y = tall + 14
    for line in wrap(about, int(room / width_of("x", SMALL))):
        sheet.note(0, y, text=line)
        y += 13
    sheet.reach(0, y + SMALL * 0.25)  # the line below gives the position of the window, so the grid writes it

    cell = [round(wide, 4), round(high, 4)]
    return {"x": 0.0, "y": 0.0, "cell": cell, "by": [down, across], "values": packed(pooled), "note": y}


def _patch_height(wide: float, rows: int, columns: int) -> float:
    """As high as wide, but flatter for a tall matrix and higher for a wide one."""
    if rows < columns / 4:
        return max(wide, min(12.0, 4 * wide))
    return wide if rows <= 4 * columns else max(3.0, wide / 4)


def strongest(values: Array, *, down: int, across: int) -> Array:
    """Of every patch of `down` × `across` the value that is farthest from 0; nan where all are nan."""
    rows, columns = values.shape
    tall, wide = math.ceil(rows / down), math.ceil(columns / across)
    full = np.full((tall * down, wide * across), np.nan)
    full[:rows, :columns] = values

    patches = full.reshape(tall, down, wide, across).swapaxes(1, 2).reshape(tall, wide, down * across)
    size = np.where(np.isnan(patches), -1.0, np.abs(patches))
    best = size.argmax(-1)[..., None]
    return np.take_along_axis(patches, best, -1)[..., 0]
