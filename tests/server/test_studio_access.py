"""The studio for everybody: by keyboard alone, with a screen reader, without motion, on narrow screens."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import MARKS, chromium, watch
from serving import Running, serving

import glassformer as gf
from glassformer.server.studio import Studio

pytestmark = MARKS
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def studio() -> Studio:
    return Studio(gf.load, first=("storyteller",))


@pytest.fixture(scope="module")
def running(studio: Studio) -> Iterator[Running]:
    with serving({}, studio=studio) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any, running: Running, studio: Studio) -> Iterator[Open]:
    contexts = []
    troubles: list[list[str]] = []

    def opened(search: str = "", **how: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how}))
        page = contexts[-1].new_page()
        troubles.append(watch(page, allowed=lambda url: url.startswith((running.url, "data:", "blob:"))))
        page.goto(f"{running.url}/{search}#token={studio.door.token}")
        page.wait_for_selector(".dot.ready", timeout=120_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not any(troubles)


def settle(page: Any) -> None:
    page.wait_for_timeout(400)
    page.wait_for_selector(".figure.waiting", state="detached", timeout=300_000)


def views(page: Any) -> list[str]:
    """Every page that there is, a new one too."""
    return [
        one.removeprefix("to-")
        for one in page.locator("nav .page").evaluate_all("(all) => all.map((one) => one.id)")
    ]


FOCUSED = "() => { const one = document.activeElement; return [one.id, one.tagName, one.textContent.trim().slice(0, 30)]; }"


def test_by_keyboard_alone(open_page: Open) -> None:
    """Tab leads through the page in reading order; a text is typed, continued and looked into without a mouse."""
    page = open_page()
    page.wait_for_selector(".rest:has-text('may be drawn')")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED)[2] == "Skip to the page"
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        outline = page.evaluate(
            "() => { const how = getComputedStyle(document.activeElement); return how.outlineStyle !== 'none' || document.activeElement.matches('textarea'); }"
        )
        assert outline, seen[-1]  # where one is can be seen
        if seen[-1][0] == "text":
            break
    names = [one[2] for one in seen]
    assert names.index("Write") < names.index("Attention") < names.index("Models")
    assert seen[-1][0] == "text"
    page.keyboard.press("Control+A")
    page.keyboard.type("One day, a cat")
    page.wait_for_selector(".model:has-text('5 of 512'), .model:has-text('6 of 512')")
    # The likeliest token stands behind the text, and the right arrow at its end takes it.
    page.wait_for_selector(".mirror .next")
    likeliest = page.locator(".next li .text").first.inner_text().replace("␣", " ")
    typed = page.locator("#text").input_value()
    assert page.locator(".mirror .next").inner_text() == likeliest.strip()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(text) => document.getElementById('text').value === text", arg=typed + likeliest)
    page.wait_for_selector("[data-busy=false] .mirror .next")
    page.keyboard.press("ArrowLeft")  # within the text it moves the caret, as everywhere
    page.keyboard.press("ArrowRight")
    assert page.locator("#text").input_value() == typed + likeliest
    page.keyboard.press("Escape")
    count = int(page.locator(".model").inner_text().split(" of 512")[0].split()[-1])
    page.keyboard.press("1")
    page.wait_for_function(
        "(text) => document.getElementById('text').value.length > text.length", arg=typed + likeliest
    )
    page.wait_for_selector(f".model:has-text('{count + 1} of 512')")
    chosen = page.locator("#text").input_value()
    page.keyboard.press(".")  # one token more, and one less again
    page.wait_for_selector(f".model:has-text('{count + 2} of 512')")
    assert page.locator("#text").input_value().startswith(chosen)
    page.keyboard.press(",")
    page.wait_for_function("(text) => document.getElementById('text').value === text", arg=chosen)
    for key in ("g", "a"):
        page.keyboard.press(key)
    page.wait_for_selector("#said:has-text('gives')")
    before = page.locator("#said").inner_text()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("(before) => document.querySelector('#said').textContent !== before", arg=before)


def test_pictures_have_a_sentence_and_a_table(open_page: Open) -> None:
    page = open_page("?view=lens")
    settle(page)
    pictures = page.locator(".figure")
    assert pictures.count() >= 3
    for n in range(pictures.count()):
        one = pictures.nth(n)
        sentence = one.locator(".host svg").first.get_attribute("aria-label") or ""
        assert len(sentence.split()) > 4, sentence
        one.locator("details summary").first.click()
        one.locator("details table tr").nth(1).wait_for()  # it is made when it is opened


def test_without_motion(open_page: Open) -> None:
    """Whoever asked the system for less motion gets none that lasts."""
    page = open_page(reduced_motion="reduce")
    page.wait_for_selector(".next li .plain")
    longest = """() => Math.max(...[...document.querySelectorAll('*')].flatMap((one) => {
      const how = getComputedStyle(one);
      return [...how.transitionDuration.split(','), ...how.animationDuration.split(',')].map(parseFloat);
    }))"""
    assert page.evaluate(longest) <= 0.001
    assert open_page().evaluate(longest) > 0.1  # there is some to leave out


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_on_every_page_that_there_is(open_page: Open, theme: str) -> None:
    """Also on pages that are added, on what a model cannot do, and with the list of keys open."""
    axe = Path(__file__).parents[2] / "studio" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed: make page")
    page = open_page(color_scheme=theme, bypass_csp=True)
    base = page.url.partition("?")[0]
    for view in [*views(page), "keys"]:
        page.goto(f"{base}?view={'write' if view == 'keys' else view}")
        page.wait_for_selector(".dot.ready")
        settle(page)
        if view == "keys":
            page.keyboard.press("?")
        page.add_script_tag(path=axe)
        found = page.evaluate("axe.run()")["violations"]
        grave = [
            (one["id"], [node["html"][:100] for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not grave, view


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scale"), [(390, 3), (640, 2)])
def test_every_page_fits_a_phone_and_twice_the_size(open_page: Open, width: int, scale: int) -> None:
    """At 200 % a screen of 1280 pixels has 640: nothing makes the whole page scroll sideways."""
    page = open_page(viewport={"width": width, "height": 800}, device_scale_factor=scale)
    base = page.url.partition("?")[0]
    for view in views(page):
        page.goto(f"{base}?view={view}")
        page.wait_for_selector(".dot.ready")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
