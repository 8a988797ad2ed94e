"""`/v1/responses`, by the official client: events in their order, and nothing is kept."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from serving import Running

ASK: dict[str, Any] = {
    "model": "storyteller",
    "input": "Tell me of Lily.",
    "max_output_tokens": 10,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_whole_raw_and_helper_agree(client: openai.OpenAI) -> None:
    """The text is that of a chat, however it is asked for."""
    whole = client.responses.create(**ASK)
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 10
    chat = client.chat.completions.create(
        model="storyteller",
        messages=[{"role": "user", "content": ASK["input"]}],
        max_tokens=10,
        temperature=0,
    )
    assert whole.output_text == chat.choices[0].message.content

    events = list(client.responses.create(**ASK, stream=True))
    assert (
        "".join(one.delta for one in events if one.type == "response.output_text.delta") == whole.output_text
    )
    ended: Any = ASK | {
        "max_output_tokens": 30,
        "extra_body": {"stop": [" "]},
    }  # the helper wants a completed one
    with client.responses.stream(**ended) as stream:
        final = stream.get_final_response()
    assert final.status == "completed"
    assert final.output_text == client.responses.create(**ended).output_text


def test_the_order_of_events(server: Running) -> None:
    """Every event is named as its type, numbered from 0, and has the keys that clients index."""
    answer = server.post("/v1/responses", ASK | {"stream": True, "include": ["message.output_text.logprobs"]})
    *frames, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    kinds = [one["type"].removeprefix("response.") for one in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert deltas > 3
    for one in events[2:-1]:
        assert one["output_index"] == 0
    for one in events[3:-2]:
        assert (one["content_index"], one["item_id"]) == (0, events[2]["item"]["id"])
    assert len({one["response"]["id"] for one in events if "response" in one}) == 1
    assert len(events[-1]["response"]["output"][0]["content"][0]["logprobs"]) == 10


def test_forms_of_the_input(client: openai.OpenAI) -> None:
    """A text is a user's turn; instructions are the system's."""
    listed = client.responses.create(
        **ASK | {"input": [{"role": "user", "content": [{"type": "input_text", "text": ASK["input"]}]}]}
    )
    assert listed.output_text == client.responses.create(**ASK).output_text
    told = client.responses.create(**ASK, instructions="Be brief.")
    system = client.responses.create(
        **ASK
        | {"input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK["input"]}]}
    )
    assert told.output_text == system.output_text


REFUSED = [
    ("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True), ("tools", [{"type": "web_search"}]),
    ("text", {"format": {"type": "json_schema"}}), ("text", {"format": 5}), ("max_output_tokens", 0), ("input", []),
    ("input", 5), ("temperature", 3), ("top_logprobs", 21), ("prompt", {"id": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_wrong_field_is_named(server: Running, field: str, value: Any) -> None:
    """A 400 that names it; nothing is stored, so nothing can be continued."""
    answer = server.post("/v1/responses", ASK | {field: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field


def test_a_failure_on_the_way(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response says that it failed, and why."""
    from glassformer.errors import GlassError
    from glassformer.server.writing import Choice

    def fails(self: Choice, token: Any) -> Any:
        raise GlassError("the weights are broken")

    monkeypatch.setattr(Choice, "push", fails)
    events = list(client.responses.create(**ASK, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == "the weights are broken"
