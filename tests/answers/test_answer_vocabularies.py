"""A model with a vocabulary for sources and another one for targets: every answer names tokens by the right one."""

import pytest
import torch
from small import shake, small_net

from glassformer.tasks.translate import Translator
from glassformer.tasks.translated import Translated
from glassformer.tokenizers.train import PADDING, train_separate_tokenizers

SOURCE = "Ein Mann schwimmt."


@pytest.fixture(params=["transformer", "seq2seq"])
def out(request: pytest.FixtureRequest) -> Translated:
    tokenizer = train_separate_tokenizers(
        [SOURCE, "Eine Frau singt."] * 9,
        ["A man is sleeping.", "A woman sings."] * 9,
        vocab_size=290,
        special=[],
    )
    assert tokenizer.source is not None
    ids = {"start": tokenizer.end, "pad": tokenizer.special[PADDING]}
    sizes = {"vocab": len(tokenizer), "source_vocab": len(tokenizer.source)}
    net = small_net(request.param, 0, torch.float64, **sizes, **ids)
    shake(net, 0, 0.1)
    return Translator(net, tokenizer, name="two").translate(SOURCE, max_new_tokens=4)


def joined(labels: list[str]) -> str:
    return "".join(labels).replace("<|endoftext|>", "")


def test_sources_are_named_by_their_own_vocabulary(out: Translated) -> None:
    """And targets by theirs; the same ids are other texts there."""
    assert out.model.tokenizer is not None
    assert out.model.tokenizer.decode(out.source_tokens) != SOURCE
    found = out.alignment()
    assert joined(found.sources) == SOURCE
    assert len(found.tokens) == len(found.weights)
    assert joined(out.saliency().source or []) == SOURCE
    words = out.alignment(by_word=True).sources
    assert [word.strip() for word in words][:3] == ["Ein", "Mann", "schwimmt"]


def test_stacks_are_named_by_what_they_read(out: Translated) -> None:
    """The encoder reads the source, the decoder the target, and cross-attention goes from one to the other."""
    if "recurrent" in out.model.capabilities:
        assert joined(out.unroll().source) == SOURCE
        assert "Ein Mann" in out.edited([{"site": "decoder.attn.context", "do": "zero"}]).caption
        return
    inside = out.attention(stack="encoder", layer=0, head=0)
    assert joined(list(inside.tokens)) == SOURCE
    cross = out.attention(stack="cross", layer=0, head=0)
    assert cross.rows == out.attention(stack="decoder", part="cross", layer=0, head=0).rows
    assert joined(list(cross.sources)) == SOURCE
    assert joined(list(cross.tokens)) != SOURCE
    assert out.steps(0, 0, position="Mann", stack="encoder").query_token.strip() in "Mann"
