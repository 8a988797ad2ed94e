"""Where everything goes: a view in, a sheet of marks out. `views.js` has the same functions under the same names."""

from collections.abc import Callable

from glassformer.figures import color
from glassformer.figures.curves import lines, sparks
from glassformer.figures.grids import matrix
from glassformer.figures.labels import wrap
from glassformer.figures.marks import SMALL, Sheet, Spec, width_of, written
from glassformer.figures.strips import arcs, bars, boxes, tokens

ROOM = 960.0  # the width that a picture may take
MARGIN, TITLE = 12.0, 13.0


def figure(view: Spec, room: float = ROOM, theme: str = "light") -> Sheet:
    """The whole picture: title, drawing, legend, caption."""
    page = Sheet(theme)
    body = part(view, room - 2 * MARGIN, theme)
    width = max(body.width, min(300.0, room - 2 * MARGIN))
    page.add(body, MARGIN, MARGIN)
    y = MARGIN + body.height + 8
    for line in wrap(view["caption"], int(width / width_of("x", SMALL))):
        y += SMALL + 4
        page.text(MARGIN, y, line, size=SMALL, fill=page.color("soft"))
    page.width, page.height = width + 2 * MARGIN, y + MARGIN
    return page


def part(view: Spec, room: float, theme: str) -> Sheet:
    """One drawing with its title above and its legend below."""
    body = KINDS[view["kind"]](view, room, theme)
    sheet, y = Sheet(theme), 0.0
    title = view.get("title", "")
    size = SMALL if view.get("small") else TITLE
    wide = min(room, max(body.width, 90 if view.get("small") else 300))
    for line in wrap(title, int(wide / width_of("x", size))) if title else []:
        y += size + 3
        sheet.text(0, y, line, size=size, bold=True)
    y += 0 if not title else 4 if view.get("small") else 8
    sheet.add(body, 0, y)
    if "scale" in view and view.get("legend", True):
        legend(sheet, view["scale"], view.get("unit"), sheet.height + 10, room)
    return sheet


def legend(sheet: Sheet, scale: Spec, unit: str | None, y: float, room: float) -> None:
    """What the colors mean."""
    low, high = (written(scale[end], unit) for end in ("low", "high"))
    x = width_of(low, SMALL) + 4
    sheet.text(0, y + 9, low, size=SMALL, fill=sheet.color("soft"))
    for n in range(24):
        value = scale["low"] + (scale["high"] - scale["low"]) * n / 23
        sheet.rect(x + n * 4, y, 4, 10, color.at(scale, value, sheet.theme))
    sheet.rect(x, y, 96, 10, "none", stroke=sheet.color("line"))
    told = f"{high}  {scale['name']}"
    if x + 100 + width_of(told, SMALL) <= room:
        sheet.text(x + 100, y + 9, told, size=SMALL, fill=sheet.color("soft"))
        return
    sheet.text(x + 100, y + 9, high, size=SMALL, fill=sheet.color("soft"))
    for n, line in enumerate(wrap(scale["name"], int(room / width_of("x", SMALL)))):
        sheet.text(0, y + 23 + n * 13, line, size=SMALL, fill=sheet.color("soft"))


def panels(view: Spec, room: float, theme: str) -> Sheet:
    """Several drawings, so many beside each other, or as many as there is room for."""
    sheet, gap = Sheet(theme), view.get("gap", 18)
    parts = [part(one, min(room, one.get("room", room)), theme) for one in view["panels"]]
    for count in range(view.get("across", 1), 0, -1):
        lines = [parts[at : at + count] for at in range(0, len(parts), count)]
        widths = [max((line[at].width for line in lines if at < len(line)), default=0) for at in range(count)]
        if sum(widths) + gap * (count - 1) <= room:
            break
    y = 0.0
    for line in lines:
        x = 0.0
        for one, wide in zip(line, widths, strict=False):
            sheet.add(one, x, y)
            x += wide + gap
        y += max(one.height for one in line) + gap
    return sheet


KINDS: dict[str, Callable[[Spec, float, str], Sheet]] = {
    "tokens": tokens,
    "bars": bars,
    "matrix": matrix,
    "arcs": arcs,
    "lines": lines,
    "sparks": sparks,
    "boxes": boxes,
    "panels": panels,
}
