"""A sheet of marks as SVG: one file, no script, no outside font, every text escaped."""

from collections.abc import Iterator
from html import escape

from glassformer.figures.labels import cells, readable
from glassformer.figures.marks import EM, Mark, Sheet

SANS = "Inter, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', 'Noto Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', monospace"
TIPS = 4000  # marks that say what they are; more would only make the file large


def svg(sheet: Sheet, sentence: str) -> str:
    """The picture, with a sentence for those who cannot see it."""
    size = f'width="{_n(sheet.width)}" height="{_n(sheet.height)}" viewBox="0 0 {_n(sheet.width)} {_n(sheet.height)}"'
    told = sum("tip" in mark for mark in sheet.marks) <= TIPS
    hatch = (
        '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0V5" stroke="{sheet.color("hatch")}" stroke-width="1" opacity=".55"/></pattern>'
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_text(sentence)}" font-family="{SANS}">',
        f"<title>{_text(sentence)}</title><defs>{hatch}</defs>",
        f'<rect width="100%" height="100%" fill="{sheet.color("paper")}"/>',
        *(_mark(mark, told) for mark in sheet.marks),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _mark(mark: Mark, told: bool) -> str:
    name, attributes = {"rect": _rect, "text": _written, "line": _line, "arc": _arc}[mark["mark"]](mark)
    inside = (
        _text(mark["text"])
        if name == "text"
        else f"<title>{_text(mark['tip'])}</title>"
        if told and "tip" in mark
        else ""
    )
    start = f"<{name} " + " ".join(f'{key}="{value}"' for key, value in attributes)
    return f"{start}>{inside}</{name}>" if inside else f"{start}/>"


Attributes = tuple[str, Iterator[tuple[str, str]]]


def _rect(mark: Mark) -> Attributes:
    given = {"x": mark["x"], "y": mark["y"], "width": mark["w"], "height": mark["h"]}
    more = {"stroke": mark["stroke"]} if mark.get("stroke") else {}
    clear = {"pointer-events": "all"} if mark["fill"] == "none" and "tip" in mark else {}
    fill = "url(#hatch)" if mark.get("hatch") else mark["fill"]
    return "rect", iter(
        [*((key, _n(value)) for key, value in given.items()), ("fill", fill), *(more | clear).items()]
    )


def _written(mark: Mark) -> Attributes:
    """Where a text may be wider in another font than it was planned, it is pressed into its place."""
    x, y = _n(mark["x"]), _n(mark["y"])
    given = {"x": x, "y": y, "font-size": _n(mark["size"]), "fill": mark["fill"]}
    given |= {"text-anchor": mark["anchor"]} if mark["anchor"] != "start" else {}
    given |= {"font-weight": "600"} if mark.get("bold") else {}
    given |= {"font-family": MONO, "xml:space": "preserve"} if mark.get("mono") else {}
    given |= {"transform": f"rotate(-90 {x} {y})"} if mark.get("turn") else {}
    if mark.get("mono") and not mark["text"].isascii():
        given |= {
            "textLength": _n(cells(mark["text"]) * mark["size"] * EM),
            "lengthAdjust": "spacingAndGlyphs",
        }
    return "text", iter(given.items())


def _line(mark: Mark) -> Attributes:
    path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in mark["points"]) if mark["points"] else ""
    given = {
        "d": path,
        "stroke": mark["stroke"],
        "stroke-width": _n(mark.get("width", 1)),
        "fill": mark.get("fill", "none"),
    }
    given |= {"stroke-dasharray": "5 3"} if mark.get("dash") else {}
    given |= {"fill-opacity": ".25"} if "fill" in mark else {}
    return "path", iter(given.items())


def _arc(mark: Mark) -> Attributes:
    (x1, y1), (x2, y2) = mark["points"]
    lift = mark["lift"]
    bow = [(x1 + lift, y1), (x2 + lift, y2)] if mark.get("right") else [(x1, y1 - lift), (x2, y2 - lift)]
    path = f"M{_n(x1)} {_n(y1)}C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in [*bow, (x2, y2)])
    return "path", iter(
        {"d": path, "stroke": mark["stroke"], "stroke-width": _n(mark["width"]), "fill": "none"}.items()
    )


def _n(value: float) -> str:
    """A place, to a tenth."""
    return f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


def _text(text: str) -> str:
    """As XML may have it; what XML may not have is shown by its number."""
    return escape(text if text.isprintable() else readable(text))
