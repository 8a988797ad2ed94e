"""The model that ships, in float64, beside `transformers`, captum and scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients
from explain.readings import reading
from sklearn.decomposition import NMF
from small import Pair
from transformers import GPT2LMHeadModel

import glassformer as gf
from glassformer.explain.attention import patterns
from glassformer.explain.lens import attribution, lens
from glassformer.explain.neurons import activations
from glassformer.explain.saliency import Target, saliency

FOLDER = Path(gf.__file__).parent / "pretrained" / "storyteller"


@pytest.fixture(scope="module")
def storyteller() -> Pair:
    theirs = GPT2LMHeadModel.from_pretrained(FOLDER, dtype=torch.float64, attn_implementation="eager").eval()
    lm = gf.load("storyteller", dtype="float64")
    return Pair(lm.model, theirs, lm.encode("Once upon a time, there was a little girl named Lily. She"))


@torch.no_grad()
def test_attention_and_lens(storyteller: Pair) -> None:
    """Every pattern, and the lens of every block."""
    theirs, ids = storyteller.theirs, storyteller.ids
    right = theirs(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    np.testing.assert_allclose(
        patterns(reading(storyteller)), torch.stack(right.attentions)[:, 0].numpy(), atol=1e-9
    )
    found = lens(reading(storyteller), k=1)
    hidden = right.hidden_states[:-1]  # the last one has been through the final norm
    for number, state in enumerate(hidden):
        expected = theirs.lm_head(theirs.transformer.ln_f(state))[0].log_softmax(-1)
        np.testing.assert_array_equal(found.top[2 * number, :, 0], expected.argmax(-1).numpy())
        np.testing.assert_allclose(
            found.top_logprobs[2 * number, :, 0], expected.max(-1).values.numpy(), atol=1e-9
        )
    parts = attribution(reading(storyteller), position=-1, token=40)
    assert abs(parts.values.sum() - float(right.logits[0, -1, 40])) <= 1e-9 * np.abs(parts.values).max()


def test_gradients(storyteller: Pair) -> None:
    """Of the next token, as captum has them."""
    theirs, ids = storyteller.theirs, storyteller.ids
    target = Target(len(ids) - 1, 40)
    words = theirs.transformer.wte(torch.tensor([ids])).detach().requires_grad_()

    def score(given: torch.Tensor) -> torch.Tensor:
        return theirs(inputs_embeds=given).logits[:, -1, target.token]

    right = InputXGradient(score).attribute(words)[0].norm(dim=-1).detach().numpy()
    np.testing.assert_allclose(saliency(reading(storyteller), [target]).scores[0], right, rtol=1e-8)
    along = (
        IntegratedGradients(score)
        .attribute(words, n_steps=8, method="gausslegendre")[0]
        .sum(-1)
        .detach()
        .numpy()
    )
    found = saliency(reading(storyteller), [target], method="integrated_gradients", steps=8).scores[0]
    np.testing.assert_allclose(found, along, rtol=1e-6, atol=1e-9)


def test_factors(storyteller: Pair) -> None:
    """Over all layers, as scikit-learn makes them."""
    found = activations(reading(storyteller))
    oracle = NMF(4, init="nndsvdar", random_state=1, max_iter=500, tol=1e-4)
    weights = oracle.fit_transform(found.rows)
    order = np.argsort(-weights.sum(0) * oracle.components_.sum(1))
    np.testing.assert_allclose(found.nmf(4, seed=1).patterns, oracle.components_[order], rtol=1e-4, atol=1e-7)
