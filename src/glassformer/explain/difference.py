"""Two models on one text: where they disagree, token by token and layer by layer."""

from dataclasses import dataclass

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.attention import patterns
from glassformer.explain.lens import Lens, lens
from glassformer.explain.reading import Array, Reading


@dataclass(frozen=True)
class Difference:
    """T positions; one and other are the two models."""

    one: Lens
    other: Lens
    logprobs: Array  # (T - 1,) of the token that came next: other less one
    ranks: Array  # (T - 1, 2)
    # (L, H) how far apart their heads attend: mean total variation, 0 to 1; None where shapes differ or
    # there are none.
    attention: Array | None


def difference(one: Reading, other: Reading, *, k: int = 5) -> Difference:
    """Compare two models that share a vocabulary, on the same text."""
    if one.net.vocab != other.net.vocab:
        raise InputError(
            f"the models do not share a vocabulary: one has {one.net.vocab:,} tokens, "
            f"the other {other.net.vocab:,}"
        )
    if (one.ids, one.source) != (other.ids, other.source):
        raise InputError("the models must read the same tokens to be compared")
    if len(one.ids) < 2:
        raise InputError("a comparison needs a text of at least two tokens")

    first, second = lens(one, k=k), lens(other, k=k)
    ranks = np.stack([first.ranks[-1, :-1], second.ranks[-1, :-1]], -1)
    logprobs = second.logprobs[-1, :-1] - first.logprobs[-1, :-1]
    return Difference(first, second, logprobs, ranks, _apart(one, other))


def _apart(one: Reading, other: Reading) -> Array | None:
    """(L, H): half the sum of absolute differences of two patterns, mean over the positions."""
    mine, theirs = one.stack(), other.stack()
    if not mine.heads or (mine.layers, mine.heads) != (theirs.layers, theirs.heads):
        return None
    differences: Array = np.abs(patterns(one) - patterns(other))  # (L, H, T, S)
    apart: Array = differences.sum(-1).mean(-1) / 2
    return apart
