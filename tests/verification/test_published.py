"""Published figures: a small model with figures of its own takes the place of the real one."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from small import TEXT

from glassformer.durable import hash_file
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import NAMED, evaluate
from glassformer.verification import published
from glassformer.verification.published import (
    ACCURACY,
    OVERLAPPING,
    PERPLEXITY,
    PUBLISHED,
    SEPARATE,
    Published,
    figures,
    find_published,
)
from glassformer.verification.verify import verify


@pytest.fixture
def data(lm: LanguageModel, tmp_path: Path) -> Path:
    """Data sets in the form of the real ones; some last words are what the model finds likeliest."""
    passages = []
    for end in range(10, 90, 4):
        begin = TEXT[:end].rstrip()
        likeliest = lm.top(begin, 1)[0].text
        if likeliest.strip() and likeliest == f" {likeliest.strip()}":
            passages.append(begin + likeliest)
    assert len(passages) >= 2
    files = {
        "lambada/lambada_test.jsonl.gz": "".join(json.dumps({"text": text}) + "\n" for text in passages),
        "wikitext2/wiki.test.raw.gz": " = Lily = \n\n She liked to play outside in the park . \n" * 8,
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(gzip.compress(content.encode()))
    return tmp_path


def files_in(data: Path) -> dict[str, Path]:
    return {name: data / file for name, file in NAMED.items()}


@pytest.fixture
def known(
    lm: LanguageModel, data: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Published:
    """The model as a published one, with the figures that `evaluate` gives it."""
    monkeypatch.setenv("GLASSFORMER_DATA", str(data))
    with lm.in_torch():
        (last_words,) = evaluate(lm, "lambada")
        separate, overlapping = evaluate(lm, "wikitext2", stride=32)
    assert last_words.accuracy
    measured = {
        ACCURACY: last_words.accuracy,
        PERPLEXITY: last_words.perplexity,
        SEPARATE: separate.perplexity,
        OVERLAPPING: overlapping.perplexity,
    }
    sha256 = hash_file(folders["gpt2"] / "model.safetensors")
    one = Published(lm.net.config, lm.encode(published.PROBE), sha256, measured, stride=32)
    monkeypatch.setitem(PUBLISHED, "small", one)
    return one


def test_figures_that_agree(
    lm: LanguageModel, known: Published, data: Path, folders: dict[str, Path]
) -> None:
    """Found by sizes and vocabulary; all four hold, and no mutant does."""
    assert find_published(lm) is known
    checks = list(figures(lm, known, folder=folders["gpt2"], files=files_in(data)))
    assert [check.name for check in checks] == [ACCURACY, PERPLEXITY, SEPARATE, OVERLAPPING]
    assert {check.verdict for check in checks} == {"holds"}
    assert f"{known.figures[SEPARATE]:.4g} published" in checks[2].compared


def test_figures_that_differ(
    lm: LanguageModel, known: Published, data: Path, folders: dict[str, Path]
) -> None:
    """By two percent: a failure for the published file, no fault for other weights."""
    off = replace(known, figures=known.figures | {SEPARATE: 1.02 * known.figures[SEPARATE]})
    checks = list(figures(lm, off, folder=folders["gpt2"], files=files_in(data)))
    assert [check.verdict for check in checks] == ["holds", "holds", "fails", "holds"]
    tuned = replace(off, sha256="another")
    checks = list(figures(lm, tuned, folder=folders["gpt2"], files=files_in(data)))
    assert checks[2].verdict == "differs: other weights"
    assert all(check.passed for check in checks)


def test_which_models_have_figures(lm: LanguageModel, known: Published) -> None:
    """Other sizes, or another vocabulary, are another model."""
    PUBLISHED["small"] = replace(known, config=replace(known.config, layers=3))
    assert find_published(lm) is None
    PUBLISHED["small"] = replace(known, probe=[1, 2])
    assert find_published(lm) is None
    lm.tokenizer = None
    assert find_published(lm) is None


def test_the_figures_of_gpt2() -> None:
    """Of the plain protocols, for the pinned file and the true sizes."""
    gpt2 = PUBLISHED["gpt2"]
    assert gpt2.figures == {ACCURACY: 0.326, PERPLEXITY: 40.1, SEPARATE: 29.9, OVERLAPPING: 25.2}
    assert gpt2.config.parameters == 124_439_808
    assert gpt2.sha256.startswith("248dfc39")


def test_the_vocabulary_of_gpt2_is_known_by_its_ids(gpt2) -> None:
    assert gpt2.encode(published.PROBE) == PUBLISHED["gpt2"].probe


@pytest.mark.usefixtures("known", "only_the_model")
def test_data_that_are_missing(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was named must hold them; without one, a note names what is missing."""
    model = str(folders["gpt2"])
    with pytest.raises(InputError, match=r"wikitext2: .*nothing.* does not exist"):
        verify(model, data=tmp_path / "nothing")
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "nothing"))
    assert "wiki.test.raw.gz does not exist" in verify(model).notes[0]
    monkeypatch.delenv("GLASSFORMER_DATA")
    found = verify(model)
    assert "wikitext2: GLASSFORMER_DATA is not set" in found.notes[0]
    assert found.passed


@pytest.mark.usefixtures("known", "only_the_model")
def test_figures_of_the_whole_verb(folders: dict[str, Path], data: Path) -> None:
    """Behind the other checks, from the folder that was named."""
    found = verify(str(folders["gpt2"]), data=data)
    assert [check.name for check in found.checks[-4:]] == [ACCURACY, PERPLEXITY, SEPARATE, OVERLAPPING]
    assert found.passed
    assert found.notes == []
