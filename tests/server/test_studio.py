"""The studio's server: who gets in, what a page may do, and that its numbers are Python's."""

import gzip
import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from decoders import save_decoder
from fake_hub import serving_hub
from serving import Running, serving, tiny_model
from small import small_net
from translators import small_translator

import glassformer as gf
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.cli import run
from glassformer.errors import InputError
from glassformer.generation.sampling import log_softmax
from glassformer.server import pages, snippets
from glassformer.server.insides import Recent, _likeliest
from glassformer.server.pages import File
from glassformer.server.studio import Studio
from glassformer.tasks.classify import TextClassifier
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.load import load as load_model
from glassformer.tokenizers import train_tokenizer

TEXT = "Once upon a time, there was a girl"
INDEX = File(b"<!doctype html><p>page</p>" * 40, "text/html", lasting=False)
SCRIPT = File(b"export {}", "text/javascript", lasting=True)
FILES = {"/index.html": INDEX, "/assets/a-1.js": SCRIPT}
TINY = tiny_model()
TRANSLATOR = small_translator(layout="halves", head_bias=True)


def loaded(name: str) -> LanguageModel:
    if name == "broken":
        raise InputError("broken: the file is cut off")
    return TINY


def new_studio() -> Studio:
    return Studio(loaded, first=("tiny", "broken"), files=dict(FILES))


class Opened:
    """A studio that runs, and its door."""

    def __init__(self, running: Running, studio: Studio) -> None:
        self.running, self.door = running, studio.door
        self.cookie = {"cookie": f"glass_studio_{running.port}={studio.door.session}"}

    def post(self, path: str, body: Any, **how: Any) -> Any:
        return self.running.post(path, body, headers=self.cookie, **how)

    def get(self, path: str) -> Any:
        return self.running.get(path, headers=self.cookie)


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    studio = new_studio()
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        while any(
            one["stage"] not in ("ready", "failed") for one in found.get("/studio/status").json()["statuses"]
        ):
            time.sleep(0.02)
        yield found


def routes(running: Running) -> list[tuple[str, str]]:
    """Every path of the server with each method of it."""

    def found(group: list[Any]) -> Iterator[tuple[str, str]]:
        for route in group:
            if hasattr(route, "original_router"):  # FastAPI keeps what was included as it was
                yield from found(route.original_router.routes)
            else:
                path = re.sub(r"{.*?}", "x", route.path)
                yield from ((path, method) for method in sorted(route.methods - {"HEAD"}))

    made = list(found(running.app.routes))
    assert len(made) > 30
    return made


# The batch


def test_the_batch_as_it_is(opened: Opened) -> None:
    """How far every text is, in numbers, and nothing that could be read in it."""
    runner = opened.running.state.library.find("tiny").runner
    assert opened.get("/studio/slots").json()["models"] == [
        {"model": "tiny", "slots": 1, "steps": runner.step_times.count, "texts": []}
    ]
    net = TINY.net
    go_on = threading.Event()

    def hold(*_: Any) -> None:
        go_on.wait(20)

    hook = net.register_forward_pre_hook(hold)
    try:
        body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True}
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(opened.post, "/v1/completions", body) for _ in range(2)]
            until(lambda: len(opened.get("/studio/slots").json()["models"][0]["texts"]) == 2)
            first, second = opened.get("/studio/slots").json()["models"][0]["texts"]
            go_on.set()
            assert [one.result().status_code for one in asked] == [200, 200]
    finally:
        hook.remove()
    assert first.pop("seconds") >= second.pop("seconds") >= 0
    numbers = {"prompt_tokens": 3, "cached_tokens": 0, "read_tokens": 0, "completion_tokens": 0}
    assert second == {"phase": "waiting", "slot": None, **numbers}
    assert {name: first[name] for name in numbers} == numbers


# Who gets in


def test_every_route_but_the_page_needs_the_cookie_or_the_token(opened: Opened) -> None:
    running = opened.running
    public = {"/", "/index.html", "/assets/a-1.js", "/health", "/v1/health", "/studio/session"}
    found = set()
    for path, method in routes(running):
        answer = running.client.request(method, path, json={} if method == "POST" else None)
        if answer.status_code != 401:
            found.add(path)
    assert found == public - {"/index.html"}
    stale = {"cookie": f"glass_studio_{running.port}={'x' * 32}"}
    assert running.get("/studio/status", headers=stale).status_code == 401
    assert (
        running.get("/studio/status", headers={**opened.cookie, "authorization": "Bearer no"}).status_code
        == 401
    )
    assert running.get(f"/studio/status?token={opened.door.token}").status_code == 401
    assert (
        running.get("/studio/status", headers={"authorization": f"Bearer {opened.door.token}"}).status_code
        == 200
    )
    assert opened.get("/studio/status").status_code == 200


def test_the_token_becomes_a_strict_cookie_of_this_process(opened: Opened) -> None:
    running = opened.running
    answer = running.post("/studio/session", {"token": opened.door.token})
    assert answer.status_code == 204
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert name == f"glass_studio_{running.port}"
    assert rest.split("; ")[0] == opened.door.session
    assert {"httponly", "samesite=strict", "path=/"} <= {one.lower() for one in rest.split("; ")}
    running.client.cookies.clear()
    for wrong in ("", opened.door.token[:-1], opened.door.session, "é" * 32):
        refused = running.post("/studio/session", {"token": wrong})
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
    assert opened.door.token not in json.dumps(running.lines)


def test_every_start_has_a_token_of_its_own() -> None:
    doors = [new_studio().door for _ in range(3)]
    assert len({one.token for one in doors} | {one.session for one in doors}) == 6
    assert all(len(one.token) >= 22 for one in doors)  # 128 bits and more


FOREIGN = [
    "evil.example",
    "localhost.evil.com:{port}",
    "127.0.0.1.nip.io:{port}",
    "x.local",
    "0.0.0.0:{port}",
    "",
]
ORIGINS = [
    "null",
    "http://evil.example",
    "http://localhost.evil.com:{port}",
    "http://127.0.0.1:1",
    "https://127.0.0.1:{port}",
]


def test_foreign_hosts_and_origins_are_refused_on_every_route(opened: Opened) -> None:
    running = opened.running
    headers = [{"host": host.format(port=running.port)} for host in FOREIGN]
    headers += [{"origin": origin.format(port=running.port)} for origin in ORIGINS]
    headers += [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ]
    every = [(route, extra) for route in routes(running) for extra in (headers[0], headers[len(FOREIGN)])]
    some = [(route, extra) for route in (("/", "GET"), ("/studio/reading", "POST")) for extra in headers]
    for (path, method), extra in every + some:
        answer = running.client.request(method, path, headers={**opened.cookie, **extra})
        assert answer.status_code in (400, 403), (path, extra)
        assert "access-control-allow-origin" not in answer.headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        body = json.dumps({"name": "tiny"}).encode()
        answer = running.client.post(
            "/studio/models/load", content=body, headers={**opened.cookie, "content-type": kind}
        )
        assert answer.status_code == 415


def test_paths_and_names_reach_no_file(opened: Opened) -> None:
    hostile = [
        "../../etc/passwd",
        "/etc/passwd",
        "~",
        ".",
        "C:\\x",
        "\\\\host\\x",
        "tiny/../tiny",
        "http://x/",
        "a" * 200,
    ]
    for name in hostile:
        for path in ("/studio/models/load", "/studio/models/parameters"):
            assert opened.post(path, {"name": name}).status_code == 404, name
        assert opened.post("/studio/reading", {"model": name, "text": "x"}).status_code == 404
    for path in ("/assets/%2e%2e/index.html", "/assets/..%2f..%2fx", "/assets", "/static/index.html", "/%00"):
        assert opened.get(path).status_code == 404


def test_what_is_kept_is_bounded_in_number_and_in_bytes() -> None:
    class Held:
        def __init__(self, size: int) -> None:
            self.array = np.zeros(size, dtype=np.uint8)

    kept: Recent[Held] = Recent(3, most_bytes=100)
    for name in "abc":
        kept.put(name, Held(30))
    assert kept.get("a") is not None  # and is the last used now
    kept.put("d", Held(1))
    assert [name for name in "abcd" if kept.get(name)] == ["a", "c", "d"]
    kept.put("large", Held(500))
    assert [name for name in ("a", "c", "d", "large") if kept.get(name)] == ["large"]


# The page


def test_the_page_has_strict_rules(opened: Opened) -> None:
    for path in ("/", "/assets/a-1.js"):
        answer = opened.running.get(path)
        assert answer.status_code == 200
        rules = answer.headers["content-security-policy"].split("; ")
        assert rules[:2] == ["default-src 'none'", "script-src 'self'"]
        assert {"style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"} <= set(
            rules
        )
        assert {"frame-ancestors 'none'", "require-trusted-types-for 'script'"} <= set(rules)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert opened.running.get("/").headers["cache-control"] == "no-cache"
    assert "immutable" in opened.running.get("/assets/a-1.js").headers["cache-control"]


def test_files_are_sent_compressed_to_those_who_take_it(opened: Opened) -> None:
    with opened.running.client.stream("GET", "/", headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(answer.iter_raw())) == INDEX.content
    plain = opened.running.get("/", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == INDEX.content


def test_without_the_built_page_the_command_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages.resources, "files", lambda package: tmp_path)
    with pytest.raises(InputError, match=r"not built: run `make studio`"):
        pages.built_files()


# Models


def test_models_are_loaded_in_the_background_and_failures_are_told(opened: Opened) -> None:
    found = opened.get("/studio/models").json()
    statuses = {one["name"]: one for one in found["statuses"]}
    assert statuses["tiny"]["stage"] == "ready"
    assert "generate" in statuses["tiny"]["can"]
    assert (statuses["broken"]["stage"], statuses["broken"]["error"]) == (
        "failed",
        "broken: the file is cut off",
    )
    assert {one["name"] for one in found["models"]} >= {"tiny", "broken", "storyteller"}
    assert "gpt2" in {one["name"] for one in found["pullable"]}
    refused = opened.post("/studio/reading", {"model": "broken", "text": "x"})
    assert refused.status_code == 400
    assert "the file is cut off" in refused.json()["error"]["message"]


def test_a_folder_has_a_name_of_its_own(tmp_path: Path) -> None:
    """It is loaded and counted by what was typed, and called by its name."""
    TINY.save(tmp_path / "mine")
    typed = str(tmp_path / "mine")
    asked: list[str] = []
    studio = Studio(
        lambda name: (asked.append(name), TINY)[1], first=("mine",), names={"mine": typed}, files=dict(FILES)
    )
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        while found.get("/studio/status").json()["statuses"][0]["stage"] != "ready":
            time.sleep(0.02)
        picture = found.post("/studio/models/parameters", {"name": "mine"}).json()
        assert f"{TINY.net.config.parameters:,}" in picture["view"]["title"]
        assert asked == [typed]


def test_parameters_of_a_model_and_of_a_published_size(opened: Opened) -> None:
    for name, count in (("storyteller", "5,918,720"), ("gpt2", "124,439,808")):
        found = opened.post("/studio/models/parameters", {"name": name, "width": 600}).json()
        assert count in found["view"]["title"]
        assert found["layouts"][0]["width"] <= 600


# Numbers


def test_a_reading_has_the_numbers_of_python(opened: Opened) -> None:
    found = opened.post("/studio/reading", {"model": "tiny", "text": TEXT}).json()
    ids = TINY.encode(TEXT)
    assert found["ids"] == ids
    assert "".join(found["texts"]) == TEXT
    assert found["ends"][-1] == len(TEXT)
    rows = [log_softmax(row) for row in TINY.logits(ids)]
    expected = [float(row[id]) for row, id in zip(rows, ids[1:], strict=False)]
    assert found["logprobs"][0] is None
    assert np.allclose(found["logprobs"][1:], expected, atol=1e-4)
    assert np.allclose(found["entropies"], [-(np.exp(row) @ row) / np.log(2) for row in rows], atol=1e-4)
    assert found["ranks"][1:] == [
        int((row > row[id]).sum()) + 1 for row, id in zip(rows, ids[1:], strict=False)
    ]
    top = TINY.top(TEXT).candidates
    assert [id for id, _ in found["tops"][-1]] == [one.token for one in top]
    assert [found["names"][str(one.token)] for one in top if "\ufffd" not in one.text] == [
        one.text for one in top if "\ufffd" not in one.text
    ]
    logits = np.frombuffer(opened.post("/studio/scores", {"model": "tiny", "ids": ids}).content, dtype="<f4")
    assert np.allclose(logits, TINY.next_logits(ids)[: len(logits)], atol=1e-5)


def test_characters_of_several_tokens_are_counted_as_a_browser_does(opened: Opened) -> None:
    text = "é 😀 机"
    found = opened.post("/studio/reading", {"model": "tiny", "text": text}).json()
    assert "".join(found["texts"]) == text
    assert found["ends"][-1] == 6  # the emoji counts twice
    assert all(0 <= end <= 6 for end in found["ends"])


def test_an_empty_text_and_one_that_is_too_long(opened: Opened) -> None:
    empty = opened.post("/studio/reading", {"model": "tiny", "text": ""}).json()
    assert len(empty["ids"]) == 1
    assert len(empty["tops"][0]) == 10
    refused = opened.post("/studio/reading", {"model": "tiny", "text": "Once " * 500})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    both = opened.post("/studio/reading", {"model": "tiny", "text": "a", "ids": [1]})
    assert both.status_code == 400


def test_patterns_are_those_of_the_answer_and_pooled_by_their_largest(opened: Opened) -> None:
    ids = TINY.encode(TEXT)
    patterns: Any = ask("heads", Text(TINY, ids))
    whole = opened.post("/studio/patterns", {"model": "tiny", "ids": ids, "most": 1024})
    shape = tuple(map(int, whole.headers["x-shape"].split(",")))
    assert shape == patterns.patterns.shape
    assert np.allclose(np.frombuffer(whole.content, "<f2").reshape(shape), patterns.patterns, atol=1e-3)
    one = opened.post("/studio/patterns", {"model": "tiny", "ids": ids, "layer": 1, "head": 2, "most": 1024})
    assert np.allclose(
        np.frombuffer(one.content, "<f2").reshape(len(ids), -1), patterns.patterns[1, 2], atol=1e-3
    )
    small = opened.post("/studio/patterns", {"model": "tiny", "ids": ids, "most": 4})
    pooled = np.frombuffer(small.content, "<f2").reshape(tuple(map(int, small.headers["x-shape"].split(","))))
    assert max(pooled.shape[2:]) <= 4
    assert np.allclose(pooled.max((2, 3)), patterns.patterns.max((2, 3)), atol=1e-3)
    for field, value in (("layer", 2), ("head", 3)):
        body = {"model": "tiny", "ids": ids, "layer": 0, "head": 0, field: value}
        assert opened.post("/studio/patterns", body).json()["error"]["param"] == field


def executed(code: str) -> Any:
    """The answer that copied code finds; the model is loaded already, and nothing is saved or printed."""
    lines = [line for line in code.split("\n") if not line.startswith(("import", "answer.save", "print"))]
    seen: dict[str, Any] = {"gf": type("gf", (), {"load": staticmethod(loaded)})}
    exec("\n".join(lines), seen)
    return seen["answer"]


ASKED: dict[str, dict[str, Any]] = {
    "steps": {"layer": 1, "head": 0, "position": 3},
    "top": {"k": 5, "temperature": 0.8, "top_k": 3, "top_p": 0.9, "min_p": 0.01},
    "neurons": {"layers": 1, "first": 16},
    "factors": {"count": 2},
    "examples": {"layer": 0, "neuron": 5, "texts": ["Once upon", "a girl"], "k": 2},
    "attention": {"layer": 1, "head": 2},
    "heads": {},
    "rollout": {},
    "lens": {},
    "rankings_watch": {"watch": [" a", "e"], "position": 3},
    "residual": {"position": 2},
    "tokens": {},
    "merges": {},
    "embedding": {},
    "training_rows": {"window": 3},
    "promotes": {"layer": 0, "neuron": 5},
    "robot": {},
    "edit": {"edits": [{"site": "blocks.0.attn.mix[1]", "do": "zero"}], "max_new_tokens": 3},
}


@pytest.mark.parametrize("question", ASKED)
def test_copied_python_gives_the_picture_it_was_copied_from(opened: Opened, question: str) -> None:
    body = {"model": "tiny", "text": TEXT, "question": question, "options": ASKED[question]}
    found = opened.post("/studio/view", body).json()
    assert json.loads(json.dumps(executed(found["code"]["Python"]).view().spec)) == found["view"]


def test_a_view_is_that_of_the_answer_and_its_code_gives_the_same(opened: Opened) -> None:
    options = {"layer": 1, "head": 0, "position": 3}
    body = {"model": "tiny", "text": TEXT, "question": "steps", "options": options, "width": 500}
    found = opened.post("/studio/view", body).json()
    answer = ask("steps", Text(TINY, TINY.encode(TEXT)), **options)
    assert found["view"] == json.loads(json.dumps(answer.view().spec))
    assert found["layouts"] == json.loads(json.dumps([answer.view().to_marks(width=500)]))
    assert opened.door.token not in json.dumps(found)

    assert executed(found["code"]["Python"]).to_dict() == answer.to_dict()

    words = shlex.split(found["code"]["curl"].replace("\\\n", " "))
    asked = json.loads(words[words.index("-d") + 1])
    told = opened.post("/v1/completions", asked).json()["choices"][0]["explain"]["steps"]
    assert told["rows"] == json.loads(json.dumps(answer.to_dict()))["rows"]
    assert shlex.split(found["code"]["Command line"])[:2] == ["glass", "attention"]


def test_a_question_about_generated_tokens(opened: Opened) -> None:
    ids = TINY.encode(TEXT)
    body = {
        "model": "tiny",
        "ids": ids,
        "question": "rankings",
        "prompt": len(ids) - 1,
    }
    assert opened.post("/studio/view", body).json()["view"]["kind"]
    refused = opened.post("/studio/view", {**body, "question": "nonsense"})
    assert refused.status_code == 400
    assert "is not a question here" in refused.json()["error"]["message"]


# Translations


@pytest.fixture(scope="module")
def translating() -> Iterator[Opened]:
    studio = Studio(lambda name: TRANSLATOR, first=("small",), files=dict(FILES))
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        while found.get("/studio/status").json()["statuses"][0]["stage"] != "ready":
            time.sleep(0.02)
        yield found


def test_a_translation_and_what_can_be_asked_about_it(translating: Opened) -> None:
    body = {"model": "small", "text": "the girl", "to": None}
    found = translating.post("/studio/translation", body).json()
    expected = TRANSLATOR.translate("the girl", to="fr")
    assert (found["text"], found["to"], found["languages"]) == (expected.text, "fr", ["en", "fr"])
    assert found["tokens"] == [TRANSLATOR.piece(id) for id in expected.tokens]
    assert {"alignment", "journey", "heads"} <= set(found["questions"])
    assert "unroll" not in found["questions"]
    asked = {**body, "to": "fr", "question": "alignment", "options": {"layer": 1, "head": 0}, "width": 500}
    picture = translating.post("/studio/translation/view", asked).json()
    answer = expected.alignment(layer=1, head=0)
    assert picture["view"] == json.loads(json.dumps(answer.view().spec))
    code = picture["code"]["Python"].split("\n")
    assert code[2] == "answer = model.translate('the girl', to='fr').alignment(layer=1, head=0)"


def test_what_a_translator_and_a_writer_cannot_do(translating: Opened, opened: Opened) -> None:
    body = {"model": "small", "text": "the girl", "to": "fr"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"question": "nonsense"}, "is not asked here"),
        ({"question": "alignment", "options": {"layer": -1}}, "options.layer"),
        ({"question": "alignment", "options": {"layer": True}}, "options.layer"),
        ({"question": "alignment", "options": {"edits": []}}, "is not an option of alignment"),
        ({"question": "alignment", "to": "de"}, "must be one of en, fr"),
        ({"question": "unroll"}, "no recurrent state"),
        ({"question": "alignment", "text": " "}, "the text is empty"),
    ]
    for change, words in wrong:
        refused = translating.post("/studio/translation/view", {**body, **change})
        assert refused.status_code == 400, change
        assert words in refused.json()["error"]["message"]
    refused = opened.post("/studio/translation", {"model": "tiny", "text": "the girl"})
    assert "tiny does not translate" in refused.json()["error"]["message"]
    refused = translating.post("/studio/reading", {"model": "small", "text": "the girl"})
    assert "does not continue texts" in refused.json()["error"]["message"]


def test_ten_thousand_ranges_of_a_file(opened: Opened) -> None:
    """They are not served: the file comes whole, once."""
    ranges = {"range": "bytes=" + ",".join("0-" for _ in range(10_000))}
    answer = opened.running.get("/", headers=ranges)
    assert (answer.status_code, answer.content) == (200, INDEX.content)


# Models of the hub


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """What a function gives, once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_a_model_is_pulled_with_its_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It waits at half, is cancelled, begun again and found whole; nonsense is refused in a sentence."""
    with serving_hub(tmp_path) as (hub, environment):
        for name in ("HF_ENDPOINT", "HF_HOME", "HF_HUB_DISABLE_XET"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        studio = Studio(loaded, first=("tiny",), files=dict(FILES), home=tmp_path / "home")
        with serving({}, studio=studio) as running:
            found = Opened(running, studio)

            def pull() -> dict[str, Any]:
                (one,) = found.get("/studio/status").json()["pulls"]
                assert one["stage"] != "failed", one["error"]
                return dict(one)

            hub.gate.clear()
            begun = found.post("/studio/pulls", {"name": "owner/tiny"}).json()
            assert found.post("/studio/pulls", {"name": "owner/tiny"}).json()["id"] == begun["id"]
            size = len(hub.files["model.safetensors"])
            half = until(lambda: pull() if pull()["done"] > 0 else None)
            assert half["stage"] == "running"
            assert half["done"] < size
            assert half["total"] == sum(map(len, hub.files.values()))
            ended = found.post("/studio/pulls/cancel", {"id": begun["id"]}).json()
            assert ended["stage"] == "cancelled"
            hub.gate.set()

            found.post("/studio/pulls", {"name": "owner/tiny"})
            whole = until(lambda: pull() if pull()["stage"] == "succeeded" else None)
            assert whole["done"] == whole["total"] >= size
            weights = tmp_path.glob("hf/hub/models--owner--tiny/snapshots/*/model.safetensors")
            assert next(weights).read_bytes() == hub.files["model.safetensors"]

            found.post("/studio/pulls", {"name": "owner/none"})
            lost = until(
                lambda: [
                    one for one in found.get("/studio/status").json()["pulls"] if one["stage"] == "failed"
                ]
            )
            assert "was asked for at" in lost[0]["error"]
            assert "Traceback" not in lost[0]["error"]
            for name in ("../etc", "/etc/passwd", "http://x/y", "a b", "", "x" * 150):
                refused = found.post("/studio/pulls", {"name": name})
                assert refused.status_code == 400, name
            for id in ("../x", "job-0", "job-" + "0" * 24):
                assert found.post("/studio/pulls/cancel", {"id": id}).status_code == 404


def test_without_a_home_nothing_is_pulled(opened: Opened) -> None:
    assert opened.post("/studio/pulls", {"name": "owner/tiny"}).status_code == 403
    assert opened.get("/studio/models").json()["pulls_offered"] is False


def test_models_say_what_they_can_before_they_are_loaded(opened: Opened) -> None:
    can = {one["name"]: one["can"] for one in opened.get("/studio/models").json()["models"]}
    assert "generate" in can["storyteller"]
    assert "translate" not in can["storyteller"]
    assert "translate" in can["translator"]
    assert "generate" not in can["seq2seq"]


def test_parameters_have_the_articles_tally_beside_them(opened: Opened) -> None:
    """That of GPT-2 small, counted without a file, is the sum of the article's own table."""
    found = opened.post("/studio/models/parameters", {"name": "gpt2"}).json()
    table = found["view"]["table"]
    sums = {name: sum(row[at] for row in table["rows"]) for at, name in enumerate(table["columns"]) if at > 3}
    assert sums == {"parameters": 124_439_808, "in the article": 124_410_624}
    assert found["feed_forward"] == [["blocks", 7_087_872, 4_722_432]]
    other = opened.post("/studio/models/parameters", {"name": "translator"}).json()
    assert "in the article" not in other["view"]["table"]["columns"]
    assert [stack for stack, *_ in other["feed_forward"]] == ["encoder", "decoder"]


# Tokenizers side by side


def check_copied(found: dict[str, Any], opened: Opened, folder: Path) -> None:
    """Python, the command line and curl, each run as it was copied, give the numbers of the picture."""
    assert list(found["code"]) == ["Python", "Command line", "curl"]
    rows = found["view"]["table"]["rows"]
    seen: dict[str, Any] = {}
    kept = [
        line for line in found["code"]["Python"].split("\n") if not line.startswith(("answer.save", "print"))
    ]
    exec("\n".join(kept), seen)
    assert same(seen["answer"].view().spec["table"]["rows"], rows)
    assert same(posted(found["code"]["curl"], opened)["view"]["table"]["rows"], rows)
    assert same(commanded(found["code"]["Command line"], folder)["rows"], rows)


def test_a_text_in_the_tokens_of_other_models(opened: Opened, tmp_path: Path) -> None:
    text = "Un élève 👩‍👩‍👧 <b>"
    for name in ("storyteller", "translator"):
        found = opened.post("/studio/tokens", {"name": name, "text": text}).json()
        answer: Any = gf.load(name).tokens(text)
        assert found["view"]["table"]["rows"] == json.loads(json.dumps(answer.view().spec))["table"]["rows"]
        assert found["count"] == len(answer.ids)
        check_copied(found, opened, tmp_path)
    assert opened.post("/studio/tokens", {"name": "/etc", "text": text}).status_code == 404
    assert opened.post("/studio/tokens", {"name": "storyteller", "text": ""}).status_code == 400


# Stacks of a translator


def test_patterns_of_every_stack_of_a_translation(translating: Opened) -> None:
    body = {"model": "small", "text": "the girl", "to": "fr"}
    stacks = translating.post("/studio/translation", body).json()["stacks"]
    assert [one["name"] for one in stacks] == ["encoder", "decoder", "cross"]
    made = TRANSLATOR.translate("the girl", to="fr")
    for one in stacks:
        place = {"stack": one["stack"], "part": one["part"]}
        answer: Any = made.heads(**{name: value for name, value in place.items() if value})
        assert (one["rows"], one["columns"]) == (answer.tokens, answer.sources)
        found = translating.post("/studio/translation/patterns", {**body, **place, "most": 64})
        shape = tuple(map(int, found.headers["x-shape"].split(",")))
        assert shape == answer.patterns.shape
        assert np.allclose(np.frombuffer(found.content, "<f2").reshape(shape), answer.patterns, atol=1e-3)
        steps = {"layer": 1, "head": 0, "position": 1, **place}
        asked = {**body, "question": "steps", "options": steps, "drawing": "folders"}
        picture = translating.post("/studio/translation/view", asked).json()
        expected = made.steps(1, 0, position=1, **place)
        assert picture["view"] == json.loads(json.dumps(expected.view("folders").spec))


# Classes


def test_the_saliency_of_a_class(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSFORMER_HOME", str(home))
    tokenizer = train_tokenizer([TEXT * 20], 300)
    net = small_net("gpt2-classifier", vocab=len(tokenizer), pad=0, labels=("good", "bad"), context=64)
    model = TextClassifier(net, tokenizer, name="critic")
    model.save(home / "models" / "critic")
    studio = Studio(lambda name: cast("Any", model), first=("critic",), files=dict(FILES))
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        until(lambda: found.get("/studio/status").json()["statuses"][0]["stage"] == "ready")
        said = found.post("/v1/tasks/classify", {"model": "critic", "text": TEXT}).json()["result"]
        assert said["probabilities"] == pytest.approx(model.classify(TEXT).probabilities)
        for label in (None, "bad"):
            body = {"model": "critic", "text": TEXT, "label": label, "method": "gradient"}
            picture = found.post("/studio/classes", body).json()
            answer = model.classify(TEXT).saliency(label, method="gradient")
            assert picture["view"] == json.loads(json.dumps(answer.view().spec))
            check_copied(picture, found, tmp_path)
        refused = found.post("/studio/classes", {"model": "critic", "text": TEXT, "label": "odd"})
        assert "is none of the head's" in refused.json()["error"]["message"]


def test_the_row_that_teaches_a_summary(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSFORMER_HOME", str(home))
    folder = save_decoder(home / "models" / "brief", "<summarize>", seed=5, context=96)
    model = load_model(folder, engine="torch")
    studio = Studio(lambda name: model, first=("brief",), files=dict(FILES))
    with serving({}, studio=studio) as running:
        found = Opened(running, studio)
        until(lambda: found.get("/studio/status").json()["statuses"][0]["stage"] == "ready")
        picture = found.post(
            "/studio/summary_rows", {"model": "brief", "text": TEXT, "target": "a girl"}
        ).json()
        check_copied(picture, found, tmp_path)


def test_a_writer_has_no_classes_and_no_tag(opened: Opened) -> None:
    refused = opened.post("/studio/classes", {"model": "tiny", "text": TEXT})
    assert "tiny has no classes" in refused.json()["error"]["message"]
    refused = opened.post("/studio/summary_rows", {"model": "tiny", "text": TEXT, "target": "a girl"})
    assert "has no tag <summarize>" in refused.json()["error"]["message"]


# What is copied gives the same numbers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with both models, so that commands find them by their names."""
    folder = tmp_path_factory.mktemp("home")
    TINY.save(folder / "models" / "tiny")
    TRANSLATOR.save(folder / "models" / "small")
    return folder


def same(found: Any, expected: Any) -> bool:
    """Whether tables are equal, numbers within what another order of additions may change."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=2e-3, abs=2e-4))
    return bool(found == expected)


def commanded(command: str, folder: Path) -> dict[str, Any]:
    """What a copied command saves; a first line writes the file that the second reads."""
    *files, last = command.split("\n")
    for line in files:
        subprocess.run(line, shell=True, check=True, cwd=folder)
    words = shlex.split(last)
    assert words[0] == "glass"
    out = folder / "out.json"
    engine = ["--engine", "torch"] if words[1] == "top" else []  # the tiny model of the server is torch's
    assert run([words[1], "-o", str(out), *engine, *words[2:]]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def posted(curl: str, opened: Opened) -> dict[str, Any]:
    """What copied curl is answered, by curl itself."""
    address = opened.running.url
    line = re.sub(r"http://127\.0\.0\.1:\d+", address, curl)
    environment = {**os.environ, "GLASSFORMER_API_KEY": opened.door.token}
    made = subprocess.run(
        ["sh", "-c", line.replace("curl ", "curl -s --noproxy '*' ", 1)],
        env=environment,
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(made.stdout)
    return found


GENERATED: dict[
    str, dict[str, Any]
] = {  # questions about the last token of a text, or about all but the first
    "saliency": {"method": "occlusion"},
    "attribution": {},
    "probabilities": {},
}
TRANSLATED: dict[str, dict[str, Any]] = {
    "alignment": {"layer": 1, "head": 0},
    "heads": {"part": "cross"},
    "attention": {"layer": 0, "head": 1, "stack": "encoder"},
    "steps": {"layer": 0, "head": 1, "position": 1, "part": "cross"},
    "journey": {"number": 1},
    "lens": {},
    "saliency": {"number": 1},
}


def test_every_verb_of_a_copied_command_is_tried() -> None:
    assert set(snippets.VERBS) <= set(ASKED)


@pytest.mark.parametrize("question", [*ASKED, *GENERATED])
def test_copied_commands_and_requests_give_the_same_numbers(
    opened: Opened, home: Path, question: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLASSFORMER_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    ids = TINY.encode(TEXT)
    options = ASKED.get(question, GENERATED.get(question, {}))
    body: dict[str, Any] = {"model": "tiny", "text": TEXT, "question": question, "options": options}
    if question in GENERATED:
        body["prompt"] = 1 if question == "probabilities" else len(ids) - 1
    if question == "attribution":
        body["options"] = {"position": len(ids) - 2, "token": ids[-1]}
    found = opened.post("/studio/view", body).json()
    rows = found["view"]["table"]["rows"]
    assert executed(found["code"]["Python"]).view().spec["table"]["rows"] == rows

    told = posted(found["code"]["curl"], opened)
    answered = told if "view" in told else told["choices"][0]["explain"][question]
    assert same(answered.get("rows") or answered["view"]["table"]["rows"], rows)

    made = commanded(found["code"]["Command line"], tmp_path)
    assert same(made["rows"], rows)


@pytest.mark.parametrize("question", TRANSLATED)
def test_what_is_copied_about_a_translation_gives_the_same_numbers(
    translating: Opened, home: Path, question: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLASSFORMER_HOME", str(home))
    body = {"model": "small", "text": "the girl", "to": "fr"}
    asked = {**body, "question": question, "options": TRANSLATED[question]}
    found = translating.post("/studio/translation/view", asked).json()
    rows = found["view"]["table"]["rows"]
    assert same(posted(found["code"]["curl"], translating)["view"]["table"]["rows"], rows)
    assert same(commanded(found["code"]["Command line"], tmp_path)["rows"], rows)
    seen: dict[str, Any] = {"gf": type("gf", (), {"load": staticmethod(lambda name: TRANSLATOR)})}
    exec("\n".join(found["code"]["Python"].split("\n")[1:3]), seen)
    assert same(seen["answer"].view().spec["table"]["rows"], rows)


def test_the_likeliest_tokens_are_found_without_sorting_all() -> None:
    """The same as a stable sort of the whole vocabulary, equal values included."""
    generator = np.random.default_rng(0)
    rows = [generator.normal(size=500), generator.integers(0, 4, 500) * 1.0, np.zeros(50), np.arange(7.0)]
    for row in rows:
        assert _likeliest(row).tolist() == np.argsort(-row, kind="stable")[:10].tolist()
