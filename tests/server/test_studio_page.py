"""The studio in a real browser: every page shows the numbers of Python, and nothing else gets in or out."""

import gzip
import json
import math
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from serving import Running, serving

import glassformer as gf
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.generation.sampling import log_softmax
from glassformer.server.studio import Studio
from glassformer.tasks.complete import LanguageModel

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed, which drives the browser"
)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STATIC = Path(str(resources.files("glassformer.server") / "static"))
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium is installed, in which the studio would be opened"
    ),
    pytest.mark.skipif(
        not (STATIC / "index.html").is_file(), reason="the studio's page is not built: make page"
    ),
    pytest.mark.xdist_group("browser"),
]
EXAMPLE = "A robot must obey the orders given it"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> &amp; \u202e机器 שלום 👩‍👩‍👧"
FIRST_SCRIPT = 60_000  # bytes of what the first page needs, compressed
Open = Callable[..., Any]


class Gate:
    """The storyteller, which loads when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.lm: LanguageModel = gf.load("storyteller")

    def load(self, name: str) -> LanguageModel:
        assert self.may.wait(60)
        return self.lm


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def studio(gate: Gate) -> Studio:
    return Studio(gate.load, first=("storyteller",))


@pytest.fixture(scope="module")
def running(studio: Studio) -> Iterator[Running]:
    with serving({}, studio=studio) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, running: Running, studio: Studio, gate: Gate) -> Iterator[Open]:
    """Open the studio; the test fails on any error, dialog, broken rule, and any request to elsewhere."""
    troubles: list[str] = []
    contexts = []

    def opened(search: str = "", *, loaded: bool = True, refused: bool = False, **how: Any) -> Any:
        """`refused`: the server will refuse something, which browsers note in their console."""

        def note(message: Any) -> None:
            if message.type != "log" and not (refused and "status of 400" in message.text):
                troubles.append(message.text)

        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", note)
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((running.url, "data:")) else troubles.append(request.url)
            ),
        )
        if loaded:
            gate.may.set()
        page.goto(f"{running.url}/{search}#token={studio.door.token}")
        if loaded:
            page.wait_for_selector(".dot.ready")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


def drawn(page: Any, question: str) -> Any:
    """The card of a question, once its picture is drawn and no other is on its way."""
    page.wait_for_selector(f'.figure[data-question="{question}"]:not(.waiting) .host svg')
    return page.locator(f'.figure[data-question="{question}"]')


def settle(page: Any, view: str) -> None:
    """Wait until everything on a page is drawn; torch computes some of it, which takes a while."""
    if view not in ("write", "translate"):
        page.wait_for_selector(".figure .host svg", timeout=120_000)
    page.wait_for_selector(".figure.waiting", state="detached", timeout=120_000)


def shares(page: Any) -> list[str]:
    return page.locator(".next li .share").all_inner_texts()


def percent(share: float) -> str:
    return f"{round(share * 100)} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def test_the_first_script_is_small() -> None:
    """What `/` needs before a page opens; pages, pictures and fonts come after it."""
    index = (STATIC / "index.html").read_text()
    scripts = re.findall(r'src="/(assets/[^"]+\.js)"', index)
    assert len(scripts) == 1
    assert sum(len(gzip.compress((STATIC / one).read_bytes())) for one in scripts) <= FIRST_SCRIPT
    addresses = set()
    for file in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), STATIC / "index.html"]:
        addresses |= set(re.findall(r"https?://[\w.]+", file.read_text()))
    # Names of XML, and a page that Svelte's messages point to; none is ever fetched.
    assert addresses <= {"http://www.w3.org", "https://svelte.dev"}


def test_it_is_alive_before_the_model_is(open_page: Open, gate: Gate) -> None:
    """The example's trace is part of the page, and is what the model says of it now."""
    page = open_page(loaded=False)
    page.wait_for_selector(".next li .share")
    ids = gate.lm.encode(EXAMPLE)
    row = log_softmax(gate.lm.next_logits(ids))
    best = sorted(range(len(row)), key=lambda id: -row[id])[:10]
    assert shares(page) == [percent(math.exp(row[id])) for id in best]
    page.wait_for_selector(".model:has-text('is being loaded')")
    assert page.get_by_role("button", name="Write on").is_disabled()
    bundled = json.loads((Path(__file__).parents[2] / "studio" / "src" / "bundled.json").read_text())
    assert bundled["ids"] == ids
    gate.may.set()
    page.wait_for_selector(".dot.ready")
    assert page.get_by_role("button", name="Write on").is_enabled()
    assert "token" not in page.url


def test_write(open_page: Open, gate: Gate) -> None:
    """Candidates, sliders without the server, choosing, backing up, branches, and a link to all of it."""
    lm = gate.lm
    page = open_page()
    options = {"temperature": 0.8, "top_k": 40, "top_p": 0.95}
    page.wait_for_selector(".rest:has-text('may be drawn')")
    expected = lm.top(EXAMPLE, **options).candidates
    row = lm.next_logits(lm.encode(EXAMPLE))
    warm = [math.exp(float(value)) for value in row / 0.8 - (row / 0.8).max()]
    assert page.locator(".next li .text").all_inner_texts() == [
        one.text.replace(" ", "␣") for one in expected
    ]
    assert len(shares(page)) == 10

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    slider = page.get_by_role("slider", name="top-k")
    slider.fill("3")
    assert shares(page)[3:] == ["cut"] * 7
    top = sorted(warm, reverse=True)[:3]
    assert shares(page)[:3] == [percent(one / sum(top)) for one in top]
    assert asked == []

    page.locator(".next li button").first.click()
    page.wait_for_selector(f".model:has-text('{len(lm.encode(EXAMPLE)) + 1} of 512')")
    longer = EXAMPLE + expected[0].text
    assert page.locator("#text").input_value() == longer
    page.get_by_role("button", name="Back up").click()
    page.wait_for_selector(f".model:has-text('{len(lm.encode(EXAMPLE))} of 512')")
    assert page.locator("#text").input_value() == EXAMPLE
    page.go_back()
    assert page.locator("#text").input_value() == longer
    page.locator("main").click(position={"x": 2, "y": 2})
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f".model:has-text('{len(lm.encode(EXAMPLE)) + 1 + 24} of 512')")
    written = page.locator("#text").input_value()
    assert written.startswith(longer)
    assert len(written) > len(longer) + 20
    assert parse_qs(urlsplit(page.url).query)["text"] == [written]


def test_the_pages_and_their_numbers(open_page: Open, gate: Gate) -> None:
    lm = gate.lm
    ids = lm.encode(EXAMPLE)
    page = open_page("?view=attention&l=2&h=1&t=10")
    patterns: Any = ask("heads", Text(lm, ids))
    row = patterns.patterns[2, 1, 10]
    page.wait_for_selector("#one + p:has-text('gives')")
    sentence = page.locator("#one + p").inner_text()
    assert percent(float(row.max())) in sentence
    assert f"“{lm.piece(ids[int(row.argmax())]).replace(' ', '␣')}”" in sentence
    steps = ask("steps", Text(lm, ids), layer=2, head=1, position=10)
    assert (
        drawn(page, "steps").locator(".host svg").first.get_attribute("aria-label")
        == steps.view().spec["sentence"]
    )
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#one:has-text('Layer 3, head 1')")
    page.keyboard.press("]")
    page.wait_for_selector("#one:has-text('Layer 3, head 2')")
    page.keyboard.press("ArrowLeft")
    assert parse_qs(urlsplit(page.url).query) | {"text": []} == {
        "m": ["storyteller"], "text": [], "view": ["attention"], "l": ["3"], "h": ["2"], "t": ["9"],
    }  # fmt: skip

    page.keyboard.press("g")
    page.keyboard.press("l")
    lens = ask("lens", Text(lm, ids))
    assert (
        drawn(page, "lens").locator(".host svg").first.get_attribute("aria-label")
        == lens.view().spec["sentence"]
    )
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("#pieces")
    assert page.locator(".tokens ol .id").all_inner_texts() == [str(id) for id in ids]
    page.keyboard.press("g")
    page.keyboard.press("m")
    assert "5,918,720" in drawn(page, "parameters").locator(".host svg").first.get_attribute("aria-label")
    page.go_back()
    page.wait_for_selector("#pieces")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")


def test_text_is_never_markup(open_page: Open) -> None:
    """Typed and in a link: it is shown as it is, wherever tokens are."""
    page = open_page(f"?view=tokens&text={quote(HOSTILE)}")
    page.wait_for_selector("#pieces")
    assert page.locator("#text").input_value() == HOSTILE
    page.wait_for_selector(".tokens ol li")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_selector(".strip .column")
    assert page.locator("main img, main script, main a").count() == 0
    page.locator("#text").fill("</textarea><b>bold</b>")
    page.wait_for_selector(".mirror .token")
    assert page.locator("main b, .mirror b").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Open, theme: str) -> None:
    """Names, contrast and structure of every page, as axe-core checks them."""
    axe = Path(__file__).parents[2] / "studio" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed: make page")
    page = open_page(color_scheme=theme, bypass_csp=True)
    for view in (
        "write",
        "tokens",
        "attention",
        "lens",
        "saliency",
        "neurons",
        "edits",
        "translate",
        "models",
    ):
        page.goto(f"{page.url.partition('?')[0]}?view={view}")
        page.wait_for_selector(".dot.ready")
        settle(page, view)
        page.add_script_tag(path=axe)
        found = page.evaluate("axe.run()")["violations"]
        grave = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert not grave, view


@pytest.mark.slow
def test_tokens_that_look_like_markup_stay_text(open_page: Open, gate: Gate) -> None:
    """Every token of the vocabulary with a character of markup, on every page: none becomes an element."""
    lm = gate.lm
    assert lm.tokenizer is not None
    every = [id for id in range(len(lm.tokenizer)) if "<" in lm.piece(id) or "&" in lm.piece(id)]
    text = "".join(lm.piece(id) for id in every)[:400] + HOSTILE
    for view in ("write", "tokens", "attention", "lens", "saliency", "neurons", "edits"):
        page = open_page(f"?view={view}&text={quote(text)}")
        settle(page, view)
        assert page.locator("main img, main script, main a, main iframe").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 720])
def test_nothing_is_wider_than_a_narrow_screen(open_page: Open, width: int) -> None:
    """A phone, and 200 % zoom of a laptop."""
    page = open_page(viewport={"width": width, "height": 800})
    for view in (
        "write",
        "tokens",
        "attention",
        "lens",
        "saliency",
        "neurons",
        "edits",
        "translate",
        "models",
    ):
        page.goto(f"{page.url.partition('?')[0]}?view={view}")
        page.wait_for_selector(".dot.ready")
        settle(page, view)
        assert page.locator("header").first.bounding_box()["width"] <= width
        assert page.locator("main").bounding_box()["width"] <= width


def test_errors_for_people(open_page: Open) -> None:
    """A model that is not here, and a page that the model cannot fill."""
    page = open_page("?view=translate", refused=True)
    page.wait_for_selector("h2:has-text('storyteller does not translate')")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.locator("#text").fill("word " * 600)
    page.wait_for_selector("[role=alert]:has-text('maximum context length is 512 tokens')")


def test_without_the_token_nothing_is_told(browser: Any, running: Running) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{running.url}/")
    page.wait_for_selector("[role=alert]:has-text('address that glass studio printed')")
    context.close()
