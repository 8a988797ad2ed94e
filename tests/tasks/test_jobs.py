"""Jobs: what a family learns decides which class trains it, for a new model and for a base."""

from pathlib import Path
from typing import Any

import pytest
from small import small_model, small_tokenizer
from toys import Encoder, add_family, toy_folder

from glassformer.errors import CheckpointError
from glassformer.hub.families import FAMILIES, family
from glassformer.hub.folder import load_folder, save_folder
from glassformer.tasks.jobs import JOBS, prepare_job
from glassformer.tasks.language_modeling import LanguageModeling
from glassformer.tasks.recipe import Recipe
from glassformer.tokenizers.midi import write_midi
from glassformer.tokenizers.music import Performance
from glassformer.tokenizers.score import Note, Score


class MaskedWords:
    """A job as a new objective brings it."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, **how: Any) -> "MaskedWords":
        return cls(recipe)


def prepared(recipe: Recipe, folder: Path) -> Any:
    return prepare_job(recipe, folder / "run", offline=True, progress=lambda *_: None)


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    path = tmp_path / "text.txt"
    path.write_text("Once upon a time there was a little girl. " * 40)
    return [str(path)]


def test_every_family_has_a_job() -> None:
    """The objective of each is in the table."""
    assert {family(kind).objective for kind in FAMILIES} <= set(JOBS)


def test_a_new_objective_is_one_line(
    tmp_path: Path, text: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family names it; a recipe of that kind, or with a base of that kind, gets its job, others do not."""
    add_family(monkeypatch, Encoder, objective="masked_words")
    monkeypatch.setitem(JOBS, "masked_words", f"{__name__}.MaskedWords")
    new = Recipe.of({"model": {"kind": "encoder"}}).changed(data=text)
    assert isinstance(prepared(new, tmp_path), MaskedWords)

    base = toy_folder(tmp_path / "toy", Encoder)
    assert isinstance(prepared(Recipe().changed(data=text, base=base), tmp_path), MaskedWords)

    save_folder(tmp_path / "gpt2", small_model(vocab=300), tokenizer=small_tokenizer())
    tuned = prepared(Recipe().changed(data=text, base=str(tmp_path / "gpt2")), tmp_path)
    assert isinstance(tuned, LanguageModeling)


def test_a_base_that_is_no_model_is_refused(tmp_path: Path, text: list[str]) -> None:
    """With the file that is missing."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"holds no model\.safetensors"):
        prepared(Recipe().changed(data=text, base=str(tmp_path / "empty")), tmp_path)


def test_texts_may_have_others_to_evaluate_on(tmp_path: Path, text: list[str]) -> None:
    """Then nothing of them is held out; which texts these are belongs to the run."""
    other = tmp_path / "other.txt"
    other.write_text("A cat sat on a mat. " * 5)
    recipe = Recipe().changed(data=text, vocab=270, held_out=0.5)
    split = prepared(recipe, tmp_path)
    apart = prepared(recipe.changed(validation=[str(other)]), tmp_path)
    whole, held = split.sizes()
    assert apart.sizes()[0] == whole + held
    rows = list(apart.held_out(apart.build("cpu"), rows=2)())
    seen = [id for row in rows for id in row.arrays["ids"].flatten().tolist()]
    assert apart.tokenizer.decode(seen).count("cat") >= 5
    assert apart.identity() != split.identity()
    assert "other.txt" in apart.describe_data()[1]


def test_music_is_trained_from_midi_files(tmp_path: Path) -> None:
    """A folder of them: the vocabulary of events is not learned, and the folder that comes out has it."""
    for number in range(3):
        notes = [Note(n / 10, n / 10 + 0.2, 50 + n % 20 + number) for n in range(60)]
        write_midi(Score.of(notes), tmp_path / f"{number}.mid")
    recipe = Recipe.of({"model": {"kind": "music", "layers": 1, "width": 16, "context": 32, "reach": 8}})
    job = prepared(recipe.changed(data=[str(tmp_path)], steps=3), tmp_path / "out")
    net = job.build("cpu")
    assert (net.vocab, net.config.reach) == (389, 8)
    assert job.preview(net)
    job.export(tmp_path / "model", net, about="Not at all.")
    back = load_folder(tmp_path / "model")
    assert isinstance(back.tokenizer, Performance)
