"""A page that plays a piano roll while it moves: Web Audio and one canvas, nothing fetched."""

import json
from html import escape
from importlib import resources

from glassformer.figures.color import PALETTES
from glassformer.figures.marks import Spec
from glassformer.figures.page import document


def player(view: Spec, theme: str | None = None) -> str:
    """HTML that plays the notes of a roll."""
    keys = ("notes", "velocities", "series", "given")
    data = {key: view[key] for key in keys if key in view} | {"palettes": PALETTES, "theme": theme}
    body = f"""<main>
<h1>{escape(view["title"])}</h1>
<p><button id="play" type="button">Play</button>
<input id="place" type="range" min="0" max="1000" value="0" aria-label="place in the piece">
<output id="time"></output></p>
<canvas id="roll" role="img" aria-label="{escape(view["sentence"])}"></canvas>
<p id="names"></p>
<p class="soft">{escape(view["caption"])}</p>
</main>"""
    code = "\n".join(_part(name) for name in ("playing.js", "player.js"))
    return document(view, theme, body=body, data=data, code=code, more=f"\n{_part('player.css')}")


def _part(name: str) -> str:
    return resources.files("glassformer.figures").joinpath(name).read_text(encoding="utf-8")


def parsed(page: str) -> Spec:
    """The notes that a page plays, for those who check it."""
    start = page.index('id="data">') + len('id="data">')
    found: Spec = json.loads(page[start : page.index("</script>", start)])
    return found
