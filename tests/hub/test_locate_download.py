"""The hub, for real: the client library against a hub that this test serves on loopback."""

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small import small_model, small_tokenizer

from glassformer.hub.folder import save_folder
from glassformer.hub.known import KNOWN

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GLASS = [sys.executable, "-m", "glassformer.cli"]


class Hub(http.server.BaseHTTPRequestHandler):
    """The three answers of the hub that a download needs."""

    files: dict[str, bytes]
    lies: bool
    asked: list[str]
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
            siblings = [{"rfilename": name} for name in self.files]
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
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[type[Hub], dict[str, str]]]:
    """A hub with one model in it, and the environment that points there."""
    tokenizer = small_tokenizer(300)
    save_folder(tmp_path / "source", small_model(vocab=300), tokenizer=tokenizer)

    class Served(Hub):
        files = {path.name: path.read_bytes() for path in (tmp_path / "source").iterdir()}  # noqa: RUF012
        lies = False
        asked: list[str] = []  # noqa: RUF012

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "hf")}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    yield Served, environment
    server.shutdown()
    server.server_close()


def glass(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GLASS, *arguments], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_pull_use_list_and_remove(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """The life of a hub model on this machine; once it is here, the hub is not asked again."""
    served, environment = hub
    pulled = glass(environment, "pull", "owner/tiny")
    assert pulled.returncode == 0, pulled.stderr
    assert (Path(pulled.stdout.strip()) / "model.safetensors").is_file()
    asked = len(served.asked)
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    cut = glass(offline, "tokenize", "-m", "owner/tiny", "--ids", "Once upon")
    assert cut.returncode == 0, cut.stderr
    assert [int(id) for id in cut.stdout.split()] == small_tokenizer(300).encode("Once upon")
    assert len(served.asked) == asked
    assert glass(offline, "rm", "-y", "owner/tiny").returncode == 0
    assert "owner/tiny" not in glass(offline, "models").stdout


def test_a_flipped_bit_is_refused(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """Weights that do not hash to their name are removed, and the next pull is whole again."""
    served, environment = hub
    served.lies = True
    refused = glass(environment, "pull", "owner/tiny")
    assert refused.returncode == 2
    assert "sha256" in refused.stderr
    assert refused.stderr.count("glass:") == 1
    served.lies = False
    again = glass(environment, "pull", "owner/tiny")
    assert again.returncode == 0
    assert (Path(again.stdout.strip()) / "model.safetensors").read_bytes() == served.files[
        "model.safetensors"
    ]


def test_a_download_that_was_cut_off(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """What is missing of a revision is fetched by the next pull; offline it is not taken for the whole."""
    served, environment = hub
    folder = Path(glass(environment, "pull", "owner/tiny@v1.0").stdout.strip())
    assert any("v1.0" in path for path in served.asked)
    (folder / "model.safetensors").resolve().unlink()
    (folder / "model.safetensors").unlink()
    assert "not whole" in glass(environment | {"HF_HUB_OFFLINE": "1"}, "pull", "owner/tiny@v1.0").stderr
    assert glass(environment, "pull", "owner/tiny@v1.0").returncode == 0
    assert (folder / "model.safetensors").is_file()


def test_a_model_that_is_not_there(hub: tuple[type[Hub], dict[str, str]]) -> None:
    """The hub's refusal, in one sentence."""
    _, environment = hub
    refused = glass(environment, "pull", "owner/other")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "owner/other" in refused.stderr
    assert "404" in refused.stderr


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "from http://127.0.0.1:9 (nothing answers there); check"),
        ({"HF_ENDPOINT": "http://hub.invalid"}, "from http://hub.invalid (no network); check the name"),
        ({"HF_HUB_OFFLINE": "1"}, "switched off"),
    ],
)
def test_without_a_network(hub: tuple[type[Hub], dict[str, str]], change: dict[str, str], word: str) -> None:
    """What was tried and what to do, in one sentence."""
    _, environment = hub
    refused = glass(environment | change, "pull", "owner/tiny")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert word in refused.stderr


def test_a_known_model_under_its_short_name(tmp_path: Path, hub: tuple[type[Hub], dict[str, str]]) -> None:
    """Other tools keep `gpt2` as `gpt2`: what is in the cache is found, listed and removed all the same."""
    _, environment = hub
    snapshot = tmp_path / "hf" / "hub" / "models--gpt2" / "snapshots" / KNOWN["gpt2"].revision
    shutil.copytree(tmp_path / "source", snapshot)
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    (snapshot / "model.safetensors").rename(
        tmp_path / "weights"
    )  # as an older client leaves it when it is cut off
    assert "not whole" in glass(offline, "pull", "gpt2").stderr
    (tmp_path / "weights").rename(snapshot / "model.safetensors")
    assert Path(glass(offline, "pull", "gpt2").stdout.strip()) == snapshot
    assert glass(offline, "rm", "-y", "gpt2").returncode == 0
    assert not snapshot.exists()


def test_the_table_of_known_models() -> None:
    """Full revisions and hashes, no two alike, sizes that fit the parameter counts in fp32."""
    assert {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"} <= set(KNOWN)
    for model in KNOWN.values():
        assert re.fullmatch(r"[0-9a-f]{40}", model.revision)
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert len({model.sha256 for model in KNOWN.values()}) == len(KNOWN)
    assert 4 * 124_439_808 < KNOWN["gpt2"].size < 4 * 124_439_808 + 60e6  # the masks are in the file
