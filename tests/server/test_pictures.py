"""Answers that take long: a page is told how far they are, and leaves the lane to others when it leaves."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import Running, serving, tiny_model, until

from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.server.pictures import STREAM_AFTER
from glassformer.server.studio import Studio
from glassformer.tasks.complete import LanguageModel

TEXT = "Once upon a time, there was a girl"
EVENTS = {"accept": "text/event-stream, application/json"}


class Slow:
    """A studio whose model can be made to take its time, and counts how often it runs."""

    def __init__(self, running: Running, studio: Studio, model: LanguageModel) -> None:
        self.running, self.model = running, model
        self.headers = {"cookie": f"glass_studio_{running.port}={studio.door.session}"}
        self.pause, self.runs = 0.0, 0
        model.net.register_forward_pre_hook(self._run)

    def _run(self, *_: Any) -> None:
        self.runs += 1
        time.sleep(self.pause)

    @property
    def lane(self) -> Any:
        return self.running.state.library.find("tiny").lane

    def body(self, **options: Any) -> dict[str, Any]:
        ids = self.model.encode(TEXT)
        how = {"question": "saliency", "prompt": len(ids) - 1, "options": options}
        return {"model": "tiny", "ids": ids, "width": 500, **how}

    def post(self, body: dict[str, Any], **how: Any) -> httpx.Response:
        return self.running.post("/studio/view", body, headers=self.headers | EVENTS, **how)


@pytest.fixture
def slow() -> Iterator[Slow]:
    model = tiny_model()
    studio = Studio(lambda name: model, first=("tiny",), files={})
    with serving({}, studio=studio) as running:
        found = Slow(running, studio, model)
        until(lambda: found.running.get("/studio/status", headers=found.headers).json()["statuses"][0]["stage"] == "ready")  # fmt: skip
        yield found
        found.pause = 0.0


def events(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    *told, end = [part.removeprefix("data: ") for part in answer.text.split("\n\n") if part.strip()]
    assert end == "[DONE]"
    return [json.loads(one) for one in told]


def test_what_takes_long_says_how_far_it_is(slow: Slow) -> None:
    """More and more; the last event is the answer that a quick one is as a whole."""
    slow.pause = 0.03
    *told, last = events(slow.post(slow.body()))
    shares = [one["progress"]["done"] / one["progress"]["total"] for one in told if one["progress"]["total"]]
    assert len(shares) >= 4
    assert shares == sorted(shares)
    assert all(one["progress"]["begun"] for one in told)
    ids = slow.model.encode(TEXT)
    expected = ask("saliency", Text(slow.model, ids, len(ids) - 1))
    assert last["answer"]["view"] == json.loads(json.dumps(expected.view().spec))
    kept = slow.post(slow.body())  # what is known is told at once
    assert kept.headers["content-type"] == "application/json"
    assert kept.json() == last["answer"]


def test_who_takes_no_events_gets_the_answer_alone(slow: Slow) -> None:
    slow.pause = 0.02
    answer = slow.running.post("/studio/view", slow.body(tested=False), headers=slow.headers)
    assert answer.headers["content-type"] == "application/json"
    assert "view" in answer.json()


def test_what_is_wrong_is_said_with_a_status_or_at_the_end(slow: Slow) -> None:
    refused = slow.post(slow.body(method="magic"))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "saliency")
    held = slow.lane._work  # behind a job that takes a while, nothing is known within a moment

    def late(work: Any) -> Any:
        time.sleep(1.0)
        return held(work)

    slow.lane._work = late
    *_, last = events(slow.post(slow.body(method="magic")))
    assert "'magic' is none of" in last["error"]["message"]


def test_one_that_waits_for_its_turn_says_so(slow: Slow) -> None:
    held = slow.lane._work

    def late(work: Any) -> Any:
        time.sleep(1.2)
        return held(work)

    slow.lane._work = late
    first, *_, last = events(slow.post(slow.body(tested=False)))
    assert first["progress"] == {"begun": False, "done": 0, "total": 0}
    assert "view" in last["answer"]


@pytest.mark.parametrize("patience", [0.3, 1.5], ids=["at once", "while it is told how far it is"])
def test_who_leaves_leaves_the_lane(slow: Slow, patience: float) -> None:
    """The model does not run again; the next question has its turn."""
    slow.pause = 0.05
    how: dict[str, Any] = {"json": slow.body(), "headers": slow.headers | EVENTS}
    with httpx.Client(base_url=slow.running.url, trust_env=False) as client:
        try:
            with client.stream("POST", "/studio/view", timeout=patience, **how) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                time.sleep(patience - STREAM_AFTER)
        except httpx.ReadTimeout:
            assert patience < STREAM_AFTER  # it leaves before anything is told
    until(lambda: not slow.lane.working)
    runs = slow.runs
    assert runs < 60  # of a hundred and more
    time.sleep(0.3)
    assert slow.runs == runs
    assert "view" in slow.post(slow.body(tested=False)).text
