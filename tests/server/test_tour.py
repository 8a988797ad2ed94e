"""`glass studio --demo`: a folder that shows the server's own answers, from a disk and from any web server."""

import base64
import functools
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium, in_browser, watch
from serving import tiny_model

import glassformer as gf
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.cli import run
from glassformer.errors import GlassError, InputError
from glassformer.server import tour
from glassformer.tasks.complete import LanguageModel

TEXT = "Once upon a time"
TINY = tiny_model()
IDS = TINY.encode(TEXT)
SCORES = {"model": "tiny", "ids": IDS}
LENS = {"model": "tiny", "ids": IDS, "question": "lens", "options": {}, "drawing": None}
STORY = {"model": "tiny", "prompt": IDS, "max_tokens": 3, "stream": True, "seed": 7}
SMALL = tour.Script(
    stops=[
        {"title": "First", "sentence": "Read.", "place": {"model": "tiny", "text": TEXT, "view": "write"}},
        {"title": "Second", "sentence": "Look.", "place": {"model": "tiny", "text": TEXT, "view": "tokens"}},
        {"title": "Third", "sentence": "More.", "place": {"model": "tiny", "text": TEXT, "view": "lens"}},
    ],
    requests=[
        {"path": "/studio/reading", "body": {"model": "tiny", "text": TEXT}},
        {"path": "/studio/scores", "body": SCORES},
        {"path": "/studio/view", "body": LENS},
        {"path": "/v1/completions", "body": STORY},
    ],
)


def load(name: str) -> LanguageModel:
    assert name == "tiny"
    return TINY


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Python's own, which knows nothing but files."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tour of the tiny model."""
    if not (tour.built_folder() / "tour").is_dir():
        pytest.skip("the studio's page is not built: make page")
    folder = tmp_path_factory.mktemp("tours") / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tour, "script", lambda: SMALL)
        seen: list[tuple[int, int]] = []
        assert tour.write(folder, load=load, advance=lambda *how: seen.append(how)) > 100_000
        assert seen[-1] == (5, 5)
        assert seen == sorted(seen)
    return folder


def answers_of(folder: Path) -> dict[str, Any]:
    data = (folder / "answers.js").read_text().removeprefix("globalThis.glassTour = ").removesuffix(";\n")
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(json.loads(data)["answers"])))
    return found


def test_its_answers_are_those_of_python(built: Path) -> None:
    found = answers_of(built)
    reading = found[f'/studio/reading {{"model":"tiny","text":"{TEXT}"}}']["json"]
    assert reading["ids"] == IDS
    view = found[f"/studio/view {json.dumps(LENS, separators=(',', ':'))}"]["json"]
    expected = ask("lens", Text(TINY, IDS)).view()
    assert view["view"] == json.loads(json.dumps(expected.spec))
    assert [one["width"] for one in view["layouts"]] == sorted(
        {one["width"] for one in view["layouts"]}, reverse=True
    )
    story = {name: value for name, value in STORY.items() if name != "seed"}
    events = found[f"/v1/completions {json.dumps(story, separators=(',', ':'))}"]["events"]
    assert events[-1] == "data: [DONE]"
    assert len(events) >= 4
    # Nothing of the machine that made it: neither other models nor the token.
    assert {one["name"] for one in found["/studio/models"]["json"]["models"]} == {"tiny"}


def test_a_folder_with_something_else_in_it_is_refused(built: Path, tmp_path: Path) -> None:
    tour.check_folder(built)  # an earlier tour may be written anew
    tour.check_folder(tmp_path)
    tour.check_folder(tmp_path / "new")
    (tmp_path / "index.html").write_text("my own page")
    with pytest.raises(InputError, match="is not empty and holds no earlier tour"):
        tour.check_folder(tmp_path)
    with pytest.raises(InputError, match="is a file, not a folder"):
        tour.check_folder(tmp_path / "index.html")
    assert (tmp_path / "index.html").read_text() == "my own page"


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    for words, reason in (
        (["--demo", str(tmp_path)], "is not empty"),
        (["--demo", str(tmp_path / "new"), "-m", "gpt2"], "the tour has models of its own"),
    ):
        assert run(["studio", *words]) == 2
        message = capsys.readouterr().err
        assert reason in message
        assert message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_request_that_is_refused_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tour with a hole in it is not written."""
    wrong = [{"path": "/studio/reading", "body": {"model": "tiny", "text": "Once " * 500}}]
    monkeypatch.setattr(tour, "script", lambda: tour.Script(SMALL.stops, wrong))
    with pytest.raises(GlassError, match="/studio/reading was refused"):
        tour.write(tmp_path / "new", load=load)
    assert not (tmp_path / "new").exists()


def test_the_tour_that_ships_is_of_models_that_ship() -> None:
    asked = tour.script()
    assert set(asked.models) <= {"storyteller", "translator", "seq2seq"}
    assert len(asked.stops) >= 8
    assert len({tour._key(one["path"], one["body"]) for one in asked.requests}) == len(asked.requests)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@in_browser
@pytest.mark.parametrize("where", ["disk", "web server"])
def test_it_opens_and_goes_on(built: Path, browser: Any, where: str) -> None:
    """With no error, no broken rule, and no request but for the files of the folder."""
    with web_server(built) as served:
        base = built.as_uri() if where == "disk" else served
        page = browser.new_page()
        troubles = watch(page, allowed=lambda url: url.startswith((base, "data:")))
        page.goto(f"{base}/index.html")
        page.wait_for_selector(".tour h2:has-text('First')")
        page.wait_for_selector(f".model:has-text('{len(IDS)} of 64')")
        page.wait_for_selector(".rest:has-text('may be drawn')")  # sliders work without a server
        page.locator(".tour .steps .main").click()
        page.wait_for_selector(".tokens ol .id")
        assert page.locator(".tokens ol .id").all_inner_texts() == [str(id) for id in IDS]
        page.locator(".tour .steps .main").click()
        picture = page.locator('.figure[data-question="lens"] .host svg').first
        picture.wait_for()
        assert picture.get_attribute("aria-label") == ask("lens", Text(TINY, IDS)).view().spec["sentence"]
        # What was not recorded is a sentence, not a hole.
        page.wait_for_selector(
            '.figure[data-question="residual"] [role=alert]:has-text("recorded beforehand")'
        )
        page.go_back()
        page.go_back()
        page.wait_for_selector(".tour h2:has-text('First')")
        page.locator("#text").fill("Something else")
        page.wait_for_selector("[role=alert]:has-text('This tour was recorded beforehand')")
        page.close()
        assert not troubles


@in_browser
@pytest.mark.slow
def test_every_stop_of_the_tour_that_ships(browser: Any, tmp_path: Path) -> None:
    """The whole tour from a disk: every picture is there, and every thing that a stop offers was recorded."""
    with ThreadPoolExecutor(1) as apart:  # this thread's event loop is that of the browser's driver
        apart.submit(tour.write, tmp_path / "tour", load=gf.load).result()
    page = browser.new_page()
    troubles = watch(page, allowed=lambda url: url.startswith((tmp_path.as_uri(), "data:")))
    page.goto(f"{(tmp_path / 'tour').as_uri()}/index.html")
    page.wait_for_selector(".dot.ready")
    for stop in tour.script().stops:
        page.wait_for_selector(f".tour h2:has-text('{stop['title']}')")
        page.wait_for_timeout(500)
        page.wait_for_selector(".figure.waiting", state="detached")
        lacking = page.locator("text=This tour was recorded beforehand").count()
        assert lacking == 0, stop["title"]
        if stop["place"]["view"] not in ("write",):
            assert page.locator(".figure .host svg").count() > 0, stop["title"]
        if not page.locator(".tour .steps .main").is_disabled():
            page.locator(".tour .steps .main").click()
    page.goto(f"{(tmp_path / 'tour').as_uri()}/index.html")
    page.wait_for_selector(".rest:has-text('may be drawn')")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("button:has-text('Stop')")
    page.wait_for_selector("button:has-text('Write on'):enabled")
    page.wait_for_timeout(500)
    assert page.locator("[role=alert]").count() == 0
    assert not troubles
