"""A server's life: the socket, the signals, and an end that loses no request."""

import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from glassformer.errors import InputError
from glassformer.server.app import LOAD, Load, Log, Models, Ready, make_app
from glassformer.server.protocol import config_of
from glassformer.server.settings import Settings

if TYPE_CHECKING:
    from glassformer.server.studio import Studio


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; before models are loaded, so that a port in use is known at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"{host}, port {port}: {reason}; --port 0 takes a free one") from None


class Server(uvicorn.Server):
    """uvicorn, which on its first signal refuses new requests and finishes running ones."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(config_of(app, settings))
        self.state, self.settings = app.state.server, settings
        self._stop_asked: float | None = None  # when a signal came

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal: finish. The second: end."""
        if self._stop_asked is not None:
            os._exit(128 + sig)
        self._stop_asked = time.monotonic()
        self.state.stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to end: models could not be loaded, or a signal came and nothing runs, or only too long."""
        if self.state.failure is not None:
            return True
        if self._stop_asked is not None:
            late = time.monotonic() - self._stop_asked > self.settings.grace
            if late or not self.server_state.tasks:
                return True
        return await super().on_tick(counter)


def run(
    settings: Settings,
    models: Models,
    *,
    listening: socket.socket,
    log: Log,
    load: Load = LOAD,
    ready: Ready = lambda models: None,
    studio: "Studio | None" = None,
) -> None:
    """Serve until a signal; `load` loads what jobs make. What goes wrong while models load is raised."""
    app = make_app(settings, models, log=log, load=load, ready=ready, studio=studio)
    server: Any = Server(app, settings)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    state = app.state.server
    if state.failure is not None:
        raise state.failure
    # The interpreter would wait for a lane that computes, and end in the middle of what a thread loads.
    if state.library.working or state.loading:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
