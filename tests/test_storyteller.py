"""The model that ships: small, complete, and able to write a story."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

import glassformer as gf
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import evaluate

FOLDER = Path(gf.__file__).parent / "pretrained" / "storyteller"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


def test_it_is_small_and_whole(lm: LanguageModel) -> None:
    """At most 16 MB in fp16, a context of at least 512, a vocabulary of its own."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 16_000_000
    with safe_open(FOLDER / "model.safetensors", "np") as file:
        assert {str(file.get_slice(name).get_dtype()) for name in file.keys()} == {"F16"}  # noqa: SIM118 (it is no mapping)
    assert lm.model.context >= 512
    assert lm.tokenizer is not None
    assert 2048 <= len(lm.tokenizer) == lm.model.vocab <= 8192
    assert json.loads((FOLDER / "config.json").read_text())["model_type"] == "gpt2"
    assert (FOLDER / "card.md").is_file()


def test_stories_end_by_themselves(lm: LanguageModel) -> None:
    """At the defaults; and the last sentence is whole."""
    results = lm.generate_many(["Once upon a time"], num_return_sequences=10, seed=1)
    whole = [out for out in results if out.finish_reason == "stop"]
    assert len(whole) >= 8
    assert sum(out.text.rstrip().endswith((".", "!", "?", '"')) for out in whole) >= len(whole) - 1
    assert min(len(out.tokens) for out in whole) >= 30
    assert len({out.text for out in results}) == len(results)


def test_it_keeps_names_straight(lm: LanguageModel) -> None:
    """Who is named in a given first sentence comes up again."""
    for name, sentence in (
        ("Pip", "One rainy day, a cat named Pip wanted to learn how to swim."),
        ("Mia", "Once upon a time, there was a girl named Mia. Mia had a red ball."),
    ):
        results = lm.generate_many([sentence], num_return_sequences=6, seed=2, max_new_tokens=80)
        assert sum(name in out.text for out in results) >= 5


def test_a_new_story_every_time(lm: LanguageModel) -> None:
    """With nothing given."""
    one, other = (lm.generate(max_new_tokens=40) for _ in range(2))
    assert one.text != other.text
    assert one.seed != other.seed


@pytest.mark.parametrize(("name", "most"), [("tinystories_val", 0.65), ("tales_val", 1.60)])
def test_bits_per_byte(lm: LanguageModel, stories: Path, name: str, most: float) -> None:
    """On text that it never saw."""
    found = next(evaluate(lm, str(stories / f"{name}.jsonl.gz"), documents=80, characters=900))
    assert found.bits_per_byte <= most
