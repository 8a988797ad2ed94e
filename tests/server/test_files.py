"""`/v1/files`: what is kept, what is refused, and that no name becomes a path."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import openai
import pytest
from serving import Running, serving, tiny_model

from glassformer.server import files as module
from glassformer.server.errors import ApiError
from glassformer.server.files import FILE_ID, FileStore, plain_name

DECOY = {"filename": "x", "bytes": 9, "created_at": 1, "examples": 1}
LINE = b'{"text": "Once upon a time."}\n'


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that keeps small files."""
    home = tmp_path_factory.mktemp("home")
    with serving({"tiny": tiny_model()}, home=home, most_file=10_000, most_files=40_000) as running:
        running.home = home  # type: ignore[attr-defined]
        yield running


def upload(server: Running, content: bytes = LINE, *, name: str = "a.jsonl", **fields: str) -> httpx.Response:
    """Send a file as a browser would."""
    return server.client.post(
        "/v1/files", files={"file": (name, content)}, data={"purpose": "fine-tune"} | fields
    )


def in_folder(server: Running) -> set[str]:
    """The names of all files in the store."""
    return {path.name for path in (server.home / "files").iterdir()}  # type: ignore[attr-defined]


def test_the_life_of_a_file(kept: Running) -> None:
    """By the official client: kept as it was sent, listed in pages, gone when it is deleted."""
    client = openai.OpenAI(base_url=f"{kept.url}/v1", api_key="none", max_retries=0)
    content = LINE * 3
    made = [client.files.create(file=(f"{n}.jsonl", content), purpose="fine-tune") for n in range(3)]
    assert FILE_ID.fullmatch(made[0].id)
    assert (made[0].filename, made[0].bytes, made[0].status) == ("0.jsonl", len(content), "processed")
    assert client.files.wait_for_processing(made[0].id).id == made[0].id
    assert client.files.retrieve(made[1].id) == made[1]
    assert client.files.content(made[1].id).read() == content
    listed = list(client.files.list(limit=2, order="asc"))  # the client asks for the second page
    assert {one.id for one in made} <= {one.id for one in listed}
    assert len({one.id for one in listed}) == len(listed)
    assert [one.id for one in client.files.list(order="desc").data] == [one.id for one in listed][::-1]
    assert client.files.list(purpose="batch").data == []
    for one in made:
        assert client.files.delete(one.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made[0].id)
    assert not any(one.id in name for one in made for name in in_folder(kept))


@pytest.mark.parametrize("name", [
    "../../../etc/passwd", "..\\..\\windows\\win.ini", "/etc/passwd", "C:\\x", "a\0b", "..", "file-" + "0" * 24, "💥" * 300,
])  # fmt: skip
def test_names_are_never_paths(kept: Running, name: str) -> None:
    """They are texts: the folder has a file of our own making, and the other files are as they were."""
    before = in_folder(kept)
    made = upload(kept, name=name).json()
    assert in_folder(kept) - before == {f"{made['id']}.jsonl", f"{made['id']}.json"}
    assert not {"/", "\\", "\0"} & set(made["filename"])
    assert len(made["filename"]) <= 255
    assert kept.client.delete(f"/v1/files/{made['id']}").status_code == 200
    assert plain_name("../a/b.jsonl") == "b.jsonl"
    assert plain_name("a/") == "unnamed"


@pytest.mark.parametrize("id", [
    "../x", "..%2fx", "..", "%2e%2e", "file-" + "0" * 24, "file-" + "0" * 23, "%00", "file-*", "~root", "/etc/passwd", "a" * 5000,
])  # fmt: skip
def test_ids_that_are_none(kept: Running, id: str) -> None:
    """One answer to all of them, whatever there is at such a path."""
    (kept.home / "files").mkdir(exist_ok=True)  # type: ignore[attr-defined]
    for name, content in (("x.json", json.dumps(DECOY)), ("x.jsonl", LINE.decode())):
        (kept.home / name).write_text(content)  # type: ignore[attr-defined]
    answers = {kept.get(f"/v1/files/{id}").status_code, kept.client.delete(f"/v1/files/{id}").status_code}
    assert answers <= {404, 405}  # what a client has made of .. is another path
    wanted = {"model": "tiny", "training_file": unquote(id)}
    answer = kept.post("/v1/fine_tuning/jobs", wanted)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "training_file: there is no such file"


@pytest.mark.parametrize(("content", "fields", "param", "why"), [
    (LINE + b"{}\n", {}, "file", "line 2: it needs messages"),
    (LINE + b'{"messages": [{"role": "user", "content": "a"}]}', {}, "file", "line 2: messages has no answer"),
    (b"", {}, "file", "no lines"),
    (LINE, {"purpose": "assistants"}, "purpose", "'fine-tune', not 'assistants'"),
    (LINE, {"purpose": "x" * 5000}, "purpose", "longer than"),
    (LINE, {"expires_after[anchor]": "created_at"}, "expires_after", "until it is deleted"),
])  # fmt: skip
def test_what_is_refused(kept: Running, content: bytes, fields: dict[str, str], param: str, why: str) -> None:
    """The field is named, and the line; nothing is left of it."""
    before = in_folder(kept) if (kept.home / "files").is_dir() else set()  # type: ignore[attr-defined]
    answer = upload(kept, content, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert why in error["message"]
    assert in_folder(kept) == before


def test_forms_that_are_none(kept: Running) -> None:
    """A file twice, none, a field in its place; JSON; a form elsewhere; packed."""
    two = [("file", ("a", LINE)), ("file", ("b", LINE))]
    answers = [
        kept.client.post("/v1/files", files=two, data={"purpose": "fine-tune"}),
        kept.client.post("/v1/files", files={"purpose": (None, "fine-tune")}),
        kept.client.post("/v1/files", files={"file": (None, "text"), "purpose": (None, "fine-tune")}),
        kept.client.post(
            "/v1/files", content=b"--a\r\n", headers={"Content-Type": "multipart/form-data; boundary=a"}
        ),
        kept.client.post("/v1/files", content=b"", headers={"Content-Type": "multipart/form-data"}),
    ]
    assert [answer.status_code for answer in answers] == [400] * 5
    words = ["given twice", "file: is missing", "with a file name", "last boundary", "with a boundary"]
    for answer, word in zip(answers, words, strict=True):
        assert word in answer.json()["error"]["message"]
    assert kept.post("/v1/files", {"file": "a"}).status_code == 400
    assert kept.client.post("/v1/completions", files={"file": ("a", LINE)}).status_code == 415
    packed = kept.client.post("/v1/files", files={"file": ("a", LINE)}, headers={"Content-Encoding": "gzip"})
    assert packed.status_code == 415


def test_pages_of_others_cannot_upload(kept: Running) -> None:
    """A browser sends a form to anybody, without asking; its Origin is refused before the body is read."""
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        sent = kept.client.post("/v1/files", files={"file": ("a", LINE)}, headers=headers)
        assert (sent.status_code, sent.json()["error"]["code"]) == (403, "bad_origin")


def test_sizes(kept: Running) -> None:
    """Of one file, of all files, and of a body that never ends; the client hears the answer."""
    large = upload(kept, LINE * 400)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "file_too_large")
    with socket.create_connection(("127.0.0.1", kept.port), timeout=20) as connection:
        head = f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:{kept.port}\r\nContent-Length: {10**12}\r\n"
        connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=a\r\n\r\n".encode())
        answer = connection.makefile("rb").read()  # to the end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in answer
    made = []
    while (full := upload(kept, LINE * 300)).status_code == 200:
        made.append(full.json()["id"])
    assert len(made) == 5
    assert full.json()["error"]["code"] == "storage_full"
    for id in made:
        kept.client.delete(f"/v1/files/{id}")
    assert upload(kept).status_code == 200


def test_an_endless_body_is_left(kept: Running) -> None:
    """Without a length: after a few times what a file may have, the connection is closed."""
    with socket.create_connection(("127.0.0.1", kept.port), timeout=20) as connection:
        head = f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:{kept.port}\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=a\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 10_000:
                connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                sent += 1
        except OSError:  # reset, or a broken pipe
            pass
    assert sent < 10_000
    assert kept.get("/health").status_code == 200


def test_a_client_that_leaves_keeps_nothing(kept: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """And the server goes on, without a word."""
    before = in_folder(kept)
    with socket.create_connection(("127.0.0.1", kept.port), timeout=20) as connection:
        head = f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:{kept.port}\r\nContent-Length: 5000\r\n"
        form = 'Content-Type: multipart/form-data; boundary=a\r\n\r\n--a\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        connection.sendall(f"{head}{form}half".encode())
    assert upload(kept).status_code == 200
    left = {name for name in in_folder(kept) - before if name.startswith(".upload")}
    assert not left
    assert "Traceback" not in capfd.readouterr().err


def test_many_at_once(kept: Running) -> None:
    """Each is kept whole."""
    made: list[Any] = []
    texts = [json.dumps({"text": f"number {n} " * 20}).encode() for n in range(8)]
    threads = [
        threading.Thread(target=lambda one=one: made.append((one, upload(kept, one)))) for one in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, answer in made:
        assert kept.get(f"/v1/files/{answer.json()['id']}/content").content == text


def test_a_page_that_does_not_exist(kept: Running) -> None:
    """An id that is not in the list, and limits out of range."""
    assert kept.get("/v1/files?after=file-1").json()["error"]["param"] == "after"
    assert kept.get("/v1/files?limit=0").json()["error"]["param"] == "limit"
    assert kept.get("/v1/files?order=sideways").json()["error"]["param"] == "order"


def test_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk before it has a name; half a file is none; what was abandoned is removed; there is an end."""
    synced = list[str]()
    monkeypatch.setattr(module, "sync", lambda path: synced.append(path.name))
    store = FileStore(tmp_path, most=10**6)
    upload = store.begin()
    upload.write_text('{"text": "Once"}')
    kept = store.keep(upload, "a")
    assert synced == [upload.name]
    old, fresh = tmp_path / ".upload-old", tmp_path / ".upload-new"
    for one in (old, fresh):
        one.touch()
    os.utime(old, (0, 0))
    store.begin()
    assert (old.exists(), fresh.exists()) == (False, True)
    monkeypatch.setattr(module, "MOST_FILES", 1)
    with pytest.raises(ApiError, match="delete some"):
        store.begin()
    store.path(kept.id).unlink()
    assert store.find(kept.id) is None
    assert store.list() == []


def test_without_a_home_nothing_is_offered(server: Running) -> None:
    """The reason is said, for uploads too."""
    answers = [
        upload(server),
        server.get("/v1/files"),
        server.get("/v1/fine_tuning/jobs"),
        server.post("/v1/fine_tuning/jobs", {"model": "tiny", "training_file": "file-1"}),
        server.client.delete("/v1/models/tiny"),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert all(answer.json()["error"]["code"] == "jobs_off" for answer in answers)
