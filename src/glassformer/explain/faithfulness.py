"""A test of explanations: take away what they call important, and see whether the token becomes unlikely.

Attention and gradients are suggestive pictures; whether they name what the model used can be measured.
Deletion blanks the tokens from the most important on: a good explanation makes the token unlikely soon.
Insertion begins with nothing and puts them back in the same order: a good one makes it likely soon.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from glassformer.explain.reading import Array, Reading, numbers
from glassformer.explain.saliency import Inputs, Saliency, Target, final_with

Progress = Callable[[int, int], object]
FRACTIONS = tuple(n / 10 for n in range(11))


@dataclass(frozen=True)
class Curves:
    """Probability of the target's token: N targets, F fractions of the tokens before it."""

    fractions: Array  # (F,)
    deletion: Array  # (N, F) with this share of the tokens blank, the most important first
    insertion: Array  # (N, F) with only this share of the tokens present

    @property
    def deletion_area(self) -> Array:
        """(N,) mean under the curve, as a share of the full probability: lower is better."""
        return _area(self.deletion / self.deletion[:, :1], self.fractions)

    @property
    def insertion_area(self) -> Array:
        """(N,) the same: higher is better."""
        return _area(self.insertion / self.insertion[:, -1:], self.fractions)


def _area(curve: Array, fractions: Array) -> Array:
    area: Array = ((curve[:, 1:] + curve[:, :-1]) / 2 * np.diff(fractions)).sum(-1)
    return area


@torch.inference_mode()
def faithfulness(
    reading: Reading,
    saliency: Saliency,
    *,
    blank: int | None = None,
    fractions: tuple[float, ...] = FRACTIONS,
    progress: Progress = lambda done, total: None,
) -> Curves:
    """Deletion and insertion for every target of an explanation; all fractions of a target are one pass."""
    reading.check_ids()
    inputs = Inputs(reading, saliency.source)
    words = inputs.words  # (T, D)
    void = inputs.blank_vector(blank)
    curves = []
    for number, (target, scores) in enumerate(zip(saliency.targets, saliency.scores, strict=True), 1):
        read = Inputs(reading.until(target.position), inputs.source) if inputs.causal else inputs
        size = len(read.words)
        gone = _blanked(scores[:size], fractions)  # (F, T)
        blanks = torch.as_tensor(np.concatenate([gone, ~gone]), device=words.device)  # (2F, T)
        some = torch.where(blanks[..., None], void, words[:size])  # (2F, T, D)
        curves.append(_probability(read, target, some))
        progress(number, len(saliency.targets))

    both = np.stack(curves).reshape(len(curves), 2, len(fractions))
    return Curves(np.array(fractions), both[:, 0], both[:, 1])


def _blanked(scores: Array, fractions: tuple[float, ...]) -> Array:
    """(F, T): True where a token is among the most important ones, for every fraction of the tokens."""
    size = len(scores)
    order = np.argsort(-scores, kind="stable")  # tokens against the target come last
    place = np.empty(size, dtype=int)
    place[order] = np.arange(size)  # 0 is the most important
    counts = np.array([round(fraction * size) for fraction in fractions])
    gone: Array = place < counts[:, None]
    return gone


def _probability(inputs: Inputs, target: Target, words: Tensor) -> Array:
    """(B,) of the target's token, for B ways to put in token vectors (B, T, D)."""
    final = final_with(inputs, words)[:, target.position]  # (B, D)
    logits = inputs.reading.net.head(final)  # (B, V)
    return numbers(logits.float().softmax(-1)[:, target.token])


def agreement(found: Mapping[str, Saliency]) -> dict[tuple[str, str], float]:
    """How alike explanations order the tokens: Spearman's correlation of scores, mean over the targets."""
    return {
        (one, other): _mean_correlation(found[one], found[other]) for one, other in combinations(found, 2)
    }


def _mean_correlation(one: Saliency, other: Saliency) -> float:
    correlations = []
    for target, a, b in zip(one.targets, one.scores, other.scores, strict=True):
        # In a causal model the tokens behind a target have no part in it: to agree on that is no agreement.
        size = target.position + 1 if one.causal else len(a)
        correlations.append(spearman(a[:size], b[:size]))
    return float(np.mean(correlations))


def spearman(a: Array, b: Array) -> float:
    """Correlation of ranks, ties sharing theirs; 1 for texts of a single token, which have one order only."""
    one, other = _ranks(a), _ranks(b)
    one, other = one - one.mean(), other - other.mean()
    length = np.sqrt((one @ one) * (other @ other))
    if length == 0:
        return float(not one.any() and not other.any())
    return float(one @ other / length)


def _ranks(values: Array) -> Array:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Array = (last - (counts - 1) / 2)[which]
    return ranks
