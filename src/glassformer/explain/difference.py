"""Two models on one text: where they disagree, token by token and layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.attention import patterns
from glassformer.explain.decoder import Array, Decoder
from glassformer.explain.lens import Lens, lens


@dataclass(frozen=True)
class Difference:
    """T positions; one and other are the two models."""

    one: Lens
    other: Lens
    logprobs: Array  # (T - 1,) of the token that came next: other less one
    ranks: Array  # (T - 1, 2)
    attention: (
        Array | None
    )  # (L, H) how far apart their heads look: mean total variation, 0 to 1; None where shapes differ


def difference(one: Decoder, other: Decoder, ids: Sequence[int], *, k: int = 5) -> Difference:
    """Compare two models that share a vocabulary."""
    if one.vocab != other.vocab:
        raise InputError(
            f"the models do not share a vocabulary: one has {one.vocab:,} tokens, the other {other.vocab:,}"
        )
    if len(ids) < 2:
        raise InputError("a comparison needs a text of at least two tokens")
    first, second = lens(one, ids, k=k), lens(other, ids, k=k)
    same = (len(one.blocks), one.config.heads) == (len(other.blocks), other.config.heads)
    apart = np.abs(patterns(one, ids) - patterns(other, ids)).sum(-1).mean(-1) / 2 if same else None
    ranks = np.stack([first.ranks[-1, :-1], second.ranks[-1, :-1]], -1)
    return Difference(first, second, second.logprobs[-1, :-1] - first.logprobs[-1, :-1], ranks, apart)
