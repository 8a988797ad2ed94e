"""uvicorn, as this server runs it: bounded headers, and an error object for what is no HTTP."""

import asyncio
import json
import socket
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.server.errors import error_object
from glassformer.server.safety import new_id
from glassformer.server.settings import Settings

MOST_UNREAD = 32 << 10  # bytes of a connection that wait for its client, before what makes them must wait


class Protocol(H11Protocol):
    """HTTP/1.1 that answers broken requests in the API's words, and leaves slow senders and readers."""

    slow_sender, slow_reader = 30.0, 60.0  # seconds
    _timer: asyncio.TimerHandle | None = None  # until the headers of a request must have come
    _stall: asyncio.TimerHandle | None = None  # until what was sent must have been read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: its first request must come. Later ones may, until uvicorn no longer waits."""
        super().connection_made(transport)
        # asyncio does this for sockets that name their protocol. Without it, the system holds what is small
        # back until the client has confirmed what came before: 40 ms for every answer, and for tokens.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=MOST_UNREAD)
        self._timer = self.loop.call_later(self.slow_sender, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """From its first byte on, a request has a while until its headers are complete."""
        super().data_received(data)
        complete = self.conn.their_state is not h11.IDLE
        if complete and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif not complete and self._timer is None:
            self._timer = self.loop.call_later(self.slow_sender, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        for timer in (self._timer, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to; it has a while to catch up."""
        super().pause_writing()
        self._stall = self.loop.call_later(self.slow_reader, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads."""
        if self._stall is not None:
            self._stall.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as a request, or has too many headers."""
        received = len(self.conn.trailing_data[0])
        too_many = received >= (self.config.h11_max_incomplete_event_size or 1 << 16)
        status, words = (
            (431, "the headers are too large") if too_many else (400, "this is not a request of HTTP/1.1")
        )
        body = json.dumps(error_object(status, words)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", new_id().encode()),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def config_of(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn runs an application."""
    limits = {"slow_sender": settings.slow_sender, "slow_reader": settings.slow_reader}
    protocol: Any = type("OurProtocol", (Protocol,), limits)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on what a proxy says
        log_level="error",
        timeout_graceful_shutdown=1,  # after the grace that `Server` gives
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=settings.most_headers,
    )
