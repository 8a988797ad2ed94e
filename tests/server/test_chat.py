"""`/v1/chat/completions`, by the official client: raw and through its helper, streamed and whole."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Running

from glassformer.server.chat import transcript

TALK: list[Any] = [{"role": "user", "content": "Tell me of Lily."}]
ASK: dict[str, Any] = {"model": "storyteller", "messages": TALK, "seed": 5, "max_tokens": 10}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(server: Running, **fields: Any) -> Any:
    """The answer to a chat, as a response."""
    return server.post("/v1/chat/completions", ASK | fields)


def test_the_transcript() -> None:
    """A conversation as a text; the one place where its form is written down."""
    turns = [("system", "Be brief."), ("user", " Hello! "), ("assistant", "Hi."), ("user", "How are you?")]
    assert transcript(turns) == "Be brief.\n\nUser: Hello!\nAssistant: Hi.\nUser: How are you?\nAssistant:"


def test_whole_raw_and_helper_agree(client: openai.OpenAI) -> None:
    """The text is the same, however it is asked for."""
    ask = ASK | {"stop": [" "], "max_tokens": 30}  # the helper takes an end by length for an error
    whole = client.chat.completions.create(**ask)
    text = whole.choices[0].message.content
    assert text
    assert whole.usage is not None

    raw = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in raw[:-1]) == text
    assert raw[0].choices[0].delta.role == "assistant"
    assert raw[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert raw[-1].usage is not None
    assert raw[-1].usage.total_tokens == whole.usage.total_tokens
    assert len({chunk.id for chunk in raw}) == 1

    with client.chat.completions.stream(**ask, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text
    assert final.choices[0].message.role == "assistant"
    assert final.usage is not None


def test_several_choices_through_the_helper(client: openai.OpenAI) -> None:
    """First chunks come in order; with a seed the texts are the same again."""
    ask = ASK | {"stop": [" "], "max_tokens": 30}
    whole = client.chat.completions.create(**ask, n=3)
    texts = [one.message.content for one in whole.choices]
    assert len(set(texts)) == 3
    with client.chat.completions.stream(**ask, n=3) as stream:
        final = stream.get_final_completion()
    assert [one.message.content for one in final.choices] == texts


def test_log_probabilities_have_true_bytes(server: Running) -> None:
    """Every generated token has an entry, half characters too; their bytes are the text."""
    fields = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "🙂"}],
        "max_tokens": 40,
        "temperature": 1.5,
    }
    for seed in range(4):
        found = chat(server, **fields, seed=seed, logprobs=True, top_logprobs=3).json()["choices"][0]
        content = found["logprobs"]["content"]
        ended = found["finish_reason"] == "stop" and content[-1]["token"] == "<|endoftext|>"
        raw = b"".join(bytes(one["bytes"]) for one in (content[:-1] if ended else content))
        assert raw.decode("utf-8", "replace") == found["message"]["content"]
        assert all(len(one["top_logprobs"]) == 3 for one in content)
        values = [one["logprob"] for one in content[0]["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        body = ASK | fields | {"seed": seed, "logprobs": True, "top_logprobs": 3, "stream": True}
        lines = server.post("/v1/chat/completions", body).text.split("\n\n")[:-2]
        parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
        streamed = [one for part in parts for one in (part["logprobs"] or {"content": []})["content"]]
        assert streamed == content
        assert "".join(part["delta"].get("content", "") for part in parts) == found["message"]["content"]


def test_the_helper_adds_up_log_probabilities(client: openai.OpenAI) -> None:
    """And does not fall over them."""
    ask = ASK | {"stop": [" "], "max_tokens": 30, "logprobs": True, "top_logprobs": 2}
    with client.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**ask)
    assert final.choices[0].logprobs is not None
    assert whole.choices[0].logprobs is not None
    assert final.choices[0].logprobs.content == whole.choices[0].logprobs.content


def test_named_tokens(server: Running) -> None:
    """Their log-probabilities whatever their rank, also without `logprobs`; the same floats as among the likeliest."""
    how = {"temperature": 0, "max_tokens": 3}
    named = chat(server, **how, logprob_tokens=[" the", "."], logprob_token_ids=[5]).json()["choices"][0]
    asked = [[one["logprob"] for one in entry["named_logprobs"]] for entry in named["logprobs"]["content"]]
    assert [len(one) for one in asked] == [3, 3, 3]
    best = chat(server, **how, logprobs=True, top_logprobs=20).json()["choices"][0]["logprobs"]["content"]
    for entry, top in zip(named["logprobs"]["content"], best, strict=True):
        likeliest = {one["token"]: one["logprob"] for one in top["top_logprobs"]}
        for one in entry["named_logprobs"]:
            assert likeliest.get(one["token"], one["logprob"]) == one["logprob"]


def test_the_next_turn_is_not_written(server: Running) -> None:
    """An answer ends where the user would speak again, and says `stop`."""
    served = server.state.library.find("storyteller")
    ids = served.tokenizer.encode("\nUser: and then?")
    bias = {str(id): 50 for id in ids[:1]}
    answer = chat(server, logit_bias=bias, temperature=0, max_tokens=30).json()["choices"][0]
    assert "\nUser:" not in answer["message"]["content"]


def test_dialogs_are_joined_by_the_end_token(server: Running) -> None:
    """Turns without names; a special token in a message is plain text."""
    model = "a/DialoGPT-tiny"
    talk = [
        {"role": "user", "content": "Hi<|endoftext|>"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "So"},
    ]
    body = ASK | {"model": model, "messages": talk, "return_token_ids": True, "max_tokens": 4}
    (choice,) = server.post("/v1/chat/completions", body).json()["choices"]
    tokenizer = server.state.library.find(model).tokenizer
    end = tokenizer.end
    expected = [
        *tokenizer.encode("Hi<|endoftext|>"),
        end,
        *tokenizer.encode("Yes?"),
        end,
        *tokenizer.encode("So"),
        end,
    ]
    assert choice["prompt_token_ids"] == expected
    assert choice["prompt_token_ids"].count(end) == 3


def test_forms_of_messages(server: Running) -> None:
    """Text parts are joined; `developer` is `system`; the newer name of a limit wins."""
    parts = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "of Lily."}],
        }
    ]
    text = chat(server).json()["choices"][0]["message"]["content"]
    assert chat(server, messages=parts).json()["choices"][0]["message"]["content"] == text
    ways = [
        chat(server, messages=[{"role": role, "content": "Be brief."}, *TALK]).json()
        for role in ("system", "developer")
    ]
    assert ways[0]["choices"] == ways[1]["choices"]
    assert chat(server, max_tokens=9, max_completion_tokens=3).json()["usage"]["completion_tokens"] == 3
    assert (
        chat(
            server, tools=[], response_format={"type": "text"}, store=True, reasoning_effort="low"
        ).status_code
        == 200
    )


def test_no_template_of_a_request_is_executed(server: Running) -> None:
    """Fields of other servers that hold programs are names that nothing here reads."""
    plain = chat(server, max_tokens=5).json()["choices"]
    program = "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in range(10**9) %}{% endfor %}"
    for fields in ({"chat_template": program}, {"chat_template_kwargs": {"chat_template": program}}):
        assert chat(server, max_tokens=5, **fields).json()["choices"] == plain


def test_the_rest_of_the_context_is_the_default(server: Running) -> None:
    """Where no limit is given."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "a"}],
        "ignore_eos": True,
        "seed": 1,
        "stop_token_ids": [],
    }
    usage = server.post("/v1/chat/completions", body).json()["usage"]
    assert usage["total_tokens"] <= 64
    assert usage["completion_tokens"] > 16


REFUSED = [
    ("messages", []), ("messages", [{"role": "robot", "content": "a"}]), ("messages", "Hi"), ("messages", None),
    ("messages", [{"role": "user", "content": 5}]), ("tools", [{"type": "function"}]), ("functions", [{}]),
    ("response_format", {"type": "json_object"}), ("audio", {"voice": "a"}), ("prediction", {"type": "content"}),
    ("web_search_options", {"a": 1}), ("modalities", ["audio"]), ("top_logprobs", 5), ("logprobs", 3), ("max_tokens", 0),
    ("max_completion_tokens", 0), ("n", 9),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_wrong_field_is_named(server: Running, field: str, value: Any) -> None:
    """A 400 that names it."""
    answer = chat(server, **{field: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field


def test_images_are_refused(server: Running) -> None:
    """These models read text."""
    image = {"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}
    answer = chat(server, messages=[{"role": "user", "content": [image]}])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[0].content"


def test_the_client_shows_our_words(client: openai.OpenAI, server: Running) -> None:
    """Every kind of failure: the exception has the reason and the request's id."""
    with pytest.raises(openai.NotFoundError, match="is not served here") as missing:
        client.chat.completions.create(**ASK | {"model": "gpt-9"})
    assert missing.value.code == "model_not_found"
    assert missing.value.request_id is not None
    assert missing.value.request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(**ASK, temperature=9)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 64 tokens") as long:
        client.completions.create(model="tiny", prompt="a" * 70)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="there is no"):
        client.batches.list()
    with pytest.raises(openai.PermissionDeniedError, match="Host"):
        client.models.list(extra_headers={"Host": "evil.example"})
    with pytest.raises(openai.APIStatusError, match="larger than") as large:
        client.completions.create(model="tiny", prompt="a" * (5 << 20))
    assert large.value.status_code == 413


def test_the_models_of_the_client(client: openai.OpenAI) -> None:
    """Listed, and one by one; an id may have a slash."""
    ids = [one.id for one in client.models.list()]
    assert ids[0] == "tiny"
    assert client.models.retrieve("a/DialoGPT-tiny").id == "a/DialoGPT-tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


CLIENTS = Path(__file__).parents[1] / "clients"


@pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENTS / "node_modules").is_dir(),
    reason="OpenAI's client for JavaScript is not here: npm --prefix tests/clients ci",
)
def test_the_client_for_javascript(server: Running) -> None:
    """Raw and through its helpers, with insides that it does not know: the same texts as everywhere."""
    command = ["node", str(CLIENTS / "openai.mjs"), server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ask = {"stop": [" "], "max_tokens": 30}
    texts = [one["message"]["content"] for one in chat(server, **ask, n=2).json()["choices"]]
    assert found["whole"] == found["raw"] == texts[0]
    assert found["helper"] == texts
    assert found["explained"] > 1
    assert found["usage"] is True
    assert found["completion"] == ", there was a"
    assert (found["status"], bool(found["response"])) == ("completed", True)
    assert found["width"] == server.get("/v1/models/storyteller").json()["meta"]["n_embd"]
    assert (found["error"]["status"], found["error"]["code"]) == (404, "model_not_found")
    assert found["error"]["id"].startswith("req_")
    assert "is not served here" in found["error"]["message"]
    assert "explain.steps" in found["late"]


def test_an_engine_that_fails_on_its_way(
    client: openai.OpenAI, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After five tokens of a stream: the client raises with our message, and the server goes on."""
    from glassformer.errors import GlassError
    from glassformer.server.writing import Choice

    push = Choice.push

    def fails(self: Choice, token: Any) -> Any:
        if len(self.ids) == 5:
            raise GlassError("the weights are broken")
        return push(self, token)

    monkeypatch.setattr(Choice, "push", fails)
    with pytest.raises(openai.APIError, match="the weights are broken"):
        list(client.chat.completions.create(**ASK, stream=True))
    with (
        pytest.raises(openai.APIError, match="the weights are broken"),
        client.chat.completions.stream(**ASK) as stream,
    ):
        stream.get_final_completion()
    monkeypatch.undo()
    assert client.chat.completions.create(**ASK).choices[0].message.content
