"""A server's life: the socket, the signals, and an end that loses no request."""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from glassformer.errors import InputError
from glassformer.server.app import LOAD, Load, Log, make_app
from glassformer.server.protocol import config_of
from glassformer.server.settings import Settings
from glassformer.tasks.model import Model

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
        """Whether to end: a signal came, and nothing runs any more, or it takes too long."""
        if self._stop_asked is not None:
            late = time.monotonic() - self._stop_asked > self.settings.grace
            if late or not self.server_state.tasks:
                return True
        return await super().on_tick(counter)


def run(
    settings: Settings,
    models: Mapping[str, Model],
    *,
    listening: socket.socket,
    log: Log,
    load: Load = LOAD,
    studio: "Studio | None" = None,
) -> None:
    """Serve until a signal; `load` loads what jobs make."""
    app = make_app(settings, models, log=log, load=load, studio=studio)
    server: Any = Server(app, settings)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if app.state.server.library.working:  # else the interpreter would wait for that thread, however long
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
