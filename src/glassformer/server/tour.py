"""`glass studio --demo`: a tour of the studio as a folder of plain files, with no server behind it.

The page is the studio's own. What it would ask a server was recorded (`tour.json`, by `studio/record.py`);
here those requests are put to the real server, inside this process, and its answers are written beside the
page.
"""

import asyncio
import base64
import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from glassformer.durable import replace_file
from glassformer.errors import GlassError, InputError
from glassformer.server.app import make_app
from glassformer.server.pages import SHARED_RULES, built_folder
from glassformer.server.shelf import Load
from glassformer.server.studio import Studio

Advance = Callable[[int, int], None]
Answer = dict[str, Any]
WIDTHS = (860, 560, 420, 320)  # of the layouts of a picture that the page chooses from
MARK = "a recorded tour of Glassformer"
# A page's own files, also where it is opened from a disk; it sends no request, so there is no connect-src.
RULES = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' file:",
        "style-src 'self' file:",
        "img-src 'self' file: data: blob:",
        "font-src data:",
        *SHARED_RULES,
    ]
)
INDEX = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="{MARK}">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{escape(RULES, quote=True)}">
<title>Glassformer: a tour</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="tour.css">
</head>
<body>
<div id="app"></div>
<noscript>The tour needs JavaScript.</noscript>
<script src="answers.js"></script>
<script src="tour.js"></script>
</body>
</html>
"""


@dataclass(frozen=True)
class Script:
    """What is asked: the stops of the tour, and the requests that its page makes on the way."""

    stops: list[dict[str, Any]]
    requests: list[dict[str, Any]]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the tour; the page begins with the first."""
        return tuple(dict.fromkeys(stop["place"]["model"] for stop in self.stops))


def script() -> Script:
    """The tour that ships."""
    source = resources.files("glassformer.server") / "tour.json"
    return Script(**json.loads(source.read_text(encoding="utf-8")))


def check_folder(folder: Path) -> None:
    """Refuse a folder that has something else in it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--demo: {folder} is a file, not a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    index = folder / "index.html"
    if not index.is_file() or MARK not in index.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"--demo: {folder} is not empty and holds no earlier tour; name a new folder")


def write(folder: Path, *, load: Load, advance: Advance = lambda done, total: None) -> int:
    """Compute the tour's answers and write it into a folder, which may hold an earlier one; its bytes."""
    check_folder(folder)
    page = _files(built_folder() / "tour", "")
    asked = script()
    answers = asyncio.run(_answers(asked, load=load, advance=advance))
    packed = gzip.compress(
        json.dumps(answers, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0
    )
    data = json.dumps({"stops": asked.stops, "answers": base64.b64encode(packed).decode()})
    files = {**page, "answers.js": f"globalThis.glassTour = {data};\n".encode(), "index.html": INDEX.encode()}
    try:
        for path, content in files.items():  # the index last: it is what says that the folder is a tour
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folder / path, content)
    except OSError as error:
        raise InputError(f"--demo: {folder} cannot be written: {error.strerror}") from None
    return sum(map(len, files.values()))


def _files(folder: Traversable, before: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for one in folder.iterdir():
        if one.is_dir():
            found |= _files(one, f"{before}{one.name}/")
        else:
            found[before + one.name] = one.read_bytes()
    return found


# Asking the server in this process


async def _answers(asked: Script, *, load: Load, advance: Advance) -> dict[str, Answer]:
    """Every answer by what the page asks for it."""
    studio = Studio(load, first=asked.models, files={})
    settings = studio.settings(port=8765)
    app = make_app(settings, {}, studio=studio)
    ask = Asker(app, host=f"127.0.0.1:{settings.port}", key=studio.door.token)
    steps = len(asked.requests) + len(asked.models)
    async with app.router.lifespan_context(app):
        found = {"/studio/status": {"json": await _loaded(ask, lambda done: advance(done, steps))}}
        listing = (await ask("/studio/models"))["json"]
        found["/studio/models"] = {"json": _only(listing, asked.models)}
        for n, request in enumerate(asked.requests):
            path, body = request["path"], request["body"]
            found[_key(path, body)] = await _asked(ask, path, body)
            advance(len(asked.models) + n + 1, steps)
    return found


async def _loaded(ask: "Asker", advance: Callable[[int], None]) -> dict[str, Any]:
    """Wait until all models are ready; their statuses."""
    while True:
        status: dict[str, Any] = (await ask("/studio/status"))["json"]
        stages = [one["stage"] for one in status["statuses"]]
        failed = next((one for one in status["statuses"] if one["stage"] == "failed"), None)
        if failed is not None:
            raise GlassError(f"{failed['name']} could not be loaded: {failed['error']}")
        advance(stages.count("ready"))
        if all(stage == "ready" for stage in stages):
            return status
        await asyncio.sleep(0.1)


def _only(listing: dict[str, Any], models: tuple[str, ...]) -> dict[str, Any]:
    """The list of models without what else is on the machine that made the tour."""
    return {**listing, "models": [one for one in listing["models"] if one["name"] in models]}


def _key(path: str, body: Mapping[str, Any]) -> str:
    """As the page writes it: neither the width of a picture nor a seed is part of it."""
    rest = {name: value for name, value in body.items() if name not in ("width", "seed")}
    return f"{path} {json.dumps(rest, ensure_ascii=False, separators=(',', ':'))}"


async def _asked(ask: "Asker", path: str, body: Mapping[str, Any]) -> Answer:
    """An answer; a picture in several widths, since no server lays it out for the one that is needed."""
    answer = await ask(path, body)
    found = answer.get("json")
    if not isinstance(found, dict) or not {"view", "layouts"} <= set(found):
        return answer
    laid: dict[float, Any] = {}  # by their widths, the widest first; narrow pictures have but one
    for width in WIDTHS:
        for layout in (await ask(path, {**body, "width": width}))["json"]["layouts"]:
            laid.setdefault(layout["width"], layout)
    return {"json": {**found, "layouts": list(laid.values())}}


@dataclass(frozen=True)
class Asker:
    """Requests to an application without a socket."""

    app: FastAPI
    host: str
    key: str

    async def __call__(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer as JSON, as the events of a stream, or as bytes; an error if it was refused."""
        content = b"" if body is None else json.dumps(body).encode()
        status, headers, found = await self._send("GET" if body is None else "POST", path, content)
        if status >= 300:
            raise GlassError(f"the tour's {path} was refused: {found.decode(errors='replace')[:300]}")
        kind = headers["content-type"].partition(";")[0]
        if kind == "application/json":
            return {"json": json.loads(found)}
        if kind == "text/event-stream":
            return {"events": [event for event in found.decode().split("\n\n") if event]}
        return {"bytes": base64.b64encode(found).decode(), "shape": headers.get("x-shape", "")}

    async def _send(self, method: str, path: str, content: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {"host": self.host, "authorization": f"Bearer {self.key}"}
        if content:
            headers |= {"content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        arriving = [{"type": "http.request", "body": content, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if not arriving:
                await asyncio.Event().wait()  # a client that stays
            return arriving.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # Ctrl-C: the application turned that into an answer
            raise asyncio.CancelledError
        answered = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], answered, b"".join(part.get("body", b"") for part in sent[1:])
