"""How fast the studio is in a browser: `python benchmarks/studio.py` (Chromium, Playwright, a built page).

First paint, first live view, page changes, hovering, a long text, and frames while a text is written.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any
from urllib.parse import quote

LONG = "Once upon a time there was a little girl who lived near the sea. " * 30
FRAMES = """() => new Promise((done) => {
  const times = []; let last = performance.now();
  const tick = (now) => { times.push(now - last); last = now; times.length < 60 ? requestAnimationFrame(tick) : done(times); };
  requestAnimationFrame(tick);
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"


def shown(name: str, value: float, aim: float) -> None:
    """One line of the report, in milliseconds."""
    print(f"{name:<52} {value:8.0f} ms   aim {aim:.0f}")


def until(page: Any, selector: str) -> float:
    """Milliseconds until something is there."""
    begun = time.perf_counter()
    page.wait_for_selector(selector, timeout=120_000)
    return (time.perf_counter() - begun) * 1000


def measure(page: Any, url: str) -> None:
    """All figures, on a page that is open."""
    base = url.partition("#")[0]
    paints = []
    for _ in range(5):
        page.goto(base)
        page.wait_for_selector(".next li .share")
        paints.append(page.evaluate(PAINT))
    shown("first paint", statistics.median(paints), 200)
    page.wait_for_selector(".dot.ready")
    page.keyboard.press("g")
    page.keyboard.press("a")
    shown("attention of 11 tokens, first view", until(page, "#one + p:has-text('gives')"), 1000)
    changes = []
    for key, selector in (
        ("w", ".strip"),
        ("t", "#pieces"),
        ("a", "#heads"),
        ("w", ".strip"),
        ("a", "#heads"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        changes.append(until(page, selector))
    shown("page change", statistics.median(changes), 150)
    moves = []
    for at in range(8):
        begun = time.perf_counter()
        page.locator(".flow .side button").nth(at).dispatch_event("pointerenter")
        moves.append((time.perf_counter() - begun) * 1000)
    shown("hover, with the driver's own time", statistics.median(moves), 16)
    page.goto(f"{base}?view=write&text={quote(LONG)}")
    shown("a text of 450 tokens is read", until(page, ".strip .column:nth-child(400)"), 3000)
    page.goto(base)
    page.wait_for_selector(".dot.ready")
    page.locator("input[type=number]").fill("300")
    page.keyboard.press("Control+Enter")
    shown("slowest of 60 frames while a text is written", max(page.evaluate(FRAMES)), 17)


def main() -> None:
    """Start the studio and a browser, and measure."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "glassformer", "studio", "--no-open", "--json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_context(bypass_csp=True, viewport={"width": 1280, "height": 900}).new_page()
            page.goto(url)
            page.wait_for_selector(".dot.ready", timeout=120_000)
            measure(page, url)
            browser.close()
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
