"""The studio in a real browser, attacked: by foreign pages, by rebound names, and by every text that it shows."""

import http.client
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from browsing import MARKS, chromium, tags, watch
from payloads import PAYLOADS
from serving import Running, serving, tiny_model

from glassformer.errors import InputError
from glassformer.models.gpt import GPT, Config
from glassformer.server.studio import Studio
from glassformer.tasks.complete import LanguageModel
from glassformer.tokenizers import Tokenizer

pytestmark = MARKS
EVIL = "evil.example"
NAME = PAYLOADS[2]  # of a model: whoever made a folder chose it
TINY = tiny_model(context=512)


def load(name: str) -> LanguageModel:
    if name != "tiny":
        raise InputError(f"{name}: {PAYLOADS[0]} \u202egnorw")
    return TINY


@pytest.fixture(scope="module")
def studio() -> Studio:
    return Studio(load, first=("tiny", NAME))


@pytest.fixture(scope="module")
def running(studio: Studio) -> Iterator[Running]:
    with serving({}, studio=studio) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser in which foreign names lead to this machine, as a rebound one does.

    Chromium by itself keeps foreign pages from reaching loopback; other browsers do not, so that is off.
    """
    names = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP *.{EVIL} 127.0.0.1"
    with chromium(names, "--disable-features=LocalNetworkAccessChecks") as started:
        yield started


@pytest.fixture(scope="module")
def victim(browser: Any, running: Running, studio: Studio) -> Iterator[Any]:
    """A person's browser, in which the studio is open."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{running.url}/#token={studio.door.token}")
    page.wait_for_selector(".dot.ready")
    page.close()  # what it would still ask for itself is no attack
    yield context
    context.close()


ATTACK = """async (base) => {
  const body = JSON.stringify({ name: "tiny", model: "tiny", text: "x", prompt: "x", token: "x" });
  const read = [];
  const json = { "content-type": "application/json" };
  for (const path of ["/studio/status", "/studio/models", "/v1/models", "/health", "/", "/studio/reading"]) {
    for (const how of [{}, { credentials: "include" }, { mode: "no-cors", credentials: "include" }]) {
      const answer = await fetch(base + path, how).catch(() => null);
      if (answer && answer.ok) read.push(`GET ${path} ${await answer.text()}`);
    }
  }
  for (const path of ["/studio/models/load", "/studio/reading", "/v1/completions", "/studio/session"]) {
    for (const how of [{ headers: json }, { headers: { "content-type": "text/plain" } }, { mode: "no-cors" }, { body: new FormData() }]) {
      const answer = await fetch(base + path, { method: "POST", credentials: "include", body, ...how }).catch(() => null);
      if (answer && answer.ok) read.push(`POST ${path} ${await answer.text()}`);
    }
    navigator.sendBeacon(base + path, new Blob([body], { type: "text/plain" }));
    const form = document.createElement("form"), frame = document.createElement("iframe"), field = document.createElement("input");
    Object.assign(frame, { name: "f" + path, src: base });
    Object.assign(form, { action: base + path, method: "POST", enctype: "text/plain", target: frame.name });
    Object.assign(field, { name: '{"name":"tiny","x":"', value: '"}' });
    form.append(field);
    document.body.append(frame, form);
    form.submit();
    for (const kind of ["img", "script"]) document.body.append(Object.assign(document.createElement(kind), { src: base + path }));
  }
  await new Promise((done) => setTimeout(done, 600));
  for (const frame of document.querySelectorAll("iframe")) {
    try { if (frame.contentDocument?.querySelector("#app")) read.push("a frame"); } catch {}
  }
  return read;
}"""


def attacked(
    victim: Any, running: Running, *, page_at: str, base: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """What a page at an address could read, and what the server did for it."""
    page = victim.new_page()
    page.route(
        f"{page_at}/trap", lambda route: route.fulfill(content_type="text/html", body="<p>Win a prize")
    )
    page.goto(f"{page_at}/trap")
    before = len(running.lines)
    read = page.evaluate(ATTACK, base)
    page.close()
    return read, running.lines[before:]


PLACES = {
    "another site": (f"http://{EVIL}:81", "{own}"),
    "another port of this machine": ("http://127.0.0.1:81", "{own}"),
    "another name of this machine": ("http://localhost:81", "{own}"),
    "a name that was rebound": (f"http://{EVIL}:{{port}}", f"http://{EVIL}:{{port}}"),
    "one that looks like ours": (f"http://127.0.0.1.{EVIL}:{{port}}", f"http://127.0.0.1.{EVIL}:{{port}}"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_foreign_page_gets_nothing_done(victim: Any, running: Running, place: str) -> None:
    """Rebinding and forged requests, with the victim's cookie at hand: nothing is read, nothing is begun."""
    page_at, base = (one.format(own=running.url, port=running.port) for one in PLACES[place])
    read, lines = attacked(victim, running, page_at=page_at, base=base)
    assert read == []
    assert lines, "the requests must have reached the server for this to say anything"
    done = [line for line in lines if line["status"] < 400]
    # The page itself is public and does nothing: a frame may ask for it, and its rules forbid to show it.
    assert all((line["method"], line["path"]) == ("GET", "/") for line in done)
    if "rebound" in place or "looks" in place:
        assert done == []


def test_the_own_page_can_do_what_the_others_cannot(victim: Any, running: Running) -> None:
    """The attack works where it may: from the studio's own origin."""
    read, _ = attacked(victim, running, page_at=running.url, base=running.url)
    assert any(one.startswith("GET /studio/status") for one in read)
    assert any(one.startswith("POST /studio/reading") for one in read)


HOSTS = [
    f"{name}{port}"
    for name, port in itertools.product(
        ["localhost.evil.com", "127.0.0.1.nip.io", "x.local", "0.0.0.0", "evil.example", "127.1", "2130706433",
         "[::ffff:127.0.0.1]", "localhost.", "127.0.0.1@evil.example", "0x7f.1", "127.0.0.1%00"],
        [":{port}", "", ":80"],
    )
] + ["", "127.0.0.1:{port}:{port}", "127.0.0.1:{port},evil.example", "localhost:{port}.evil.example"]  # fmt: skip


def routes(running: Running) -> list[tuple[str, str]]:
    def found(group: list[Any]) -> Iterator[tuple[str, str]]:
        for route in group:
            if hasattr(route, "original_router"):
                yield from found(route.original_router.routes)
            else:
                path = re.sub(r"{.*?}", "x", route.path)
                yield from ((path, method) for method in sorted(route.methods - {"HEAD"}))

    return list(found(running.app.routes))


def status_of(running: Running, method: str, path: str, headers: dict[str, str]) -> int:
    """The status of a request whose path and headers are sent as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_forty_foreign_names_on_every_route(running: Running, studio: Studio) -> None:
    assert len(HOSTS) == 40
    cookie = f"glass_studio_{running.port}={studio.door.session}"
    for n, (path, method) in enumerate(routes(running)):
        for host in HOSTS if n < 4 else HOSTS[n % 5 :: 5]:
            headers = {"Host": host.format(port=running.port), "Cookie": cookie}
            assert status_of(running, method, path, headers) in (400, 403, 421), (method, path, host)


UP = ["..", "%2e%2e", "..%2f", "..%5c", "%252e%252e", "....//", "..;", "%c0%ae%c0%ae", "..%00", "\\.."]
AIMS = ["etc/passwd", "pages.py", "studio.py", "index.html%00.js", "proc/self/environ"]
BASES = ["/", "/assets/", "/tour/", "/studio/"]


def test_two_hundred_paths_lead_to_no_file(running: Running, studio: Studio) -> None:
    paths = [f"{base}{up}/{up}/{aim}" for base, up, aim in itertools.product(BASES, UP, AIMS)]
    assert len(paths) == 200
    ours = {"Host": f"127.0.0.1:{running.port}", "Authorization": f"Bearer {studio.door.token}"}
    for path in paths:
        assert status_of(running, "GET", path, ours) in (400, 404), path
    assert (
        status_of(running, "GET", "/tour/tour.js", ours) == 404
    )  # the tour is for folders, not for the server
    assert status_of(running, "GET", "/", ours) == 200


# Text that tries to be markup


GO = "(search) => { history.pushState(null, '', search); dispatchEvent(new PopStateEvent('popstate')); }"


def go_to(page: Any, search: str) -> None:
    """Another address of the same page, as back and forward open it: much faster than loading it anew."""
    page.evaluate(GO, search)
    settle(page)


def settle(page: Any) -> None:
    page.wait_for_timeout(350)
    page.wait_for_selector("[data-busy=true]", state="detached")
    page.wait_for_selector(".figure.waiting", state="detached", timeout=120_000)


@pytest.fixture
def opened(victim: Any, running: Running) -> Iterator[Callable[[str], Any]]:
    """Open the studio; the test fails on a dialog, an error, a broken rule or a request to elsewhere."""
    page = victim.new_page()
    troubles = watch(page, allowed=lambda url: url.startswith((running.url, "data:", "blob:")))

    def open_at(search: str) -> Any:
        page.goto(f"{running.url}/{search}")
        page.wait_for_selector(".dot.ready")
        settle(page)
        return page

    yield open_at
    assert page.evaluate("[window.hit, document.title.includes('hit')]") == [None, False]
    # A question that the model cannot answer is refused, which browsers note.
    assert not [one for one in troubles if "status of 400" not in one]
    page.close()


SINKS = ["write", "tokens", "attention", "lens", "saliency", "neurons", "edits", "tasks", "models"]


def check_sinks(open_at: Callable[[str], Any], views: list[str], texts: list[str]) -> None:
    """No text makes an element of a kind that a harmless one does not."""
    for view in views:
        page = open_at(f"?m=tiny&view={view}&text=Once%20upon%20a%20time")
        plain = tags(page)
        for text in texts:
            go_to(page, f"?m=tiny&view={view}&text={quote(text)}")
            ours = {"p", "b", "ul", "li", "canvas"}  # texts before it are branches; many cells are painted
            assert tags(page) <= plain | ours, (view, text)


def in_batches(texts: list[str], length: int) -> list[str]:
    """Texts joined to longer ones of limited length."""
    found = [""]
    for text in texts:
        if len(found[-1]) + len(text) > length:
            found.append("")
        found[-1] += text
    return found


def test_payloads_stay_text(opened: Callable[[str], Any]) -> None:
    """One of each kind, where tokens are written, listed and drawn; the others are a slow test."""
    check_sinks(opened, ["write", "tokens", "lens"], in_batches(PAYLOADS[::25], 380)[:1])
    page = opened("?m=tiny&view=models")
    names = page.locator(".models .name").all_inner_texts()
    assert NAME in names  # the name of a model, and the reason why it cannot be loaded, are texts too
    page.wait_for_selector(".problem:has-text('<script>')")
    page.goto(f"{page.url.partition('?')[0]}?m={quote(NAME)}&view=write")
    page.wait_for_selector("[role=alert]:has-text('<script>')")
    assert page.locator("main img, header img, main script").count() == 0


def test_saved_files_hold_no_scripts(opened: Callable[[str], Any]) -> None:
    page = opened(f"?m=tiny&view=lens&text={quote(in_batches(PAYLOADS[::40], 300)[0])}")
    card = page.locator('.figure[data-question="lens"]')
    with page.expect_download() as saved:
        card.get_by_role("button", name="SVG").click()
    drawn = ET.parse(saved.value.path())
    for one in drawn.iter():
        assert one.tag.rpartition("}")[2] not in ("script", "foreignObject", "image", "a", "iframe", "use")
        assert not [name for name in one.attrib if name.lower().startswith("on") or "href" in name]
    with page.expect_download() as saved:
        card.get_by_role("button", name="CSV").click()
    assert "<" in saved.value.path().read_text()  # as text, which it is


def test_signs_that_would_hide_are_shown(opened: Callable[[str], Any]) -> None:
    """Direction marks, controls and lone halves have a visible form, so that no token can look like another."""
    page = opened(f"?m=tiny&view=tokens&text={quote(chr(0x202E) + 'abc' + chr(0x200B) + chr(7))}")
    shown = "".join(page.locator(".tokens ol b").all_inner_texts())
    assert "\u202e" not in shown
    assert "\u200b" not in shown
    assert "\x07" not in shown


@pytest.mark.slow
def test_five_hundred_payloads_on_every_page(opened: Callable[[str], Any]) -> None:
    batches = in_batches(PAYLOADS, 480)
    check_sinks(opened, ["write"], batches)
    for n, view in enumerate(SINKS):
        check_sinks(opened, [view], batches[n :: len(SINKS)][:3])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "each"),
    [("tokens", ".tokens ol li"), ("write", ".strip .column")],
    ids=["in the list of tokens", "in the strip"],
)
def test_every_token_of_gpt2(browser: Any, gpt2: Tokenizer, view: str, each: str) -> None:
    """All 50,257 of them, 900 at a time: each has its place, and none makes an element of another kind."""
    net = GPT(Config(layers=1, heads=2, width=8, vocab=len(gpt2), context=1024)).initialize(0)
    lm = LanguageModel(net.eval(), gpt2, name="odd")
    studio = Studio(lambda name: lm, first=("odd",))
    with serving({}, studio=studio) as running:
        page = browser.new_page()
        troubles = watch(page, allowed=lambda url: url.startswith((running.url, "data:")))
        page.goto(f"{running.url}/?view={view}#token={studio.door.token}")
        page.wait_for_selector(".dot.ready")
        settle(page)
        plain = tags(page)
        asked = {"model": "odd", "ids": [0]}
        # What the page is told is that these are the tokens: read as a text, they would join to others.
        page.route("**/studio/reading", lambda route: route.continue_(post_data=asked))
        for start in range(0, len(gpt2), 900):
            ids = list(range(start, min(start + 900, len(gpt2))))
            asked["ids"] = ids
            text = lm.text_of(ids)
            page.evaluate(GO, f"?m=odd&view={view}&text={quote(text)}")
            count = len(ids) - (view == "write")  # before the first there is nothing to be unsure of
            page.wait_for_function(
                "([each, count, text]) => document.querySelectorAll(each).length === count"
                " && document.querySelector('.mirror').textContent.startsWith(text)",
                arg=[each, count, text],
                timeout=120_000,
            )
            assert tags(page) <= plain | {"progress"}, start  # the bar of what takes long
        assert page.evaluate("[window.hit, document.title.includes('hit')]") == [None, False]
        page.close()
        # The vocabulary of a model without a folder cannot be read beside the others: refused, which browsers note.
        assert not [one for one in troubles if "status of 400" not in one]
