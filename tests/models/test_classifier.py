"""A decoder with a head: it keeps what the language model knew, and its rows add up as the paper says."""

from typing import Any

import numpy as np
import pytest
import torch
from small import small_net

from glassformer.errors import InputError
from glassformer.models.classifier import HeadConfig

IDS = torch.randint(0, 90, (2, 9), generator=torch.Generator().manual_seed(0))


def adopted(kind: str = "gpt2", new: tuple[int, ...] = (97, 98, 99), **changes: Any) -> tuple[Any, Any]:
    """A language model, and the decoder with a head that took its weights and has three more tokens."""
    lm, net = small_net(kind, 5), small_net(f"{kind}-classifier", 6, vocab=100, labels=("a", "b"), **changes)
    drawn = net.tokens.weight[list(new)].clone()
    net.adopt(lm, new, like=3)
    assert torch.equal(net.tokens.weight[list(new)], lm.tokens.weight[3] + drawn)
    return lm, net


@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "gpt3"])
def test_the_language_model_is_still_there(kind: str) -> None:
    """Beside the head it writes what it wrote, and the new tokens come last."""
    lm, net = adopted(kind)
    _, written = net(IDS, write=True)
    assert written.shape == (2, 9, 100)
    assert torch.allclose(written[..., :97], lm(IDS), rtol=0, atol=1e-5)


def test_the_head_reads_the_last_vector() -> None:
    """Its numbers are one product with the vector behind the final norm, in NumPy."""
    _, net = adopted()
    vector = net.read(IDS)[:, -1].detach().numpy()
    said = net(IDS)[:, -1].detach().numpy()
    np.testing.assert_allclose(said, vector @ net.head.weight.detach().numpy().T, rtol=1e-4, atol=1e-4)
    assert torch.equal(net(IDS, last=True), net(IDS)[:, -1:])


def test_adding_what_is_said_of_two_rows_adds_their_vectors() -> None:
    """That is why both orders of two texts can be two rows of a batch."""
    _, net = adopted(task="similar")
    one, other = net.read(IDS)[:, -1]
    said = net(IDS)[:, -1].sum(0)
    assert torch.allclose(said, net.head(one + other), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("changes", "message"), [
    ({"task": "dance"}, "task 'dance' is none of classify, entail, similar, choose"),
    ({"labels": ("a",)}, "labels must be at least two different ones, not a"),
    ({"task": "choose"}, "to choose, a head has none"),
    ({"task": "choose", "labels": (), "tied": False}, "tied must be true"),
])  # fmt: skip
def test_a_head_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    """In one sentence."""
    with pytest.raises(InputError, match=message):
        HeadConfig(layers=1, heads=1, width=4, **changes)
