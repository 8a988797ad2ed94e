"""`/v1/completions`: prompts, log-probabilities, stop strings, streams, and what is refused."""

import itertools
import json
import time
from typing import Any

import numpy as np
import pytest
from serving import Running

import glassformer as gf
from glassformer.generation.sampling import log_softmax

ASK = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 8, "seed": 3}
STORY = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 12, "seed": 1}


def completion(server: Running, **fields: Any) -> dict[str, Any]:
    """A completion that must succeed; strict JSON."""
    answer = server.post("/v1/completions", ASK | fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text, parse_constant=pytest.fail)
    return found


def chunks(server: Running, path: str = "/v1/completions", **fields: Any) -> list[dict[str, Any]]:
    """The chunks of a stream, which must be framed to the letter."""
    answer = server.post(path, ASK | {"stream": True} | fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(event.startswith("data: {") and "\n" not in event for event in events)
    return [json.loads(event.removeprefix("data: "), parse_constant=pytest.fail) for event in events]


def joined(found: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The choice that the chunks of a stream add up to."""
    parts = [choice for chunk in found for choice in chunk["choices"] if choice["index"] == index]
    whole: dict[str, Any] = {"index": index, "text": "".join(part["text"] for part in parts)}
    whole["finish_reason"] = parts[-1]["finish_reason"]
    assert all(part["finish_reason"] is None for part in parts[:-1])
    whole["logprobs"] = None
    if parts[0]["logprobs"] is not None:
        names = parts[0]["logprobs"]
        whole["logprobs"] = {
            name: [one for part in parts for one in part["logprobs"][name]] for name in names
        }
    return whole


def test_the_text_is_that_of_python_and_the_command_line(server: Running) -> None:
    """Same model, same seed, same text; what is not given is as the model's makers recommend."""
    out = gf.load("storyteller").generate("Once upon a time", max_new_tokens=12, seed=1)
    found = completion(server, **STORY)
    assert found["choices"][0]["text"] == out.text
    assert found["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 12,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": found["usage"]["prompt_tokens_details"]["cached_tokens"]},
    }
    assert found["object"] == "text_completion"
    assert found["id"].startswith("cmpl-")
    assert "native" in found["system_fingerprint"]


def test_the_phases_of_an_answer_are_in_a_header(server: Running) -> None:
    """In milliseconds, and together no longer than the answer took."""
    begun = time.monotonic()
    answer = server.post("/v1/completions", STORY | {"n": 2})
    whole = 1000 * (time.monotonic() - begun)
    phases = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert list(phases) == ["queue", "prefill", "decode"]
    assert 0 < float(phases["decode"]) <= whole


def test_four_forms_of_a_prompt(server: Running) -> None:
    """A text, texts, ids, lists of ids; none is the beginning of a document."""
    ids = server.post("/tokenize", {"model": "tiny", "prompt": ASK["prompt"]}).json()["tokens"]
    text = completion(server)["choices"][0]["text"]
    assert completion(server, prompt=ids)["choices"][0]["text"] == text
    several = completion(server, prompt=[ASK["prompt"], "Lily"])
    assert [one["index"] for one in several["choices"]] == [0, 1]
    assert several["choices"][0]["text"] == text
    assert completion(server, prompt=[ids, ids])["choices"][1]["text"] == text

    end = server.get("/tokenizer_info?model=tiny").json()["eos_token_id"]
    start = completion(server, prompt=[end])["choices"][0]["text"]
    for empty in (None, "", [], [""], [[]]):
        assert completion(server, prompt=empty)["choices"][0]["text"] == start
    fields = {name: value for name, value in ASK.items() if name != "prompt"}
    assert server.post("/v1/completions", fields).json()["choices"][0]["text"] == start


def test_numbering_of_choices(server: Running) -> None:
    """index = prompt × n + k; with a seed reproducible, and the n differ."""
    found = completion(server, prompt=["Once", "Lily"], n=3)
    assert [one["index"] for one in found["choices"]] == list(range(6))
    assert len({one["text"] for one in found["choices"]}) > 3
    assert completion(server, prompt=["Once", "Lily"], n=3)["choices"] == found["choices"]
    assert completion(server, prompt="Once")["choices"][0]["text"] == found["choices"][0]["text"]
    counts = [
        len(server.post("/tokenize", {"model": "tiny", "prompt": text}).json()["tokens"])
        for text in ("Once", "Lily")
    ]
    assert found["usage"]["prompt_tokens"] == sum(counts)
    assert found["usage"]["completion_tokens"] == 6 * 8


GRID = itertools.product((None, 0, 5), (0, 1, 5), ("text", "ids"))


@pytest.mark.parametrize(("logprobs", "max_tokens", "form"), list(GRID))
def test_echo(server: Running, logprobs: int | None, max_tokens: int, form: str) -> None:
    """The prompt comes back, with log-probabilities that are those of the torch model; streamed as whole."""
    ids = server.post("/tokenize", {"model": "tiny", "prompt": ASK["prompt"]}).json()["tokens"]
    ask = {"echo": True, "logprobs": logprobs, "max_tokens": max_tokens}
    ask["prompt"] = ASK["prompt"] if form == "text" else ids
    (choice,) = completion(server, **ask)["choices"]
    assert choice["text"].startswith(ASK["prompt"])
    assert joined(chunks(server, **ask)) == {
        key: choice[key] for key in ("index", "text", "finish_reason", "logprobs")
    }
    if logprobs is None:
        assert choice["logprobs"] is None
        return
    found = choice["logprobs"]
    assert {len(one) for one in found.values()} == {len(ids) + max_tokens}
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    assert None not in found["token_logprobs"][1:]
    rows = server.state.library.find("tiny").model.logits(ids)
    for at, id in enumerate(ids[1:]):
        expected = log_softmax(rows[at])
        assert abs(found["token_logprobs"][at + 1] - expected[id]) < 1e-4
        top = found["top_logprobs"][at + 1]
        assert len(top) in ({logprobs, logprobs + 1} if logprobs else {1})
        assert top[found["tokens"][at + 1]] == found["token_logprobs"][at + 1]
        assert abs(max(top.values()) - (expected.max() if logprobs else expected[id])) < 1e-4


def test_offsets_are_places_in_the_text(server: Running) -> None:
    """Where tokens are whole characters, the text from one offset to the next is the token."""
    (choice,) = completion(server, **STORY, echo=True, logprobs=0)["choices"]
    found = choice["logprobs"]
    ends = [*found["text_offset"][1:], len(choice["text"])]
    for token, start, end in zip(found["tokens"], found["text_offset"], ends, strict=True):
        assert choice["text"][start:end] == token


def test_echo_is_exact(server: Running) -> None:
    """The very float that the engine gives for every token, in both lists: what a likelihood task sums up."""
    lm = server.state.library.find("storyteller").model
    text = "Once upon a time there was a dog who liked to run"
    ids = lm.encode(text)
    rows = lm.engine.logits(np.array([ids]))[0]
    sums = lm.engine.log_sums(rows)
    expected = [float(rows[at][id]) - sums[at] for at, id in enumerate(ids[1:])]
    ask = {
        "model": "storyteller",
        "prompt": [ids] * 4,
        "echo": True,
        "logprobs": 1,
        "max_tokens": 1,
        "temperature": 0,
    }
    for choice in completion(server, **ask)["choices"]:
        found = choice["logprobs"]
        assert found["token_logprobs"][1 : len(ids)] == expected
        for row, logprob, top in zip(
            rows, found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True
        ):
            assert (logprob == max(top.values())) == (
                logprob == float(row.max()) - lm.engine.log_sums(row[None])[0]
            )


def test_no_half_characters(server: Running) -> None:
    """A model of bytes writes parts of characters: no U+FFFD in a stream that is not in the whole text, and the same end."""
    fields = {"prompt": "🙂 naïve 語", "max_tokens": 40, "logprobs": 3, "temperature": 1.5}
    for seed in range(3):
        (choice,) = completion(server, **fields, seed=seed)["choices"]
        pieces = chunks(server, **fields, seed=seed)
        assert joined(pieces) == {key: choice[key] for key in ("index", "text", "finish_reason", "logprobs")}
        whole = server.state.library.find("tiny").model
        raw = completion(server, **fields, seed=seed, return_token_ids=True)["choices"][0]["token_ids"]
        ended = choice["finish_reason"] == "stop"
        assert choice["text"] == whole.text_of(raw[:-1] if ended else raw)
        assert len(choice["logprobs"]["tokens"]) == len(raw)
        for top in choice["logprobs"]["top_logprobs"]:  # broken characters do not share a key
            assert len(top) in (3, 4)
            assert not any("\ufffd" in key for key in top)


STOPS = ["\n", " ", "a", "Li", "the", " was a", "e p", "xyz"]


@pytest.mark.parametrize("stop", STOPS)
def test_stop_strings_never_leave_the_server(server: Running, stop: str) -> None:
    """Wherever tokens cut them: the text ends before the first, and no chunk has a part of it."""
    for seed in range(2):
        fields = STORY | {"seed": seed, "max_tokens": 30}
        free = completion(server, **fields)["choices"][0]
        (choice,) = completion(server, **fields, stop=stop, logprobs=0)["choices"]
        expected, found, _ = free["text"].partition(stop)
        assert choice["text"] == expected
        assert choice["finish_reason"] == ("stop" if found else free["finish_reason"])
        pieces = chunks(server, **fields, stop=stop, logprobs=0)
        assert joined(pieces)["text"] == expected
        assert joined(pieces)["logprobs"] == choice["logprobs"]
        assert all(offset < len(expected) for offset in choice["logprobs"]["text_offset"]) or not found


def test_several_stops(server: Running) -> None:
    """The first that is complete wins; one may be the beginning of another."""
    text = completion(server, **STORY)["choices"][0]["text"]
    assert completion(server, **STORY, stop=[text[5:9], text[5:12]])["choices"][0]["text"] == text[:5]
    assert (
        completion(server, **STORY, stop=["never", text[3:4]])["choices"][0]["text"]
        == text.split(text[3:4])[0]
    )


def test_what_is_held_back_is_delivered_at_the_end(server: Running) -> None:
    """A text that ends inside of a stop string."""
    text = completion(server, **STORY)["choices"][0]["text"]
    stop = text[-3:] + "§"
    (choice,) = completion(server, **STORY, stop=stop)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, "length")
    assert joined(chunks(server, **STORY, stop=stop))["text"] == text


def test_the_end_token_has_an_entry_and_no_text(server: Running) -> None:
    """lm-eval slices the entries: prompt tokens + 1, also when the generated token ends the text."""
    end = server.get("/tokenizer_info?model=tiny").json()["eos_token_id"]
    fields = {"logit_bias": {str(end): 100}, "logprobs": 1, "max_tokens": 1, "temperature": 0, "echo": True}
    found = completion(server, **fields)
    (choice,) = found["choices"]
    assert choice["text"] == ASK["prompt"]
    assert choice["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] == 1
    prompt = found["usage"]["prompt_tokens"]
    assert {len(one) for one in choice["logprobs"].values()} == {prompt + 1}
    assert choice["logprobs"]["tokens"][-1] == "<|endoftext|>"
    assert choice["logprobs"]["token_logprobs"][-1] > -50


def test_biases_ban_and_force(server: Running) -> None:
    """-100 is never; log-probabilities are before the bias, and finite."""
    ids = completion(server, **STORY, return_token_ids=True)["choices"][0]["token_ids"]
    banned = {str(id): -100 for id in ids}
    (choice,) = completion(server, **STORY, logit_bias=banned, logprobs=20, return_token_ids=True)["choices"]
    assert not set(choice["token_ids"]) & set(ids)
    values = [one for top in choice["logprobs"]["top_logprobs"] for one in top.values()]
    assert all(np.isfinite(values))
    assert min(values) >= -9999.0


def test_ends_and_their_settings(server: Running) -> None:
    """Tokens that stop, the least number of tokens, and no end at all."""
    ids = completion(server, return_token_ids=True)["choices"][0]["token_ids"]
    (choice,) = completion(server, stop_token_ids=[ids[2]], return_token_ids=True)["choices"]
    assert (choice["token_ids"], choice["finish_reason"]) == (ids[: ids.index(ids[2]) + 1], "stop")
    end = server.get("/tokenizer_info?model=tiny").json()["eos_token_id"]
    forced = {"logit_bias": {str(end): 100}, "max_tokens": 6}
    assert completion(server, **forced)["usage"]["completion_tokens"] == 1
    assert completion(server, **forced, min_tokens=3)["usage"]["completion_tokens"] == 4
    assert completion(server, **forced, ignore_eos=True)["usage"]["completion_tokens"] == 6


def test_named_tokens(server: Running) -> None:
    """Their log-probabilities, whatever their rank."""
    fields = STORY | {"max_tokens": 2, "temperature": 0}
    (choice,) = completion(server, **fields, logprob_tokens=[" girl", " the"], logprob_token_ids=[5])[
        "choices"
    ]
    named = choice["logprobs"]["named_logprobs"]
    assert all(len(one) == 3 for one in named)
    whole = completion(server, **fields, logprobs=20)["choices"][0]["logprobs"]["top_logprobs"]
    for asked, top in zip(named, whole, strict=True):
        for token in asked.keys() & top.keys():
            assert asked[token] == top[token]


def test_best_of(server: Running) -> None:
    """The n whose tokens were likeliest on average, of more that were made."""
    every = completion(server, n=6, logprobs=0)["choices"]
    means = [np.mean(one["logprobs"]["token_logprobs"]) for one in every]
    found = completion(server, n=2, best_of=6)
    best = np.argsort(means)[::-1][:2]
    assert [one["text"] for one in found["choices"]] == [every[at]["text"] for at in best]
    assert [one["index"] for one in found["choices"]] == [0, 1]
    assert found["usage"]["completion_tokens"] == 6 * 8


def test_streams_add_up(server: Running) -> None:
    """Several prompts and choices, each in its own order; the same id in every chunk."""
    fields = {"prompt": ["Once", "Lily was"], "n": 2, "logprobs": 2}
    whole = completion(server, **fields)
    found = chunks(server, **fields)
    for choice in whole["choices"]:
        assert joined(found, choice["index"]) == {
            key: choice[key] for key in ("index", "text", "finish_reason", "logprobs")
        }
    assert len({(one["id"], one["created"], one["model"]) for one in found}) == 1
    assert not any("usage" in one for one in found)


def test_usage_in_streams(server: Running) -> None:
    """Only when asked for, last, and without choices; or all the time."""
    fields = {"prompt": ["Once", "Lily"], "n": 2}
    usage = completion(server, **fields)["usage"]
    *parts, last = chunks(server, **fields, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert {key: last["usage"][key] for key in list(usage)[:3]} == {
        key: usage[key] for key in list(usage)[:3]
    }
    assert all(one["usage"] is None and one["choices"] for one in parts)
    found = chunks(server, stream_options={"continuous_usage_stats": True, "include_usage": True})
    counts = [one["usage"]["completion_tokens"] for one in found]
    assert counts == sorted(counts)
    assert counts[-1] == 8


def test_the_edge_of_the_context(server: Running) -> None:
    """64 tokens fit; one more is refused with both numbers; what is left is written, and no more."""
    found = completion(server, prompt=[5] * 60, max_tokens=100, ignore_eos=True)
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 4
    full = completion(server, prompt=[5] * 64, max_tokens=1)
    assert (full["choices"][0]["text"], full["choices"][0]["finish_reason"]) == ("", "length")
    for prompt in ([5] * 65, "a" * 100_000):
        answer = server.post("/v1/completions", ASK | {"prompt": prompt})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "64" in error["message"]
    assert "65" in server.post("/v1/completions", ASK | {"prompt": [5] * 65}).json()["error"]["message"]


REFUSED = [
    ("temperature", -1), ("temperature", 2.5), ("temperature", "1"), ("temperature", True), ("temperature", 1e308),
    ("temperature", 1e-320), ("top_p", 0), ("top_p", 2), ("top_k", -2), ("top_k", 1 << 40), ("min_p", 1.5),
    ("typical_p", 0), ("typical_p", 1.5), ("cache_salt", ""), ("cache_salt", "a" * 257), ("cache_salt", 5), ("n", 0), ("n", 9), ("n", 10**6), ("n", 1.5), ("best_of", 9), ("max_tokens", -1),
    ("max_tokens", 10**9), ("max_tokens", True), ("max_tokens", "8"), ("stop", ""), ("stop", ["a"] * 17),
    ("stop", ["a"] * 100_000), ("stop", "a" * 257), ("stop", [""]), ("stop", 5), ("logprobs", -1), ("logprobs", 21),
    ("seed", 1 << 64), ("seed", 1.5), ("frequency_penalty", 3), ("presence_penalty", -2.1),
    ("repetition_penalty", 0), ("logit_bias", {"a": 1}), ("logit_bias", {"-1": 1}), ("logit_bias", {"300000": 1}),
    ("logit_bias", {"5": 101}), ("logit_bias", {"5": "1"}), ("logit_bias", [1]),
    ("logit_bias", {str(id): 0 for id in range(2000)}), ("prompt", ["a", 1]), ("prompt", [1.5]), ("prompt", [True]),
    ("prompt", [-1]), ("prompt", [1 << 31]), ("prompt", [1 << 63]), ("prompt", [300]), ("prompt", [[1], [50_000]]),
    ("prompt", [["a"]]), ("prompt", {"a": 1}), ("prompt", ["a"] * 100_000), ("prompt", 7),
    ("stop_token_ids", [50_000]), ("stop_token_ids", [-1]), ("stop_token_ids", [True]), ("stop_token_ids", [1.5]),
    ("logprob_token_ids", [50_000]), ("logprob_token_ids", [1 << 63]), ("logprob_tokens", ["two words"]),
    ("suffix", "end"), ("stream_options", {"include_usage": True}), ("stream", 1), ("echo", "yes"),
    ("explain", []), ("edits", {}), ("model", 5), ("model", None), ("engine", "cuda"), ("max_tokens", 0),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_wrong_field_is_named(server: Running, field: str, value: Any) -> None:
    """A 400 that names it, at once."""
    answer = server.post("/v1/completions", ASK | {field: value})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == field
    assert error["message"].startswith(field)


def test_every_field_of_ids_has_the_one_type() -> None:
    """A new field that holds token ids cannot be forgotten: ids are ranged by their type, and it is found in the schema."""
    from glassformer.server import schemas

    for name in dir(schemas):
        model = getattr(schemas, name)
        if not (isinstance(model, type) and issubclass(model, schemas.Request)):
            continue
        for field, schema in model.model_json_schema().get("properties", {}).items():
            if "token_ids" not in field and field != "tokens":
                continue
            if schema.get("type") == "boolean" or "boolean" in json.dumps(schema):
                continue
            assert '"exclusiveMaximum": 2147483648' in json.dumps(schema), f"{name}.{field}"


def test_other_refusals(server: Running) -> None:
    """Fields that do not go together; a model that is not served; fields of others are accepted."""
    for fields, param in [
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"prompt": ["a"] * 200, "n": 2}, "prompt"),
    ]:
        error = server.post("/v1/completions", ASK | fields).json()["error"]
        assert error["param"] == param
    error = server.post("/v1/completions", ASK | {"model": "gpt-9"}).json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert completion(server, user="me", service_tier="auto", a_field_of_next_month={"a": [1]})


def test_seeds(server: Running) -> None:
    """Negative ones are numbers, too; without one, texts differ."""
    assert completion(server, seed=-5)["choices"] == completion(server, seed=-5)["choices"]
    texts = {completion(server, seed=None, temperature=2)["choices"][0]["text"] for _ in range(4)}
    assert len(texts) > 1


def test_typical_p(server: Running) -> None:
    """As in Python; 1 is off."""
    fields = STORY | {"temperature": 1.0, "top_k": 0, "typical_p": 0.2}
    out = gf.load("storyteller").generate(
        "Once upon a time", max_new_tokens=12, seed=1, temperature=1.0, top_k=0, typical_p=0.2
    )
    (choice,) = completion(server, **fields)["choices"]
    (free,) = completion(server, **fields | {"typical_p": 1})["choices"]
    assert choice["text"] == out.text != free["text"]


def test_a_salt_keeps_prefixes_apart(server: Running) -> None:
    """A text that others sent before is read as if it were new; the answer is the same."""
    fields = STORY | {"prompt": "A prefix of several words that is salted"}
    found = [completion(server, **fields, cache_salt=salt) for salt in ("mine", "yours", "yours")]
    found.append(completion(server, **fields))
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in found]
    assert cached[:2] == [0, 0]
    assert cached[2] == found[0]["usage"]["prompt_tokens"] - 1
    assert cached[3] == 0
    assert len({one["choices"][0]["text"] for one in found}) == 1


def test_answers_are_not_larger_than_memory(server: Running) -> None:
    """Refused before anything runs, where all log-probabilities would be held at once; a stream sends them on."""
    large = {"model": "long", "max_tokens": 4000, "n": 8, "logprobs": 20, "prompt": "a"}
    answer = server.post("/v1/completions", ASK | large)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprobs")
    assert "672,000" in answer.json()["error"]["message"]
    with server.client.stream("POST", "/v1/completions", json=ASK | large | {"stream": True}) as stream:
        assert stream.status_code == 200


def test_logprobs_true_is_one(server: Running) -> None:
    """As in a chat."""
    assert completion(server, logprobs=True) | {"id": 0, "created": 0} == completion(server, logprobs=1) | {
        "id": 0,
        "created": 0,
    }


def test_framing_survives_what_the_model_writes(server: Running) -> None:
    """Text that looks like the end of a stream, or like HTML, is text."""
    evil = "data: [DONE]\n\n\r\n</script><img src=x onerror=alert(1)>\u2028: ping\n\nevent: error"
    (choice,) = completion(server, model="long", prompt=evil, echo=True, max_tokens=0)["choices"]
    assert choice["text"] == evil
    assert joined(chunks(server, model="long", prompt=evil, echo=True, max_tokens=0))["text"] == evil
