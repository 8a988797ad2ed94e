"""Promises under load: nobody changes another's text, who leaves is forgotten in every phase, what is too much is
refused at once, and one poisoned text ends alone.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from serving import Running, busy, opened, serving, tiny_model, until

import glassformer as gf
from glassformer.engine import native
from glassformer.generation.options import Options
from glassformer.generation.sampling import Rules
from glassformer.server.errors import QueueFull
from glassformer.server.runner import Ask, Runner

needs_engine = pytest.mark.skipif(not native.ways(), reason="the native engine was not built")
LONG = {"model": "long", "prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "seed": 1}
MODEL = gf.load("storyteller")


@pytest.fixture(scope="module")
def one_slot() -> Iterator[Running]:
    """One text at a time by the native engine, which reads one token a step."""
    with serving({"storyteller": MODEL}, slots=1, budget=1, queue=4) as running:
        yield running


@needs_engine
def test_sixty_four_streams_are_as_alone() -> None:
    """Mixed lengths, four slots: every stream is complete, and its text that of Python."""
    bodies = [
        {
            "model": "storyteller",
            "prompt": ["Once", "One day, Tom", "Lily saw a"][n % 3],
            "max_tokens": 1 + n % 13,
            "seed": n,
            "temperature": 1.0,
        }
        for n in range(64)
    ]

    def streamed(body: dict[str, Any]) -> str:
        answer = httpx.post(
            f"{server.url}/v1/completions", json=body | {"stream": True}, timeout=60, trust_env=False
        )
        *events, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return "".join(json.loads(one.removeprefix("data: "))["choices"][0]["text"] for one in events)

    with serving({"storyteller": MODEL}, slots=4, queue=64) as server:
        with ThreadPoolExecutor(64) as pool:
            texts = list(pool.map(streamed, bodies))
        assert busy(server, "storyteller") == 0
    for body, text in zip(bodies, texts, strict=True):
        alone = MODEL.generate(
            body["prompt"], max_new_tokens=body["max_tokens"], seed=body["seed"], temperature=1.0
        )
        assert text == alone.text


def vanish(connection: socket.socket, how: str) -> None:
    """A client goes: it says so (FIN), or its machine does (RST)."""
    if how == "RST":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@needs_engine
@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
def test_who_vanishes_frees_their_place(one_slot: Running, phase: str, stream: bool, how: str) -> None:
    """In every phase, with and without a stream."""
    runner = one_slot.state.library.find("storyteller").runner
    body = {"model": "storyteller", "prompt": [5] * 300, "max_tokens": 200, "stream": stream}
    begun = {"prompt": [7], "max_tokens": 500, "ignore_eos": True, "stream": True}
    before = opened(one_slot, body | begun) if phase == "queue" else None
    until(lambda: before is None or runner.running == 1)
    prompt = [7] if phase == "decode" else [5] * 300
    connection = opened(one_slot, body | {"prompt": prompt, "ignore_eos": True})
    if phase == "queue":
        until(lambda: runner.waiting == 1)
    elif phase == "prefill":
        until(lambda: runner.running == 1)
    else:
        until(lambda: any(one.clock.first for one in list(runner._live.values())))
    vanish(connection, how)
    until(lambda: runner.waiting == 0 and runner.running == (before is not None))
    if before is not None:
        before.close()
        until(lambda: runner.running == 0)
    assert one_slot.post("/v1/completions", body | {"max_tokens": 1, "stream": False}).status_code == 200


@needs_engine
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
def test_a_cancelled_text_takes_no_more_than_two_steps(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """Counted in steps of the engine that read a token of it."""
    prompts = {"queue": [5] * 9, "prefill": [5] * 400, "decode": [5]}
    rows: list[list[int]] = []  # the tokens of every step

    async def work() -> None:
        runner = Runner(MODEL, slots=1, queue=4, budget=1)
        step = runner.backend.step_pieces  # type: ignore[attr-defined]

        def counted(pieces: Any, cache: Any) -> Any:
            rows.append([id for piece in pieces for id in piece.ids])
            return step(pieces, cache)

        monkeypatch.setattr(runner.backend, "step_pieces", counted)
        await runner.start()
        options = Options(max_new_tokens=300, min_new_tokens=300, prompt_lookup_num_tokens=0)
        first = runner.submit(Ask(prompt=[9], options=options)) if phase == "queue" else None
        text = runner.submit(Ask(prompt=prompts[phase], options=options))
        while len(rows) < 12:
            await asyncio.sleep(0.001)
        text.cancel()
        at = len(rows)
        if first is not None:
            first.cancel()
        while runner.running or runner.waiting:
            await asyncio.sleep(0.001)
        assert len(rows) - at <= 2
        await runner.close(0.0)

    asyncio.run(work())


def test_a_flood_is_refused_and_those_who_wait_are_served() -> None:
    """Far more than fit: 429 with the time to wait, never a 5xx; and every one that was taken gets its text."""
    with serving({"long": tiny_model("long", context=4096)}, slots=1, queue=2) as server:
        taken = opened(server, LONG | {"stream": True})
        taken.recv(1000)
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(server.post, "/v1/completions", LONG | {"max_tokens": 1}) for _ in range(80)]
            until(lambda: sum(one.done() for one in asked) >= 78)
            taken.close()
            answers = [one.result() for one in asked]
        statuses = [one.status_code for one in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) == 2
        for one in answers:
            if one.status_code == 429:
                assert one.headers["retry-after"] == "1"
                assert one.json()["error"]["code"] == "queue_full"


def test_the_queue_is_bounded_by_tokens() -> None:
    """Long texts fill it before many do; one alone may always wait, however long it is."""

    async def work() -> None:
        runner = Runner(model, slots=1, queue=50, queue_tokens=100)
        ask = Ask(prompt=[5] * 10, options=Options(max_new_tokens=80, prompt_lookup_num_tokens=0))
        long = Ask(prompt=[5] * 300, options=Options(max_new_tokens=300, prompt_lookup_num_tokens=0))
        runner.submit(long)  # it waits: the thread that would take it was not started
        with pytest.raises(QueueFull, match=r"512 tokens are waiting"):
            runner.submit(ask)
        runner._inbox.clear()
        runner.submit(ask)
        with pytest.raises(QueueFull, match=r"90 tokens are waiting"):
            runner.submit(ask)
        small = Ask(prompt=[5], options=Options(max_new_tokens=9, prompt_lookup_num_tokens=0))
        runner.submit(small)
        assert (runner.waiting, runner.waiting_tokens) == (2, 100)

    model = tiny_model(context=512)
    asyncio.run(work())


def test_who_waits_too_long_is_told() -> None:
    """A clean error with the time to come again; the place in the queue is free."""
    with serving({"long": tiny_model("long", context=4096)}, slots=1, patience=0.3) as server:
        first = opened(server, LONG | {"stream": True})
        first.recv(1000)
        answer = server.post("/v1/completions", LONG | {"max_tokens": 1})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "0.3 seconds for its turn" in answer.json()["error"]["message"]
        until(lambda: busy(server) == 1)
        first.close()
        until(lambda: busy(server) == 0)


@needs_engine
@pytest.mark.parametrize("failure", [MemoryError, ZeroDivisionError, "text"])
def test_one_poisoned_text_of_eight_ends_alone(
    server: Running, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    """Whatever is raised while its token is chosen, or its text made: the other seven are as alone."""
    bodies = [
        {"model": "storyteller", "prompt": f"Number {n}", "max_tokens": 12, "seed": n} for n in range(8)
    ]
    alone = [server.post("/v1/completions", body).json()["choices"] for body in bodies]
    poisoned = tuple(server.state.library.find("storyteller").model.encode("Number 3"))
    if failure == "text":
        import glassformer.server.writing as writing

        push = writing.Choice.push

        def broken(self: Any, token: Any) -> Any:
            if self.ask.prompt == poisoned and len(self.ids) == 5:
                raise RuntimeError("no text")
            return push(self, token)

        monkeypatch.setattr(writing.Choice, "push", broken)
    else:
        apply = Rules.apply

        def fails(self: Any, scores: Any, *, prompt: Any, answer: Any, room: int) -> Any:
            if tuple(prompt) == poisoned and len(answer) == 5:
                raise failure("poison")
            return apply(self, scores, prompt=prompt, answer=answer, room=room)

        monkeypatch.setattr(Rules, "apply", fails)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda body: server.post("/v1/completions", body), bodies))
    assert [one.status_code for one in found] == [200] * 3 + [500] + [200] * 4
    assert [one.json().get("choices") for one in found] == [*alone[:3], None, *alone[4:]]
    assert server.get("/health").status_code == 200
    assert busy(server, "storyteller") == 0
