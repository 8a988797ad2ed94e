"""Where everything goes: a view in, a sheet of marks out. The only layout: renderers play its marks."""

from collections.abc import Callable, Sequence
from typing import Any

from glassformer.figures.curves import lines, sparks
from glassformer.figures.folders import folders
from glassformer.figures.grids import matrix
from glassformer.figures.labels import quantity, wrap
from glassformer.figures.marks import SMALL, Mark, Sheet, Spec, shade, width_of
from glassformer.figures.packing import short
from glassformer.figures.roll import roll
from glassformer.figures.slots import slots
from glassformer.figures.strips import arcs, bars, boxes, tokens
from glassformer.figures.trees import tree
from glassformer.figures.unrolled import unrolled

ROOM = 960.0  # the width that a picture may take
ROOMS = (ROOM, 640.0, 360.0)  # of the layouts that a page chooses from
PLACE = ("x", "y", "w", "h", "points", "lift")  # what differs between the layouts of a mark
MARGIN, TITLE = 12.0, 13.0
STEPS = 24  # of a legend


def figure(view: Spec, room: float = ROOM) -> Sheet:
    """The whole picture: title, drawing, legend, caption."""
    page = Sheet()
    body = part(view, room - 2 * MARGIN)
    width = max(body.width, min(300.0, room - 2 * MARGIN))
    page.add(body, x=MARGIN, y=MARGIN)

    y = MARGIN + body.height + 8
    for line in wrap(view["caption"], columns_in(width, SMALL)):
        y += SMALL + 4
        page.note(MARGIN, y, text=line)
    page.width, page.height = width + 2 * MARGIN, y + MARGIN
    return page.settled()


def layouts(view: Spec, rooms: Sequence[float] = ROOMS) -> list[Spec]:
    """The picture in several widths, as plain data, the widest first; none that a wider one makes needless.

    Most marks of a narrow layout are those of the widest at another place, and are written so: `like` is the
    number of that mark, and only what differs follows.
    """
    widest = figure(view, rooms[0]).to_json()
    twins = {_content(mark): n for n, mark in enumerate(widest["marks"])}
    made = [widest]
    for room in rooms[1:]:
        if made[-1]["width"] > room:
            layout = figure(view, room).to_json()
            marks = [_like(mark, widest["marks"], twins.get(_content(mark))) for mark in layout["marks"]]
            made.append({**layout, "marks": marks})
    return made


def _content(mark: Mark) -> str:
    """What a mark shows, wherever it is."""
    return repr({key: value for key, value in mark.items() if key not in PLACE})


def _like(mark: Mark, marks: list[Mark], at: int | None) -> Mark:
    """A mark as another one, and its own place."""
    if at is None:
        return mark
    own = {key: mark[key] for key in PLACE if key in mark and mark[key] != marks[at][key]}
    return {"like": at, **own}


def columns_in(room: float, size: float) -> int:
    """How many columns of text there is room for."""
    return int(room / width_of("x", size))


def part(view: Spec, room: float) -> Sheet:
    """One drawing with its title above and its legend below."""
    body = KINDS[view["kind"]](view, room)
    sheet = Sheet()
    y = _title(sheet, view, min(room, max(body.width, 90 if view.get("small") else 300)))
    sheet.add(body, x=0, y=y)
    if "scale" in view and view.get("legend", True):
        _legend(sheet, view, room)
    return sheet


def _title(sheet: Sheet, view: Spec, room: float) -> float:
    """The title of a drawing; how high it is."""
    title = view.get("title", "")
    if not title:
        return 0.0
    small = view.get("small")
    size = SMALL if small else TITLE
    y = 0.0
    for line in wrap(title, columns_in(room, size)):
        y += size + 3
        sheet.text(0, y, text=line, size=size, bold=True)
    return y + (4 if small else 8)


def _legend(sheet: Sheet, view: Spec, room: float) -> None:
    """What the colors mean, below all that is on a sheet."""
    scale, y = view["scale"], sheet.height + 10
    if "steps" in scale:
        _legend_steps(sheet, scale, y, room)
        return
    low, high = (quantity(scale[end], view.get("unit")) for end in ("low", "high"))
    sheet.note(0, y + 9, text=low)

    x = width_of(low, SMALL) + 4
    for n in range(STEPS):
        value = scale["low"] + (scale["high"] - scale["low"]) * n / (STEPS - 1)
        sheet.rect(x + n * 4, y, size=(4, 10), fill=shade(scale, short(value)))
    sheet.rect(x, y, size=(4 * STEPS, 10), stroke="line")

    after = x + 4 * STEPS + 4
    ending = f"{high}  {scale['name']}"
    if after + width_of(ending, SMALL) <= room:
        sheet.note(after, y + 9, text=ending)
        return
    sheet.note(after, y + 9, text=high)
    for n, line in enumerate(wrap(scale["name"], columns_in(room, SMALL))):
        sheet.note(0, y + 23 + n * 13, text=line)


def _legend_steps(sheet: Sheet, scale: Spec, y: float, room: float) -> None:
    """The name of a scale, then a few of its colors, each with what it means."""
    sheet.note(0, y + 9, text=scale["name"])
    x = width_of(scale["name"], SMALL) + 8
    for value, meaning in scale["steps"]:
        wide = 14 + width_of(meaning, SMALL)
        if x + wide > room:
            x = 0.0
            y += 14
        sheet.rect(x, y, size=(10, 10), fill=shade(scale, short(value)), stroke="line")
        sheet.note(x + 14, y + 9, text=meaning)
        x += wide + 10


def panels(view: Spec, room: float) -> Sheet:
    """Several drawings, as many beside each other as the view asks for, or as there is room for."""
    gap, across = view.get("gap", 18), view.get("across", 1)
    parts = [_panel(one, n, room) for n, one in enumerate(view["panels"])]
    # What the view puts in one row, as the heads of a layer, never shares a row with what comes after it.
    together = [parts[at : at + across] for at in range(0, len(parts), across)]
    for count in range(across, 0, -1):
        rows = [group[at : at + count] for group in together for at in range(0, len(group), count)]
        widths = [_widest(rows, at) for at in range(count)]
        if sum(widths) + gap * (count - 1) <= room:
            break

    sheet, y = Sheet(), 0.0
    for row in rows:
        x = 0.0
        for one, wide in zip(row, widths, strict=False):
            sheet.add(one, x=x, y=y)
            x += wide + gap
        y += max(one.height for one in row) + gap
    return sheet


def _panel(view: Spec, n: int, room: float) -> Sheet:
    """One of the drawings; its grids get the number of their panel."""
    sheet = part(view, min(room, view.get("room", room)))
    sheet.marks = [_inside(mark, n) for mark in sheet.marks]
    return sheet


def _inside(mark: Mark, n: int) -> dict[str, Any]:
    return {**mark, "of": [n, *mark["of"]]} if mark["mark"] == "grid" else mark


def _widest(rows: list[list[Sheet]], at: int) -> float:
    """The width of a column of panels; the last row may be shorter."""
    return max((row[at].width for row in rows if at < len(row)), default=0.0)


KINDS: dict[str, Callable[[Spec, float], Sheet]] = {
    "tokens": tokens,
    "bars": bars,
    "matrix": matrix,
    "arcs": arcs,
    "lines": lines,
    "sparks": sparks,
    "boxes": boxes,
    "folders": folders,
    "tree": tree,
    "unrolled": unrolled,
    "roll": roll,
    "slots": slots,
    "panels": panels,
}
