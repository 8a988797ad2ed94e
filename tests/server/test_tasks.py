"""`/v1/tasks/{verb}`: what a model offers beside continuing texts, as `glass VERB --json` prints it."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from composers import small_composer, tune
from serving import Running, serving
from translators import small_translator

import glassformer as gf
from glassformer.cli import run
from glassformer.server.tasks import tasks_of
from glassformer.tasks.compose import Composer
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import to_grid


def task(server: Running, verb: str, **fields: Any) -> Any:
    """The result of a task."""
    answer = server.post(f"/v1/tasks/{verb}", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def test_the_json_of_the_command_line(
    server: Running, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What `glass VERB --json` prints, for texts, translations and music."""

    def printed(*arguments: str) -> Any:
        assert run([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat.")
    options = {"zero_shot": True, "seed": 3, "max_new_tokens": 6}
    found = task(server, "summarize", model="storyteller", text=text.read_text(), **options)
    assert found == printed("summarize", "-m", "storyteller", str(text), "--zero-shot", "-s", "3", "-n", "6")

    small_composer().save(tmp_path / "composer")
    translator, composer = gf.load("translator"), gf.load(str(tmp_path / "composer"))
    with serving({"translator": translator, "composer": composer}) as running:
        found = task(running, "translate", model="translator", text="merci", to="en", num_return_sequences=2)
        assert found == printed("translate", "--to", "en", "--num-return-sequences", "2", "merci")
        assert len(found) == 2
        found = task(running, "compose", model="composer", seconds=1, seed=2)
        assert found == printed("compose", "-m", str(tmp_path / "composer"), "--seconds", "1", "--seed", "2")


def test_verbs_follow_from_the_model() -> None:
    """A model that translates offers that, and does not continue texts: no question is about it here."""
    translator = small_translator()
    assert tasks_of(translator) == ["translate"]
    with serving({"translator": translator}) as running:
        found = task(running, "translate", text="a b", to="fr", max_new_tokens=4)
        assert found == [translator.translate("a b", to="fr", max_new_tokens=4).to_dict()]
        wrong = running.post("/v1/completions", {"model": "translator", "prompt": "a"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "model")
        assert running.post("/v1/tasks/generate", {"text": "a"}).status_code == 404
        assert running.get("/v1/models/translator").json()["explain"]["questions"] == []


@pytest.mark.parametrize(("verb", "fields", "status", "param"), [
    ("dance", {}, 404, "verb"),
    ("generate", {}, 404, "verb"),
    ("summarize", {"max_new_tokens": 10**6}, 400, "max_new_tokens"),
    ("summarize", {"num_return_sequences": 9}, 400, "num_return_sequences"),
    ("summarize", {"edits": "/etc/passwd"}, 400, "edits"),
    ("summarize", {"cancelled": 1}, 400, "cancelled"),
    ("summarize", {"temperature": "hot", "zero_shot": True}, 400, "temperature"),
    ("summarize", {"stop": {"a": 1}}, 400, "stop"),
    ("summarize", {"text": ["Once", "upon"]}, 400, "text"),
    ("summarize", {"k": 1}, 400, "k"),
])  # fmt: skip
def test_what_is_refused(server: Running, verb: str, fields: dict[str, Any], status: int, param: str) -> None:
    """The field is named."""
    answer = server.post(f"/v1/tasks/{verb}", {"model": "tiny", "text": "Once"} | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_music_over_http() -> None:
    """The JSON of `glass compose --json`; files come and go as base64, and a path is never one."""
    model = small_composer()
    midi = base64.b64encode(write_midi(tune())).decode()
    with serving({"composer": model}) as running:
        assert task(running, "compose", seconds=1, seed=2) == model.compose(seconds=1, seed=2).to_dict()
        right = model.harmonize(tune(), seed=5)
        found = task(running, "compose", melody=midi, seed=5, format="mid")
        assert found["media_type"] == "audio/midi"
        assert to_grid(read_midi(base64.b64decode(found["content"]), steady=True)) == to_grid(right.score)
        assert {key: found[key] for key in right.to_dict()} == right.to_dict()
        looked = task(running, "compose", text=right.text, seconds=0, format="wav")
        assert looked["notes"] == right.to_dict()["notes"]
        sound = base64.b64decode(looked["content"])
        assert (sound[:4], looked["media_type"]) == (b"RIFF", "audio/wav")
        for fields, param in [
            ({"prime": "/etc/passwd"}, "prime"),
            ({"prime": 3}, "prime"),
            ({"melody": [1]}, "melody"),
            ({"format": ["mid"]}, "format"),
            ({"prime": base64.b64encode(b"no music").decode()}, "prime"),
            ({"prime": midi, "melody": midi}, "prime"),
            ({"seconds": 1e6}, "seconds"),
            ({"seconds": True}, "seconds"),
            ({"format": "exe"}, "format"),
            ({"cancelled": 1}, "cancelled"),
            ({"text": "Once upon"}, None),
            ({"temperature": "hot"}, None),
            ({"num_beams": 4}, None),
        ]:
            answer = running.post("/v1/tasks/compose", fields)
            assert answer.status_code == 400, fields
            assert param is None or answer.json()["error"]["param"] == param


def test_a_model_of_texts_composes_nothing(server: Running) -> None:
    answer = server.post("/v1/tasks/compose", {"model": "tiny"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "verb")


def test_who_leaves_leaves_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client no longer waits for ends before its next event."""
    ended = threading.Event()
    compose = Composer.compose

    def slow(self: Composer, *given: Any, **how: Any) -> Any:
        limit = time.monotonic() + 20
        while not how["cancelled"]():
            assert time.monotonic() < limit
            time.sleep(0.01)
        ended.set()
        return compose(self, *given, **how)

    monkeypatch.setattr(Composer, "compose", slow)
    with serving({"composer": small_composer()}) as running:
        with pytest.raises(httpx.TimeoutException):
            running.post("/v1/tasks/compose", {"seconds": 1}, timeout=0.3)
        assert ended.wait(10)
