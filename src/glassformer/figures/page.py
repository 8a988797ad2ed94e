"""A view as one page: everything inside, nothing fetched, and a still picture for those without scripts."""

import json
from html import escape

from glassformer.figures.layout import figure
from glassformer.figures.marks import Spec
from glassformer.figures.svg import svg
from glassformer.figures.view import script

RULES = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def page(view: Spec, theme: str | None = None) -> str:
    """HTML that draws a view live."""
    options = json.dumps({} if theme is None else {"theme": theme})
    data = json.dumps(view, ensure_ascii=False, allow_nan=False)
    for char in "<>&\u2028\u2029":  # nothing in a text can end the script that it stands in
        data = data.replace(char, f"\\u{ord(char):04x}")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{RULES}">
<title>{escape(view["title"])}</title>
<style>body {{ margin: 0; }} @media (prefers-color-scheme: dark) {{ body {{ background: #14171a; }} }}</style>
</head>
<body>
<main id="view"></main>
<noscript>{svg(figure(view), view["sentence"])}</noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">
{script()}
draw(document.getElementById("view"), JSON.parse(document.getElementById("data").textContent), {options});
</script>
</body>
</html>
"""
