"""The live drawing, in a real browser: what is drawn, said, pinned, saved, and that nothing is fetched."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.answers.answer import Answer as Look
from glassformer.figures.layout import figure
from glassformer.figures.view import script

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


def test_the_page_draws_the_same_marks(
    page: Any, looks: dict[str, Look], hostile: dict[str, Look], tmp_path: Path
) -> None:
    """As many rectangles, paths and texts as Python draws, and every text in its words."""
    for group in (looks, hostile):
        for kind, look in group.items():
            show(page, look, tmp_path)
            room = page.evaluate("document.querySelector('#view').clientWidth")
            ours = figure(json.loads(json.dumps(look.view().spec)), room).marks
            drawn = page.evaluate(
                """() => [...document.querySelectorAll('svg > text')].map((one) => one.textContent)"""
            )
            assert drawn == [mark["text"] for mark in ours if mark["mark"] == "text"], kind
            rects = page.evaluate("document.querySelectorAll('svg > rect').length")
            assert rects == 1 + sum(mark["mark"] == "rect" for mark in ours), kind
            paths = page.evaluate("document.querySelectorAll('svg > path').length")
            assert paths == sum(mark["mark"] in ("line", "arc") for mark in ours), kind


def test_hover_pin_and_keys(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """A cell says what it is; Enter keeps it, Escape lets go, arrows walk, t opens the table."""
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


def test_every_chart_has_a_sentence_and_a_table(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """For those who do not see it."""
    for kind, look in looks.items():
        show(page, look, tmp_path)
        svg = page.locator("svg")
        assert svg.get_attribute("role") == "img", kind
        assert svg.get_attribute("aria-label") == look.view().spec["sentence"], kind
        assert svg.get_attribute("tabindex") == "0", kind
        assert "Arrow keys" in page.locator(f"#{svg.get_attribute('aria-describedby')}").text_content(), kind
        page.locator("summary").click()
        page.wait_for_selector("table")
        assert page.locator("tbody tr").count() == min(2000, len(look.rows)), kind


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


def test_a_long_text_is_walked_through(page: Any, long: dict[str, Look], tmp_path: Path) -> None:
    """A click on the overview brings that part into the detail."""
    show(page, long["0 attention"], tmp_path)
    assert "984–1023, columns 984–1023" in page.locator("svg").text_content()
    page.evaluate("""() => {
      const cells = [...document.querySelectorAll('svg > rect[data-at]')];
      cells[0].dispatchEvent(new MouseEvent('click', { bubbles: true }));
    }""")
    assert "columns 0–39" in page.locator("svg").text_content()
    assert "rows 0–39" in page.locator("svg").text_content()


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
    shown = page.evaluate(
        """async ([source, first, second]) => {
          const { default: widget } = await import(`data:text/javascript;base64,${source}`);
          let view = first, changed = () => {};
          const model = { get: () => view, on: (event, action) => { changed = action; } };
          const end = widget.render({ model, el: document.body });
          const before = document.querySelector('svg').getAttribute('aria-label');
          view = second;
          changed();
          const after = document.querySelector('svg').getAttribute('aria-label');
          end();
          return [before, after, document.body.children.length];
        }""",
        [source, *views],
    )
    assert shown == [views[0]["sentence"], views[1]["sentence"], 0]


def test_the_keyboard_stays_in_sight(page: Any, long: dict[str, Look], tmp_path: Path) -> None:
    """A mark that is walked to is scrolled to, with what it says beside it."""
    page.set_viewport_size({"width": 900, "height": 420})
    show(page, long["0 attention"], tmp_path)
    page.locator("svg").focus()
    page.evaluate("document.querySelector('.gf-scroll').scrollTop = 0")
    page.keyboard.press("ArrowDown")
    for _ in range(120):
        page.keyboard.press("ArrowDown")
    box, tip = (page.locator(place).bounding_box() for place in (".gf-scroll", ".gf-tip"))
    assert page.evaluate("document.querySelector('.gf-scroll').scrollTop") > 0
    assert box["y"] - 5 <= tip["y"] <= box["y"] + box["height"] + 40


def test_a_page_in_the_colors_that_were_asked_for(page: Any, looks: dict[str, Look], tmp_path: Path) -> None:
    """Whatever the reader's are."""
    looks["lens"].save(tmp_path / "dark.html", theme="dark")
    page.goto((tmp_path / "dark.html").as_uri())
    page.wait_for_selector("svg")
    assert page.evaluate("document.querySelector('svg > rect').getAttribute('fill')") == "#14171a"
