"""The live drawing, in a real browser: what is drawn, described, pinned, saved, and that nothing is fetched."""

import base64
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn import drawings
from gapped import with_gaps
from PIL import Image

from glassformer.answers.answer import Answer as Look
from glassformer.figures.color import THEMES, magnitude
from glassformer.figures.labels import number, percent
from glassformer.figures.layout import ROOMS, figure, layouts
from glassformer.figures.specs import matrix
from glassformer.figures.svg import svg
from glassformer.figures.view import View, script

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed, which drives the browser"
)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which the page would be opened"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails on any error and on any request but that for the file itself."""
    context = browser.new_context(viewport={"width": 984, "height": 800}, accept_downloads=True)
    made = context.new_page()
    troubles: list[str] = []
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    made.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    local = ("file:", "data:", "blob:")
    made.on(
        "request", lambda request: None if request.url.startswith(local) else troubles.append(request.url)
    )
    yield made
    assert not troubles
    context.close()


def show(page: Any, look: Look, folder: Path, drawing: str | None = None) -> None:
    path = folder / "view.html"
    path.write_text(look.to_html(drawing), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("svg")


def until(page: Any, asked: str, right: Callable[[Any], bool]) -> None:
    """Wait until the page answers so."""
    for _ in range(100):
        if right(page.evaluate(asked)):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{asked} is {page.evaluate(asked)}")


SHAPES = """() => JSON.stringify([...document.querySelectorAll('svg > :not(defs):not(title)')].map((one) => {
  const found = Object.fromEntries([...one.attributes].map((each) => [each.name, each.value]));
  return [one.tagName, found, one.tagName === 'text' ? one.textContent : ''];
}))"""  # as one text: thousands of values one by one would take seconds
Shapes = list[tuple[str, dict[str, str], str]]


def alike(tag: str, attributes: dict[str, str], text: str) -> tuple[str, dict[str, str], str]:
    """A shape without what a page has for its pointer alone, and without the names of hatches."""
    kept = {key: value for key, value in attributes.items() if key not in ("pointer-events", "data-at")}
    return (
        tag,
        {key: "hatch" if value.startswith("url(#hatch") else value for key, value in kept.items()},
        text,
    )


SAVED = """async () => {
  const make = URL.createObjectURL;
  const blob = await new Promise((done) => {
    URL.createObjectURL = (blob) => (done(blob), make.call(URL, blob));
    document.querySelector('.gf-bar button').click();
  });
  URL.createObjectURL = make;
  return await blob.text();
}"""


def on_page(page: Any) -> Shapes:
    """The shapes of the picture on a page; many cells are on a canvas, and shapes in the file that it saves."""
    if page.locator("canvas").count():
        saved = in_file(page.evaluate(SAVED))
        assert len(json.loads(page.evaluate(SHAPES))) < len(saved)
        return saved
    return [alike(*shape) for shape in json.loads(page.evaluate(SHAPES))]


def in_file(svg: str) -> Shapes:
    """The shapes of a picture in a file."""
    found = []
    for one in ElementTree.fromstring(svg):
        tag = one.tag.rpartition("}")[2]
        if tag not in ("defs", "title"):
            attributes = {
                key.replace("{http://www.w3.org/XML/1998/namespace}", "xml:"): value
                for key, value in one.items()
            }
            found.append(alike(tag, attributes, (one.text or "") if tag == "text" else ""))
    return found


def compare(page: Any, spec: dict[str, Any], theme: str) -> None:
    """What the page shows is what the SVG shows: every shape, at its place, in its color, with its text."""
    wide = page.evaluate("document.querySelector('#view').clientWidth")
    fitting = (sheet for sheet in (figure(spec, room) for room in ROOMS) if sheet.width <= wide + 1)
    sheet = next(fitting, None) or figure(spec, ROOMS[-1])
    look = """() => {
      const svg = document.querySelector('svg'), paper = document.querySelector('.gf-view').style.getPropertyValue('--paper');
      const size = ['width', 'height'].map((name) => Number(svg.getAttribute(name)));
      return [...size, paper];
    }"""
    until(page, look, lambda found: found == [sheet.width, sheet.height, THEMES[theme]["paper"]])
    assert on_page(page) == in_file(svg(sheet, spec, theme=theme))


def open_view(page: Any, spec: dict[str, Any], folder: Path, width: int = 1200) -> None:
    """The exported page of a view, in a window of some width."""
    page.set_viewport_size({"width": width, "height": 800})
    (folder / "view.html").write_text(View(spec).to_html(), encoding="utf-8")
    page.goto((folder / "view.html").as_uri())
    page.wait_for_selector("svg")


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_page_shows_what_the_svg_shows(
    page: Any, looks: dict[str, Look], tmp_path: Path, both: bool
) -> None:
    """Drawings of answers (here every third): wide and light, narrow and dark; their words for those who do not see."""
    for at, (_, spec) in enumerate(drawings(looks)):
        if not both and at % 3:
            continue
        page.emulate_media(color_scheme="light")
        open_view(page, spec, tmp_path)
        if both or at % 2:
            compare(page, spec, "light")
        if both or not at % 2:
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size({"width": 360, "height": 800})
            compare(page, spec, "dark")
        check_words(page, spec)


def check_words(page: Any, spec: dict[str, Any]) -> None:
    """What a picture has for those who do not see it: a sentence, keys, and a table."""
    found = page.evaluate(
        "Object.fromEntries([...document.querySelector('svg').attributes].map((one) => [one.name, one.value]))"
    )
    assert found["role"] == "img"
    assert found["aria-label"] == spec["sentence"]
    assert found["tabindex"] == "0"
    assert "Arrow keys" in page.locator(f"#{found['aria-describedby']}").text_content()
    page.locator("summary").click()
    page.wait_for_selector("table")
    assert page.locator("tbody tr").count() == min(2000, len(spec["table"]["rows"])) > 0


@pytest.mark.parametrize(
    ("group", "theme", "width"),
    [
        pytest.param(*one, marks=pytest.mark.slow)
        for one in (("hostile", "dark", 1200), ("scripts", "light", 360))
    ],
)
def test_texts_of_every_script_on_a_page(
    page: Any, request: pytest.FixtureRequest, tmp_path: Path, group: str, theme: str, width: int
) -> None:
    """Cut, pressed and escaped as in the SVG."""
    page.emulate_media(color_scheme=theme)
    for name, spec in drawings(request.getfixturevalue(group)):
        if not name.startswith("embedding"):  # thousands of cells without a text
            open_view(page, spec, tmp_path, width)
            compare(page, spec, theme)


@pytest.mark.parametrize(
    ("theme", "width"),
    [pytest.param(*one, marks=pytest.mark.slow) for one in (("light", 1200), ("dark", 360))],
)
def test_long_texts_on_a_page(
    page: Any, long: dict[str, Look], tmp_path: Path, theme: str, width: int
) -> None:
    """Overviews and windows, packed numbers, thousands of marks."""
    page.emulate_media(color_scheme=theme)
    for name, look in long.items():
        if not name.endswith(("saliency", "rankings", "cache")):  # long lists whose rows are all alike
            open_view(page, look.view().spec, tmp_path, width)
            compare(page, look.view().spec, theme)


def test_views_with_gaps_on_a_page(page: Any, tmp_path: Path) -> None:
    """Nothing, null, one point and equal values are drawn as in the SVG."""
    for spec in with_gaps():
        open_view(page, spec, tmp_path)
        compare(page, spec, "light")


@pytest.mark.parametrize("kind", ["probabilities", "attention", "lens"])
def test_colors_and_width_change_apart(page: Any, looks: dict[str, Look], tmp_path: Path, kind: str) -> None:
    """A page that was opened dark, or narrow, or in between, shows the same."""
    spec = looks[kind].view().spec
    page.emulate_media(color_scheme="dark")
    show(page, looks[kind], tmp_path)
    compare(page, spec, "dark")
    for width in (700, 360):
        page.set_viewport_size({"width": width, "height": 800})
        compare(page, spec, "dark")
    page.emulate_media(color_scheme="light")
    compare(page, spec, "light")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_is_that_of_the_whole_window(
    page: Any, looks: dict[str, Look], tmp_path: Path, theme: str
) -> None:
    """Also below a short picture, and whatever the reader's own colors are."""
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    (tmp_path / "view.html").write_text(looks["top"].to_html(theme=theme), encoding="utf-8")
    page.set_viewport_size({"width": 984, "height": 1600})
    page.goto((tmp_path / "view.html").as_uri())
    page.wait_for_selector("svg")
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((20, 1590))) == THEMES[theme]["paper"]


@pytest.mark.parametrize("kind", ["attention", "lens", "heads"])
def test_to_the_pixel(page: Any, looks: dict[str, Look], tmp_path: Path, kind: str) -> None:
    """A page and an SVG file look the same, and a missing text would be seen."""
    page.set_viewport_size({"width": 1200, "height": 1600})
    still = tmp_path / "still.html"  # beside a page's own margins there is nothing else on it
    image = View(looks[kind].view().spec).to_svg()
    still.write_text(f"<meta charset=utf-8><body style='margin:0'>{image}", encoding="utf-8")
    for _ in range(5):  # a busy Chromium paints in several steps, and a screenshot may show one of them
        show(page, looks[kind], tmp_path)
        live = pixels(page)
        page.goto(still.as_uri())
        if different(live, pixels(page)) == 0:
            break
    assert different(live, pixels(page)) == 0
    page.evaluate("document.querySelectorAll('svg > text')[0].remove()")
    assert different(live, pixels(page)) > 20


def pixels(page: Any) -> np.ndarray:
    """The drawing on a page, as (height, width, 3) numbers."""
    page.mouse.move(0, 0)  # a pointer on the drawing would highlight what is below it
    page.wait_for_timeout(200)
    image = page.locator("svg").screenshot(animations="disabled")
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"), dtype=np.int16)


def different(one: np.ndarray, other: np.ndarray) -> int:
    """How many pixels differ by more than the smoothing of an edge does."""
    if one.shape != other.shape:
        return max(one.size, other.size)
    return int((np.abs(one - other).max(axis=2) > 48).sum())


def test_the_comparison_sees_a_difference(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """A shape that moved, has another color or another text, or is gone, does not pass."""
    spec = looks["attention"].view().spec
    show(page, looks["attention"], tmp_path)
    compare(page, spec, "light")
    for change in (
        "setAttribute('x', 1000)",
        "setAttribute('fill', '#123456')",
        "textContent = 'x'",
        "remove()",
    ):
        show(page, looks["attention"], tmp_path)
        page.evaluate(f"document.querySelectorAll('svg > text')[5].{change}")
        with pytest.raises(AssertionError):
            compare(page, spec, "light")


def test_numbers_are_written_as_in_python(page: Any) -> None:
    """The page writes what its table and a moved window need; Python writes the rest."""
    page.goto("about:blank")
    rng = np.random.default_rng(0)
    values = [
        sign * 10.0**power * scale
        for sign in (1, -1)
        for power in range(-9, 12)
        for scale in (1, 2.5, 9.9951)
    ]
    values += [
        0.0,
        0.5,
        0.0005,
        0.05,
        0.25,
        99.95,
        999.5,
        9.6e-5,
        1e15,
        7.7e15,
        5e-324,
        *rng.normal(size=500).tolist(),
        *rng.random(500).tolist(),
    ]
    source = base64.b64encode(script().encode()).decode()
    made = page.evaluate(
        """async ([source, values]) => {
          const { number, percent } = await import(`data:text/javascript;base64,${source}`);
          return values.map((value) => [number(value), percent(value)]);
        }""",
        [source, values],
    )
    assert made == [[number(value), percent(value)] for value in values]


def test_large_numbers_are_unpacked(page: Any, tmp_path: Path) -> None:
    """Numbers that 16 bits cannot hold come as 32 bits."""
    scale = magnitude("x", 2e6)
    rows, columns = ["constructor"] * 100, ["b"] * 100  # a property of every object in JavaScript
    spec = {"view": 3, "title": "a", "sentence": "b", "caption": "c", "table": {"columns": [], "rows": []}}
    spec |= matrix(rows, columns, values=np.full((100, 100), 1e6), scale=scale)
    assert "single" in spec["values"]
    open_view(page, spec, tmp_path)
    compare(page, spec, "light")
    page.locator("svg").focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert page.locator(".gf-tip").inner_text().endswith(": 1,000,000")


def test_hover_pin_and_keys(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """A cell is described; Enter pins it, Escape releases it, arrows move, t opens the table."""
    show(page, looks["attention"], tmp_path)
    tip = page.locator(".gf-tip")
    assert tip.is_hidden()
    cell = page.locator("svg > rect[data-at]").nth(0)
    cell.hover()
    assert tip.inner_text() == "Once · Once: 100 %"
    assert (
        page.locator("svg > rect[opacity]").count() > 5
    )  # what belongs to other rows and columns steps back
    page.mouse.move(980, 5)
    assert tip.is_hidden()

    page.locator("svg").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert tip.inner_text().startswith("␣a · Once: ")
    assert page.locator("[aria-live]").inner_text() == tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().startswith("␣a · ␣upon: ")
    page.keyboard.press("Enter")
    assert page.locator("[data-pinned=true]").count() == 1
    page.locator("svg > rect[data-at]").nth(0).hover(force=True)
    assert tip.inner_text().startswith("␣a · ␣upon: ")  # it stays
    page.keyboard.press("Escape")
    assert tip.is_hidden()

    assert page.locator("table").count() == 0
    page.keyboard.press("t")
    page.wait_for_selector("table")
    assert page.locator("tbody tr").count() == len(looks["attention"].rows)
    assert page.locator("th").all_inner_texts() == looks["attention"].columns


def test_a_wide_table_does_not_widen_the_page(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """On a phone the table scrolls by itself."""
    open_view(page, looks["lens"].view().spec, tmp_path, width=360)
    page.locator("summary").click()
    page.wait_for_selector("table")
    sizes = "[document.documentElement.scrollWidth, document.querySelector('table').offsetWidth]"
    whole, table = page.evaluate(sizes)
    assert whole <= 360 < table


def test_tab_reaches_the_picture_first(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """Then the buttons, then the table."""
    show(page, looks["lens"], tmp_path)
    met = []
    for _ in range(7):
        page.keyboard.press("Tab")
        met.append(page.evaluate("document.activeElement.tagName.toLowerCase()"))
    assert [one for one in met if one != "div"][:6] == [
        "svg",
        "button",
        "button",
        "button",
        "button",
        "summary",
    ]


def click_patch(page: Any, spec: dict[str, Any], *, row: int, column: int) -> None:
    """Click on the first overview of a picture, where it shows a cell."""
    found = next(mark["overview"] for mark in figure(spec).marks if mark.get("overview"))
    (wide, high), (rows, columns) = found["cell"], found["by"]
    x = found["x"] + (column // columns + 0.5) * wide
    page.locator("svg").click(position={"x": x, "y": found["y"] + (row // rows + 0.5) * high})


@pytest.mark.slow
def test_moving_through_a_long_text(page: Any, long: dict[str, Look], tmp_path: Path) -> None:
    """A click on the overview brings that part into the detail, and shows it as the SVG of that part does."""
    show(page, long["0 attention"], tmp_path)
    assert "984–1023, columns 984–1023" in page.locator("svg").text_content()
    spec = long["0 attention"].view().spec
    click_patch(page, spec, row=0, column=0)
    assert "rows 0–39, columns 0–39" in page.locator("svg").text_content()
    compare(page, spec | {"window": [0, 0]}, "light")

    click_patch(page, spec, row=500, column=200)  # the window has it in its middle
    compare(page, spec | {"window": [480, 180]}, "light")
    page.emulate_media(color_scheme="dark")
    compare(page, spec | {"window": [480, 180]}, "dark")
    page.set_viewport_size({"width": 360, "height": 800})
    compare(page, spec | {"window": [489, 189]}, "dark")  # the reader stays where they went


def test_moving_across_drawings_beside_each_other(page: Any, long: dict[str, Look], tmp_path: Path) -> None:
    """A click on one overview moves the windows of all."""
    look = next(look for name, look in long.items() if name.endswith("steps"))
    show(page, look, tmp_path)
    before = page.locator("svg").text_content()
    click_patch(page, look.view().spec, row=0, column=0)
    after = page.locator("svg").text_content()
    assert before.count("below: rows 984–1023") == after.count("below: rows 0–39") >= 2


def test_dark_and_light_and_narrow(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """It follows the reader's colors and the page's width."""
    show(page, looks["probabilities"], tmp_path)
    ground = "document.querySelector('svg > rect').getAttribute('fill')"
    assert page.evaluate(ground) == "#ffffff"
    page.emulate_media(color_scheme="dark")
    until(page, ground, lambda fill: fill == "#14171a")
    before = page.evaluate("document.querySelector('svg').clientWidth")
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.querySelector('svg').clientWidth", lambda width: width < before)


def test_files_from_the_page(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """Picture and numbers can be saved where there is only a browser."""
    show(page, looks["lens"], tmp_path)
    for label, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"stage,position"), ("JSON", b"{")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=label).click()
        saved = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved)
        assert saved.read_bytes().startswith(start), label
        assert saved.suffix == f".{label.lower()}"


def test_text_widths_are_as_planned(page: Any, hostile: dict[str, Look], tmp_path: Path) -> None:
    """In the browser's own fonts no label is wider than the room that was planned for it."""
    show(page, hostile["attention"], tmp_path)
    found = page.evaluate("""() => [...document.querySelectorAll('svg > text')].map((one) =>
      [one.textContent, one.getComputedTextLength(), Number(one.getAttribute('font-size'))])""")
    from glassformer.figures.marks import width_of

    assert all(width <= width_of(text, size) * 1.05 + 1 for text, width, size in found if text.strip())


def test_as_a_widget(page: Any, looks: dict[str, Look]) -> None:
    """What a notebook calls: `render` with a model and a place; a new view is drawn anew."""
    page.goto("about:blank")
    source = base64.b64encode(script().encode()).decode()
    views = [json.loads(json.dumps(looks[kind].view().spec)) for kind in ("lens", "attribution")]
    drawings = [{"view": view, "layouts": layouts(view)} for view in views]
    shown = page.evaluate(
        """async ([source, first, second]) => {
          const { default: widget } = await import(`data:text/javascript;base64,${source}`);
          let drawing = first, changed = () => {};
          const model = { get: () => drawing, on: (event, action) => { changed = action; } };
          const end = widget.render({ model, el: document.body });
          const before = document.querySelector('svg').getAttribute('aria-label');
          drawing = second;
          changed();
          const after = document.querySelector('svg').getAttribute('aria-label');
          end();
          return [before, after, document.body.children.length];
        }""",
        [source, *drawings],
    )
    assert shown == [views[0]["sentence"], views[1]["sentence"], 0]


def test_the_keyboard_stays_in_sight(page: Any, long: dict[str, Look], tmp_path: Path) -> None:
    """A mark that is focused is scrolled to, with its description beside it."""
    page.set_viewport_size({"width": 900, "height": 420})
    show(page, long["0 attention"], tmp_path)
    page.locator("svg").focus()
    page.evaluate("window.scrollTo(0, 0)")
    page.keyboard.press("ArrowDown")
    for _ in range(120):
        page.keyboard.press("ArrowDown")
    tip = page.locator(".gf-tip").bounding_box()
    assert page.evaluate("window.scrollY") > 0
    assert 0 <= tip["y"] < 421 - tip["height"]  # pixels are whole, places are not


def test_a_page_in_the_colors_that_were_asked_for(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """Whatever the reader's are."""
    looks["lens"].save(tmp_path / "dark.html", theme="dark")
    page.goto((tmp_path / "dark.html").as_uri())
    page.wait_for_selector("svg")
    assert page.evaluate("document.querySelector('svg > rect').getAttribute('fill')") == "#14171a"
