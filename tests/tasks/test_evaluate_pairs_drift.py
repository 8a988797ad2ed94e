"""Drift: the loss after own tokens against the loss after true ones, equal to a direct computation."""

import numpy as np
import pytest
from oracles import seq2seq
from small import shake

from glassformer.data.pairs import Pair
from glassformer.models.seq2seq import Config, Seq2Seq
from glassformer.tasks.evaluate_pairs import target_loss
from glassformer.tasks.translate import Translator
from glassformer.tokenizers.train import PADDING, train_pair_tokenizer

PAIRS = [Pair("one two", "DEUX UN"), Pair("one", "UN"), Pair("two two one", "UN DEUX DEUX")]


@pytest.fixture
def model() -> Translator:
    """A small model in float64 whose every number is random."""
    tokenizer = train_pair_tokenizer((half for pair in PAIRS for half in pair), 280)
    ids = {"vocab": len(tokenizer), "pad": tokenizer.special[PADDING], "start": tokenizer.end}
    net = Seq2Seq(Config(width=6, **ids)).initialize(0)  # type: ignore[arg-type]
    shake(net, 1)
    return Translator(net.double(), tokenizer, name="small")


def nats(logits: np.ndarray, targets: list[int]) -> float:  # type: ignore[type-arg]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -sum(float(logp[place, token]) for place, token in enumerate(targets))


def test_it_is_what_own_tokens_cost(model: Translator) -> None:
    """Both losses, token by token in NumPy; a target's end counts as a token."""
    net, tokenizer = model.net, model.tokenizer
    assert tokenizer is not None
    tokens, true_nats, own_nats = 0, 0.0, 0.0
    for pair in PAIRS:
        source = model.encode_source(pair.source)
        targets = [*tokenizer.encode(pair.target), tokenizer.end]
        own = [net.config.start]
        for _ in targets[1:]:
            own.append(int(seq2seq(net.config, net.state_dict(), source, own)["logits"][-1].argmax()))
        for inputs, free in (([net.config.start, *targets[:-1]], False), (own, True)):
            found = nats(seq2seq(net.config, net.state_dict(), source, inputs)["logits"], targets)
            own_nats, true_nats = own_nats + found * free, true_nats + found * (not free)
        tokens += len(targets)

    true, own_tokens = (target_loss(model, PAIRS, name="pairs", own=free) for free in (False, True))
    assert true.tokens == own_tokens.tokens == tokens
    assert true.loss == pytest.approx(true_nats / tokens, rel=1e-9)
    assert own_tokens.loss == pytest.approx(own_nats / tokens, rel=1e-9)
    assert abs(true.loss - own_tokens.loss) > 1e-6
    assert "teacher forcing" in true.protocol
    assert "free running" in own_tokens.protocol
