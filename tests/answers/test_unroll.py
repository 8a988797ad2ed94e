"""Unroll: states, contexts and probabilities of a recurrent network, against its own steps."""

import numpy as np
import pytest
import torch
from translators import small_translator

from glassformer.errors import InputError
from glassformer.tasks.translated import Translated
from glassformer.trace import trace

SOURCE = "She liked to play."
KINDS = {
    "attention": {"bidirectional": True},
    "after": {"wiring": "after", "layers": 2},
    "mean": {"reads": "mean"},
    "last": {"reads": "last", "cell": "lstm"},
}


def translated(kind: str, length: int = 5) -> Translated:
    return small_translator("seq2seq", seed=3, **KINDS[kind]).translate(
        SOURCE, to="fr", max_new_tokens=length
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_step_is_the_models_own(kind: str) -> None:
    """The model run token by token behind a cache gives the same states, contexts and probabilities."""
    out = translated(kind)
    found, net = out.unroll(), out.model.net
    source, cache = torch.tensor([out.source_tokens]), net.new_cache(1, 9)
    memory, _ = net.encode(source)
    np.testing.assert_allclose(found.read, memory.states[0].detach(), atol=1e-12)
    assert (found.context is None) == (kind == "last")
    assert (found.pattern is None) == (kind in ("mean", "last"))
    inputs = [net.config.start, *out.tokens[:-1]]
    for at, (given, written) in enumerate(zip(inputs, out.tokens, strict=True)):
        with torch.no_grad(), trace(net) as seen:
            logits = net(source, torch.tensor([[given]]), cache)
        np.testing.assert_allclose(found.wrote[at], seen["decoder.hidden"][0], atol=1e-12)
        assert found.probability[at] == pytest.approx(float(logits[0, 0].softmax(-1)[written]))
        if found.context is not None:
            site = "decoder.context" if kind == "mean" else "decoder.attn.context"
            np.testing.assert_allclose(found.context[at], seen[site][0], atol=1e-12)
        if found.pattern is not None:
            np.testing.assert_allclose(found.context[at], found.pattern[at] @ found.read, atol=1e-9)


def test_the_table_reads_and_then_writes() -> None:
    """A row for every step; the first of a network has no state before it."""
    out = translated("attention")
    found = out.unroll()
    networks = [row[0] for row in found.rows]
    assert networks == ["encoder"] * len(out.source_tokens) + ["decoder"] * len(out.tokens)
    second = found.rows[1]
    assert second[4] == pytest.approx(np.linalg.norm(found.read[1] - found.read[0]))
    assert found.rows[0][4] is None
    best = found.pattern[0].argmax()  # type: ignore[index]
    assert found.rows[len(out.source_tokens)][6] == found.sources[best]
    assert "a context vector in every step" in found.sentence()
    assert len(found.view().spec["panels"]) == 4
    assert "the last of these states alone" in translated("last").unroll().sentence()


def test_one_step() -> None:
    """A single token is one row, not a table without an axis."""
    assert translated("attention", 1).unroll().wrote.shape[0] == 1


def test_a_transformer_has_no_state() -> None:
    """It says so."""
    out = small_translator().translate(SOURCE, to="fr", max_new_tokens=2)
    with pytest.raises(InputError, match="unroll: small transformer has no recurrent state"):
        out.unroll()
