"""Alignment of a decoder alone: its own attention, from each written token back to the source."""

import numpy as np
import pytest
import torch
from decoders import small_decoder

from glassformer.answers.alignment import Alignment
from glassformer.answers.answer import labels
from glassformer.errors import InputError
from glassformer.explain.faithfulness import spearman
from glassformer.tasks.translated import Translated
from glassformer.trace import trace

SOURCE = "She liked to play outside."


@pytest.fixture(scope="module")
def out() -> Translated:
    return small_decoder(2).translate(SOURCE, to="fr", num_beams=1, max_new_tokens=6)


@pytest.fixture(scope="module")
def found(out: Translated) -> Alignment:
    return out.alignment()


def pattern(out: Translated, layer: int, head: int) -> np.ndarray:
    """The rows that wrote a token, seen directly: source and tag are read, then every written token but the last."""
    net = out.model.net
    with torch.no_grad(), trace(net, f"blocks.{layer}.attn.pattern") as seen:
        net(torch.tensor([[*out.source_tokens, *out.tokens[:-1]]]))
    return seen[f"blocks.{layer}.attn.pattern"][0, head, len(out.source_tokens) - 1 :].numpy()


def test_a_row_is_the_position_that_wrote_the_token(out: Translated) -> None:
    """The first token is written where the tag is read; columns are the source without its tag."""
    one = out.alignment(1, 2)
    whole = pattern(out, 1, 2)
    source = whole[:, : len(out.source_tokens) - 1]
    assert one.weights.shape == (6, len(out.source_tokens) - 1)
    np.testing.assert_allclose(one.weights, source / source.sum(1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(one.to_source, source.sum(1), atol=1e-12)
    np.testing.assert_allclose(whole.sum(1), 1)
    assert one.to_source is not None
    assert (one.to_source < 1).all()
    assert "".join(one.sources) == SOURCE
    assert one.tokens == labels(out.model.tokenizer, out.tokens)
    assert one.caption.startswith("small gpt2: alignment, layer 1, head 2\nThe source has ")


def test_means_over_layers_and_heads(out: Translated, found: Alignment) -> None:
    """Of the attention itself: the shares of the source are taken of the mean."""
    size = len(out.source_tokens) - 1
    mean = np.mean([pattern(out, layer, head)[:, :size] for layer in range(2) for head in range(3)], 0)
    np.testing.assert_allclose(found.weights, mean / mean.sum(1, keepdims=True))
    np.testing.assert_allclose(found.to_source, mean.sum(1))
    np.testing.assert_allclose(found.weights.sum(1), 1)


def test_saliency_is_that_of_the_source(out: Translated, found: Alignment) -> None:
    """The same numbers as saliency gives over the whole text, in shares of the source's; and their agreement."""
    size = len(out.source_tokens) - 1
    whole = out.saliency(tested=False).shares[:, :size]
    np.testing.assert_allclose(found.saliency, whole / whole.sum(1, keepdims=True), rtol=1e-6)
    right = [spearman(a, b) for a, b in zip(found.weights, found.saliency, strict=True)]
    np.testing.assert_allclose(found.correlation, right)
    assert f"rank correlation {np.mean(right):.2f}".replace("-", "−") in found.sentence()


def test_the_end_token_is_written_too(out: Translated, found: Alignment) -> None:
    """A finished translation has one row more."""
    ended = type(out)(**vars(out) | {"finish_reason": "stop"}).alignment()
    assert ended.tokens == [*found.tokens, "<|endoftext|>"]
    np.testing.assert_allclose(ended.weights[:-1], found.weights, atol=1e-12)


def test_words(out: Translated, found: Alignment) -> None:
    """Tokens of a word together; a row still adds up to 1, and the attention to the source is a mean."""
    joined = out.alignment(by_word=True)
    assert joined.sources == ["She", " liked", " to", " play", " outside", "."]
    np.testing.assert_allclose(joined.weights.sum(1), 1)
    assert joined.to_source is not None
    assert found.to_source is not None
    assert (
        joined.to_source[0] == pytest.approx(found.to_source[: len(out.tokens)].mean())
        or len(joined.tokens) > 1
    )


def test_a_band_that_does_not_reach_the_source() -> None:
    """A row without any attention to the source stays a row of zeros."""
    out = small_decoder(2, kind="gpt3", window=2).translate(SOURCE, to="fr", num_beams=1, max_new_tokens=5)
    found = out.alignment(1)
    assert found.to_source is not None
    assert found.to_source[0] > 0
    assert not found.to_source[2:].any()
    assert not found.weights[2:].any()


def test_a_summary_is_aligned_with_its_text() -> None:
    """The same question."""
    summary = small_decoder(2).summarize(SOURCE, num_beams=1, max_new_tokens=3)
    found = summary.alignment()
    assert found.weights.shape[1] == len(summary.prompt_tokens) - 1
    assert "".join(found.sources) == SOURCE


def test_without_a_source() -> None:
    """One sentence."""
    lm = small_decoder(2)
    assert lm.tokenizer is not None
    from glassformer.answers import ask
    from glassformer.answers.answer import Text

    with pytest.raises(InputError, match="there is no source before what was written"):
        ask("alignment", Text(lm, [lm.tokenizer.special["<to-fr>"], 5, 6], 1))
