"""`explain` and `edits` in requests: the same text, its insides, and how near the two engines are."""

import base64
import ctypes
import json
import re
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from serving import Running, opened, serving, tiny_model, until

import glassformer as gf
from glassformer import machine
from glassformer.answers import QUESTIONS as EVERY
from glassformer.explain.lens import lens
from glassformer.models.gpt import GPT, Config
from glassformer.server.explain import NOT_HERE, memory_of
from glassformer.server.traces import MOST_BYTES, Traces
from glassformer.tasks.complete import LanguageModel

ASK: dict[str, Any] = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 5, "seed": 1}
HEAD = {"layer": 1, "head": 0}


def explained(server: Running, explain: Any, **fields: Any) -> dict[str, Any]:
    """The choice of a completion that must succeed."""
    answer = server.post("/v1/completions", ASK | {"explain": explain} | fields)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = json.loads(answer.text, parse_constant=pytest.fail)["choices"][0]
    return choice


def test_the_text_is_the_same_and_the_answer_that_of_python(server: Running) -> None:
    """The same numbers as asking the result of the same run."""
    plain = server.post("/v1/completions", ASK).json()["choices"][0]["text"]
    found = explained(server, {"attention": HEAD, "lens": {"k": 2}, "probabilities": True, "top": 3})
    assert found["text"] == plain
    out = gf.load("storyteller").generate("Once upon a time", max_new_tokens=5, seed=1)
    answers = found["explain"]
    assert np.allclose(
        answers["attention"]["values"]["weights"],
        out.attention(**HEAD).to_dict()["values"]["weights"],
        atol=1e-5,
    )
    assert answers["lens"]["rows"] == json.loads(json.dumps(out.lens(2).to_dict()["rows"]))
    assert answers["probabilities"]["kind"] == "probabilities"
    assert [len(one) for one in answers["top"]] == [3] * 5
    assert answers["engine"] == "native int8"
    assert answers["replayed_by"] == "torch float32"
    assert 0 < answers["largest_logprob_difference"] < 0.5
    gap = out.gap()
    assert gap is not None
    assert abs(answers["largest_logprob_difference"] - gap) < 1e-6


def test_a_warm_prefix_changes_no_answer(server: Running) -> None:
    """What was read before is not computed again; what is asked about it is the same."""
    fields = {"prompt": "A warm prefix of several words, which are kept", "max_tokens": 4}
    explain = {"attention": HEAD, "lens": 2, "recipe": True}
    cold = server.post("/v1/completions", ASK | fields | {"explain": explain}).json()
    warm = server.post("/v1/completions", ASK | fields | {"explain": explain}).json()
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (cold, warm)]
    assert cached[0] < cached[1] == cold["usage"]["prompt_tokens"] - 1
    assert cold["choices"] == warm["choices"]


def test_by_torch_the_two_are_one(server: Running) -> None:
    """`engine: torch`: what chose the tokens is what is looked into."""
    found = explained(server, {"residual": True}, engine="torch")["explain"]
    assert found["engine"] == found["replayed_by"] == "torch float32"
    assert found["largest_logprob_difference"] < 1e-4


def test_in_streams_it_is_on_the_last_chunk(server: Running) -> None:
    """On the choice, never inside of a delta; the official client's helper is not disturbed, and usage stays last."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        talk: Any = {
            "model": "storyteller",
            "messages": [{"role": "user", "content": "Lily?"}],
            "max_tokens": 30,
            "seed": 2,
            "stop": [" "],
        }
        extra = {"explain": {"heads": True}, "stop": [" "], "seed": 1}
        raw = list(
            client.chat.completions.create(
                **talk, stream=True, stream_options={"include_usage": True}, extra_body=extra
            )
        )
        whole = client.chat.completions.create(**talk, extra_body=extra)
        with client.chat.completions.stream(**talk, extra_body=extra) as stream:
            final = stream.get_final_completion()
        response = client.responses.create(
            model="storyteller", input="Lily?", max_output_tokens=30, extra_body=extra
        )
        with client.responses.stream(
            model="storyteller", input="Lily?", max_output_tokens=30, extra_body=extra
        ) as events:
            assert events.get_final_response().output_text
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert [hasattr(one.choices[0], "explain") for one in raw[:-1]] == [False] * (len(raw) - 2) + [True]
    assert raw[-1].choices == []
    assert whole.choices[0].explain["heads"]["kind"] == "heads"  # type: ignore[attr-defined]
    assert response.explain["heads"]["kind"] == "heads"  # type: ignore[attr-defined]


def test_the_likeliest_tokens_come_with_each_token_of_a_stream(server: Running) -> None:
    """By the engine, as it chooses; log-probabilities of the answer keep their own number."""
    body = ASK | {"explain": {"top": 4, "heads": True}, "stream": True, "logprobs": 2}
    lines = server.post("/v1/completions", body).text.split("\n\n")[:-2]
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    told = [one for part in parts for one in part["explain"]["top"]]
    assert [len(one) for one in told] == [4] * 5
    tops = [top for part in parts for top in part["logprobs"]["top_logprobs"]]
    for candidates, top in zip(told, tops, strict=True):
        assert len(top) in (2, 3)
        assert [one["logprob"] for one in candidates[:2]] == sorted(top.values(), reverse=True)[:2]
    assert "heads" in parts[-1]["explain"]
    assert "heads" not in parts[0]["explain"]


@pytest.mark.parametrize("fields", [{}, {"edits": [{"site": "blocks.0.attn", "do": "zero"}]}, {"n": 2}])
def test_the_lens_comes_with_each_token_of_a_stream(server: Running, fields: dict[str, Any]) -> None:
    """What every layer would have said, as the lens of the whole text has it; and the text is the same."""
    body = (
        ASK | {"explain": {"lens": {"k": 2, "live": True}, "heads": True}, "return_token_ids": True} | fields
    )
    plain = server.post("/v1/completions", ASK | fields).json()["choices"]
    lines = server.post("/v1/completions", body | {"stream": True}).text.split("\n\n")[:-2]
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    lm = gf.load("storyteller", engine="torch")
    prompt = lm.encode("Once upon a time")
    for choice in plain:
        mine = [part for part in parts if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert "heads" in mine[-1]["explain"]
        told = [one for part in mine for one in part["explain"]["lens"]]
        ids = [id for part in mine for id in part["token_ids"]]
        assert [one["token"] for one in told] == ids
        with lm.edit(fields["edits"]) if "edits" in fields else nullcontext():
            whole = lens(lm.reading([*prompt, *ids]), k=2)
        for at, one in enumerate(told, len(prompt) - 1):
            assert [stage["stage"] for stage in one["stages"]] == whole.stages
            assert [stage["rank"] for stage in one["stages"]] == whole.ranks[:, at].tolist()
            logprobs = [[other["logprob"] for other in stage["top"]] for stage in one["stages"]]
            assert np.allclose(logprobs, whole.top_logprobs[:, at], atol=1e-4)
            tokens = [[other["token"] for other in stage["top"]] for stage in one["stages"]]
            assert tokens == whole.top[:, at].tolist()


QUESTIONS: dict[str, Any] = {
    "top": 2, "tokens": True, "merges": True, "embedding": True, "probabilities": True, "beams": 2, "attention": 0,
    "heads": True, "find_heads": {"source": -1, "target": 0}, "steps": {"layer": 0, "head": 0}, "rollout": True,
    "positions": {"count": 4, "width": 8}, "robot": True, "lens": 2, "rankings": True, "rankings_watch": {"watch": ["a"]},
    "attribution": True, "residual": -1, "saliency": {"method": "gradient", "tested": False}, "targets": True,
    "neurons": 0, "factors": 2, "clusters": 2, "promotes": {"layer": 0, "neuron": 1},
    "examples": {"texts": ["Once upon a time", "Lily"], "layer": 0, "neuron": 1, "k": 1},
    "edit": {"edits": [{"site": "blocks.0.attn", "do": "zero"}], "k": 2},
    "sweep": {"corrupted": "Lily upon a time", "answer": "a", "foil": "e"},
    "cache": True, "training_rows": True, "update": True,
}  # fmt: skip


def test_every_question_can_be_asked(server: Running) -> None:
    """By its one name; a question that is added to the house is either here or said not to be."""
    of_others = {name for name, one in EVERY.items() if one.needs & {"source", "composes"}}
    assert (
        QUESTIONS.keys() == EVERY.keys() - set(NOT_HERE) - of_others
    )  # translations and music have their own
    for name, how in QUESTIONS.items():
        found = explained(server, {name: how}, model="tiny", max_tokens=3, prompt="Once upon a time")[
            "explain"
        ]
        assert name in found, name
        if isinstance(found[name], dict):
            assert found[name]["kind"] == name or name in ("attention",)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say how much memory was held")
def test_no_question_takes_more_memory_than_was_printed() -> None:
    """All of them, about a text as long as the context, where heads and activations are far larger than weights."""
    net = GPT(Config(layers=4, heads=8, width=128, vocab=512, context=1024)).initialize(0)
    model = LanguageModel(net.eval(), None, name="long")
    body = {
        "model": "long",
        "prompt": [n * 7 % 500 for n in range(1016)],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    needs_text = {"tokens", "merges", "training_rows", "examples", "rankings_watch", "sweep", "edit"}
    taken = {}
    with serving({"long": model}) as server:
        assert (
            server.post("/v1/completions", body | {"explain": {"lens": 1}}).status_code == 200
        )  # all is loaded
        for name in QUESTIONS.keys() - needs_text:
            ctypes.CDLL(None).malloc_trim(0)
            before = machine.resident()
            Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
            answer = server.post("/v1/completions", body | {"explain": {name: QUESTIONS[name]}}, timeout=600)
            assert answer.status_code == 200, (name, answer.text[:500])
            (peak,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
            taken[name] = (int(peak) << 10) - before
    for name, size in taken.items():
        assert size <= memory_of(model, tokens=1024, question=name) + MOST_BYTES, (name, size)
    assert max(taken.values()) > memory_of(model, tokens=1024) / 3, taken  # the bound says something


def test_a_question_is_refused_that_would_not_fit(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is computed, if memory is scarce; before it is written, if no trace could hold it."""
    ask = ASK | {"model": "tiny", "explain": {"attention": 0}}
    with monkeypatch.context() as patch:
        patch.setattr(server.state.traces, "most", 32)
        patch.setattr("glassformer.server.explain.encoded", pytest.fail)
        error = server.post("/v1/completions", ask).json()["error"]
        assert (error["param"], "numbers, more than a trace may have" in error["message"]) == (
            "explain.attention",
            True,
        )
    with monkeypatch.context() as patch:
        patch.setattr(machine, "available_memory", lambda: 1 << 10)
        patch.setattr("glassformer.server.explain.ask", pytest.fail)
        answer = server.post("/v1/completions", ask)
        assert answer.status_code == 400
        assert "attention of" in answer.json()["error"]["message"]
        assert "GB of memory" in answer.json()["error"]["message"]


REFUSED: list[tuple[Any, str]] = [
    ({"attentions": True}, "explain"),
    ({"curve": {"files": ["/etc/passwd"]}}, "explain"),
    ({"alignment": True}, "explain"),
    ({"lens": {"k": "5"}}, "explain.lens.k"),
    ({"lens": {"k": 10**9}}, "explain.lens.k"),
    ({"lens": {"depth": 1}}, "explain.lens.depth"),
    ({"saliency": {"progress": 1}}, "explain.saliency.progress"),
    ({"examples": {"layer": 0, "neuron": 0}}, "explain.examples"),
    ({"examples": {"layer": 0, "neuron": 0, "texts": "/etc/passwd"}}, "explain.examples.texts"),
    ({"edit": {"edits": "/etc/passwd"}}, "explain.edit.edits"),
    ({"heads": 5}, "explain.heads.stack"),
    ({"robot": 5}, "explain.robot"),
    ({"attention": {"layer": 99}}, "explain.attention"),
    ({"steps": {"layer": 0}}, "explain.steps"),
    ({"encoding": "pickle"}, "explain.encoding"),
    ({"max_bytes": -1}, "explain.max_bytes"),
    ({"recipe": 1}, "explain.recipe"),
    ({"plain": True}, "explain.plain"),
    ({"lens": {"live": True}}, "explain.lens.live"),
    ({"lens": {"live": False}}, "explain.lens.live"),
]


@pytest.mark.parametrize(("explain", "param"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_cannot_be_asked(server: Running, explain: Any, param: str) -> None:
    """A 400 that names the part, and lists what there is; no option is a path."""
    answer = server.post("/v1/completions", ASK | {"model": "tiny", "explain": explain})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_arrays_as_base64(server: Running) -> None:
    """Little-endian float32 with its shape: the same numbers in fewer bytes."""
    plain = explained(server, {"attention": HEAD})["explain"]["attention"]["values"]["weights"]
    packed = explained(server, {"attention": HEAD, "encoding": "base64"})["explain"]["attention"]["values"][
        "weights"
    ]
    numbers = np.frombuffer(base64.b64decode(packed["base64"]), dtype="<f4").reshape(packed["shape"])
    assert np.allclose(numbers, np.array(plain, dtype=float), atol=1e-7)


def test_large_answers_are_fetched_in_pieces(server: Running) -> None:
    """Over the cap there is an id that cannot be guessed; a part of an answer by its name; forgotten on request."""
    found = explained(server, {"attention": HEAD, "heads": True, "max_bytes": 100})["explain"]
    assert found["questions"] == ["attention", "heads"]
    assert found["bytes"] > 100
    id = found["trace_id"]
    assert len(id) > 30
    whole = server.get(f"/v1/traces/{id}").json()
    assert "weights" in whole["answers"]["attention"]["values"]
    inline = explained(server, {"attention": HEAD})["explain"]["attention"]
    assert server.get(f"/v1/traces/{id}/attention").json()["attention"] == inline
    rows = server.get(f"/v1/traces/{id}/attention/weights?start=1&stop=3").json()
    assert rows["value"] == inline["values"]["weights"][1:3]
    assert rows["total"] == len(inline["values"]["weights"])
    missing = [server.get(f"/v1/traces/{bad}") for bad in ("trace_0", "../x", id[:-1] + "g", "%2e%2e")]
    assert {one.status_code for one in missing} == {404}
    assert server.get(f"/v1/traces/{id}/lens").status_code == 404
    assert server.client.delete(f"/v1/traces/{id}").status_code == 204
    assert server.get(f"/v1/traces/{id}").json() == missing[0].json()


def test_an_answer_of_megabytes(server: Running) -> None:
    """Over the cap of 4 MB by far: the official client gets the text and where to fetch the rest, piece by piece."""
    talk: Any = {"model": "long", "prompt": [5, 6, 7] * 300, "max_tokens": 1, "seed": 1}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        found = client.completions.create(**talk, extra_body={"explain": {"attention": HEAD}})
        plain = client.completions.create(**talk)
    assert found.choices[0].text == plain.choices[0].text
    about = found.choices[0].explain  # type: ignore[union-attr]
    assert about["bytes"] > 8 << 20
    assert about["questions"] == ["attention"]
    piece = server.get(f"/v1/traces/{about['trace_id']}/attention/weights?start=800&stop=802")
    assert piece.status_code == 200, piece.text[:200]
    _, seen = server.state.library.find("long").model.run_with_cache(talk["prompt"], "blocks.1.attn.pattern")
    expected = seen["blocks.1.attn.pattern"][0, 0, 800:802].detach().numpy()
    assert np.allclose(np.array(piece.json()["value"])[:, :900], expected, atol=1e-6)
    assert server.client.delete(f"/v1/traces/{about['trace_id']}").status_code == 204


def test_traces_are_bounded() -> None:
    """The oldest go first, all go after a while, and what is too large is not kept."""
    kept = Traces(most=100, lifetime=1000)
    first = kept.keep({"a": 1}, 60)
    second = kept.keep({"b": 1}, 60)
    assert first is not None
    assert second is not None
    assert kept.find(first) is None
    assert kept.find(second) is not None
    assert kept.size == 60
    assert kept.keep({}, 101) is None
    old = Traces(lifetime=-1)
    assert old.find(old.keep({}, 1) or "") is None


def test_a_recipe_makes_the_text_again(server: Running) -> None:
    """By the same engine, from ids, options and seed."""
    choice = explained(
        server, {"recipe": True}, temperature=0.9, logit_bias={"11": -5}, return_token_ids=True
    )
    recipe = choice["explain"]["recipe"]
    options = dict(recipe["options"])
    options["logit_bias"] = {int(id): bias for id, bias in options["logit_bias"].items()}
    out = gf.load(recipe["model"]).generate(recipe["prompt_ids"], **options)
    assert out.text == choice["text"]
    assert recipe["token_ids"] == choice["token_ids"]
    assert len(recipe["weights"]) == 64


EDITS = [{"site": "blocks.0.attn", "do": "zero"}, {"site": "blocks.1.mlp", "do": "zero"}]


def test_the_plain_text_beside_the_edited_one(server: Running) -> None:
    """By the same backend: all that differs is what the edits do."""
    stop = {"stop": ["girl"], "max_tokens": 12}
    found = explained(server, {"plain": True}, edits=EDITS, **stop)
    how = {"engine": "torch", "return_token_ids": True, "explain": {"recipe": True}}
    torch = server.post("/v1/completions", ASK | stop | how).json()
    (alone,) = torch["choices"]
    beside = found["explain"]["plain"]
    assert {name: beside[name] for name in ("text", "token_ids", "finish_reason")} == {
        name: alone[name] for name in ("text", "token_ids", "finish_reason")
    }
    assert beside["logprobs"] == alone["explain"]["recipe"]["logprobs"]
    assert beside["finish_reason"] == "stop"
    assert found["text"] != beside["text"]


def test_edits_of_a_response(server: Running) -> None:
    """As of a chat with the same words."""
    body = {"model": "storyteller", "edits": EDITS, "seed": 1}
    chat = body | {"messages": [{"role": "user", "content": "Lily?"}], "max_tokens": 6}
    edited = server.post("/v1/responses", body | {"input": "Lily?", "max_output_tokens": 6}).json()
    text = server.post("/v1/chat/completions", chat).json()["choices"][0]["message"]["content"]
    assert edited["output"][0]["content"][0]["text"] == text
    refused = server.post("/v1/responses", body | {"input": "Lily?", "edits": [{"do": "zero"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "edits")


def test_edits_belong_to_one_request(server: Running) -> None:
    """As in Python; the requests before and after are not touched."""
    before = server.post("/v1/completions", ASK).json()["choices"][0]["text"]
    edited = explained(server, {"heads": True}, edits=EDITS)
    out = gf.load("storyteller").generate("Once upon a time", max_new_tokens=5, seed=1, edits=EDITS)
    assert edited["text"] == out.text != before
    assert edited["explain"]["largest_logprob_difference"] < 1e-3
    assert server.post("/v1/completions", ASK).json()["choices"][0]["text"] == before


@pytest.mark.parametrize(
    "edits",
    [[{"site": "nowhere", "do": "zero"}], [{"do": "zero"}], [{}], [{"site": "blocks.0.attn", "do": "burn"}]],
)
def test_edits_that_cannot_be_made(server: Running, edits: Any) -> None:
    """Refused before a stream begins."""
    answer = server.post("/v1/completions", ASK | {"edits": edits, "stream": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "edits")


def test_insides_are_counted(server: Running) -> None:
    """By kind."""
    before = server.state.metrics.value("insides_total", kind="heads")
    explained(server, {"heads": True}, model="tiny")
    assert server.state.metrics.value("insides_total", kind="heads") == before + 1


def test_who_leaves_ends_the_explanation(server: Running) -> None:
    """The model does not run again for an answer that nobody waits for: the lane is free for the next one."""
    served = server.state.library.find("long")
    runs: list[None] = []

    def slow(*_: Any) -> None:
        runs.append(None)
        time.sleep(0.02)

    body = ASK | {"model": "long", "max_tokens": 4, "ignore_eos": True, "explain": {"saliency": True}}
    hook = served.model.net.register_forward_pre_hook(slow)
    try:
        connection = opened(server, body)
        until(lambda: len(runs) > 8)  # the text took four, the answer has begun
        connection.close()
        until(lambda: not served.lane.working)
    finally:
        hook.remove()
    assert len(runs) < 40  # of hundreds


def test_an_explanation_may_not_take_forever() -> None:
    """The time of a request is that of its text and of its answers together."""
    model = tiny_model("long", context=4096)
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    body = ASK | {"model": "long", "max_tokens": 4, "ignore_eos": True, "explain": {"saliency": True}}
    with serving({"long": model}, longest=0.8) as server:
        answer = server.post("/v1/completions", body)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")
        assert "0.8 seconds" in answer.json()["error"]["message"]
        until(lambda: not server.state.library.find("long").lane.working)


@pytest.mark.parametrize("edit", [{"do": "scale", "by": 1e30}, {"do": "add", "value": [1, 2]}])
def test_edits_that_break_the_model_are_a_400(server: Running, edit: dict[str, Any]) -> None:
    """Whether they give NaN or do not fit shows when the model runs; the field is named, in a stream too."""
    body = ASK | {"edits": [{"site": "blocks.0.attn", **edit}]}
    answer = server.post("/v1/completions", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "edits")
    streamed = server.post("/v1/completions", body | {"stream": True})
    assert '"param":"edits"' in streamed.text


def test_what_chose_the_tokens_is_in_the_fingerprint(server: Running) -> None:
    """Torch, if it was asked for."""
    assert server.post("/v1/completions", ASK).json()["system_fingerprint"].endswith("int8")
    assert (
        server.post("/v1/completions", ASK | {"engine": "torch"})
        .json()["system_fingerprint"]
        .endswith("torch")
    )
