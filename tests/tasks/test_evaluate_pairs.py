"""BLEU and chrF are sacrebleu's own, on what the model writes; the loss is the cross-entropy of the targets."""

import builtins
import json
import math
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from reversing import save_translator, write_pairs

from glassformer.cli import run as glass
from glassformer.data.pairs import Pair
from glassformer.errors import InputError
from glassformer.tasks.evaluate_pairs import evaluate_translations, read_test_set, target_loss
from glassformer.tasks.load import load
from glassformer.tasks.translate import Translator

SOURCES = ["abc", "d e", "A cat.", "Ab cd", "eee"]


def translator(folder: str) -> Translator:
    return load(folder, engine="torch").expect(Translator)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_translator(tmp_path_factory.mktemp("translators") / "one")


@pytest.fixture(scope="module")
def model(folder: str) -> Translator:
    return translator(folder)


@pytest.fixture(scope="module")
def pairs(model: Translator) -> list[Pair]:
    """Targets that are near to what the model writes: some of it in another case, some of it missing."""
    near = []
    for number, (best, *_) in enumerate(model.translate_many(SOURCES, num_beams=2)):
        kept = best.text.strip()[: 20 - number] or "none"
        near.append(Pair(SOURCES[number], kept.swapcase() if number % 2 else kept))
    return near


@pytest.mark.parametrize("lowercase", [False, True])
def test_figures_are_sacrebleus(model: Translator, pairs: list[Pair], lowercase: bool) -> None:
    """Scores and signatures, as sacrebleu gives them when it is called directly; case matters unless told."""
    written = [best.text for best, *_ in model.translate_many(SOURCES, num_beams=2)]
    targets = [[pair.target for pair in pairs]]
    bleu, chrf = evaluate_translations(model, pairs, lowercase=lowercase, num_beams=2)
    right = sacrebleu.BLEU(lowercase=lowercase)
    assert bleu.score == right.corpus_score(written, targets).score > 1
    assert bleu.signature == str(right.get_signature())
    assert f"case:{'lc' if lowercase else 'mixed'}|eff:no|tok:13a" in bleu.signature
    right = sacrebleu.CHRF(lowercase=lowercase)
    assert chrf.score == right.corpus_score(written, targets).score > 1
    assert chrf.signature == str(right.get_signature())
    assert bleu.sentences == chrf.sentences == 5
    other = evaluate_translations(model, pairs, lowercase=not lowercase, metrics=["chrf"], num_beams=2)
    assert other[0].score != chrf.score


def test_a_perfect_translation(model: Translator) -> None:
    """Has 100 of 100; metrics come in the order in which they are asked for, each once."""
    perfect = [Pair(one, model.translate(one).text) for one in SOURCES]
    seen: list[tuple[int, int]] = []
    found = evaluate_translations(
        model, perfect, metrics=["chrf", "bleu", "chrf"], progress=lambda *now: seen.append(now)
    )
    assert [one.name for one in found] == ["chrf", "bleu"]
    assert [one.score for one in found] == pytest.approx([100, 100])
    assert seen == [(5, 5)]


@torch.no_grad()
def test_the_loss_is_the_cross_entropy(model: Translator, pairs: list[Pair]) -> None:
    """Of every pair alone, without padding, by torch; in whatever order the pairs come."""
    assert model.tokenizer is not None
    end = model.tokenizer.end
    nats, count = 0.0, 0
    some = [Pair(source, target[:20]) for source, target in pairs]
    for pair in some:
        source = torch.tensor([[*model.tokenizer.encode(pair.source), end]])
        target = torch.tensor([[model.net.config.start, *model.tokenizer.encode(pair.target), end]])
        logits = model.net(source, target[:, :-1])[0].double()
        nats += F.cross_entropy(logits, target[0, 1:], reduction="sum").item()
        count += target.shape[1] - 1
    for given in (some, some[::-1]):
        found = target_loss(model, given, name="some")
        assert found.tokens == count
        assert found.loss == pytest.approx(nats / count, rel=1e-5)
        assert found.perplexity == pytest.approx(math.exp(nats / count), rel=1e-4)


def test_a_language_is_asked_for(tmp_path: Path) -> None:
    """The tag goes before every source; an unknown one is refused before anything is translated."""
    two = translator(save_translator(tmp_path / "two", "en", "fr"))
    pairs = [Pair(one, two.translate(one, to="fr").text) for one in SOURCES]
    assert evaluate_translations(two, pairs, metrics=["chrf"], to="fr")[0].score == pytest.approx(100)
    assert evaluate_translations(two, pairs, metrics=["chrf"], to="en")[0].score < 90
    with pytest.raises(InputError, match="'de' is not a language"):
        evaluate_translations(two, pairs, to="de")
    short = [Pair("ab", "ba")]
    assert target_loss(two, short, name="", to="fr").loss != target_loss(two, short, name="", to="en").loss


def test_pairs_that_are_too_long(model: Translator) -> None:
    """For a translation its sentences are taken one by one; for the loss it is refused by its number."""
    long = [Pair("ab", "ba"), Pair("Abc def ghi. Jkl mno. Pqr.", "x")]
    assert evaluate_translations(model, long, metrics=["bleu"])[0].sentences == 2
    with pytest.raises(InputError, match=r"^pair 2: the text has 27 tokens, 3 more than"):
        target_loss(model, long, name="long")
    with pytest.raises(InputError, match=r"^pair 1: the text has 31 tokens, 7 more"):
        evaluate_translations(model, [Pair("a" * 30, "x")])
    assert target_loss(model, [Pair("a", "b" * 23)], name="").tokens == 24
    with pytest.raises(
        InputError, match=r"^pair 1: the target has 26 tokens, 1 more than the model's context"
    ):
        target_loss(model, [Pair("a", "b" * 24)], name="")


def test_the_library_is_an_extra(
    model: Translator, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is absent, one sentence names it, before anything is translated."""
    plain = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(
        InputError, match=r"bleu and chrf need one more library: pip install 'glassformer\[tasks\]'"
    ):
        evaluate_translations(model, pairs)
    assert target_loss(model, [Pair("a", "b")], name="").tokens == 2


def test_a_test_set(tmp_path: Path) -> None:
    """Of one file or two; the first pairs of it; both sides exchanged."""
    file = write_pairs(tmp_path, ("a", "b"), ("c", "d"), ("e", "f"))
    assert read_test_set([file], first=2) == [("a", "b"), ("c", "d")]
    assert read_test_set([file], reverse=True) == [("b", "a"), ("d", "c"), ("f", "e")]


def test_the_command(
    folder: str, pairs: list[Pair], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures with signature and number of sentences, as lines or as data; without a metric the loss."""
    file = write_pairs(tmp_path, *pairs)
    how = ["--metric", "bleu", "--metric", "chrf", "--lowercase", "--num-beams", "2"]
    assert glass(["eval", folder, file, *how]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert glass(["eval", folder, file, *how, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    right = evaluate_translations(translator(folder), pairs, lowercase=True, num_beams=2)
    assert found == [one.to_dict() for one in right]
    assert lines[0] == f"bleu:  {right[0].score:.2f}  5 sentences"
    assert lines[1::2] == [f"  {one.signature}" for one in right]

    other = write_pairs(tmp_path, ("ab", "ba"), ("c", "dd"), name="short.tsv")
    assert glass(["eval", folder, other, "--documents", "1", "--reverse", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["loss"] == target_loss(translator(folder), [Pair("ba", "ab")], name="").loss
    assert found["tokens"] == 3


@pytest.mark.parametrize(("arguments", "words"), [
    (["FILE", "--metric", "meteor"], "metric 'meteor' is none of bleu, chrf, rouge"),
    (["FILE", "--metric", "bleu", "--to", "fr"], "has one direction, so that no language is named: leave 'fr' out"),
    (["FILE", "--stride", "3"], "--stride is for language models: pairs are whole"),
    (["FILE", "--documents", "-1"], "--documents must be at least 0"),
    (["wikitext2"], "wikitext2: there is no such file"),
    (["FILE", "FILE", "FILE"], "pairs come from one file or from two, not from 3"),
])  # fmt: skip
def test_bad_input(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """One sentence, exit code 2."""
    file = write_pairs(tmp_path, ("ab", "ba"))
    assert glass(["eval", folder, *(file if word == "FILE" else word for word in arguments)]) == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.strip().splitlines())) == ("", 1)
    assert words in said.err


def test_a_language_model_has_no_bleu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one file at a time."""
    file = write_pairs(tmp_path, ("ab", "ba"))
    assert glass(["eval", "storyteller", file, "--metric", "bleu"]) == 2
    assert "storyteller cannot translate a text" in capsys.readouterr().err
    assert glass(["eval", "storyteller", file, file]) == 2
    assert "one text at a time, not on 2" in capsys.readouterr().err
