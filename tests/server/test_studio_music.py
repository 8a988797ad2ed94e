"""The studio's page about music: its endpoints, and the page in a real browser, beside Python's numbers."""

import base64
import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from browsing import MARKS, STATIC, chromium
from composers import performer, small_composer, tune
from serving import Running, serving, tiny_model

from glassformer.cli import run
from glassformer.server.studio import Studio
from glassformer.tasks.compose import Composer
from glassformer.tasks.model import Model
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import Chorale, to_grid
from glassformer.tokenizers.score import Note, Score

MODELS: dict[str, Model] = {
    "singer": small_composer(Chorale(3), context=160),
    "pianist": performer(),
    "tiny": tiny_model(),
}
MODEL = MODELS["singer"].expect(Composer)
FILE = base64.b64encode(write_midi(tune())).decode()


class Opened:
    """A studio that runs, and its cookie."""

    def __init__(self, running: Running, studio: Studio) -> None:
        self.running, self.studio = running, studio
        self.cookie = {"cookie": f"glass_studio_{running.port}={studio.door.session}"}

    def ask(self, path: str, *, status: int = 200, model: str = "singer", **body: Any) -> Any:
        answer = self.running.post(f"/studio/{path}", {"model": model} | body, headers=self.cookie)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    built = (STATIC / "index.html").is_file()
    studio = Studio(MODELS.__getitem__, first=tuple(MODELS), **({} if built else {"files": {}}))
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        while any(one["stage"] != "ready" for one in statuses(found)):
            time.sleep(0.02)
        yield found


def statuses(opened: Opened) -> list[dict[str, Any]]:
    answer = opened.running.get("/studio/status", headers=opened.cookie)
    return list(answer.json()["statuses"])


def notes_of(score: Score) -> list[list[float]]:
    return [list(note) for note in score.notes]


# The endpoints


def test_what_a_model_offers_is_known_to_the_page(opened: Opened) -> None:
    offers = {one["name"]: "compose" in one["can"] for one in statuses(opened)}
    assert offers == {"singer": True, "pianist": True, "tiny": False}
    refused = opened.ask("compose", model="tiny", status=400)["error"]
    assert refused["param"] == "model"
    assert "glass train --kind music" in refused["message"]


def test_a_piece_is_written_and_heard(opened: Opened) -> None:
    """As in Python: the same events, notes and, of a question, the same picture."""
    right = MODEL.compose(seconds=3, seed=4)
    made = opened.ask("compose", seconds=3, seed=4)
    assert made["ids"] == right.tokens
    assert "".join(made["texts"]) == right.text
    piece = opened.ask("piece", ids=made["ids"])
    assert piece["notes"] == notes_of(MODEL.events.hear(right.tokens).score)
    assert piece["owners"] == MODEL.events.hear(right.tokens).owners
    assert opened.ask("piece", text=right.text)["notes"] == piece["notes"]
    arcs = MODEL.hear(right.text).arcs(5, layer=1)
    shown = opened.ask("piece/view", text=right.text, question="arcs", options={"note": 5, "layer": 1})
    assert shown["view"]["sentence"] == arcs.view().spec["sentence"]
    assert shown["view"]["arcs"] == arcs.view().spec["arcs"]
    assert shown["code"]["Command line"].startswith("glass compose -m singer --arcs 5 --layer 1 -o arcs.svg")


@pytest.mark.parametrize("model", ["singer", "pianist"])
@pytest.mark.parametrize("question", ["roll", "events", "arcs", "note_saliency"])
def test_what_is_copied_gives_the_same_numbers(
    opened: Opened, question: str, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python, the command line and curl, each as it is copied; also of a piece with a tempo of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path))
    MODELS[model].save(tmp_path / "models" / model)
    right = MODELS[model].expect(Composer).compose(seconds=2, seed=4)
    options = {"arcs": {"note": 5, "layer": 1}, "note_saliency": {"note": 5}}.get(question, {})
    body = {"text": right.text, "given": 0.5, "quarter": 0.75, "question": question, "options": options}
    shown = opened.ask("piece/view", model=model, **body)
    rows = shown["view"]["table"]["rows"]
    known: dict[str, Any] = {}
    exec(shown["code"]["Python"], known)
    assert same(known["answer"].view().spec["table"]["rows"], rows)
    curl = shown["code"]["curl"].replace("curl ", "curl -s --noproxy '*' ", 1)
    key = {**os.environ, "GLASSFORMER_API_KEY": opened.studio.door.token}
    told = subprocess.run(["sh", "-c", curl], env=key, capture_output=True, check=True).stdout
    assert same(json.loads(told)["view"]["table"]["rows"], rows)
    words = shlex.split(shown["code"]["Command line"].replace(f"{question}.svg", "out.json"))
    assert run(words[1:]) == 0
    assert same(json.loads((tmp_path / "out.json").read_text())["rows"], rows)


def same(found: Any, expected: Any) -> bool:
    """Whether tables are equal, numbers within what a file rounds."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=2e-3, abs=5e-3))
    return bool(found == expected)


def test_a_file_is_loaded_and_saved(opened: Opened) -> None:
    """The tempo of a file is kept; what is saved is what was loaded."""
    slow = Score.of(
        [note._replace(start=2 * note.start, end=2 * note.end) for note in tune().notes], quarter=1.2
    )
    made = opened.ask("compose", midi=base64.b64encode(write_midi(slow)).decode(), seconds=0)
    assert made["quarter"] == pytest.approx(1.2)
    assert made["given"] == pytest.approx(slow.seconds)
    body = {"ids": made["ids"], "quarter": made["quarter"], "given": made["given"]}
    assert opened.ask("piece", **body)["seconds"] == pytest.approx(slow.seconds)
    for kind, start in (("mid", b"MThd"), ("wav", b"RIFF"), ("html", b"<!doctype"), ("svg", b"<svg")):
        answer = opened.running.post(
            "/studio/piece/file", {"model": "singer", "kind": kind} | body, headers=opened.cookie
        )
        assert answer.content.startswith(start), kind
        if kind == "mid":
            assert to_grid(read_midi(answer.content, steady=True)) == to_grid(slow)


def test_it_goes_on_from_a_point(opened: Opened) -> None:
    """What comes before it stays, to the note."""
    first = opened.ask("compose", midi=FILE, melody=True, seed=5)
    more = opened.ask("compose", ids=first["ids"], at=0.9, seconds=0.6, seed=6)
    before, after = (to_grid(MODEL.events.hear(one["ids"]).score) for one in (first, more))
    assert more["given"] == pytest.approx(0.9)
    assert after[:6] == before[:6]
    assert after[6:] != before[6:10]
    right = MODEL.compose(MODEL.hear(first["ids"]).score.until(0.9), seconds=0.6, seed=6)
    assert more["ids"] == [*right.prompt_tokens[1:], *right.tokens]


def test_voices_are_written_to_a_melody(opened: Opened) -> None:
    made = opened.ask("compose", midi=FILE, melody=True, seed=5)
    right = MODEL.harmonize(tune(), seed=5)
    assert made["ids"] == [*right.prompt_tokens[1:], *right.tokens]
    assert made["finish"] == "stop"


@pytest.mark.parametrize("model", ["singer", "pianist"])
def test_a_piece_fits_the_context(opened: Opened, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long file is cut off, and no more is written than the context holds."""
    counts: list[int] = []
    compose = Composer.compose

    def counted(self: Composer, *given: Any, **how: Any) -> Any:
        piece = compose(self, *given, **how)
        counts.append(len(piece.prompt_tokens) + len(piece.tokens))
        return piece

    monkeypatch.setattr(Composer, "compose", counted)
    long = Score.of([Note(0.3 * n, 0.3 * n + 0.3, 60 + n % 12) for n in range(400)])
    file = base64.b64encode(write_midi(long)).decode()
    made = opened.ask("compose", model=model, midi=file, seconds=0)
    context = MODELS[model].net.context
    assert context - 9 <= len(made["ids"]) < context
    piece = opened.ask("piece", model=model, ids=made["ids"], quarter=made["quarter"])
    assert piece["seconds"] == pytest.approx(made["given"], abs=0.3)
    opened.ask("compose", model=model, seconds=120, seed=1)
    opened.ask("compose", model=model, ids=made["ids"], at=1.5, seconds=120, seed=2)
    assert len(counts) == 3
    assert max(counts) <= context


@pytest.mark.parametrize(("path", "body", "param"), [
    ("compose", {"midi": "no base64!"}, "midi"),
    ("compose", {"midi": "/etc/passwd"}, "midi"),
    ("compose", {"midi": base64.b64encode(b"MThd").decode()}, "midi"),
    ("compose", {"midi": ""}, "midi"),
    ("compose", {"melody": True}, "melody"),
    ("compose", {"model": "pianist", "midi": FILE, "melody": True}, "midi"),
    ("compose", {"seconds": 1000}, "seconds"),
    ("compose", {"seconds": -1}, "seconds"),
    ("compose", {"temperature": 9}, "temperature"),
    ("piece", {"text": "A robot must obey"}, "text"),
    ("piece", {"ids": [10**6]}, "ids"),
    ("piece", {"text": "S72", "quarter": 0}, "quarter"),
    ("piece/view", {"text": "S72", "question": "lens"}, "question"),
    ("piece/view", {"text": "", "question": "arcs"}, "arcs"),
    ("piece/view", {"text": "S72", "question": "arcs", "options": {"note": -1}}, "options.note"),
    ("piece/file", {"text": "", "kind": "mid"}, "text"),
    ("piece/file", {"text": "S72", "kind": "exe"}, "kind"),
])  # fmt: skip
def test_what_is_refused(opened: Opened, path: str, body: dict[str, Any], param: str) -> None:
    assert opened.ask(path, status=400, **body)["error"]["param"] == param


def test_who_leaves_leaves_the_lane(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A composition whose client has gone ends before its next event."""
    ended = threading.Event()
    compose = Composer.compose

    def slow(self: Composer, *given: Any, **how: Any) -> Any:
        limit = time.monotonic() + 20
        while not how["cancelled"]():
            assert time.monotonic() < limit
            time.sleep(0.01)
        ended.set()
        return compose(self, *given, **how)

    monkeypatch.setattr(Composer, "compose", slow)
    with pytest.raises(Exception, match="timed out"):
        opened.running.post("/studio/compose", {"model": "singer"}, headers=opened.cookie, timeout=0.3)
    assert ended.wait(10)


# The page

# Every oscillator that the page starts is noted.
WATCH = """
window.tones = [];
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (at) {
  window.tones.push(this.frequency.value);
  return start.call(this, at);
};
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium("--autoplay-policy=no-user-gesture-required") as started:
        yield started


@pytest.fixture
def page(browser: Any, opened: Opened) -> Iterator[Any]:
    """A new window; the test fails on any error, broken rule, and any request to elsewhere."""
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.add_init_script(WATCH)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda one: troubles.append(one.text) if one.type == "error" else None)
    own = (opened.running.url, "data:", f"blob:{opened.running.url}")
    page.on("request", lambda one: None if one.url.startswith(own) else troubles.append(one.url))
    yield page
    context.close()
    assert not troubles


def go(page: Any, opened: Opened, search: str) -> None:
    page.goto(f"{opened.running.url}/{search}#token={opened.studio.door.token}")
    page.wait_for_selector(".dot.ready")


def drawn(page: Any, question: str) -> str:
    """What the picture of a question says, once no other is on its way."""
    page.wait_for_selector(f'.figure[data-question="{question}"]:not(.waiting) .host svg')
    picture = page.locator(f'.figure[data-question="{question}"] .host svg').first
    return str(picture.get_attribute("aria-label"))


class TestPage:
    pytestmark = MARKS

    def test_a_link_shows_a_piece_and_its_insides(self, page: Any, opened: Opened) -> None:
        """Roll, arcs, saliency and events of a note, with Python's sentences; then another note and layer."""
        right = MODEL.compose(seconds=3, seed=4)
        piece = MODEL.hear(right.text)
        owners = MODEL.events.hear(right.tokens).owners
        go(page, opened, f"?m=singer&view=music&l=1&t={owners.index(6)}&text={quote(right.text)}")
        assert drawn(page, "arcs") == piece.arcs(6, layer=1).view().spec["sentence"]
        assert drawn(page, "note_saliency") == piece.note_saliency(6).view().spec["sentence"]
        assert drawn(page, "roll") == piece.roll().view().spec["sentence"]
        assert drawn(page, "events") == piece.events().view().spec["sentence"]
        page.locator("body").press("ArrowRight")
        page.wait_for_selector("h2:has-text('note 7,')")
        page.locator("body").press("ArrowUp")
        assert drawn(page, "arcs") == piece.arcs(7, layer=0).view().spec["sentence"]
        asked = parse_qs(urlsplit(page.url).query)
        assert (asked["t"], asked["l"], asked["text"]) == ([str(owners.index(7))], ["0"], [right.text])
        tools = page.locator('.figure[data-question="roll"] .tools')
        assert tools.locator("button").all_inner_texts()[:4] == ["In words", "Python", "Command line", "curl"]
        page.locator('.figure[data-question="events"] select').select_option("one_hot")
        page.wait_for_function("""(label) => document.querySelector('.figure[data-question="events"] .host svg')
            .getAttribute("aria-label") === label""", arg=piece.events().view("one_hot").spec["sentence"])  # fmt: skip

    def test_it_plays_what_is_written(self, page: Any, opened: Opened) -> None:
        """Every note once, with its frequency; a click on the roll chooses a note."""
        right = MODEL.compose(seconds=2, seed=4)
        go(page, opened, f"?m=singer&view=music&text={quote(right.text)}")
        page.locator("canvas").wait_for()
        page.locator("body").press(" ")
        page.get_by_role("button", name="Pause").wait_for()
        page.get_by_role("button", name="Play").wait_for()
        pitches = [440 * 2 ** ((note.pitch - 69) / 12) for note in right.score.notes]
        assert page.evaluate("window.tones") == pytest.approx(pitches, rel=1e-5)
        box = page.locator("canvas").bounding_box()
        note = right.score.notes[3]
        low, high = (f(60, *(one.pitch for one in right.score.notes)) for f in (min, max))
        row = box["height"] / (high - low + 5)
        second = max(60, box["width"] / 12)
        left = box["width"] * 0.25 + (note.start + note.end) / 2 * second
        page.mouse.click(box["x"] + left, box["y"] + (high + 2.5 - note.pitch) * row)
        page.wait_for_selector("h2:has-text('from note 3,')")

    def test_music_is_made_loaded_and_saved(self, page: Any, opened: Opened, tmp_path: Path) -> None:
        """A text is no music and makes room; a melody is loaded, harmonized, gone on with, and saved."""
        go(page, opened, "?m=singer&view=music")
        page.wait_for_selector("h2:has-text('No music yet')")
        assert page.locator("[role=alert]").count() == 0
        write_midi(tune(), tmp_path / "tune.mid")
        page.locator("input[type=file]").set_input_files(tmp_path / "tune.mid")
        page.wait_for_selector(f"output:has-text('of {tune().seconds:.1f} s')")
        page.get_by_label("Seed").fill("5")
        page.get_by_role("button", name="Harmonize").click()
        right = MODEL.harmonize(tune(), seed=5)
        page.wait_for_selector(f"canvas[aria-label^='Piano roll: {len(right.score.notes)} notes']")
        with page.expect_download() as download:
            page.get_by_role("button", name=".mid").click()
        saved = read_midi(Path(download.value.path()), steady=True)
        assert to_grid(saved) == to_grid(right.score)
        page.get_by_label("Place in the piece").fill("0.6")
        page.get_by_role("spinbutton", name="Seconds").fill("1")
        page.get_by_role("button", name="Continue from 0.6 s").click()
        more = MODEL.compose(right.score.until(0.6), seconds=1, seed=5)
        page.wait_for_selector(f"canvas[aria-label^='Piano roll: {len(more.score.notes)} notes']")
        drawn(page, "roll")
        assert parse_qs(urlsplit(page.url).query)["text"] == [more.text]

    def test_a_link_holds_the_tempo_and_what_was_given(
        self, page: Any, browser: Any, opened: Opened, tmp_path: Path
    ) -> None:
        """Whoever opens it, in another browser, hears the same: events alone say neither."""
        slow = Score.of(
            [note._replace(start=2 * note.start, end=2 * note.end) for note in tune().notes], quarter=1.2
        )
        write_midi(slow, tmp_path / "slow.mid")
        go(page, opened, "?m=singer&view=music&seed=7&seconds=2")
        page.wait_for_selector("h2:has-text('No music yet')")
        assert page.get_by_role("spinbutton", name="Seconds").input_value() == "2"
        page.locator("input[type=file]").set_input_files(tmp_path / "slow.mid")
        page.wait_for_selector(f"output:has-text('of {slow.seconds:.1f} s')")
        page.get_by_label("Place in the piece").fill("1.2")
        page.get_by_role("button", name="Continue from 1.2 s").click()
        right = MODEL.compose(MODEL.compose(slow, seconds=0).score.until(1.2), seconds=2, seed=7)
        events = [*right.prompt_tokens[1:], *right.tokens]
        heard = MODEL.hear(events, given=right.given, quarter=right.score.quarter)
        page.wait_for_selector(f"output:has-text('of {heard.seconds:.1f} s')")
        roll = heard.roll()
        page.get_by_label(roll.view().spec["sentence"], exact=True).first.wait_for()
        page.wait_for_function(
            "location.search.includes('quarter=1.2') && location.search.includes('given=')"
        )
        query = urlsplit(page.url).query
        context = browser.new_context()
        other = context.new_page()
        go(other, opened, f"?{query}")
        other.wait_for_selector(f"output:has-text('of {heard.seconds:.1f} s')")
        other.get_by_label(roll.view().spec["sentence"], exact=True).first.wait_for()
        assert "gray: given" in other.locator('.figure[data-question="roll"]').inner_text()
        assert other.get_by_role("spinbutton", name="Seed").input_value() == "7"
        context.close()
        page.go_back()  # to the melody as it was loaded
        page.wait_for_selector(f"output:has-text('of {slow.seconds:.1f} s')")

    def test_a_model_of_texts_says_which_command_makes_one(self, page: Any, opened: Opened) -> None:
        go(page, opened, "?m=tiny&view=music&text=Once")
        page.wait_for_selector("h2:has-text('tiny does not compose music')")
        assert page.locator("main code").last.inner_text() == "glass train --kind music --data FOLDER"
        page.get_by_role("button", name="singer").wait_for()

    @pytest.mark.slow
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_axe_finds_nothing_serious(self, browser: Any, opened: Opened, theme: str) -> None:
        """Names, contrast and structure of the page, as axe-core checks them; and nothing is too wide for a phone."""
        axe = Path(__file__).parents[2] / "studio" / "node_modules" / "axe-core" / "axe.min.js"
        if not axe.is_file():
            pytest.skip("axe-core is not installed: make page")
        context = browser.new_context(
            color_scheme=theme, bypass_csp=True, viewport={"width": 390, "height": 800}
        )
        page = context.new_page()
        go(page, opened, f"?m=singer&view=music&text={quote(MODEL.harmonize(tune(), seed=5).text)}")
        for question in ("arcs", "note_saliency", "roll", "events"):
            drawn(page, question)
        page.add_script_tag(path=axe)
        found = page.evaluate("axe.run()")["violations"]
        assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        context.close()
