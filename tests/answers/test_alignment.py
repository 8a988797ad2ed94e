"""Alignment: attention from a written token to the source, and saliency beside it."""

import csv
import io

import numpy as np
import pytest
import torch
from translators import small_translator

from glassformer.answers.alignment import Alignment
from glassformer.errors import InputError
from glassformer.explain.faithfulness import spearman
from glassformer.tasks.translated import Translated
from glassformer.trace import trace

SOURCE = "She liked to play outside."


def translated(kind: str = "transformer", **changes: object) -> Translated:
    return small_translator(kind, **changes).translate(SOURCE, to="fr", max_new_tokens=6)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def out() -> Translated:
    return translated()


@pytest.fixture(scope="module")
def found(out: Translated) -> Alignment:
    return out.alignment()


def test_a_row_is_the_step_that_wrote_the_token(out: Translated) -> None:
    """The first token is written while the start token is read, so row n is the pattern of position n."""
    net = out.model.net
    target = torch.tensor([[net.config.start, *out.tokens]])
    with torch.no_grad(), trace(net, "decoder.blocks.1.cross.pattern") as seen:
        net(torch.tensor([out.source_tokens]), target)
    right = seen["decoder.blocks.1.cross.pattern"][0, 2, : len(out.tokens)]
    one = out.alignment(1, 2)
    np.testing.assert_allclose(one.weights, right, atol=1e-12)
    assert one.tokens == [out.model.piece(token) for token in out.tokens]
    assert one.sources == [out.model.piece(token) for token in out.source_tokens]
    assert one.caption.startswith("small transformer: alignment, layer 1, head 2\n")


def test_the_end_token_is_written_too(out: Translated) -> None:
    """A finished translation has one row more, that of the position behind the last token."""
    ended = Translated(**vars(out) | {"finish_reason": "stop"}).alignment()
    assert ended.tokens == [*out.alignment().tokens, "<|endoftext|>"]
    np.testing.assert_allclose(ended.weights[:-1], out.alignment().weights)


def test_means_over_layers_and_heads(out: Translated, found: Alignment) -> None:
    """Of a layer over its heads, and of all."""
    layers = [[out.alignment(layer, head).weights for head in range(3)] for layer in range(2)]
    np.testing.assert_allclose(found.weights, np.mean(layers, (0, 1)))
    np.testing.assert_allclose(out.alignment(0).weights, np.mean(layers[0], 0))
    np.testing.assert_allclose(found.weights.sum(1), 1)


def test_saliency_is_that_of_the_source(out: Translated, found: Alignment) -> None:
    """The same numbers as saliency gives, and a correlation of the two rows."""
    np.testing.assert_allclose(found.saliency, out.saliency(tested=False).shares, rtol=1e-6)
    right = [spearman(a, b) for a, b in zip(found.weights, found.saliency, strict=True)]
    np.testing.assert_allclose(found.correlation, right)
    assert found.agreement == pytest.approx(np.mean(right))
    assert f"rank correlation {np.mean(right):.2f}".replace("-", "−") in found.sentence()
    assert "attention is not an explanation" in found.sentence()
    same = (found.weights.argmax(1) == found.saliency.argmax(1)).sum()
    assert f"the same source for {same} of {len(found.tokens)}" in found.sentence()


@pytest.mark.parametrize("wiring", ["before", "after"])
def test_a_recurrent_network_step_by_step(wiring: str) -> None:
    """One pattern a step, in the order of the steps."""
    out = translated("seq2seq", wiring=wiring, bidirectional=True)
    found, net = out.alignment(), out.model.net
    cache = net.new_cache(1, 9)
    source = torch.tensor([out.source_tokens])
    for row, token in zip(found.weights, [net.config.start, *out.tokens[:-1]], strict=True):
        with torch.no_grad(), trace(net, "decoder.attn.pattern") as seen:
            net(source, torch.tensor([[token]]), cache)
        np.testing.assert_allclose(row, seen["decoder.attn.pattern"][0, 0, 0], atol=1e-12)
    assert found.caption.startswith("small seq2seq: alignment, step by step\n")


def test_the_bottleneck_has_no_alignment() -> None:
    """It says what to ask instead, and that can be asked."""
    out = translated("seq2seq", reads="last")
    with pytest.raises(InputError, match="no attention to its source; saliency shows"):
        out.alignment()
    assert out.saliency(tested=False).given[0] == "<to-fr>"


@pytest.mark.parametrize(
    ("where", "words"),
    [((2, 0), r"layer 2 is out of range \(0 to 1\)"), ((0, 3), r"head 3 is out of range \(0 to 2\)")],
)
def test_what_does_not_exist(out: Translated, where: tuple[int, int], words: str) -> None:
    """One sentence."""
    with pytest.raises(InputError, match=words):
        out.alignment(*where)


def test_words(out: Translated, found: Alignment) -> None:
    """Columns of a word are summed, its rows averaged; a tag and the end token are words of their own."""
    joined = out.alignment(by_word=True)
    assert joined.sources == ["<to-fr>", "She", " liked", " to", " play", " outside", ".", "<|endoftext|>"]
    np.testing.assert_allclose(joined.weights.sum(1), 1)
    np.testing.assert_allclose(joined.weights[:, 0].mean(), found.weights[:, 0].mean())


def test_every_pair_is_in_the_file(found: Alignment) -> None:
    """Both measures of each."""
    _, *rows = csv.reader(io.StringIO(found.to_csv()))
    assert len(rows) == found.weights.size
    np.testing.assert_allclose([float(row[4]) for row in rows], found.weights.ravel())
    np.testing.assert_allclose([float(row[5]) for row in rows], found.saliency.ravel())
    assert [row[2] for row in found.rows] == [found.sources[at] for at in found.weights.argmax(1)]
