"""`glass replay`: a text of a server again, to the bit, from the recipe that its answer carries."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Running, serving, tiny_model

import glassformer as gf
from glassformer.cli import run

ASK = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 20, "explain": {"recipe": True}}
CASES: list[dict[str, Any]] = [
    {"seed": 7, "n": 3, "temperature": 1.2, "logit_bias": {"11": -5}, "frequency_penalty": 0.5},
    {"seed": 1, "stop": ["girl", "boy"], "echo": True, "logprobs": 3},
    {"stop_token_ids": [258], "top_p": 0.9, "top_k": 5, "min_tokens": 3},
    {"engine": "torch", "seed": 3, "repetition_penalty": 1.3},
    {"edits": [{"site": "blocks.0.attn", "do": "zero"}], "seed": 3},
    {"ignore_eos": True, "temperature": 0},
]


@pytest.fixture(scope="module")
def story() -> Iterator[Running]:
    """A server with the model that ships."""
    with serving({"storyteller": gf.load("storyteller")}) as running:
        yield running


def asked(
    story: Running, folder: Path, fields: dict[str, Any], path: str = "completions"
) -> tuple[Any, Path]:
    """An answer, and the file that it was saved to."""
    answer = story.post(f"/v1/{path}", ASK | fields)
    assert answer.status_code == 200, answer.text
    file = folder / "answer.json"
    file.write_text(answer.text)
    return answer.json(), file


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: next(iter(fields)))
def test_the_same_text_to_the_bit(
    story: Running, tmp_path: Path, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every choice of an answer: tokens and log-probabilities."""
    answer, file = asked(story, tmp_path, fields)
    assert run(["replay", "--json", "-f", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    found = found if isinstance(found, list) else [found]
    assert len(found) == len(answer["choices"])
    for one, choice in zip(found, answer["choices"], strict=True):
        recipe = choice["explain"]["recipe"]
        assert one["text"] == choice["text"].removeprefix("Once upon a time" if "echo" in fields else "")
        assert one["logprobs"] == recipe["logprobs"]
        assert one["tokens"] == recipe["token_ids"][: len(one["tokens"])]
        assert one["engine"] == recipe["engine"]


def test_a_chat_and_a_response(story: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose answers end where the next turn would begin; the recipe alone is enough, too."""
    talk = {"messages": [{"role": "user", "content": "Hello!"}], "seed": 2}
    chat, _ = asked(story, tmp_path, talk, "chat/completions")
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(chat["choices"][0]["explain"]["recipe"]))
    assert run(["replay", "-f", str(recipe)]) == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip("\n").endswith(chat["choices"][0]["message"]["content"].rstrip("\n"))
    assert "to the bit" in shown.err
    answer, file = asked(
        story, tmp_path, {"input": "Hello!", "prompt": None, "seed": 2, "max_output_tokens": 20}, "responses"
    )
    assert run(["replay", "-f", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == answer["output"][0]["content"][0]["text"]


def test_what_is_refused(story: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 where the replay differs in a token or a bit, 2 where there is nothing to replay."""
    answer, file = asked(story, tmp_path, {"seed": 1})
    recipe = answer["choices"][0]["explain"]["recipe"]
    tiny_model().save(tmp_path / "tiny")
    bits = [recipe["logprobs"][0] + 1e-12, *recipe["logprobs"][1:]]
    for changes, code, words in [
        ({"token_ids": [*recipe["token_ids"][:-1], 0]}, 1, "differs from the recipe"),
        ({"logprobs": bits}, 1, "differs from the recipe"),
        ({"options": recipe["options"] | {"seed": 2}}, 1, "differs from the recipe"),
        ({"weights": "0" * 64}, 2, "other weights"),
        ({"model": str(tmp_path / "tiny"), "engine": "torch float32"}, 2, "other weights"),
        ({"engine": "abacus"}, 2, "engine"),
        ({"prompt_ids": None}, 2, "'prompt_ids' is missing"),
        ({"options": {"warmth": 1}}, 2, "unknown option 'warmth'"),
    ]:
        file.write_text(json.dumps(recipe | changes))
        assert run(["replay", "-f", str(file)]) == code, changes
        assert words in capsys.readouterr().err
    for text, words in [
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"choices": [{}]}', "has no recipe"),
    ]:
        file.write_text(text)
        assert run(["replay", "-f", str(file)]) == 2
        assert words in capsys.readouterr().err
