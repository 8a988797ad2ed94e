"""Record what the studio's page asks on the tour: `python studio/record.py` (a built page, Chromium).

It opens every stop of `src/glassformer/server/tour.json` in a browser, tries what the stop offers, and writes
the requests that were made back into that file. `glass studio --demo` answers them.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "src" / "glassformer" / "server" / "tour.json"
NAMES = {"model": "m", "text": "text", "view": "view", "layer": "l", "head": "h", "token": "t"}
PATIENCE = 120_000  # milliseconds
SEED = "Math.random = () => 7 / 2 ** 31"  # the page draws a seed of its own: always 7 here
# Resolves when no request has begun or ended for a while.
QUIET = """() => new Promise((done) => {
  let timer;
  const look = () => (window.asking ? wait() : done());
  const wait = () => { clearTimeout(timer); timer = setTimeout(look, 400); };
  window.heard = wait;
  wait();
})"""
# Counts what is on its way, streams included.
COUNT = """window.asking = 0; window.heard = () => {};
const ask = window.fetch;
window.fetch = async (...how) => {
  window.asking++; window.heard();
  try { return await ask(...how); } finally { window.asking--; window.heard(); }
};"""

Requests = dict[str, dict[str, Any]]


def main() -> None:
    """Visit every stop, and keep what was asked."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT / "tests"))
    from serving import serving

    import glassformer as gf
    from glassformer.server.studio import Studio

    tour = json.loads(TOUR.read_text(encoding="utf-8"))
    models = tuple(dict.fromkeys(stop["place"]["model"] for stop in tour["stops"]))
    studio, found = Studio(gf.load, first=models), Requests()
    with serving({}, studio=studio) as running, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script(SEED)
        page.add_init_script(COUNT)
        page.goto(f"{running.url}/#token={studio.door.token}")
        page.wait_for_selector(".dot.ready")
        # Not when a request has ended: of a long answer the page reads the last event, and no further.
        page.on("response", lambda response: keep(response, found))
        for stop in tour["stops"]:
            visit(page, running.url, stop)
            print(f"{len(found):5} requests after {stop['title']!r}", file=sys.stderr)
        browser.close()
    tour["requests"] = list(found.values())
    lines = [json.dumps(one, ensure_ascii=False) for one in tour["requests"]]
    stops = json.dumps(tour["stops"], ensure_ascii=False, indent=1)
    content = f'{{"stops": {stops},\n"requests": [\n' + ",\n".join(lines) + "\n]}\n"
    TOUR.write_text(content, encoding="utf-8")


def keep(response: Any, found: Requests) -> None:
    """Keep a request that asks for something; not for which width."""
    request, path = response.request, urlsplit(response.url).path
    if request.method != "POST" or response.status != 200:
        return
    body = json.loads(request.post_data)
    body.pop("width", None)
    found[f"{path} {json.dumps(body)}"] = {"path": path, "body": body}


def visit(page: Any, url: str, stop: dict[str, Any]) -> None:
    """Open a stop, then do each thing that it offers, from its beginning."""
    at = urlencode({NAMES[name]: value for name, value in stop["place"].items()})
    for what in [None, *stop["explore"]]:
        page.goto(f"{url}/?{at}")
        page.wait_for_selector(".dot.ready")
        settle(page)
        if what is not None:
            explore(page, what)


def explore(page: Any, what: str) -> None:
    """`tokens` and `layers`: each of them; `write`: write on; `click:SELECTOR`: each such element in turn."""
    kind, _, selector = what.partition(":")
    if kind == "click":
        for n in range(page.locator(selector).count()):
            one = page.locator(selector).nth(n)
            if not (one.is_visible() and one.is_enabled()):
                continue
            one.click()
            settle(page)
            if selector.startswith(".next"):  # a choice changes the text: take it back
                page.go_back()
                settle(page)
    elif kind == "write":
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("button:has-text('Stop')")
        page.wait_for_selector("button:has-text('Write on'):enabled")
        settle(page)
    else:
        key = {"tokens": "ArrowLeft", "layers": "ArrowDown"}[kind]
        for _ in range(24):
            before = page.url
            page.keyboard.press(key)
            settle(page)
            if page.url == before:
                break


def settle(page: Any) -> None:
    """Wait until the page asks for nothing any more; it begins to ask a moment after a change."""
    page.evaluate(QUIET)
    page.wait_for_selector(".figure.waiting", state="detached")


if __name__ == "__main__":
    main()
