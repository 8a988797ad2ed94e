"""A sheet of marks as SVG: one file, no script, no outside font, every text escaped."""

from collections.abc import Iterator
from html import escape

from glassformer.figures.cells import flat
from glassformer.figures.color import PALETTES, resolve
from glassformer.figures.labels import readable
from glassformer.figures.marks import Mark, Sheet, Spec

SANS = "Inter, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', 'Noto Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', monospace"
TIPS = 4000  # marks with a description; more would only make the file large
Attributes = dict[str, str]


def svg(sheet: Sheet, view: Spec, *, theme: str = "light") -> str:
    """The picture, with a sentence for those who cannot see it."""
    marks = list(flat(sheet, view))
    with_tips = sum("tip" in mark for mark in marks) <= TIPS
    colors, sentence = PALETTES[theme], _text(view["sentence"])
    width, height = _number(sheet.width), _number(sheet.height)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    hatch = (
        '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)">'
        f'<path d="M0 0V5" stroke="{colors["hatch"]}" stroke-width="1" opacity=".55"/></pattern>'
    )
    about = f'role="img" aria-label="{sentence}" font-family="{SANS}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {about}>',
        f"<title>{sentence}</title><defs>{hatch}</defs>",
        f'<rect width="100%" height="100%" fill="{colors["paper"]}"/>',
        *_elements(marks, sheet, theme, with_tips),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _elements(marks: list[Mark], sheet: Sheet, theme: str, with_tips: bool) -> Iterator[str]:
    """Every mark as an element, in its colors."""
    for mark in marks:
        colored = dict(mark)
        for key in ("fill", "stroke"):
            if key in mark:
                colored[key] = resolve(mark[key], sheet.scales, theme=theme)
        yield _element(colored, with_tips)


def _element(mark: Mark, with_tips: bool) -> str:
    name, draw = ELEMENTS[mark["mark"]]
    attributes = " ".join(f'{key}="{value}"' for key, value in draw(mark).items())
    inside = ""
    if name == "text":
        inside = _text(mark["text"])
    elif with_tips and "tip" in mark:
        inside = f"<title>{_text(mark['tip'])}</title>"
    return f"<{name} {attributes}>{inside}</{name}>" if inside else f"<{name} {attributes}/>"


def _rect(mark: Mark) -> Attributes:
    names = {"x": "x", "y": "y", "w": "width", "h": "height"}
    given = {name: _number(mark[key]) for key, name in names.items()}
    given["fill"] = "url(#hatch)" if mark.get("hatch") else mark["fill"]
    if "stroke" in mark:
        given["stroke"] = mark["stroke"]
    if given["fill"] == "none" and "tip" in mark:
        given["pointer-events"] = "all"  # what is not filled is not pointed at, otherwise
    return given


def _lettering(mark: Mark) -> Attributes:
    x, y = _number(mark["x"]), _number(mark["y"])
    given = {"x": x, "y": y, "font-size": _number(mark["size"]), "fill": mark["fill"]}
    if mark.get("anchor", "start") != "start":
        given["text-anchor"] = mark["anchor"]
    if mark.get("bold"):
        given["font-weight"] = "600"
    if mark.get("mono"):
        given |= {"font-family": MONO, "xml:space": "preserve"}
    if mark.get("turn"):
        given["transform"] = f"rotate(-90 {x} {y})"
    if "press" in mark:
        given |= {"textLength": _number(mark["press"]), "lengthAdjust": "spacingAndGlyphs"}
    return given


def _line(mark: Mark) -> Attributes:
    places = [f"{_number(x)} {_number(y)}" for x, y in mark["points"]]
    given = {
        "d": "M" + "L".join(places) if places else "",
        "stroke": mark["stroke"],
        "stroke-width": _number(mark.get("width", 1)),
        "fill": mark.get("fill", "none"),
    }
    if mark.get("dash"):
        given["stroke-dasharray"] = "5 3"
    if "fill" in mark:
        given["fill-opacity"] = ".25"
    return given


def _arc(mark: Mark) -> Attributes:
    """A curve whose two handles reach as far as it is lifted."""
    lift, right = mark["lift"], mark.get("right")
    handles = [(x + lift, y) if right else (x, y - lift) for x, y in mark["points"]]
    start, end = mark["points"]
    bow = " ".join(f"{_number(x)} {_number(y)}" for x, y in [*handles, end])
    path = f"M{_number(start[0])} {_number(start[1])}C{bow}"
    return {"d": path, "stroke": mark["stroke"], "stroke-width": _number(mark["width"]), "fill": "none"}


ELEMENTS = {
    "rect": ("rect", _rect),
    "text": ("text", _lettering),
    "line": ("path", _line),
    "arc": ("path", _arc),
}


def _number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


def _text(text: str) -> str:
    """As XML may have it; what XML may not have is shown by its number."""
    return escape(text if text.isprintable() else readable(text))
