"""A server for tests: the real one, on a free port of loopback, in a thread."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx
import torch
from fastapi import FastAPI

from glassformer.models.gpt import GPT, Config
from glassformer.server.app import make_app
from glassformer.server.listen import Server
from glassformer.server.settings import Settings
from glassformer.server.studio import Studio
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.model import Model
from glassformer.tokenizers import train_tokenizer

TEXT = "Once upon a time, there was a little girl named Lily. She liked to play outside in the park. " * 20


def tiny_model(name: str = "tiny", *, context: int = 64, seed: int = 0) -> LanguageModel:
    """Two layers with random weights; its tokens are bytes and a few words."""
    tokenizer = train_tokenizer([TEXT], 300)
    net = GPT(Config(layers=2, heads=3, width=24, vocab=len(tokenizer), context=context)).initialize(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # away from the small values of the start, after which all tokens are as likely
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return LanguageModel(net.eval(), tokenizer, name=name)


@dataclass
class Running:
    """A server that runs."""

    url: str
    app: FastAPI
    lines: list[dict[str, Any]]  # of its log
    server: Server

    @property
    def state(self) -> Any:
        """What its routes share."""
        return self.app.state.server

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    @cached_property
    def client(self) -> httpx.Client:
        """A client that tries once. One for all requests: to make one takes longer than a request."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, verify=False)

    def post(self, path: str, body: Any = None, **how: Any) -> httpx.Response:
        """One POST."""
        return self.client.post(path, json=body, **how)

    def get(self, path: str, **how: Any) -> httpx.Response:
        """One GET."""
        return self.client.get(path, **how)


@contextmanager
def serving(
    models: Mapping[str, Model], *, buffer: int = 0, studio: Studio | None = None, **settings: Any
) -> Iterator[Running]:
    """Serve models until the block ends; `buffer` is what the system may hold of what is sent, in bytes."""
    listening = socket.create_server(("127.0.0.1", 0))
    if buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    port = listening.getsockname()[1]
    lines: list[dict[str, Any]] = []
    how = Settings(port=port, **settings) if studio is None else studio.settings(port=port, **settings)
    app = make_app(how, models, log=lines.append, studio=studio)
    server = Server(app, how)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    running = Running(f"http://127.0.0.1:{port}", app, lines, server)
    try:
        yield running
    finally:
        running.client.close()
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive(), "the server did not stop"


def opened(
    server: Running, body: dict[str, Any], *, buffer: int = 0, path: str = "/v1/completions"
) -> socket.socket:
    """A connection on which a request was sent; `buffer` is what the system may hold of the answer."""
    raw = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    connection = socket.socket()
    if buffer:  # before it connects: the sender learns of it then
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(head.encode() + raw)
    return connection


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def busy(server: Running, model: str = "long") -> int:
    """Texts that are being written or wait, for a slot or for their reader."""
    runner = server.state.library.find(model).runner
    return int(runner.running + runner.waiting + runner.paused)
