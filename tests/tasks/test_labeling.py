"""A training on labeled texts: it learns what there is to learn, resumes bit by bit, and its folder loads."""

from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.data.labels import Labeled
from glassformer.errors import InputError
from glassformer.tasks.label import Labeler, encode_words
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Stepped, train

WORDS = {"red": "ADJ", "blue": "ADJ", "cats": "NOUN", "dogs": "NOUN", "run": "VERB", "sleep": "VERB"}
STEPS = 40


def write(folder: Path, shape: str) -> Path:
    """Sentences of three words; they are `blue` or `red`, and their words have tags."""
    path = folder / f"{shape}.tsv"
    lines = []
    for number in range(48):
        words = [
            ("red", "blue")[number % 2],
            ("cats", "dogs")[number // 2 % 2],
            ("run", "sleep")[number // 4 % 2],
        ]
        if shape == "tag":
            lines += [f"{word}\t{WORDS[word]}" for word in words] + [""]
        else:
            lines.append(" ".join(words) + f" {number}\t{words[0]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe(path: Path, shape: str, **text: Any) -> Recipe:
    return Recipe.of(
        {
            "text": {"data": [str(path)], "vocab": 270, "held_out": 0.2, **text},
            "model": {"kind": "rnn", "shape": shape, "width": 12, "dropout": 0.1},
            "train": {"steps": STEPS, "batch": 8, "lr": 0.02, "warmup": 5},
            "evaluation": {"eval_every": 20},
            "show": {"preview": "red dogs sleep", "tensorboard": False},
        }
    )


@pytest.fixture(scope="module", params=["classify", "tag"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Shape, text, folder of the run, events."""
    folder = tmp_path_factory.mktemp(request.param)
    path = write(folder, request.param)
    return request.param, path, folder / "run", list(train(recipe(path, request.param), folder / "run"))


def losses(events: list[Any]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


def test_it_learns_and_loads(trained: Any) -> None:
    """From chance to certainty; the folder is read by the handle that labels, and by no other."""
    shape, _, folder, events = trained
    assert losses(events)[-1] < 0.2 < losses(events)[0]
    model: Any = gf.load(str(folder), engine="torch")
    assert isinstance(model, Labeler)
    if shape == "classify":
        found = model.classify("blue cats run 99")
        assert (found.label, str(found), model.labels) == ("blue", "blue", ("blue", "red"))
        assert sum(found.probabilities.values()) == pytest.approx(1)
        assert model.accuracy([Labeled(("red dogs run",), ("red",)), Labeled(("red cats",), ("blue",))]) == (
            1,
            2,
        )
        with pytest.raises(InputError, match="cannot tag a text; it has one label for a text: use classify"):
            model.tag("red")
    else:
        assert [(word.text, word.label) for word in model.tag("red dogs sleep")] == [
            ("red", "ADJ"),
            ("dogs", "NOUN"),
            ("sleep", "VERB"),
        ]
        assert [one.label for one in model.tag(["blue", "cats"])] == ["ADJ", "NOUN"]
        with pytest.raises(InputError, match="it tags words: use tag"):
            model.classify("red")
    with pytest.raises(InputError, match="text 2 is empty"):
        model._label([["red"], [" "]])


def test_it_goes_on_bit_by_bit(trained: Any, tmp_path: Path) -> None:
    """Stopped in the middle and resumed: the same losses and the same model."""
    shape, path, folder, events = trained
    steps = iter(range(1, STEPS))
    parts = list(train(recipe(path, shape), tmp_path, stop=lambda: next(steps) == 7))
    assert len(losses(parts)) == 7
    parts += list(train(recipe(path, shape), tmp_path))
    assert losses(parts) == losses(events)
    file = "model/model.safetensors"
    assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_a_text_in_company_is_labeled_as_alone(trained: Any) -> None:
    """Many at once, of different lengths, come back in their order."""
    shape, _, folder, _ = trained
    model: Any = gf.load(str(folder), engine="torch")
    texts = ["red dogs sleep and blue cats run", "blue", "cats sleep"]
    if shape == "classify":
        together, alone = model.classify_many(texts), [model.classify(text) for text in texts]
        pairs = list(zip(together, alone, strict=True))
    else:
        together, alone = model.tag_many(texts), [model.tag(text) for text in texts]
        pairs = [
            pair for many, one in zip(together, alone, strict=True) for pair in zip(many, one, strict=True)
        ]
    for many, one in pairs:
        assert (many.text, many.label) == (one.text, one.label)
        assert many.probability == pytest.approx(one.probability, abs=1e-5)


def test_words_keep_their_tokens(trained: Any) -> None:
    """Each token knows its word, and the tokens are those of the text."""
    model: Any = gf.load(str(trained[2]), engine="torch")
    ids, owners = encode_words(model.tokenizer, ["red", "zebras", "run"])
    assert model.tokenizer.decode(ids) == "red zebras run"
    assert sorted(set(owners)) == [0, 1, 2]
    assert len(ids) == len(owners) > 3


def test_a_label_that_is_only_held_out_is_refused(tmp_path: Path) -> None:
    """It could not be learned."""
    path = write(tmp_path, "classify")
    (tmp_path / "held.tsv").write_text("green cats\tgreen\n")
    with pytest.raises(InputError, match="label 'green' is held out, but no text to learn from has it"):
        list(train(recipe(path, "classify", validation=[str(tmp_path / "held.tsv")]), tmp_path / "run"))
