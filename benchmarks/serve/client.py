"""A client that takes as little of the machine as it can: bytes over a socket, and when they came."""

import asyncio
import json
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WORDS = (
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "how",
    "far",
    "it",
    "was",
    "from",
    "one",
    "hill",
)


def prompt(number: int, words: int = 32) -> str:
    """A text of so many tokens; from its first word on unlike that of every other number."""
    chosen = [WORDS[(number + (number // 19 + 3) * place) % len(WORDS)] for place in range(words - 6)]
    return f"{number:06d} {' '.join(chosen)}"


def asked(number: int, tokens: int, **more: Any) -> dict[str, Any]:
    """The body of a streamed request that both servers understand: greedy, exactly so many tokens."""
    return {
        "model": "gpt2",
        "prompt": prompt(number),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


@dataclass
class Answer:
    """What came back on one connection."""

    status: int = 0
    first: float = 0.0  # seconds until the first token
    seconds: float = 0.0  # until the end
    tokens: int = 0  # by the server's own count
    body: bytes = b""


def request_of(port: int, path: str, body: Any, *, method: str = "POST", keep: bool = False) -> bytes:
    """A request as bytes; a body that is bytes is sent as it is."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


async def ask(port: int, path: str, body: Any, *, method: str = "POST", leave: int = 0) -> Answer:
    """One request on a connection of its own; with `leave`, the client goes away after so many bytes."""
    begun, found = time.perf_counter(), Answer()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_of(port, path, body, method=method))
    parts, size = [], 0
    while part := await reader.read(1 << 16):
        if not found.first and b"data: " in part:
            found.first = time.perf_counter() - begun
        parts.append(part)
        size += len(part)
        if leave and size >= leave:
            break
    writer.close()
    found.seconds = time.perf_counter() - begun
    found.body = b"".join(parts)
    found.status = int(found.body[9:12] or 0)
    found.tokens = tokens_of(found.body)
    return found


def tokens_of(body: bytes) -> int:
    """The number of generated tokens, as the usage at the end has it; 0 if there is none."""
    _, _, rest = body.rpartition(b'"completion_tokens":')
    digits = rest.lstrip()[:9].split(b",")[0].split(b"}")[0]
    return int(digits) if digits.isdigit() else 0


@dataclass
class Load:
    """Several clients at once: tokens of all, the seconds they took, and when first tokens came."""

    tokens: int
    seconds: float
    firsts: list[float]

    @property
    def speed(self) -> float:
        """Tokens a second of all clients together."""
        return self.tokens / self.seconds

    @property
    def late(self) -> float:
        """The 95th percentile of the time to the first token."""
        return percentile(self.firsts, 0.95)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that so large a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def together(port: int, numbers: range, tokens: int) -> Load:
    """As many clients as numbers, all at once."""
    begun = time.perf_counter()
    found = await asyncio.gather(*(ask(port, "/v1/completions", asked(one, tokens)) for one in numbers))
    return _load(found, time.perf_counter() - begun, tokens)


async def one_by_one(port: int, numbers: range, tokens: int) -> Load:
    """The same requests by one client that waits for each."""
    begun = time.perf_counter()
    found = [await ask(port, "/v1/completions", asked(one, tokens)) for one in numbers]
    return _load(found, time.perf_counter() - begun, tokens)


def _load(found: list[Answer], seconds: float, tokens: int) -> Load:
    for one in found:
        if one.tokens != tokens:
            raise SystemExit(
                f"{one.tokens} tokens came, not {tokens}: {one.body[:500]!r} … {one.body[-300:]!r}"
            )
    return Load(sum(one.tokens for one in found), seconds, [one.first for one in found])


async def idle(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that have asked once and stay open."""
    opened = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_of(port, "/health", None, method="GET", keep=True))
        opened.append((reader, writer))
    for reader, _ in opened:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"an idle connection was refused: {head!r}")
    return opened


def middle(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)
