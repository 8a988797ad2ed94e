"""Requests side by side: who leaves frees their place, who comes too late is told so, and nobody changes another's text."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from serving import Running, busy, opened, serving, tiny_model, until

from glassformer.tasks.complete import LanguageModel

LONG = {"model": "long", "prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "seed": 1}


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_frees_a_slot(server: Running, stream: bool) -> None:
    """While a text is written: also without a stream, where nothing is sent that could fail."""
    metrics = server.state.metrics
    phases = ("queue", "prefill", "decode")
    before = [metrics.value("cancelled_total", model="long", phase=one) for one in phases]
    connection = opened(server, LONG | {"stream": stream})
    until(lambda: busy(server) == 1)
    if stream:
        connection.recv(1000)
    else:
        until(lambda: server.state.library.find("long").runner.running == 1)
        time.sleep(0.05)
    connection.close()
    until(lambda: busy(server) == 0)
    until(
        lambda: (
            sum(metrics.value("cancelled_total", model="long", phase=one) for one in phases)
            == sum(before) + 1
        )
    )


def test_who_leaves_the_queue_is_forgotten() -> None:
    """Before their text was begun; and while several texts of one request are written."""
    with serving({"long": tiny_model("long", context=4096)}, slots=1, queue=8) as server:
        first = opened(server, LONG | {"stream": True})
        first.recv(1000)
        waiting = [opened(server, LONG | {"stream": stream, "n": 2}) for stream in (True, False)]
        until(lambda: busy(server) >= 3)
        for one in waiting:
            one.close()
        first.close()
        until(lambda: busy(server) == 0)
        assert server.post("/v1/completions", LONG | {"max_tokens": 2}).status_code == 200


def test_too_many_are_told_to_come_again() -> None:
    """429 with the time to wait; the official client tries three times, and succeeds when a place is free."""
    with serving({"long": tiny_model("long", context=4096)}, slots=1, queue=0) as server:
        taken = opened(server, LONG | {"stream": True})
        taken.recv(1000)
        answer = server.post("/v1/completions", LONG | {"max_tokens": 1})
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        until(lambda: server.state.metrics.value("rejected_total", reason="queue_full") == 1)
        assert server.get("/health").status_code == 200

        timer = threading.Timer(0.2, taken.close)
        timer.start()
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            found = client.completions.create(model="long", prompt="Once", max_tokens=2, seed=1)
        assert found.usage is not None
        assert found.usage.completion_tokens == 2
        timer.join()


def test_how_often_the_official_client_comes_again() -> None:
    """A full queue three times, each told when; what would only fail again, once."""
    model = tiny_model("long", context=4096)
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.005))  # busy for longer than the client tries
    with serving({"long": model}, slots=1, queue=0) as server:

        def refused(status: int) -> int:
            return sum(one["status"] == status for one in list(server.lines))

        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            with opened(server, LONG | {"stream": True}) as first:
                first.recv(1000)
                with pytest.raises(openai.RateLimitError, match="too many requests"):
                    client.completions.create(model="long", prompt="Once", max_tokens=1)
            until(lambda: refused(429) == 3)  # a request is logged after its answer
            until(lambda: busy(server) == 0)
            object.__setattr__(server.state.settings, "longest", 0.1)
            long: Any = {"model": "long", "prompt": "Once", "max_tokens": 4000}
            with pytest.raises(openai.InternalServerError, match=r"0\.1 seconds"):
                client.completions.create(**long, extra_body={"ignore_eos": True})
            until(lambda: refused(503) > 0)
        assert (refused(429), refused(503)) == (3, 1)


def test_comments_keep_a_slow_stream_alive() -> None:
    """While nothing comes, the official client reads them and waits for its first token."""
    model = tiny_model()
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.4))
    with serving({"tiny": model}, ping=0.05) as server:
        raw = server.post("/v1/completions", {"model": "tiny", "max_tokens": 1, "stream": True}).text
        assert raw.startswith(": ping\n\n")
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            parts = list(client.completions.create(model="tiny", prompt="Once", max_tokens=2, stream=True))
            assert parts[-1].choices[0].finish_reason
            talk: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
            with client.chat.completions.stream(**talk) as stream:
                assert [one for one in stream if one.type == "content.delta"]


def test_who_has_a_turn_may_take_long() -> None:
    """To read a long prompt is not to wait in the queue."""
    model = tiny_model()
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.4))
    with serving({"tiny": model}, patience=0.1) as server:
        for engine in ("auto", "torch"):
            answer = server.post("/v1/completions", {"model": "tiny", "max_tokens": 1, "engine": engine})
            assert answer.status_code == 200, answer.text


def reads_slowly(model: LanguageModel, *, seconds: float) -> None:
    """Let the first step of a model take its time."""

    def sleep(*_: object) -> None:
        hook.remove()
        time.sleep(seconds)

    hook = model.net.register_forward_pre_hook(sleep)


@pytest.mark.slow
def test_a_prompt_that_takes_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """With the settings that a server has: comments alone, and the official client gets its first token."""
    models = {name: tiny_model(name) for name in ("one", "two")}
    for model in models.values():
        reads_slowly(model, seconds=61)
    begun = time.monotonic()
    with serving(models) as server, ThreadPoolExecutor(1) as pool:
        body = {"model": "one", "prompt": "Once", "max_tokens": 1, "stream": True}
        raw = pool.submit(server.post, "/v1/completions", body, timeout=200)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            parts = list(client.completions.create(model="two", prompt="Once", max_tokens=1, stream=True))
        text = raw.result().text
    pings = text.count(": ping\n\n")
    assert parts[-1].choices[0].finish_reason
    assert text.startswith(": ping\n\n")
    assert pings >= 3
    assert text.endswith("data: [DONE]\n\n")
    assert '"error"' not in text
    with capsys.disabled():
        print(f"\n{pings} comments in {time.monotonic() - begun:.0f} s")


def test_a_request_of_more_texts_than_places() -> None:
    """It has one place in the queue, and its texts follow each other."""
    with serving({"tiny": tiny_model()}, slots=2, queue=1) as server:
        body = {
            "model": "tiny",
            "prompt": ["Once", "Lily", "the", "park"],
            "n": 3,
            "max_tokens": 3,
            "seed": 1,
        }
        found = server.post("/v1/completions", body)
        assert found.status_code == 200, found.text
        assert len(found.json()["choices"]) == 12


def test_the_page_goes_before_programs() -> None:
    """A person waits there; which of them came first counts otherwise."""
    with serving({"long": tiny_model("long", context=4096)}, slots=1, queue=8) as server:
        first = opened(server, LONG | {"stream": True})
        first.recv(1000)
        order: list[str] = []

        def ask(name: str) -> None:
            headers = {"Sec-Fetch-Site": "same-origin"} if name == "page" else {}
            answer = server.post("/v1/completions", LONG | {"max_tokens": 60}, headers=headers)
            assert answer.status_code == 200
            order.append(name)

        with ThreadPoolExecutor(3) as pool:
            asked = []
            for count, name in enumerate(("program", "other program", "page"), 1):
                asked.append(pool.submit(ask, name))
                until(lambda count=count: server.state.library.find("long").runner.waiting == count)  # type: ignore[misc]
            first.close()
            for one in asked:
                one.result()
        assert order == ["page", "program", "other program"]


def test_neighbors_change_nothing(server: Running) -> None:
    """Alone, among others with and without seeds, among others that leave: the same bytes."""
    body = {"model": "storyteller", "prompt": "One day, Tom", "max_tokens": 20, "seed": 7, "logprobs": 3}

    def ask(more: dict[str, Any]) -> Any:
        return server.post("/v1/completions", body | more).json()["choices"]

    alone = ask({})
    others = [{"prompt": f"Number {n} is", "seed": n if n % 2 else None} for n in range(7)]
    leaving = [opened(server, body | {"max_tokens": 200, "stream": True}) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, [*others[:4], {}, *others[4:], {}]))
    for one in leaving:
        one.close()
    assert found[4] == found[-1] == alone
    assert ask({}) == alone


def test_a_request_may_not_take_forever() -> None:
    """After its time it ends with an error that says so, and its place is free."""
    with serving({"long": tiny_model("long", context=4096)}, longest=0.3) as server:
        answer = server.post("/v1/completions", LONG)
        assert answer.status_code == 503
        assert "0.3 seconds" in answer.json()["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"
        streamed = server.post("/v1/completions", LONG | {"stream": True}).text.split("\n\n")
        assert "0.3 seconds" in json.loads(streamed[-3].removeprefix("data: "))["error"]["message"]
        assert streamed[-2:] == ["data: [DONE]", ""]
        until(lambda: busy(server) == 0)
