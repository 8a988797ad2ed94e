"""Frames of a stream, what keeps it alive, and readers that are too slow."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import serving, tiny_model, until

from glassformer.server.sse import EventStream, dumps, event, pieces


def test_frames() -> None:
    """One line of JSON, whatever the text holds; numbers that JSON lacks are an error of ours."""
    assert event({"a": "x\n\ndata: y"}) == b'data: {"a":"x\\n\\ndata: y"}\n\n'
    assert event({"a": 1}, name="b") == b'event: b\ndata: {"a":1}\n\n'
    with pytest.raises(ValueError, match="Out of range"):
        dumps(float("nan"))


def test_a_long_silence_is_filled_with_comments() -> None:
    """Nothing else passes all clients: no event without data, no id, no retry."""
    sent: list[bytes] = []

    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.3)
        yield event({"a": 1})

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def run() -> None:
        await EventStream(slow(), ping=0.05)({}, receive, send)

    asyncio.run(run())
    parts = [one for one in sent if one]
    assert parts[-1] == event({"a": 1})
    assert len(parts) > 2
    assert set(parts[:-1]) == {b": ping\n\n"}


def test_who_does_not_read_is_left() -> None:
    """What is held for a slow reader is bounded, and in time the text is given up."""
    model = tiny_model("long", context=4096)
    with serving({"long": model}, slow_reader=0.3, buffer=4096) as server:
        body = {
            "model": "long",
            "prompt": [5] * 900,
            "max_tokens": 3000,
            "echo": True,
            "logprobs": 20,
            "stream": True,
        }
        raw = json.dumps(body | {"ignore_eos": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head.encode() + raw)
            metrics = server.state.metrics
            # It has not read its prompt to the end, which comes with its scores before the first token.
            until(lambda: metrics.value("cancelled_total", model="long", phase="prefill") == 1)
        assert server.get("/health").status_code == 200


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
nested = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(nested)
def test_pieces_of_json_are_the_same_json(data: Any) -> None:
    """Piece by piece as at once."""
    assert "".join(pieces(data)) == dumps(data)


def test_a_piece_is_small() -> None:
    """However long a list of numbers is, alone or in others."""
    numbers = list(range(100_000))
    found = list(pieces({"a": numbers, "b": [numbers, {}, []], "c": {}}))
    assert "".join(found) == dumps({"a": numbers, "b": [numbers, {}, []], "c": {}})
    assert max(map(len, found)) < 40_000
