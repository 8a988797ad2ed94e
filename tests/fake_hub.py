"""A hub on loopback for tests: it has one model, `owner/tiny`, and answers what a download needs."""

import contextlib
import hashlib
import http.server
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from small import small_model, small_tokenizer

from glassformer.hub.folder import save_folder

LARGE = 40_000  # bytes of a file that waits at the gate
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """The three answers of the hub that a download needs."""

    files: dict[str, bytes]
    lies: bool
    asked: list[str]
    gate: threading.Event  # while it is not set, the second half of the weights waits
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        self.asked.append(self.path)
        info = re.fullmatch(r"/api/models/owner/tiny(?:/revision/[^/]+)?(?:\?.*)?", self.path)
        tree = re.fullmatch(r"/api/models/owner/tiny/tree/[^/]+(?:\?.*)?", self.path)
        file = re.fullmatch(r"/owner/tiny/resolve/[^/]+/([^?]+)(?:\?.*)?", self.path)
        if info:
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            self.send(
                json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": siblings}).encode(),
                body,
                "application/json",
            )
        elif tree:
            rows = [
                {"type": "file", "path": n, "size": len(d), "oid": hashlib.sha1(d).hexdigest()}
                for n, d in self.files.items()
            ]
            self.send(json.dumps(rows).encode(), body, "application/json")
        elif file and file[1] in self.files:
            data = self.files[file[1]]
            large = file[1].endswith(".safetensors")
            etag = (hashlib.sha256 if large else hashlib.sha1)(data).hexdigest()
            if self.lies and large:
                data = data[:-1] + bytes([data[-1] ^ 1])
            self.send(data, body, "application/octet-stream", etag)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def send(self, data: bytes, body: bool, kind: str, etag: str = "x") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            half = len(data) // 2
            self.wfile.write(data[:half])
            if kind == "application/octet-stream" and len(data) > LARGE:
                self.wfile.flush()
                self.gate.wait(60)
            with contextlib.suppress(OSError):  # the client may be gone by now
                self.wfile.write(data[half:])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_hub(place: Path) -> Iterator[tuple[type[Hub], dict[str, str]]]:
    """A hub with one model in it, and the environment that points there."""
    tokenizer = small_tokenizer(300)
    save_folder(place / "source", small_model(vocab=300), tokenizer=tokenizer)

    class Served(Hub):
        files = {path.name: path.read_bytes() for path in (place / "source").iterdir()}  # noqa: RUF012
        lies = False
        asked: list[str] = []  # noqa: RUF012
        gate = threading.Event()

    Served.gate.set()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(place / "hf")}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        yield Served, environment
    finally:
        Served.gate.set()
        server.shutdown()
        server.server_close()
