"""The article's folders: a query looks through keys, and takes from each value as much as its key fits."""

from glassformer.figures.color import magnitude
from glassformer.figures.labels import cut, percent, quantity
from glassformer.figures.marks import LABEL, SMALL, Sheet, Spec, shade, width_of

NOTE, GAP = 88.0, 56.0  # width of the note with the query; the way from it to the folders
HIGH, TAB, STEP = 22.0, 6.0, 36.0  # of a folder, of its tab, from one folder to the next
SHEET = 190.0  # a value that is taken as a whole
NARROW = 370.0  # with less room the note is above the folders
SIZE = 12.0


def folders(view: Spec, room: float) -> Sheet:
    """A folder for every source, with its key on it; its value is drawn out as far as it has weight."""
    sheet = Sheet()
    names = [cut(token, LABEL) for token in view["tokens"]]
    wide = max((width_of(name, SIZE) for name in names), default=0.0) + 22
    beside = room >= NARROW
    left, top = (NOTE + GAP, 0.0) if beside else (0.0, 48.0)
    middle = max(16.0, STEP * len(names) / 2) if beside else 16.0
    _note(sheet, view, middle)

    long = max(24.0, min(SHEET, room - left - wide - 56))
    scale = magnitude("", max(view["weights"], default=0.0) or 1.0)
    for at, name in enumerate(names):
        y = top + at * STEP
        weight = view["weights"][at]
        if beside:
            ends = [[NOTE, middle], [NOTE + GAP / 3, middle], [left - GAP / 3, y + 18], [left, y + 18]]
            sheet.line(ends, shade(scale, weight), width=0.6 + 5 * weight, keys=[f"t{at}"])
        _folder(sheet, view, at, name=name, corner=(left, y), size=(wide, long))
    if view.get("rest"):
        sheet.note(left, top + STEP * len(names) + 12, text=view["rest"])
    return sheet


def _note(sheet: Sheet, view: Spec, middle: float) -> None:
    """The query, as a note that is held against every folder."""
    shown = cut(view["query"], 11)
    sheet.rect(0, middle - 16, size=(NOTE, 34), fill="q", stroke="line", tip=f"query: {view['query']}")
    sheet.text(6, middle - 4, text="query", size=SMALL, fill="black")
    sheet.text(6, middle + 12, text=shown, size=SIZE, mono=True, fill="black")


def _folder(
    sheet: Sheet, view: Spec, at: int, *, name: str, corner: tuple[float, float], size: tuple[float, float]
) -> None:
    (x, y), (wide, long) = corner, size
    weight, keys = view["weights"][at], [f"t{at}"]
    tip = f"{view['tokens'][at]}: score {quantity(view['scores'][at], '')}, weight {percent(weight)}"
    out = max(1.0, weight * long)
    sheet.rect(x + wide, y + TAB + 3, size=(out, HIGH - 6), fill="v", stroke="line", tip=tip, keys=keys)
    if out > width_of("value", SMALL) + 8:
        sheet.text(x + wide + 4, y + TAB + 15, text="value", size=SMALL, fill="black", keys=keys)
    sheet.rect(x, y, size=(min(wide, 26.0), TAB), fill="k", stroke="line", keys=keys)
    sheet.rect(x, y + TAB, size=(wide, HIGH), fill="k", stroke="line", tip=tip, keys=keys)
    sheet.text(x + 8, y + TAB + 15, text=name, size=SIZE, mono=True, fill="black", keys=keys)
    sheet.text(x + wide + out + 6, y + TAB + 15, text=percent(weight), bold=weight >= 0.1, keys=keys)
