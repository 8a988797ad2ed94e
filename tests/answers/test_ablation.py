"""Head ablation: one score for every head of every stack, against models whose heads are cut out by hand."""

import json
from pathlib import Path

import pytest
import torch
from translators import small_translator

from glassformer.answers.ablation import HeadAblation
from glassformer.errors import InputError
from glassformer.tasks.translate import Translator

SOURCES = ["She liked to play.", "Lily was a girl.", "a time in the park"]
HOW = {"to": "fr", "max_new_tokens": 6, "num_beams": 1}


@pytest.fixture(scope="module")
def model() -> Translator:
    return small_translator(seed=6, layers=1, decoder_layers=2)


@pytest.fixture(scope="module")
def pairs(model: Translator) -> list[tuple[str, str]]:
    """With the model's own translations as targets: of these it has a BLEU of 100."""
    return [(source, model.translate(source, **HOW).text) for source in SOURCES]


@pytest.fixture(scope="module")
def found(model: Translator, pairs: list[tuple[str, str]]) -> HeadAblation:
    return model.ablate_heads(pairs, metric="chrf", **HOW)


def test_every_head_of_every_stack(model: Translator, found: HeadAblation) -> None:
    """Three heads in each layer: of the encoder, of the decoder, and from the decoder to the source."""
    counts = [("encoder", "attn", 3), ("decoder", "attn", 6), ("decoder", "cross", 6)]
    for stack, part, count in counts:
        assert sum((one.stack, one.part) == (stack, part) for one in found.heads) == count
    assert len(found.heads) == 15
    assert len({one.site for one in found.heads}) == 15
    assert found.score == pytest.approx(100)


@pytest.mark.parametrize("at", [1, 5, 13])
def test_a_score_is_that_of_a_model_without_the_head(
    model: Translator, pairs: list[tuple[str, str]], found: HeadAblation, at: int
) -> None:
    """Its columns of the output matrix are 0."""
    from glassformer.tasks.evaluate_pairs import Pair, evaluate_translations

    one = found.heads[at]
    weight = model.net.get_submodule(one.site.partition(".mix")[0]).proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:, 8 * one.head : 8 * one.head + 8] = 0
        (right,) = evaluate_translations(model, [Pair(*pair) for pair in pairs], metrics=["chrf"], **HOW)
        weight.copy_(kept)
    assert one.score == pytest.approx(right.score)
    assert any(one.score < 90 for one in found.heads)


def test_the_table_and_the_picture(found: HeadAblation) -> None:
    """A row for every head with its difference; a heat map for each kind of attention, last layer on top."""
    row = found.rows[13]
    one = found.heads[13]
    assert row[:4] == ["decoder", "cross-attention", 1, 1]
    assert row[5:] == [one.score, one.score - found.score]
    drawn = found.view().spec["panels"]
    titles = ["encoder: self-attention", "decoder: self-attention", "decoder: cross-attention"]
    assert [one["title"] for one in drawn] == titles
    assert drawn[2]["rows"] == ["layer 1", "layer 0"]
    numbers = found.view().to_numpy()[2]
    assert numbers.shape == (2, 3)
    assert numbers[0, 1] == pytest.approx(one.score - found.score, abs=1e-3)
    worst = min(found.heads, key=lambda one: one.score)
    assert f"falls most without {worst.site}" in found.sentence()
    assert "3 pairs, greedy" in found.caption


def test_what_cannot_be_measured(model: Translator) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match="metric 'rouge' is none of bleu, chrf"):
        model.ablate_heads([("a", "b")], metric="rouge", **HOW)
    with pytest.raises(InputError, match="pairs: there is none"):
        model.ablate_heads([])
    with pytest.raises(InputError, match="head_ablation: small seq2seq has no layers of attention heads"):
        small_translator("seq2seq").ablate_heads([("a", "b")], to="fr")


def test_glass_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BLEU by default; the same numbers as in Python, and a picture."""
    from glassformer.cli import run

    folder, file, picture = tmp_path / "model", tmp_path / "pairs.tsv", tmp_path / "heads.svg"
    small = small_translator(seed=2, layers=1, layout="halves", head_bias=True)
    small.settings |= {"max_new_tokens": 6}
    small.save(folder)
    file.write_text("".join(f"{source}\t{source}\n" for source in SOURCES))
    flags = ["eval", str(folder), str(file), "--to", "fr", "--documents", "2"]
    assert run([*flags, "--ablate-heads", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["values"]["metric"], len(found["rows"])) == ("head_ablation", "BLEU", 9)
    assert "2 pairs, greedy" in found["caption"]
    assert run([*flags, "--ablate-heads", "--metric", "chrf", "-o", str(picture)]) == 0
    assert "cross-attention" in picture.read_text()
    capsys.readouterr()
    for more, words in (
        (["-o", str(picture)], "--output is for the picture of --ablate-heads"),
        (["--ablate-heads", "--metric", "bleu", "--metric", "chrf"], "one metric at a time"),
        (["--ablate-heads", "--drift"], "--drift does not go with --ablate-heads"),
    ):
        assert run([*flags, *more]) == 2
        assert words in capsys.readouterr().err
