"""The studio in a real browser: every page shows the numbers of Python, and nothing else gets in or out."""

import csv
import gzip
import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
from browsing import MARKS, STATIC, chromium, watch
from fake_hub import serving_hub
from serving import Running, serving, tiny_model
from small import small_net

import glassformer as gf
from glassformer import machine
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.figures import labels
from glassformer.generation.sampling import log_softmax
from glassformer.server.studio import Studio
from glassformer.tasks.classify import TextClassifier
from glassformer.tasks.complete import LanguageModel
from glassformer.tokenizers import train_tokenizer

pytestmark = MARKS
EXAMPLE = "A robot must obey the orders given it"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> &amp; \u202e机器 שלום 👩‍👩‍👧"
VIEWS = (
    "write", "tokens", "attention", "lens", "saliency", "neurons", "edits", "translate", "tasks", "models",
)  # fmt: skip
TOO_LARGE = "seq2seq-bottleneck"  # it is not; the test says so
REFUSED = re.compile(r"status of 40[014]|ERR_INTERNET_DISCONNECTED")
FIRST_SCRIPT = 60_000  # bytes of what the first page needs, compressed
Open = Callable[..., Any]


class Gate:
    """The models that ship, which load when they may; one is too large for this machine."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.lm: LanguageModel = gf.load("storyteller")
        self._others: dict[str, Any] = {}

    def load(self, name: str) -> LanguageModel:
        assert self.may.wait(60)
        if name == TOO_LARGE:
            machine.check_memory(1 << 50, what=name)
        return self.lm if name == "storyteller" else self.other(name)

    def other(self, name: str) -> Any:
        """Another model that ships."""
        if name not in self._others:
            self._others[name] = gf.load(name)
        return self._others[name]


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def studio(gate: Gate) -> Studio:
    return Studio(gate.load, first=("storyteller",))


@pytest.fixture(scope="module")
def running(studio: Studio, gate: Gate) -> Iterator[Running]:
    with serving({}, studio=studio) as running:
        yield running
        gate.may.set()  # a server that stops waits for what is being loaded


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def person(browser: Any) -> Any:
    """The browser of somebody who has been here before: scripts and fonts are in its cache."""
    return browser.new_context(viewport={"width": 1280, "height": 900})


@pytest.fixture
def open_page(browser: Any, person: Any, running: Running, studio: Studio, gate: Gate) -> Iterator[Open]:
    """Open the studio; the test fails on any error, dialog, broken rule, and any request to elsewhere."""
    troubles: list[str] = []
    contexts, pages = [], []

    def opened(
        search: str = "", *, loaded: bool = True, refused: bool = False, other: bool = False, **how: Any
    ) -> Any:
        """`refused`: the server will refuse something, which browsers note. `other`: of another person."""

        def note(message: Any) -> None:
            if message.type != "log" and not (refused and REFUSED.search(message.text)):
                troubles.append(message.text)

        context = person
        if how or other:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
            contexts.append(context)
        page = context.new_page()
        pages.append(page)
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
    for page in pages:
        page.evaluate("localStorage.clear()")  # what one test keeps is not there for the next
        page.close()
    for context in contexts:
        context.close()
    person.set_offline(False)
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
    page.wait_for_selector("#said:has-text('gives')")
    said = page.locator("#said").inner_text()
    assert percent(float(row.max())) in said
    assert f"“{lm.piece(ids[int(row.argmax())]).replace(' ', '␣')}”" in said
    steps = ask("steps", Text(lm, ids), layer=2, head=1, position=10)
    assert (
        drawn(page, "steps").locator(".host svg").first.get_attribute("aria-label")
        == steps.view().spec["sentence"]
    )
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#one:has-text('Layer 3, head 1')")
    page.keyboard.press("]")
    page.wait_for_selector("#one:has-text('Layer 3, head 2')")
    for key in [*["ArrowDown"] * 5, *["ArrowUp"] * 2]:  # there are six layers, and no key leads beyond them
        page.keyboard.press(key)
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
    page.keyboard.press("ArrowUp")  # its layers are drawn from the bottom up
    page.wait_for_function("new URLSearchParams(location.search).get('l') === '4'")
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


def sentence(page: Any, question: str, number: int = 0) -> str:
    """What a picture says to those who do not see it."""
    drawn(page, question)
    cards = page.locator(f'.figure[data-question="{question}"]')
    label = cards.nth(number).locator(".host svg").first.get_attribute("aria-label")
    return str(label)


def test_the_articles_pictures_beside_the_true_numbers(open_page: Open, gate: Gate) -> None:
    """Folders with the weights of a head; “it” as the article draws it; robot must obey orders."""
    lm = gate.lm
    ids = lm.encode(EXAMPLE)
    page = open_page("?view=attention&l=2&h=1&t=10&article=1")
    steps: Any = ask("steps", Text(lm, ids), layer=2, head=1, position=10)
    folders = drawn(page, "steps").first
    assert folders.locator("select").input_value() == "folders"
    shown = folders.locator(".host svg text").all_text_contents()
    for share in steps.view("folders").spec["weights"]:
        assert labels.percent(share) in shown
    cells = page.locator(".beside td").all_inner_texts()
    weights = steps.weights
    names = [lm.piece(id) for id in ids]
    own = [weights[names.index(" robot")], weights[0], weights[10]]
    assert cells == ["50 %", "30 %", "19 %", *(small(float(one)) for one in own)]
    assert sentence(page, "robot") == ask("robot").view().spec["sentence"]
    same = ask("attention", Text(lm, lm.encode("robot must obey orders")), layer=2, head=1, by_word=True)
    page.get_by_label(same.view().spec["sentence"], exact=True).first.wait_for()


def small(share: float) -> str:
    """A share as the page's own texts have it."""
    return percent(share) if share >= 0.001 else "< 0.1 %"


SHORT = "A robot must"  # every method also tests itself against the others, which takes a while


@pytest.mark.slow
def test_saliency_by_all_methods(open_page: Open, gate: Gate) -> None:
    """Side by side, each with its deletion test."""
    ids = gate.lm.encode(SHORT)
    page = open_page(f"?view=saliency&methods=all&text={quote(SHORT)}")
    page.locator(".figure[data-question=saliency] .host svg").nth(3).wait_for()
    page.wait_for_selector(".figure.waiting", state="detached")
    for n, method in enumerate(["grad_x_input", "gradient", "integrated_gradients", "occlusion"]):
        answer = ask("saliency", Text(gate.lm, ids, len(ids) - 1), method=method)
        assert sentence(page, "saliency", n) == answer.view().spec["sentence"]
        assert answer.deletion is not None


def test_saliency_by_another_method_and_against_another_token(open_page: Open, gate: Gate) -> None:
    """A method and a foil, which are in the address and come back from it."""
    ids = gate.lm.encode(SHORT)
    page = open_page(f"?view=saliency&text={quote(SHORT)}", refused=True)
    page.get_by_label("rather than").fill("no such token")
    page.wait_for_selector('.figure[data-question="saliency"] .problem:has-text("no such token")')
    page.get_by_label("rather than").fill("␣can")  # what was wrong is mended: the picture is back
    page.get_by_label("Method").select_option("occlusion")
    contrast = ask("saliency", Text(gate.lm, ids, len(ids) - 1), method="occlusion", foil=" can")
    page.get_by_label(contrast.view().spec["sentence"], exact=True).first.wait_for()
    page.wait_for_url(lambda url: "method=occlusion" in url)
    page.reload()
    page.wait_for_selector(".dot.ready")
    assert page.get_by_label("rather than").input_value() == "␣can"
    page.get_by_label(contrast.view().spec["sentence"], exact=True).first.wait_for()


def test_long_answers_say_how_far_they_are_and_are_stopped(open_page: Open, gate: Gate) -> None:
    """The untested answer at once; of the test, how much is done; after Stop the lane is free for the next one."""
    page = open_page(f"?view=saliency&text={quote('Once upon a time')}")
    drawn(page, "attribution")
    runs: list[None] = []
    hook = gate.lm.net.register_forward_pre_hook(lambda *_: (runs.append(None), time.sleep(0.06))[0])
    try:
        page.get_by_label("Method").select_option("occlusion")
        page.wait_for_selector('.figure[data-question="saliency"].partial .work progress[value]')
        card = page.locator('.figure[data-question="saliency"]')
        page.wait_for_function(
            "() => { const one = document.querySelector('.figure[data-question=saliency] progress');"
            " return one && one.value > 0 && one.value < one.max; }"
        )
        assert re.search(
            r"computing the rest · \d+ % · \d+ s", card.locator(".work span[aria-hidden]").inner_text()
        )
        card.get_by_role("button", name="Stop").click()
        page.wait_for_selector('.figure[data-question="saliency"] .work:has-text("stopped")')
        page.wait_for_timeout(300)
        count = len(runs)
        page.wait_for_timeout(500)
        assert len(runs) == count
    finally:
        hook.remove()
    card.get_by_role("button", name="Compute it").click()
    ids = gate.lm.encode("Once upon a time")
    whole = ask("saliency", Text(gate.lm, ids, len(ids) - 1), method="occlusion")
    page.wait_for_selector('.figure[data-question="saliency"]:not(.waiting)')
    assert sentence(page, "saliency") == whole.view().spec["sentence"]
    assert card.locator(".work").count() == 0


def test_neurons(open_page: Open, gate: Gate) -> None:
    """The raw grid with the share that fires, factors, one neuron, and how much of a block they are."""
    lm = gate.lm
    ids = lm.encode(EXAMPLE)
    page = open_page("?view=neurons&l=2&first=64&factors=3&neuron=5")
    page.wait_for_selector(".share p:has-text('525,568 of a block')")
    assert "67 %" in page.locator(".share p").inner_text()
    raw: Any = ask("neurons", Text(lm, ids), layers=2, first=64)
    drawn(page, "neurons")
    grid = (
        page.locator('.figure[data-question="neurons"]').first.locator(".host svg text").all_text_contents()
    )
    title = (
        f"layer 2: the first 64 neurons; at a token, {labels.percent(float(raw.fires[0]))} of all 1,024 fire"
    )
    assert title in " ".join(grid)
    assert sentence(page, "factors") == ask("factors", Text(lm, ids), count=3).view().spec["sentence"]
    page.get_by_label("Passages to search").fill("Once upon a time\nThe robot was happy")
    texts = ["Once upon a time", "The robot was happy"]
    found = ask("examples", lm, texts, layer=2, neuron=5, k=5)
    assert sentence(page, "examples") == found.view().spec["sentence"]


# Edits


def test_edits_are_opened_from_a_file_and_saved(open_page: Open, gate: Gate, tmp_path: Path) -> None:
    """What a file holds is tried; a file that holds something else is refused in a sentence."""
    edits = [
        {"site": "blocks.1.attn.mix[2]", "do": "zero"},
        {"site": "blocks.0.mlp", "do": "scale", "by": 0.5},
    ]
    (tmp_path / "mine.json").write_text(json.dumps(edits))
    (tmp_path / "odd.json").write_text('{"site": 1}')
    page = open_page("?view=edits&l=2&change=attention")
    drawn(page, "edit")
    page.get_by_label("Open edits").set_input_files(tmp_path / "odd.json")
    page.wait_for_selector("[role=alert]:has-text('odd.json holds no list of edits')")
    page.get_by_label("Open edits").set_input_files(tmp_path / "mine.json")
    page.wait_for_selector("[role=alert]", state="detached")
    names = [one.removesuffix(" ×") for one in page.get_by_title("Take it away").all_inner_texts()]
    assert names == ["zero blocks.1.attn.mix[2]", "scale × 0.5 blocks.0.mlp"]
    tried = [*edits, {"site": "blocks.2.attn", "do": "zero"}]  # what is being put together is tried with them
    ids = gate.lm.encode(EXAMPLE)
    answer: Any = ask("edit", Text(gate.lm, ids), edits=tried, max_new_tokens=24)
    page.get_by_label(answer.view().spec["sentence"], exact=True).first.wait_for()
    assert page.locator("section:has(> h2:text-is('Edited')) b").inner_text() == answer.edited
    page.wait_for_url(lambda url: json.loads(parse_qs(urlsplit(url).query).get("edits", ["[]"])[0]) == edits)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the edits").click()
    assert json.loads(Path(saved.value.path()).read_text()) == tried
    page.get_by_title("Take it away").first.click()
    one = ask("edit", Text(gate.lm, ids), edits=tried[1:], max_new_tokens=24)
    page.get_by_label(one.view().spec["sentence"], exact=True).first.wait_for()


def test_steering_by_a_slider(open_page: Open, gate: Gate) -> None:
    """Toward one text and away from another, by as much as the slider says; it is in the address."""
    page = open_page("?view=edits&l=3&change=steer&strength=0")
    page.get_by_label("toward").fill("I love it")
    page.get_by_label("away from").fill("I hate it")
    pairs = [["I love it", "I hate it"]]
    ids = gate.lm.encode(EXAMPLE)
    for strength in (6.0, -3.5):
        page.get_by_role("slider", name="strength").fill(str(strength))
        by = int(strength) if strength.is_integer() else strength
        assert page.locator("label:has-text('strength') output").inner_text() == str(by)
        edits = [{"site": "blocks.3.out", "do": "add", "by": by, "pairs": pairs}]
        answer: Any = ask("edit", Text(gate.lm, ids), edits=edits, max_new_tokens=24)
        page.get_by_label(answer.view().spec["sentence"], exact=True).first.wait_for()
        page.wait_for_function(
            "(text) => document.querySelectorAll('.story b')[1].textContent === text", arg=answer.edited
        )
    assert page.locator(".story b").first.text_content() == answer.text != answer.edited
    page.wait_for_url(lambda url: "strength=-3.5" in url)


# Branches


def test_branches_are_named_and_kept(open_page: Open, gate: Gate) -> None:
    """A tree of what was chosen; a name keeps a branch for the next visit, in this browser."""
    lm = gate.lm
    first, second = (one.text for one in lm.top(EXAMPLE).candidates[:2])
    page = open_page()
    page.wait_for_selector(".rest:has-text('may be drawn')")
    page.wait_for_timeout(1500)  # a text is a branch when it has stayed for a moment
    for n in (0, 1):
        page.locator(".next li button").nth(n).click()
        page.wait_for_selector(f".model:has-text('{len(lm.encode(EXAMPLE)) + 1} of 512')")
        page.wait_for_timeout(1500)
        page.get_by_role("button", name="Back up").click()
        page.wait_for_selector(f".model:has-text('{len(lm.encode(EXAMPLE))} of 512')")
    lines = page.locator(".branches .line")
    lines.nth(2).wait_for()
    assert [one.strip() for one in lines.all_inner_texts()] == [EXAMPLE, first.strip(), second.strip()]
    with page.expect_download() as saved:
        page.locator(".branches").get_by_role("button", name="JSON").click()
    texts = [one["text"] for one in json.loads(saved.value.path().read_text())]
    assert texts == [EXAMPLE + first, EXAMPLE + second]
    names = page.get_by_label("Name of this branch")
    names.last.fill("the other end")
    names.last.press("Enter")
    again = page.context.new_page()  # of the same browser: named branches are there, the others are not
    again.goto(page.url)
    again.wait_for_selector(".dot.ready")
    again.wait_for_selector(".branches .line")
    assert again.get_by_label("Name of this branch").last.input_value() == "the other end"
    shown = " ".join(again.locator(".branches .line").all_inner_texts())
    assert second.strip() in shown
    assert first.strip() not in shown
    again.locator(".branches .line").last.click()
    again.wait_for_function("(text) => document.querySelector('#text').value === text", arg=EXAMPLE + second)
    other = open_page(other=True)
    other.wait_for_selector(".rest:has-text('may be drawn')")
    other.wait_for_timeout(500)
    assert other.locator(".branches").count() == 0


# Tasks


def test_the_classes_of_a_text(browser: Any) -> None:
    """Every class with its share, which tokens speak for the likeliest, and for the one that is clicked."""
    text = "Once upon a time, there was a girl"
    tokenizer = train_tokenizer([text * 20], 300)
    net = small_net(
        "gpt2-classifier", vocab=len(tokenizer), pad=0, labels=("good", "bad", "dull"), context=64
    )
    model = TextClassifier(net, tokenizer, name="critic")
    studio = Studio(lambda name: cast("Any", model), first=("critic",))
    with serving({}, studio=studio) as running:
        page = browser.new_page()
        troubles = watch(page, allowed=lambda url: url.startswith((running.url, "data:")))
        page.goto(f"{running.url}/?view=tasks&text={quote(text)}#token={studio.door.token}")
        page.wait_for_selector(".dot.ready")
        page.wait_for_selector("main:has-text('critic does not continue texts')")
        page.get_by_role("button", name="Classify").click()
        said = model.classify(text).probabilities
        page.wait_for_selector(".class")
        ordered = sorted(said.items(), key=lambda one: -one[1])
        shown = [one.split("\n") for one in page.locator(".class").all_inner_texts()]
        assert [[part for part in one if part.strip()] for one in shown] == [
            [name, percent(share)] for name, share in ordered
        ]
        for label, method in ((ordered[0][0], "grad_x_input"), (ordered[-1][0], "occlusion")):
            page.locator(f".class:has-text('{label}')").click()
            page.get_by_label("Method").select_option(method)
            page.wait_for_selector(f"h2:has-text('Which tokens speak for {label}?')")
            answer = model.classify(text).saliency(label, method=method)
            page.get_by_label(answer.view().spec["sentence"], exact=True).first.wait_for()
        page.wait_for_url(lambda url: "class=" in url and "method=occlusion" in url)
        card = page.locator('.figure[data-question="saliency"]')
        assert card.locator(".tools .tool").all_inner_texts()[:4] == [
            "In words",
            "Python",
            "Command line",
            "curl",
        ]
        card.get_by_role("button", name="In words").click()  # what it says, for everybody
        assert card.locator(".words").inner_text() == answer.view().spec["sentence"]
        page.locator("#text").fill("Once upon")  # an answer belongs to its text
        page.wait_for_selector(".class", state="detached")
        page.close()
        assert not troubles


def test_tokenizers_side_by_side(open_page: Open, gate: Gate) -> None:
    page = open_page(f"?view=tokens&text={quote('Un élève 机器')}")
    page.wait_for_selector(".counts li:has-text('translator')")
    count = len(gate.other("translator").tokens("Un élève 机器").ids)
    page.wait_for_selector(f".counts li:has-text('translator'):has-text('{count} tokens')")
    assert page.locator(".figure[data-question=tokens]").count() >= 4


STACKS = {
    "Encoder": {"stack": "encoder"},
    "Decoder": {"stack": "decoder"},
    "Cross: decoder to source": {"part": "cross"},
}


@pytest.mark.parametrize(
    "names",
    [["Cross: decoder to source"], pytest.param([*STACKS], marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_every_stack_of_a_translator(open_page: Open, gate: Gate, names: list[str]) -> None:
    """Encoder, decoder and cross in the grid; one head; its steps."""
    made = gate.other("translator").translate("it rains", to="fr")
    first = "decoder" if names[0].startswith("Cross") else "cross"  # another one than is chosen
    address = f"?view=attention&m=translator&text={quote('it rains')}&to=fr&stack={first}&l=1&h=2&t=1"
    page = open_page(address, refused=True)
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        answer = made.heads(**STACKS[name])
        row = answer.patterns[1, 2, 1]
        best = answer.sources[int(row.argmax())].replace(" ", "␣")
        page.wait_for_selector(f"#said:has-text('{percent(float(row.max()))}'):has-text('“{best}”')")
        steps = made.steps(1, 2, position=1, **STACKS[name])
        page.get_by_label(steps.view().spec["sentence"], exact=True).first.wait_for()


def test_a_recurrent_network_step_by_step(open_page: Open, gate: Gate) -> None:
    """Forward and back, by buttons and by keys; which step is in the address. Then what made one word likely."""
    made = gate.other("seq2seq").translate("je suis étudiant")
    page = open_page(
        "?view=translate&m=seq2seq&step=6&word=1"
    )  # which begins with this text: it reads French
    page.wait_for_selector(".target:has-text('French → English')")
    unrolled = made.unroll()
    page.wait_for_selector("#steps")
    said = page.locator("section:has(> #steps) p").inner_text()
    assert f"writes “{unrolled.tokens[1]}”" in said
    assert percent(float(unrolled.probability[1])) in said
    page.get_by_role("button", name="Back").click()
    page.wait_for_selector(f"section:has(> #steps) p:has-text('writes “{unrolled.tokens[0]}”')")
    page.wait_for_url(lambda url: "step=5" in url)
    page.keyboard.press(".")
    page.wait_for_url(lambda url: "step=6" in url)
    page.keyboard.press(",")
    page.wait_for_url(lambda url: "step=5" in url)
    assert sentence(page, "saliency") == made.saliency(number=1).view().spec["sentence"]


def test_back_and_forward_and_what_a_link_holds(open_page: Open) -> None:
    page = open_page("?view=lens&watch=%20him%0A%20her&t=3&temperature=0.5&top_k=3")
    page.wait_for_selector("button.word:has-text('␣her')")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_selector(".rest:has-text('may be drawn')")
    assert page.get_by_role("slider", name="temperature").input_value() == "0.5"
    assert shares(page)[3:] == ["cut"] * 7
    page.go_back()
    page.wait_for_selector("button.word:has-text('␣him')")
    assert parse_qs(urlsplit(page.url).query)["t"] == ["3"]
    page.go_forward()
    page.wait_for_selector(".rest:has-text('may be drawn')")
    assert "view=write" in page.url
    assert "token=" not in page.url
    page.get_by_role("spinbutton", name="Tokens to write").fill("7")
    page.keyboard.press("Tab")
    page.wait_for_url(lambda url: "tokens=7" in url)
    page.keyboard.press("g")
    page.keyboard.press("a")
    chooser = '.figure[data-question="attention"] select'
    page.locator(chooser).select_option("arcs")
    page.wait_for_url(lambda url: "as_attention=arcs" in url)
    again = open_page("?" + urlsplit(page.url).query)
    again.wait_for_selector(chooser)
    assert again.locator(chooser).input_value() == "arcs"
    odd = open_page("?view=lens&as_lens=nonsense", refused=True)  # there is no such drawing: the usual one
    drawn(odd, "lens")
    odd.wait_for_url(lambda url: "as_lens" not in url)


def test_every_picture_is_saved_and_copied(open_page: Open, gate: Gate, tmp_path: Path) -> None:
    """Four forms of a file and three of code; also of what the page draws by itself; and full screen."""
    lm = gate.lm
    answer = ask("heads", Text(lm, lm.encode(EXAMPLE)))
    page = open_page("?view=attention&l=2&h=1", permissions=["clipboard-read", "clipboard-write"])
    page.locator(".heads").get_by_role("button", name="Save, code").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".host svg").first.wait_for()
    for kind in ("SVG", "PNG", "CSV", "JSON"):
        with page.expect_download() as saved:
            dialog.get_by_role("button", name=kind, exact=True).click()
        saved.value.save_as(tmp_path / f"heads.{kind.lower()}")
    assert (tmp_path / "heads.svg").read_text().startswith("<svg")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "heads.json").read_text()) == json.loads(json.dumps(answer.view().spec))
    with (tmp_path / "heads.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head == answer.columns
    numbers = [[float(cell or "nan") for cell in row] for row in rows]
    assert np.allclose(numbers, np.array(answer.rows, dtype=float), rtol=1e-4, equal_nan=True)
    for name, words in {
        "Python": "import glassformer",
        "Command line": "glass attention",
        "curl": "curl",
    }.items():
        dialog.get_by_role("button", name=name, exact=True).click()
        assert dialog.locator("pre").inner_text().startswith(words)
    assert "export GLASSFORMER_API_KEY=" in dialog.locator(".code").inner_text()  # what the key is
    dialog.get_by_role("button", name="Copy", exact=True).click()
    dialog.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == dialog.locator("pre").inner_text()
    dialog.get_by_role("button", name="Full screen").click()
    page.wait_for_selector(".figure[data-question=heads]:fullscreen")


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
    for view in VIEWS:
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


ODD = {
    "nothing": "",
    "a blank": " ",
    "emoji": "👩‍👩‍👧 👍🏽 ok",
    "Chinese": "机器人必须服从命令",
    "right to left": "שלום עולם, مرحبا",
    "markup": HOSTILE,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_texts_on_every_page(open_page: Open, text: str) -> None:
    """No page fails; what cannot be answered about a text is said in a sentence."""
    page = open_page(f"?text={quote(text)}", refused=True)
    for view in VIEWS:
        page.goto(f"{page.url.partition('?')[0]}?view={view}&text={quote(text)}")
        page.wait_for_selector(".dot.ready")
        page.wait_for_load_state("networkidle", timeout=120_000)
        page.wait_for_selector(".figure.waiting", state="detached", timeout=120_000)
        assert page.locator("main img, main script, main iframe").count() == 0
        for problem in page.locator(".problem, [role=alert]").all_inner_texts():
            assert not re.search(r"Traceback|Error:|undefined|\[object", problem)


@pytest.mark.slow
def test_a_thousand_tokens_stay_usable(browser: Any) -> None:
    """1,024 tokens: the pages open, heads are fetched in pieces, and a token far back is looked at."""
    model = tiny_model("long", context=1024)
    ids = (model.encode("Once upon a time, there was a little girl named Lily. ") * 200)[:1024]
    text = model.text_of(ids)
    studio = Studio(lambda name: model, first=("long",))
    with serving({}, studio=studio) as running:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{running.url}/?view=attention&l=1&h=2#token={studio.door.token}")
        page.wait_for_selector(".dot.ready")
        page.locator("#text").fill(text)
        count = len(model.encode(text))
        page.wait_for_selector(f".model:has-text('{count} of 1024')")
        page.wait_for_selector("#said:has-text('gives')")
        row = ask("heads", Text(model, model.encode(text))).patterns[1, 2, count - 1]
        page.wait_for_selector(f"#said:has-text('{percent(float(row.max()))}')")
        assert page.locator(".flow .side").first.locator("button").count() == count
        for view in ("write", "tokens", "lens"):
            page.locator(f"#to-{view}").click()
            settle(page, view)
        page.close()


@pytest.mark.slow
def test_a_model_is_pulled_from_the_page(browser: Any, tmp_path: Path) -> None:
    """`glass studio` itself, and a hub on loopback: progress, cancel, again, use."""
    with serving_hub(tmp_path) as (hub, environment):
        environment = {**environment, "GLASSFORMER_HOME": str(tmp_path / "home")}
        environment.pop("HF_HUB_OFFLINE", None)
        command = [sys.executable, "-m", "glassformer.cli", "studio", "--no-open", "--json", "--port", "0"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                page = browser.new_page()
                page.set_default_timeout(60_000)
                base, _, token = json.loads(process.stdout.readline())["url"].partition("#")
                page.goto(f"{base}?view=models#{token}")
                page.wait_for_selector(".dot.ready")
                hub.gate.clear()
                page.get_by_label("Another model of the hub").fill("owner/tiny")
                page.locator("form").get_by_role("button", name="Pull").click()
                page.wait_for_selector("li:has-text('owner/tiny') progress[value]")
                page.get_by_role("button", name="Cancel").click()
                page.wait_for_selector("li:has-text('owner/tiny'):has-text('cancelled')")
                hub.gate.set()
                page.get_by_role("button", name="Again").click()
                mine = page.locator("li:has-text('owner/tiny'):has-text('hub cache')")
                mine.get_by_role("button", name="Use").click()
                page.wait_for_selector(".chip:has-text('owner/tiny') .dot.ready")
                page.get_by_label("Another model of the hub").fill("../etc/passwd")
                page.locator("form").get_by_role("button", name="Pull").click()
                page.wait_for_selector("[role=alert]:has-text('neither a folder nor a model')")
                page.close()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 720])
def test_nothing_is_wider_than_a_narrow_screen(open_page: Open, width: int) -> None:
    """A phone, and 200 % zoom of a laptop."""
    page = open_page(viewport={"width": width, "height": 800})
    for view in VIEWS:
        page.goto(f"{page.url.partition('?')[0]}?view={view}")
        page.wait_for_selector(".dot.ready")
        settle(page, view)
        assert page.locator("header").first.bounding_box()["width"] <= width
        assert page.locator("main").bounding_box()["width"] <= width


def test_errors_for_people(open_page: Open) -> None:
    """A page that the model cannot fill, a text that is too long, models that are not here or too large."""
    page = open_page("?view=translate", refused=True)
    page.wait_for_selector("h2:has-text('storyteller does not translate')")
    page.wait_for_selector("main .row button")
    offered = page.locator("main .row button").all_inner_texts()
    assert offered == ["seq2seq", "seq2seq-bottleneck", "translator", "translator-decoder"]
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.locator("#text").fill("word " * 600)
    page.wait_for_selector("[role=alert]:has-text('maximum context length is 512 tokens')")
    page.wait_for_selector(".model:has-text('was not read')")  # and not a count of the text before
    assert page.locator(".stale").count() == 2  # its candidates, and how unsure the model was
    assert page.get_by_role("button", name="Back up").is_disabled()
    page.locator("#to-tokens").click()
    page.wait_for_selector("#pieces:has-text('read last')")  # and not so many tokens of these characters
    page = open_page("?m=no/such", loaded=False, refused=True)
    page.wait_for_selector("[role=alert]:has-text(\"there is no model 'no/such'\")")
    page.get_by_role("button", name="Use storyteller").click()
    page.wait_for_selector(".dot.ready")
    page = open_page("?view=models", refused=True)
    page.locator(f"li:has-text('{TOO_LARGE}')").get_by_role("button", name="Use").click()
    page.wait_for_selector(
        f"[role=alert]:has-text('{TOO_LARGE} could not be loaded'):has-text('GB of memory')"
    )


def test_a_server_that_was_gone_is_found_again(open_page: Open, gate: Gate) -> None:
    """What was asked meanwhile is asked again, and the text is still there."""
    page = open_page("?view=lens", refused=True)
    drawn(page, "lens")
    page.context.set_offline(True)  # also for the other pages of this person, of which there is none
    page.locator("#text").fill("Once upon a time")
    page.wait_for_selector("[role=alert]:has-text('does not answer')")
    page.context.set_offline(False)
    page.wait_for_selector("[role=alert]", state="detached")
    lens = ask("lens", Text(gate.lm, gate.lm.encode("Once upon a time")))
    page.get_by_label(lens.view().spec["sentence"], exact=True).first.wait_for()
    assert page.locator("#text").input_value() == "Once upon a time"


def test_a_new_start_goes_on_where_the_last_one_was(
    open_page: Open, running: Running, studio: Studio
) -> None:
    """A server that was started anew knows no old cookie; its address shows what was written meanwhile."""
    page = open_page("?view=lens", refused=True, other=True)
    drawn(page, "lens")
    page.context.clear_cookies()
    page.locator("#text").fill("Once upon a time")
    page.wait_for_selector("[role=alert]:has-text('Your text is kept')")
    page.goto("about:blank")
    page.goto(f"{running.url}/#token={studio.door.token}")
    page.wait_for_selector(".dot.ready")
    page.wait_for_function("() => document.querySelector('#text').value === 'Once upon a time'")
    assert parse_qs(urlsplit(page.url).query)["view"] == ["lens"]
    assert page.evaluate("localStorage.length") == 0  # once


def test_without_the_token_nothing_is_told(browser: Any, running: Running) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{running.url}/")
    page.wait_for_selector("[role=alert]:has-text('address that glass studio printed')")
    context.close()
