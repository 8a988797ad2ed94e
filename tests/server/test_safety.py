"""Who may ask, from where, with what key, and how much: everything else is refused in the API's own words."""

import http.client
import json
import secrets
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Running, serving, tiny_model, until

from glassformer import machine
from glassformer.server import safety
from glassformer.server.errors import ApiError
from glassformer.server.safety import canonical, check_json, depth
from glassformer.server.settings import Settings

BODY = {"model": "tiny", "prompt": "Once", "max_tokens": 1}


def raw(port: int, request: bytes, *, wait: float = 10) -> bytes:
    """What a server answers to bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def status_of(answer: bytes) -> int:
    """The status of a raw answer."""
    return int(answer.split(b" ", 2)[1])


def error_of(answer: Any) -> dict[str, Any]:
    """The error object; it must be complete, and the answer must have an id."""
    found: dict[str, Any] = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["message"]
    assert answer.headers["x-request-id"].startswith("req_")
    return found


FOREIGN_HOSTS = [
    "evil.example",
    "localhost.evil.com:{port}",
    "127.0.0.1.nip.io:{port}",
    "localhost:80@x",
    "0.0.0.0:{port}",
    "x.local:{port}",
    "localhost",
    "localhost:1",
    "127.1:{port}",
    "[::1]",
    "[::ffff:127.0.0.1]:{port}",
    "foo?",
    "127.0.0.1:{port}/",
    "127.0.0.1:{port}, evil.example",
    "2130706433:{port}",
    "",
    "localhost.:{port}",
    "localhost:{port}.",
    "localhost:0{port}",
    "localhost:+{port}",
    "localhost :{port}",
    "localhost\t:{port}",
    "local%68ost:{port}",
    "localhost%00:{port}",
    "user@localhost:{port}",
    "localhost:{port}@evil.example",
    "localhost:{port}#x",
    "localhost:{port}?x",
    "http://localhost:{port}",
    "//localhost:{port}",
    "127.0.0.2:{port}",
    "127.0.0.01:{port}",
    "0177.0.0.1:{port}",
    "0x7f.0.0.1:{port}",
    "[::]:{port}",
    "[0:0:0:0:0:0:0:1]:{port}",
    "::1:{port}",
    "[::1%25lo]:{port}",
    "ip6-localhost:{port}",
    "sub.localhost:{port}",
    "localhost.localdomain:{port}",
    "xn--localhost:{port}",
    "x" * 5000,
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused_on_every_route(server: Running, host: str) -> None:
    """DNS rebinding: a page under its own name reaches loopback, and is told nothing, not even whether a path exists."""
    some = [("GET", "/health"), ("GET", "/v1/models"), ("POST", "/v1/completions"), ("GET", "/nothing")]
    paths = server.app.openapi()["paths"].items()
    every = [(method.upper(), path) for path, methods in paths for method in methods]
    for method, path in every if host == "evil.example" else some:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host.format(port=server.port))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 403
        assert json.loads(answer.read())["error"]["code"] == "bad_host"
        connection.close()


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_our_names_pass(server: Running, host: str) -> None:
    """Exactly these."""
    assert server.get("/health", headers={"Host": host.format(port=server.port)}).status_code == 200


def test_no_host_and_two_hosts(server: Running) -> None:
    """HTTP/1.1 has one; which of two counts would be a guess."""
    ours = f"Host: localhost:{server.port}\r\n"
    for hosts in ("", ours + "Host: evil.example\r\n"):
        answer = raw(server.port, f"GET /health HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
        assert status_of(answer) == 400
        assert b'"error"' in answer


def test_a_websocket_of_a_foreign_page(server: Running) -> None:
    """There are none here; a foreign name is refused as everywhere."""
    more = "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n"
    answer = raw(server.port, f"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n{more}".encode())
    assert status_of(answer) == 403


def test_names_that_are_allowed() -> None:
    """A name behind a proxy, with or without a port; origins follow from names."""
    how = Settings(port=9, allow_hosts=("glass.example", "other.example:81"))
    assert {"glass.example", "glass.example:9", "other.example:81", "localhost:9"} <= how.hosts()
    assert not {"other.example", "localhost"} & how.hosts()
    assert {"https://glass.example", "http://localhost:9"} <= how.origins()
    assert "http://localhost" in Settings(port=80).origins()


@pytest.mark.parametrize("origin", [
    "http://evil.example",
    "null",
    "http://localhost.evil.com:{port}",
    "http://127.0.0.1.evil.com",
    "http://localhost:1",
    "http://localhost",
    "https://localhost:{port}",
    "file://",
    "",
    "http://evil.example:{port}",
    "http://127.0.0.1:1",
    "http://127.0.0.1",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}@evil.example",
    "http://user@localhost:{port}",
    "http://localhost:{port}/",
    "http://localhost:{port}/path",
    "http://localhost:{port}?x",
    "http://localhost:{port}#x",
    "http://localhost:{port} http://evil.example",
    "http://localhost:{port},http://evil.example",
    "http://localhost.:{port}",
    "http://sub.localhost:{port}",
    "http://0.0.0.0:{port}",
    "http://[::]:{port}",
    "http://127.1:{port}",
    "http://2130706433:{port}",
    "http://xlocalhost:{port}",
    "ws://localhost:{port}",
    "chrome-extension://abc",
    "localhost:{port}",
    "about:blank",
])  # fmt: skip
def test_pages_of_another_origin_do_no_work(server: Running, origin: str) -> None:
    """A page needs no readable answer to burn the processor: it is refused before anything starts."""
    before = len(server.lines)
    answer = server.post("/v1/completions", BODY, headers={"Origin": origin.format(port=server.port)})
    assert answer.status_code == 403
    assert error_of(answer)["code"] == "bad_origin"
    assert "access-control-allow-origin" not in answer.headers
    until(lambda: len(server.lines) > before)  # it is logged when the answer is sent
    assert "completion_tokens" not in server.lines[before]


def test_the_own_origin_passes_and_no_other_reads(server: Running) -> None:
    """Our own page may ask; nobody gets a header that lets others read."""
    answer = server.post("/v1/completions", BODY, headers={"Origin": f"http://localhost:{server.port}"})
    assert answer.status_code == 200
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert server.client.options("/v1/completions", headers=preflight).status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(("method", "path"), [
    ("DELETE", "/v1/models/tiny"),
    ("DELETE", "/v1/files/file-1"),
    ("DELETE", "/v1/traces/trace_1"),
    ("PUT", "/v1/completions"),
    ("PATCH", "/v1/completions"),
    ("OPTIONS", "/v1/completions"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models"),
    ("POST", "/v1/fine_tuning/jobs/ftjob-1/cancel"),
])  # fmt: skip
def test_pages_of_another_origin_have_no_method(server: Running, method: str, path: str) -> None:
    """None at all, whether the path exists or not."""
    for origin in ("http://evil.example", "null", f"http://localhost.evil.com:{server.port}"):
        answer = server.client.request(method, path, headers={"Origin": origin})
        assert answer.status_code == 403
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("headers", [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Mode": "no-cors"},
])  # fmt: skip
def test_other_sites_cannot_post(server: Running, headers: dict[str, str]) -> None:
    """What the browser says about the page."""
    assert server.post("/v1/completions", BODY, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_a_form_is_no_request(server: Running, kind: str | None) -> None:
    """What a page can send without asking first."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = server.client.post("/v1/completions", content=json.dumps(BODY).encode(), headers=headers)
    assert answer.status_code == 415
    assert "application/json" in error_of(answer)["message"]


def test_a_compressed_body_is_refused(server: Running) -> None:
    """It may be anything when it is unpacked."""
    answer = server.post("/v1/completions", BODY, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415


def test_safe_headers(server: Running) -> None:
    """On results and on errors."""
    for path in ("/v1/models", "/nothing"):
        headers = server.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


@pytest.fixture(scope="module")
def guarded() -> Any:
    """A server with a key."""
    with serving({"tiny": tiny_model()}, key="a key of the test") as running:
        yield running


def test_every_route_needs_the_key(guarded: Running) -> None:
    """Also one that is added later: the table of routes is read. Health alone is public."""
    paths = [(path, method.upper()) for path, one in guarded.app.openapi()["paths"].items() for method in one]
    assert len(paths) > 10
    for path, method in [
        *paths,
        ("/nothing", "GET"),
        ("/openapi.json", "GET"),
        ("/v1//models", "GET"),
        ("/v1/models/", "GET"),
    ]:
        answer = guarded.client.request(method, path.replace("{model}", "tiny"), json={})
        public = path in ("/health", "/v1/health") and method in ("GET", "HEAD")
        assert (answer.status_code == 401) == (not public), (method, path)


@pytest.mark.parametrize("headers", [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Bearer a key of the tesT"},
    {"Authorization": "Bearer"},
    {"Authorization": "a key of the test"},
    {"Authorization": "Basic a key of the test"},
    {"x-api-key": "wrong"},
    {"x-api-key": ""},
    {"api-key": "wrong"},
    {"x-api-key": "wrong", "Authorization": "Bearer a key of the test"},
    {"Cookie": "key=a key of the test"},
])  # fmt: skip
def test_a_wrong_key(guarded: Running, headers: dict[str, str]) -> None:
    """The same decision for every carrier."""
    answer = guarded.get("/v1/models?api_key=a key of the test", headers=headers)
    assert answer.status_code == 401
    assert error_of(answer)["type"] == "authentication_error"


@pytest.mark.parametrize("headers", [
    {"Authorization": "Bearer a key of the test"},
    {"authorization": "bearer a key of the test"},
    {"x-api-key": "a key of the test"},
    {"api-key": "a key of the test"},
])  # fmt: skip
def test_the_right_key(guarded: Running, headers: dict[str, str]) -> None:
    """In any of the headers that clients use."""
    assert guarded.get("/v1/models", headers=headers).status_code == 200


def test_keys_are_compared_in_constant_time(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A near miss takes as long as any other: what is compared has one length, and by the function made for that."""
    compared: list[tuple[bytes, bytes]] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return secrets.compare_digest(one, other)

    assert safety.hmac.compare_digest is secrets.compare_digest
    monkeypatch.setattr(safety, "hmac", SimpleNamespace(compare_digest=noted))
    keys = [
        "a",
        "a key of the tes",
        "a key of the tesT",
        "a key of the test",
        "a key of the test and more",
    ]
    statuses = []
    for key in keys:
        for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}, {"api-key": key}):
            statuses.append(guarded.get("/v1/models", headers=headers).status_code)
    assert statuses == [200 if key == "a key of the test" else 401 for key in keys for _ in range(3)]
    assert len(compared) == len(statuses)
    for one, other in compared:
        assert (type(one), len(one), type(other), len(other)) == (bytes, 32, bytes, 32)
    assert len({one for one, _ in compared}) == len(keys)  # the whole key counts


def test_too_large_a_body(server: Running) -> None:
    """By what its header says, and by what arrives."""
    large = b'{"prompt": "' + b"a" * (4 << 20) + b'"}'
    said = server.client.post("/v1/completions", content=large, headers={"Content-Type": "application/json"})
    assert said.status_code == 413
    assert error_of(said)["code"] == "body_too_large"
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Type: application/json\r\n"
    begun = time.monotonic()
    assert status_of(raw(server.port, f"{head}Content-Length: {1 << 30}\r\n\r\n".encode())) == 413
    assert time.monotonic() - begun < 5  # nobody waits for a gigabyte
    chunk = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            connection.sendall(chunk)
        assert status_of(connection.recv(4096)) == 413


@pytest.mark.parametrize("size", ["-1", "1e3", "0x10", "5, 6"])
def test_a_content_length_that_is_no_number(server: Running, size: str) -> None:
    """Refused, not guessed at."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Length: {size}\r\n\r\n"
    answer = raw(server.port, head.encode())
    assert status_of(answer) == 400
    assert b'"error"' in answer


def test_too_large_headers(server: Running) -> None:
    """One header of a megabyte, and many small ones."""
    begin = f"GET /health HTTP/1.1\r\nHost: localhost:{server.port}\r\nConnection: close\r\n".encode()
    large, many = b"X-Large: " + b"a" * 100_000, b"X-Small: a\r\n" * 10_000
    for more in (large + b"\r\n\r\n", many + b"\r\n"):  # complete
        assert status_of(raw(server.port, begin + more)) == 431
    for more in (b"X-Large: " + b"a" * (1 << 20), many):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            try:
                connection.sendall(begin + more)
                answer = connection.recv(4096)
            except (BrokenPipeError, ConnectionResetError):  # it left while we were still sending
                continue
            assert status_of(answer) == 431


def test_slow_senders_are_left(server: Running) -> None:
    """Headers or a body that do not come."""
    with serving({"tiny": tiny_model()}, slow_sender=0.3) as impatient:
        begun = time.monotonic()
        assert raw(impatient.port, b"GET /health HTTP/1.1\r\nHost: loc") == b""
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{impatient.port}\r\nContent-Type: application/json\r\n"
        assert status_of(raw(impatient.port, f"{head}Content-Length: 10\r\n\r\n{{".encode())) == 408
        whole = f"GET /health HTTP/1.1\r\nHost: localhost:{impatient.port}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=10) as connection:
            connection.sendall(whole)
            answer = b""
            while b'"ok"' not in answer:
                answer += connection.recv(65536)
            connection.sendall(whole[:20])  # a later request is no different from the first
            assert connection.recv(65536) == b""
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize("body", [
    b"",
    b"{",
    b'{"model": "tiny", "temperature": NaN}',
    b'{"model": "tiny", "temperature": Infinity}',
    b'{"model": "tiny", "temperature": 1e999}',
    b'{"model": "tiny", "max_tokens": ' + b"9" * 5000 + b"}",
    b'{"model": "tiny", "prompt": "\xff"}',
    b"\xef\xbb\xbf{}",
    b'{"model": "tiny", "prompt": "\\ud800"}',
    b'{"model": "\\ud800", "prompt": "a"}',
    b'{"model": "tiny", "logit_bias": {"\\udc00": 1}}',
    b"[" * 100_000,
    b'{"a":' * 70 + b"1" + b"}" * 70,
    b"[]",
    b"null",
    '{"model": "tiny"}'.encode("utf-16"),
])  # fmt: skip
def test_what_is_no_request(server: Running, body: bytes) -> None:
    """A 400 with the reason; the server goes on."""
    answer = server.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    error_of(answer)
    assert server.post("/v1/completions", BODY).status_code == 200


HOSTILE: dict[str, bytes] = {
    "n": b'"n": 1000000',
    "stops": b'"stop": [' + b'"a",' * 99_999 + b'"a"]',
    "prompts": b'"prompt": [' + b'"a",' * 99_999 + b'"a"]',
    "ids": b'"prompt": [' + b"1," * 999_999 + b"1]",
    "biases": b'"logit_bias": {' + b",".join(b'"%d": 1' % id for id in range(50_257)) + b"}",
    "characters": b'"prompt": "' + b"a" * (4_000_000) + b'"',
    "nesting": b'"explain": ' + b"[" * 100_000,
    "number": b'"max_tokens": ' + b"9" * 3_900_000,
    "minus": b'"max_tokens": -1',
    "large": b'"seed": 9223372036854775808',
    "exponent": b'"temperature": 1e999',
    "nan": b'"temperature": NaN',
    "bool": b'"max_tokens": true',
    "surrogates": b'"prompt": "' + b"\\ud800" * 100_000 + b'"',
    "parts": b'"messages": [{"role": "user", "content": [' + b"1," * 999_999 + b"1]}]",
    "mixed": b'"prompt": ["a",' + b"1," * 99_999 + b"1]",
    "fields": b",".join(b'"field%d": 1' % n for n in range(200_000)),
}


@pytest.mark.slow
def test_hostile_bodies_are_refused_at_once(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """Each in a tenth of a second on a quiet machine, while others are answered; and no memory is kept."""
    times: dict[str, float] = {}
    for name, field in HOSTILE.items():
        body = b'{"model": "tiny", "max_tokens": 0, ' + field + (b"" if name == "nesting" else b"}")
        took = []
        path = "/v1/chat/completions" if name == "parts" else "/v1/completions"
        for _ in range(3):
            begun = time.monotonic()
            answer = server.client.post(path, content=body, headers={"Content-Type": "application/json"})
            took.append(time.monotonic() - begun)
            assert answer.status_code == 400, (name, answer.text)
            error_of(answer)
        times[name] = min(took)
    before = machine.resident()
    for field in HOSTILE.values():
        server.client.post(
            "/v1/completions", content=b"{" + field, headers={"Content-Type": "application/json"}
        )
    grown = machine.resident() - before
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {1000 * took:.0f} ms" for name, took in times.items()))
    assert grown < 32 << 20
    assert max(times.values()) < 0.5  # of which the client's own work is a part; the figures are printed
    assert sorted(times.values())[len(times) // 2] < 0.1


def test_fields_are_counted_outside_of_strings(server: Running) -> None:
    """Far too many are refused before they are read; what looks like them in a text is text."""
    many = b"{" + b",".join(b'"field%d": 1' % n for n in range(50_001)) + b"}"
    with pytest.raises(ApiError, match="more than 50,000 fields"):
        check_json(many)
    check_json(json.dumps({"prompt": '{"a": 1}' * 60_000}).encode())
    some = BODY | {f"field{n}": 1 for n in range(300)}
    assert error_of(server.post("/v1/completions", some))["message"].startswith(
        "the body: at most 256 fields"
    )


@pytest.mark.parametrize(("prompt", "words"), [
    ([1] * 200_000, "at most 131,072 token ids"),
    ([[1] * 70_000, [1] * 70_000], "at most 131,072 token ids"),
    (["a"] * 200_000, "or 256 texts"),
    (["a"] * 257, "at most 256 prompts"),
    (["a", 1], "not a mixture"),
    ([1, [1]], "not a mixture"),
])  # fmt: skip
def test_prompts_that_are_not_worth_a_look(server: Running, prompt: list[object], words: str) -> None:
    """Refused by their number, before any entry is checked."""
    error = error_of(server.post("/v1/completions", BODY | {"prompt": prompt}))
    assert error["param"] == "prompt"
    assert words in error["message"]


def test_depth_is_counted_outside_of_strings() -> None:
    """Brackets in a text are text."""
    assert depth(b'{"a": [1, {"b": "[[[[\\"[["}]}') == 3
    check_json(json.dumps({"prompt": "[" * 1000}).encode())


def test_paths_as_clients_write_them(server: Running) -> None:
    """With a slash at the end, and without the prefix; a redirect would lose the body."""
    assert canonical("/models/a/b/") == "/v1/models/a/b"
    assert canonical("/") == "/"
    assert canonical("/tokenize/") == "/tokenize"
    for path in ("/v1/completions/", "/completions", "/completions/"):
        assert server.post(path, BODY).status_code == 200
    assert server.client.head("/").status_code == 200


def test_errors_of_paths_and_methods(server: Running) -> None:
    """404 and 405 are error objects, too."""
    missing = server.get("/v1/batches")
    assert (missing.status_code, error_of(missing)["type"]) == (404, "not_found_error")
    wrong = server.get("/v1/completions")
    assert wrong.status_code == 405
    assert "GET" in error_of(wrong)["message"]


@pytest.mark.parametrize(
    "id",
    ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "CON", "a%00b", "nul", "~", "x" * 500],
)
def test_ids_are_names_and_never_paths(server: Running, id: str) -> None:
    """The same answer for each, whatever exists on the disk."""
    answer = server.get(f"/v1/models/{id}")
    assert answer.status_code == 404
    told = server.post("/v1/completions", {"model": id, "prompt": "a"})
    assert told.status_code == 404
    assert error_of(told)["code"] == "model_not_found"


def test_a_failure_inside_is_a_500_without_its_insides(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client learns that it failed; the reason is in the log."""

    def fails(id: str | None) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(server.state.library, "find", fails)
    before = len(server.lines)
    answer = server.post("/v1/completions", BODY)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert error_of(answer)["type"] == "server_error"
    until(lambda: len(server.lines) > before)  # it is logged when the answer is sent
    assert server.lines[-1]["error"] == "a secret of the server"


def test_one_line_a_request_and_never_its_text(server: Running) -> None:
    """What was asked, how it went, how many tokens; not what was written."""
    before, ignored = len(server.lines), {"user": "me", "store": True}
    server.post("/v1/completions", {**BODY, **ignored, "prompt": "a secret of the client", "next_month": 1})
    until(lambda: len(server.lines) > before)
    line = server.lines[-1]
    assert line["unknown"] == ["next_month"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/completions", 200)
    assert line["completion_tokens"] == 1
    assert "secret" not in json.dumps(line)
