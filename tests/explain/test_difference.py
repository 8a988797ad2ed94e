"""Two models on one text: a model differs from itself in nothing."""

import numpy as np
import pytest
import torch
from explain.readings import reading
from small import Pair, small_model

from glassformer.errors import InputError
from glassformer.explain.difference import difference
from glassformer.explain.reading import Reading


def test_a_difference(pair: Pair) -> None:
    """A model differs from itself in nothing, and from its edited self where it was edited."""
    same = difference(reading(pair), reading(pair))
    assert not same.logprobs.any()
    assert same.attention is not None
    assert not same.attention.any()
    other = small_model(9, torch.float64)
    found = difference(reading(pair), Reading(other, pair.ids))
    rows = [net(torch.tensor([pair.ids]))[0].detach().log_softmax(-1) for net in (pair.ours, other)]
    right = [[float(row[at, token]) for at, token in enumerate(pair.ids[1:])] for row in rows]
    np.testing.assert_allclose(found.logprobs, np.subtract(right[1], right[0]), atol=1e-5)
    assert found.attention is not None
    assert ((found.attention > 0) & (found.attention <= 1)).all()
    fewer = small_model(9, torch.float64, layers=1)
    assert difference(reading(pair), Reading(fewer, pair.ids)).attention is None


def test_what_cannot_be_compared(pair: Pair) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match="at least two tokens"):
        difference(reading(pair, [1]), reading(pair, [1]))
    with pytest.raises(InputError, match="must read the same tokens"):
        difference(reading(pair, [1, 2]), reading(pair, [1, 3]))
    with pytest.raises(InputError, match="one has 97 tokens, the other 98"):
        difference(reading(pair), Reading(small_model(1, vocab=98), pair.ids))
