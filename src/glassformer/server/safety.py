"""Before anything else: who asks, from where, with what key, and how much. Nothing behind this sees a request
that fails here.

A page in a browser can reach a server on loopback, by its own name (DNS rebinding) or with a plain POST. So
Host must be one of ours, and so must Origin where there is one. The path is taken from the request itself: an
address that is put together from headers can be forged.
"""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.server.errors import ApiError, api_error, response, stopping
from glassformer.server.settings import Settings

PUBLIC = frozenset({"/health", "/v1/health"})
# Clients leave out the prefix, or end an address with a slash; a redirect would lose the body of a POST.
WITHOUT_PREFIX = re.compile(
    r"/(completions|chat/completions|embeddings|responses|models|models/.+|tasks/\w+|traces/.+"
    r"|files|files/.+|fine_tuning/.+)"
)
UPLOADS = "/v1/files"
DRAINED = 4  # times the largest body: so much of a larger one is read before it is refused
DEEPEST = 64  # lists and objects inside each other
MOST_KEYS = 50_000  # of all objects together: parsing more would block the event loop
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
Done = Callable[[dict[str, Any]], None]


class Safety:
    """The outermost layer: checks, request ids, safe headers, and an error object for whatever went wrong."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        done: Done = lambda about: None,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        """`done` is called with what there is to log of every request; `check_open` refuses all of them."""
        self.app, self.settings, self.done, self.check_open = app, settings, done, check_open
        self.hosts, self.origins = settings.hosts(), settings.origins()
        self.key = None if settings.key is None else _digest(settings.key)
        self.session = None if settings.session is None else _digest(settings.session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and hand it on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await _Request(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)

    def check(self, scope: Scope) -> None:
        """Refuse strangers, by the headers alone."""
        headers = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > self.settings.most_headers:
            raise ApiError(431, "the headers are too large", code="headers_too_large")
        self._check_host(_values(headers, b"host"))
        self._check_origin(scope["method"], headers)
        if scope["path"] not in PUBLIC and scope["path"] not in self.settings.public:
            self._check_key(headers)

    def _check_host(self, hosts: list[str]) -> None:
        if len(hosts) != 1:
            raise ApiError(400, "a request must have one Host header", code="bad_host")
        if hosts[0].lower() not in self.hosts:
            message = f"Host {hosts[0][:100]!r} is not a name of this server; --allow-host adds one"
            raise ApiError(403, message, code="bad_host")

    def _check_origin(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        for origin in _values(headers, b"origin"):
            if origin.lower() not in self.origins:
                message = "pages of another origin may not use this server"
                raise ApiError(403, message, code="bad_origin")
        sites, modes = _values(headers, b"sec-fetch-site"), _values(headers, b"sec-fetch-mode")
        link = method in ("GET", "HEAD") and modes == ["navigate"]
        foreign = any(site not in ("same-origin", "none") for site in sites)
        unknown = "no-cors" in modes and not sites  # a mode says nothing about the page
        if not link and (foreign or unknown):
            raise ApiError(403, "pages of another site may not use this server", code="bad_origin")

    def _check_key(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Every key that was sent must be right, whichever header carries it."""
        if self.key is None:
            return
        given = [*_values(headers, b"x-api-key"), *_values(headers, b"api-key")]
        for value in _values(headers, b"authorization"):
            scheme, _, token = value.partition(" ")
            given.append(token.strip() if scheme.lower() == "bearer" else "")
        right = [hmac.compare_digest(_digest(key), self.key) for key in given]
        if self.session is not None:
            cookies = _cookies(headers, self.settings.cookie)
            right += [hmac.compare_digest(_digest(cookie), self.session) for cookie in cookies]
        if not right or not all(right):
            message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`"
            headers_sent = {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}
            raise ApiError(401, message, code="invalid_api_key", headers=headers_sent)


def new_id() -> str:
    """The id of a request, which its answer and the log have."""
    return f"req_{secrets.token_hex(12)}"


class _Request:
    """One request on its way through."""

    def __init__(self, safety: Safety, scope: Scope, receive: Receive, send: Send) -> None:
        self.safety, self.settings = safety, safety.settings
        self.id = new_id()
        self.notes: dict[str, Any] = {}  # what a route has to say for the log
        state = {**scope.get("state", {}), "request_id": self.id, "notes": self.notes}
        self.scope = {**scope, "path": canonical(scope["path"]), "state": state}
        self._receive, self._send = receive, send
        self.status = 0
        self.begun = time.monotonic()

    async def run(self) -> None:
        try:
            self.safety.check(self.scope)
            self.safety.check_open()
            receive = self._receive
            if self._brings_a_file():
                receive = self._receive_file()
            elif self.scope["method"] not in ("GET", "HEAD"):
                receive = _replay(await self._body(), self._receive)
            await self.safety.app(self.scope, receive, self.send)
        except asyncio.CancelledError:  # the server ends, and waited as long as it may
            await self._fail(stopping())
        except Exception as error:
            await self._fail(error)
        finally:
            self._log()

    async def send(self, message: Message) -> None:
        """Pass on, with the request's id and headers that browsers obey."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            more = [(b"x-request-id", self.id.encode()), *SAFE_HEADERS]
            added = [(name, value) for name, value in more if name not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await self._send(message)

    async def _fail(self, error: Exception) -> None:
        known = api_error(error)
        if known.status >= 500:
            self.notes["error"] = str(error) or type(error).__name__
            if not isinstance(error, ApiError):
                traceback.print_exception(error, file=sys.stderr)
        if self.status == 0:  # nothing was sent yet
            if known.code:
                self.notes["code"] = known.code
            await response(known)(self.scope, self._receive, self.send)

    def _log(self) -> None:
        about = {
            "id": self.id,
            "method": self.scope["method"],
            "path": self.scope["path"],
            # As the table of routes has it: made-up paths would fill the memory with counters.
            "route": getattr(self.scope.get("route"), "path", "unknown"),
            "status": self.status or 499,  # the client left before an answer began
            "seconds": round(time.monotonic() - self.begun, 4),
        }
        self.safety.done(about | self.notes)

    def _brings_a_file(self) -> bool:
        """Whether the body is a form with a file, which is no JSON, and is read as it comes."""
        kinds = _values(self.scope["headers"], b"content-type")
        form = len(kinds) == 1 and kinds[0].lower().startswith("multipart/form-data")
        return form and (self.scope["method"], self.scope["path"]) == ("POST", UPLOADS)

    def _receive_file(self) -> Receive:
        """A `receive` for a form with a file: not endless, and not slow."""
        headers, most = self.scope["headers"], DRAINED * self.settings.most_file
        too_large = ApiError(
            413,
            f"the body is larger than {self.settings.most_file:,} bytes",
            code="body_too_large",
            headers={"connection": "close"},
        )
        self._refuse_compressed(headers)
        stated = [int(size[:20]) for size in _values(headers, b"content-length") if size.isdigit()]
        if any(size > most for size in stated):
            raise too_large
        size = 0

        async def receive() -> Message:
            nonlocal size
            left = self.begun + self.settings.longest - time.monotonic()
            try:
                async with asyncio.timeout(min(self.settings.slow_sender, left)):
                    message = await self._receive()
            except TimeoutError:
                raise self._too_slow() from None
            size += len(message.get("body", b""))
            if size > most:
                raise too_large
            return message

        return receive

    def _too_slow(self) -> ApiError:
        message = f"the body did not arrive within {self.settings.slow_sender:g} seconds"
        return ApiError(408, message, headers={"x-should-retry": "false", "connection": "close"})

    @staticmethod
    def _refuse_compressed(headers: Iterable[tuple[bytes, bytes]]) -> None:
        if any(value.lower() != "identity" for value in _values(headers, b"content-encoding")):
            raise ApiError(415, "a compressed body is not accepted", code="unsupported_media_type")

    async def _body(self) -> bytes:
        """The whole body, if it is JSON of a size and depth that may be read."""
        headers = self.scope["headers"]
        self._refuse_compressed(headers)
        try:
            async with asyncio.timeout(self.settings.slow_sender):
                body = await self._read(headers)
        except TimeoutError:
            raise self._too_slow() from None
        kinds = [value.partition(";")[0].strip().lower() for value in _values(headers, b"content-type")]
        if kinds != ["application/json"] and (body or kinds):
            message = "the body must be JSON, with the header `Content-Type: application/json`"
            raise ApiError(415, message, code="unsupported_media_type")
        if body:
            check_json(body)
        return body

    async def _read(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        most = self.settings.most_body
        too_large = ApiError(413, f"the body is larger than {most:,} bytes", code="body_too_large")
        too_large.headers = {"connection": "close"}
        stated = [int(size[:20]) for size in _values(headers, b"content-length") if size.isdigit()]
        if any(size > DRAINED * most for size in stated):
            raise too_large  # and none of it is read
        parts, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "the client left before its request was complete")
            part = message.get("body", b"")
            size += len(part)
            if size <= most:
                parts.append(part)
            elif not stated:
                raise too_large
            else:
                parts.clear()  # the rest is read and dropped: a client that still sends would not hear us
            if not message.get("more_body", False):
                if size > most:
                    raise too_large
                return b"".join(parts)


def canonical(path: str) -> str:
    """The path as the routes have it: with its prefix, and without a slash at its end."""
    path = path.rstrip("/") or "/"
    return f"/v1{path}" if WITHOUT_PREFIX.fullmatch(path) else path


def check_json(body: bytes) -> None:
    """Refuse what is no JSON, or nests too deep; numbers must be numbers (NaN and Infinity are not)."""
    if body.count(b"[") + body.count(b"{") > DEEPEST and depth(body) > DEEPEST:
        raise ApiError(400, f"the body nests more than {DEEPEST} lists and objects", code="too_deep")
    if body.count(b":") > MOST_KEYS and keys(body) > MOST_KEYS:
        raise ApiError(400, f"the body has more than {MOST_KEYS:,} fields", code="too_many_fields")
    try:
        parsed = json.loads(body.decode("utf-8"), parse_constant=_refuse)
        if SURROGATE.search(body):  # two of them are a character; one is no text at all
            json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        broken = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        broken = "a number has too many digits" if "int_max_str_digits" in broken else broken
        reason = "it has half a character" if isinstance(error, UnicodeEncodeError) else broken
        raise ApiError(400, f"the body is not valid JSON: {reason}", code="invalid_json") from None


def keys(body: bytes) -> int:
    """How many fields the objects of a JSON text have, about; one whose name ends with \\ is not counted."""
    packed = body.translate(None, b" \t\r\n")
    return packed.count(b'":') - packed.count(b'\\":')  # the latter are in texts


def depth(body: bytes) -> int:
    """How many lists and objects of a JSON text are inside each other at most, read without recursion."""
    bare = np.frombuffer(STRING.sub(b"", body), dtype=np.uint8)
    opens = (bare == ord("[")) | (bare == ord("{"))
    closes = (bare == ord("]")) | (bare == ord("}"))
    steps = opens.astype(np.int32) - closes.astype(np.int32)
    return int(steps.cumsum().max(initial=0))


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read already, then what comes after it."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def _cookies(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[str]:
    """The values of a cookie, however often it was sent."""
    sent = ";".join(_values(headers, b"cookie")).split(";")
    pairs = [pair.strip().partition("=") for pair in sent]
    return [value for key, _, value in pairs if key == name]


def _digest(key: str) -> bytes:
    """Of one length for every key: comparing takes as long for a near miss as for any other."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
