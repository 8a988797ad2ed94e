"""The page that plays, in a real browser: sound is scheduled as written, the roll moves, nothing is fetched."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from composers import small_composer, tune

from glassformer.figures.player import parsed

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed, which drives the browser"
)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which the page would be opened"),
    pytest.mark.xdist_group("browser"),
]
# Every oscillator that the page starts is noted: its frequency, and when.
WATCH = """
window.tones = [];
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (at) {
  window.tones.push([this.frequency.value, at - this.context.currentTime]);
  return start.call(this, at);
};
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of a harmonized tune, and its piece; an error or a request fails."""
    piece = small_composer().harmonize(tune(), seed=5)
    path: Path = tmp_path_factory.mktemp("player") / "a.html"
    piece.save(path)
    troubles: list[str] = []
    with playwright.sync_playwright() as play:
        flags = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        browser = play.chromium.launch(executable_path=BROWSER, args=flags)
        page = browser.new_page(viewport={"width": 900, "height": 700})
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith("file:") else troubles.append(request.url),
        )
        page.add_init_script(WATCH)
        page.goto(path.as_uri())
        yield page, piece
        assert not troubles
        browser.close()


def test_notes_are_played_as_they_are_written(opened: Any) -> None:
    """All of them, in order, each with its frequency; the roll moves meanwhile, and ends where it began."""
    page, piece = opened
    before = page.locator("#roll").screenshot()
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    while int(page.input_value("#place")) < 250:
        page.wait_for_timeout(20)
    assert page.locator("#roll").screenshot() != before
    page.locator("#play", has_text="Play").wait_for()
    tones = page.evaluate("() => window.tones")
    right = [440 * 2 ** ((note.pitch - 69) / 12) for note in piece.score.notes]
    assert [frequency for frequency, _ in tones] == pytest.approx(right, rel=1e-5)
    assert all(-0.01 <= wait < 0.5 for _, wait in tones)
    assert page.inner_text("#time").startswith("0.0 of")


def test_one_may_begin_anywhere(opened: Any) -> None:
    """A place is chosen; what has ended before it is not played."""
    page, piece = opened
    page.evaluate("() => { window.tones = []; }")
    page.fill("#place", "800")
    assert page.inner_text("#time") == f"{piece.seconds * 0.8:.1f} of {piece.seconds:.1f} s"
    page.click("#play")
    page.locator("#play", has_text="Play").wait_for()
    left = [note for note in piece.score.notes if note.end > piece.seconds * 0.8]
    assert len(page.evaluate("() => window.tones")) == len(left)


def test_the_page_has_every_note(opened: Any) -> None:
    """As numbers, and a still picture for those without scripts."""
    page, piece = opened
    data = parsed(piece.to_html())
    assert [note[:3] for note in data["notes"]] == [
        [pytest.approx(note.start), pytest.approx(note.end), note.pitch] for note in piece.score.notes
    ]
    assert data["series"] == ["soprano", "alto", "tenor", "bass"]
    assert "<noscript><svg" in piece.to_html()
    assert page.inner_text("#names").split() == data["series"]
