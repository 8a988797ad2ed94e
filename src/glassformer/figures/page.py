"""A view as one page: everything inside, nothing fetched, and a still picture for those without scripts."""

import json
from html import escape

from glassformer.figures.color import THEMES
from glassformer.figures.layout import figure, layouts
from glassformer.figures.marks import Spec
from glassformer.figures.svg import svg
from glassformer.figures.view import script

RULES = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def page(view: Spec, theme: str | None = None) -> str:
    """HTML that draws a view live."""
    options = json.dumps({} if theme is None else {"theme": theme})
    given = 'JSON.parse(document.getElementById("data").textContent)'
    call = f'draw(document.getElementById("view"), {given}, {options});'
    data = {"view": view, "layouts": layouts(view)}
    return document(view, theme, body='<main id="view"></main>', data=data, code=f"{script()}\n{call}\n")


def document(view: Spec, theme: str | None, *, body: str, data: Spec, code: str, more: str = "") -> str:
    """A whole page about a view: its rules, a body, a still picture, data and the module that uses it.

    `body`, `code` and `more` (style) are our own; every text of the view is escaped here.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{theme or "light dark"}">
<meta http-equiv="Content-Security-Policy" content="{RULES}">
<title>{escape(view["title"])}</title>
<style>{style(theme)}{more}</style>
</head>
<body>
{body}
<noscript>{svg(figure(view), view, theme=theme or "light")}</noscript>
<script type="application/json" id="data">{inline(data)}</script>
<script type="module">
{code}</script>
</body>
</html>
"""


def style(theme: str | None) -> str:
    """The paper of the whole window, also below a short picture; without a theme, that of the reader."""
    paper = {name: f"html {{ background: {colors['paper']}; }}" for name, colors in THEMES.items()}
    window = "html { min-height: 100%; } body { margin: 0; }"
    if theme is not None:
        return f"{window} {paper[theme]}"
    return f"{window} {paper['light']} @media (prefers-color-scheme: dark) {{ {paper['dark']} }}"


def inline(data: Spec) -> str:
    """JSON for a page: no text in it can end the script element that contains it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
