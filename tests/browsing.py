"""A browser for tests: Chromium, watched for everything that must not happen on a page."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STATIC = Path(str(resources.files("glassformer.server") / "static"))
MARKS = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which the page would be opened"),
    pytest.mark.skipif(
        not (STATIC / "index.html").is_file(), reason="the studio's page is not built: make page"
    ),
    pytest.mark.xdist_group("browser"),
]


def in_browser(test: Any) -> Any:
    """Mark a test that opens a page of the studio; those of a whole file have `pytestmark = MARKS`."""
    for mark in MARKS:
        test = mark(test)
    return test


@contextmanager
def chromium(*args: str) -> Iterator[Any]:
    """A browser that runs until the block ends."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed, which drives the browser"
    )
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", *args])
        yield started
        started.close()


def watch(page: Any, *, allowed: Callable[[str], bool]) -> list[str]:
    """What happens on a page that must not: errors, broken rules, dialogs, requests that are not allowed."""
    troubles: list[str] = []

    def asked(request: Any) -> None:
        if not allowed(request.url):
            troubles.append(f"asked for {request.url}")

    def noted(message: Any) -> None:
        if message.type != "log":
            troubles.append(message.text)

    def spoke(dialog: Any) -> None:
        troubles.append(f"said {dialog.message}")
        dialog.dismiss()

    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", noted)
    page.on("dialog", spoke)
    page.on("request", asked)
    return troubles


def tags(page: Any) -> set[str]:
    """The kinds of elements that a page is made of."""
    return set(page.evaluate("[...new Set([...document.querySelectorAll('*')].map((one) => one.localName))]"))
