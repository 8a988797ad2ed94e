"""The studio's server: who gets in, what a page may do, and that its numbers are Python's."""

import gzip
import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Running, serving, tiny_model
from translators import small_translator

from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.errors import InputError
from glassformer.generation.sampling import log_softmax
from glassformer.server import pages
from glassformer.server.insides import Recent
from glassformer.server.pages import File
from glassformer.server.studio import Studio
from glassformer.tasks.complete import LanguageModel

TEXT = "Once upon a time, there was a girl"
INDEX = File(b"<!doctype html><p>page</p>" * 40, "text/html", lasting=False)
SCRIPT = File(b"export {}", "text/javascript", lasting=True)
FILES = {"/index.html": INDEX, "/assets/a-1.js": SCRIPT}
TINY = tiny_model()
TRANSLATOR = small_translator()


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
