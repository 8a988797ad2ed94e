"""The article's folders: a query looks through keys, and takes from each value as much as its key fits."""

from dataclasses import dataclass

from glassformer.figures.color import Scale, magnitude
from glassformer.figures.labels import cut, percent, quantity
from glassformer.figures.marks import LABEL, SMALL, Sheet, Spec, shade, width_of

NOTE = 88.0  # width of the note with the query
GAP = 56.0  # the way from it to the folders
BEND = GAP / 3  # where a line to a folder bends
HIGH = 22.0  # of a folder
TAB = 6.0  # of its tab
STEP = 36.0  # from one folder to the next
SHEET = 190.0  # a value that is taken as a whole
NARROW = 370.0  # with less room the note is above the folders
SIZE = 12.0


@dataclass(frozen=True)
class Cabinet:
    """Where the folders are, and how large."""

    left: float
    top: float
    wide: float  # of a folder
    long: float  # of a value that is drawn out as a whole
    middle: float  # of the note with the query
    beside: bool  # whether the note is beside the folders, with a line to each


def folders(view: Spec, room: float) -> Sheet:
    """A folder for every source, with its key on it; its value is drawn out as far as it has weight."""
    sheet = Sheet()
    names = [cut(token, LABEL) for token in view["tokens"]]
    cabinet = _cabinet(names, room)
    scale = magnitude("", max(view["weights"], default=0.0) or 1.0)

    _note(sheet, view["query"], cabinet.middle)
    for at, name in enumerate(names):
        if cabinet.beside:
            _line(sheet, view, cabinet, at=at, scale=scale)
        _folder(sheet, view, cabinet, at=at, name=name)

    end = cabinet.top + STEP * len(names)
    if view.get("rest"):
        sheet.note(cabinet.left, end + 12, text=view["rest"])
    return sheet


def _cabinet(names: list[str], room: float) -> Cabinet:
    widths = [width_of(name, SIZE) for name in names]
    wide = max(widths, default=0.0) + 22
    beside = room >= NARROW
    left = NOTE + GAP if beside else 0.0
    half = STEP * len(names) / 2
    left_over = room - left - wide - 56
    return Cabinet(
        left=left,
        top=0.0 if beside else 48.0,
        wide=wide,
        long=max(24.0, min(SHEET, left_over)),
        middle=max(16.0, half) if beside else 16.0,
        beside=beside,
    )


def _note(sheet: Sheet, query: str, middle: float) -> None:
    """The query, as a note that is held against every folder."""
    top = middle - 16
    sheet.rect(0, top, size=(NOTE, 34), fill="q", stroke="line", tip=f"query: {query}")
    sheet.text(6, top + 12, text="query", size=SMALL, fill="black")
    sheet.text(6, top + 28, text=cut(query, 11), size=SIZE, mono=True, fill="black")


def _line(sheet: Sheet, view: Spec, cabinet: Cabinet, *, at: int, scale: Scale) -> None:
    """From the note to a folder, the wider the more weight it has."""
    weight = view["weights"][at]
    start = cabinet.middle
    end = cabinet.top + at * STEP + 18
    points = [
        [NOTE, start],
        [NOTE + BEND, start],
        [cabinet.left - BEND, end],
        [cabinet.left, end],
    ]
    sheet.line(points, shade(scale, weight), width=0.6 + 5 * weight, keys=[f"t{at}"])


def _folder(sheet: Sheet, view: Spec, cabinet: Cabinet, *, at: int, name: str) -> None:
    """A tab and a folder with the key, and behind it the value."""
    weight = view["weights"][at]
    score = quantity(view["scores"][at], "")
    share = percent(weight)
    about: Spec = {"keys": [f"t{at}"]}
    framed = {**about, "stroke": "line", "tip": f"{view['tokens'][at]}: score {score}, weight {share}"}

    x = cabinet.left
    y = cabinet.top + at * STEP
    line = y + TAB + 15  # on which texts are written
    right = x + cabinet.wide
    out = max(1.0, weight * cabinet.long)
    sheet.rect(right, y + TAB + 3, size=(out, HIGH - 6), fill="v", **framed)
    if out > width_of("value", SMALL) + 8:
        sheet.text(right + 4, line, text="value", size=SMALL, fill="black", **about)
    sheet.rect(x, y, size=(min(cabinet.wide, 26.0), TAB), fill="k", stroke="line", **about)
    sheet.rect(x, y + TAB, size=(cabinet.wide, HIGH), fill="k", **framed)
    sheet.text(x + 8, line, text=name, size=SIZE, mono=True, fill="black", **about)
    sheet.text(right + out + 6, line, text=share, bold=weight >= 0.1, **about)
