"""Take the studio's pictures and its short recording: `python docs/studio_pictures.py` (a built page, Chromium).

The recording writes a story token by token, each the one that a person might choose, and then looks at where
its last token looked. It is an animated WebP, which every browser plays.
"""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

DOCS = Path(__file__).parent
ROBOT = "A robot must obey the orders given it"
DOG = "Once upon a time, a little dog found a"
CHOICES = [2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]  # the n-th likeliest token, time after time
SIZE: Any = {"width": 1080, "height": 660}
WIDE = 900  # pixels of the recording
STEP, REST = 420, 1400  # milliseconds that a frame is shown: a token, and what one should look at


def main() -> None:
    """Start the studio and take every picture."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "glassformer", "studio", "--no-open", "--json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for theme in ("light", "dark"):
                page = browser.new_page(viewport=SIZE, color_scheme=theme)
                page.goto(url)
                stills(page, url.partition("#")[0], theme)
                if theme == "light":
                    record(page, url.partition("#")[0])
            browser.close()
    finally:
        process.terminate()
        process.wait(30)


def settle(page: Any) -> None:
    """Wait until everything that the page shows is of what it is about."""
    page.wait_for_selector(".dot.ready", timeout=120_000)
    page.wait_for_timeout(350)
    page.wait_for_load_state("networkidle")
    page.wait_for_selector(".figure.waiting", state="detached", timeout=120_000)


def stills(page: Any, base: str, theme: str) -> None:
    """Write, in both themes; Attention, in the light one."""
    page.goto(f"{base}?view=write&text={quote(ROBOT)}")
    settle(page)
    page.screenshot(path=DOCS / ("studio.png" if theme == "light" else "studio-dark.png"))
    if theme == "light":
        page.goto(f"{base}?view=attention&text={quote(ROBOT)}&l=4&h=1")
        settle(page)
        page.screenshot(path=DOCS / "studio-attention.png")


def record(page: Any, base: str) -> None:
    """A story, then its attention."""
    frames: list[tuple[Image.Image, int]] = []

    def take(shown: int) -> None:
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        high = round(WIDE * picture.height / picture.width)
        frames.append((picture.resize((WIDE, high), Image.Resampling.LANCZOS), shown))

    page.goto(f"{base}?view=write&text={quote(DOG)}")
    settle(page)
    take(REST)
    for choice in CHOICES:
        page.locator(".next li button").nth(choice - 1).hover()
        page.locator(".next li button").nth(choice - 1).click()
        settle(page)
        take(STEP)
    take(REST)
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_selector("#said:has-text('gives')")
    settle(page)
    take(REST)
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
        settle(page)
        take(STEP * 2)
    pictures, times = zip(*frames, strict=True)
    first, *others = pictures
    first.save(
        DOCS / "studio.webp",
        save_all=True,
        append_images=others,
        duration=list(times),
        loop=0,
        quality=72,
        method=6,
    )


if __name__ == "__main__":
    main()
