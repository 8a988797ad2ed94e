"""Server-sent events: how a stream is framed, kept alive, and ended when its reader is gone."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from glassformer.server.errors import stopping

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy must not hold the stream back
}
MOST_SENT = 16 << 10  # bytes that are sent at a time
PIECE = 4096  # numbers that are encoded at a time
DONE = b"data: [DONE]\n\n"
# A comment: every other line without data breaks one of the official clients.
PING = b": ping\n\n"


# Made once: `json.dumps` makes a new one at each call.
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(data: Any) -> str:
    """JSON of one line. NaN and Infinity, which JSON does not have, are a mistake here."""
    return ENCODER.encode(data)


def pieces(data: Any) -> Iterator[str]:
    """The same JSON piece by piece: encoding a large answer at once would hold up every other thread."""
    if isinstance(data, dict):
        for first, (key, value) in enumerate(data.items()):
            yield f"{',' if first else '{'}{dumps({key: 0})[1:-2]}"
            yield from pieces(value)
        yield "}" if data else "{}"
    elif isinstance(data, list) and any(isinstance(one, list | dict) for one in data):
        for first, one in enumerate(data):
            yield "," if first else "["
            yield from pieces(one)
        yield "]"
    elif isinstance(data, list) and len(data) > PIECE:
        for first in range(0, len(data), PIECE):
            yield f"{',' if first else '['}{dumps(data[first : first + PIECE])[1:-1]}"
        yield "]"
    else:
        yield dumps(data)


class PiecewiseJSON(StreamingResponse):
    """A large answer, encoded and sent piece by piece, so that other requests are answered meanwhile."""

    def __init__(self, data: Any, **how: Any) -> None:
        super().__init__(self._body(data), media_type="application/json", **how)

    async def _body(self, data: Any) -> AsyncIterator[bytes]:
        ready: list[str] = []
        size = 0
        for piece in pieces(data):
            ready.append(piece)
            size += len(piece)
            if size >= MOST_SENT:
                yield "".join(ready).encode("utf-8", "replace")
                await asyncio.sleep(0)
                ready, size = [], 0
        yield "".join(ready).encode("utf-8", "replace")


def event(data: Any, *, name: str | None = None) -> bytes:
    """One event. Line ends inside of texts are escaped by JSON, so they cannot break the frame."""
    line = f"data: {dumps(data)}\n\n"
    return (line if name is None else f"event: {name}\n{line}").encode("utf-8", "replace")


class EventStream(Response):
    """A response whose body is sent as it comes. When the client leaves, what makes the events is ended."""

    def __init__(
        self, events: AsyncIterator[bytes], *, ping: float, close: Callable[[], object] = lambda: None
    ) -> None:
        """`ping`: seconds without an event, after which a comment is sent; `close` is called at the end.

        Closing the events is not enough: before the first is asked for, they have not begun and end nothing.
        """
        super().__init__(None, headers=HEADERS)
        del self.headers["content-length"]
        self.events, self.ping, self.close = events, ping, close
        self._sending = False
        self._sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, unless the client leaves before."""
        tasks = [
            asyncio.create_task(self._send_all(send)),
            asyncio.create_task(gone(receive)),
            asyncio.create_task(self._keep_alive(send)),
        ]
        stopped = False
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server ends, and waited as long as it may
            stopped, done = True, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _close(self.events)
        self.close()
        for task in done:
            task.result()
        if stopped:
            await self._send(send, event(stopping().body) + DONE)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in self.events:
            await self._send(send, part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, part: bytes) -> None:
        self._sending = True
        for start in range(0, len(part), MOST_SENT):  # the connection holds what is not read yet
            piece = part[start : start + MOST_SENT]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        self._sending, self._sent = False, time.monotonic()

    async def _keep_alive(self, send: Send) -> None:
        """Say now and then that the server is alive: a long prompt must not look like a lost connection."""
        while True:
            await asyncio.sleep(self.ping / 4)
            if not self._sending and time.monotonic() - self._sent > self.ping:
                await self._send(send, PING)


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(events: AsyncIterator[bytes]) -> None:
    closing = getattr(events, "aclose", None)
    if closing is not None:
        with contextlib.suppress(RuntimeError):
            await closing()
