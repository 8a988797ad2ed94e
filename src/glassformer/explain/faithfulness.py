"""A test of explanations: take away what they call important, and see whether the token becomes unlikely.

Attention and gradients are suggestive pictures; whether they name what the model used can be measured.
Deletion blanks the tokens from the most important on: a good explanation makes the token unlikely soon.
Insertion begins with nothing and puts them back in the same order: a good one makes it likely soon.
Random orders are the baseline: an explanation is worth something if it is below them in deletion and above
them in insertion.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from glassformer.explain.reading import Array, Reading, numbers
from glassformer.explain.saliency import Inputs, Saliency, Target, final_with

Progress = Callable[[int, int], object]
FRACTIONS = tuple(n / 10 for n in range(11))
ORDERS = 5  # random ones, whose mean is the baseline
SEED = 0  # of the random orders
TOKENS = 4096  # in one forward pass; larger batches are split, and can be cancelled in between


@dataclass(frozen=True)
class Curves:
    """Probability of the target's token: N targets, F fractions of the tokens before it."""

    fractions: Array  # (F,)
    deletion: Array  # (N, F) with this share of the tokens blank, the most important first
    insertion: Array  # (N, F) with only this share of the tokens present
    random: Array  # (N, F) deletion in random orders, their mean; insertion in them is its mirror image

    @property
    def relative(self) -> dict[str, Array]:
        """(N, F) by name: each probability ÷ the full one, which the token has when no token is blank."""
        return {
            "deletion": self.deletion / self.deletion[:, :1],
            "insertion": self.insertion / self.insertion[:, -1:],
            "random deletion": self.random / self.random[:, :1],
        }

    @property
    def deletion_area(self) -> Array:
        """(N,) area under the curve (trapezoid rule) of the probability ÷ the full one: lower is better."""
        return _area(self.relative["deletion"], self.fractions)

    @property
    def insertion_area(self) -> Array:
        """(N,) the same: higher is better."""
        return _area(self.relative["insertion"], self.fractions)

    @property
    def random_area(self) -> Array:
        """(N,) the same of random orders: a mirror image has the same area, so it is that of both."""
        return _area(self.relative["random deletion"], self.fractions)


def _area(curve: Array, fractions: Array) -> Array:
    area: Array = ((curve[:, 1:] + curve[:, :-1]) / 2 * np.diff(fractions)).sum(-1)
    return area


@torch.inference_mode()
def faithfulness(
    reading: Reading,
    saliency: Saliency,
    *,
    blank: int | None = None,
    kept: Sequence[int] = (),
    fractions: tuple[float, ...] = FRACTIONS,
    progress: Progress = lambda done, total: None,
) -> Curves:
    """Deletion and insertion for every target of an explanation; all fractions of a target are one pass.

    Tokens at the positions `kept` are never taken away: those that belong to a task and not to its text.
    """
    reading.check_ids()
    inputs = Inputs(reading, saliency.source)
    words = inputs.words  # (T, D)
    void = inputs.blank_vector(blank)
    orders = np.random.default_rng(SEED)
    curves = []
    done, total = 0, len(saliency.targets) * (1 + ORDERS)
    for target, scores in zip(saliency.targets, saliency.scores, strict=True):
        read = Inputs(reading.until(target.position)) if inputs.causal else inputs
        free = np.setdiff1d(np.arange(len(read.words)), kept)

        def probability(
            gone: Array, *, read: Inputs = read, target: Target = target, free: Array = free
        ) -> Array:
            """(B,) with the tokens blank that are True in a row of `gone` (B, free tokens)."""
            nonlocal done
            size = len(read.words)
            every = np.zeros((len(gone), size), dtype=bool)
            every[:, free] = gone
            blanks = torch.as_tensor(every, device=words.device)
            some = torch.where(blanks[..., None], void, words[:size])  # (B, T, D)
            found = _probability(read, target, some)
            done += 1
            progress(done, total)
            return found

        gone = _blanked(scores[free], fractions)  # (F, free tokens)
        both = probability(np.concatenate([gone, ~gone])).reshape(2, -1)  # (2, F)
        shuffled = [probability(_blanked(orders.random(len(free)), fractions)) for _ in range(ORDERS)]
        curves.append([*both, np.mean(shuffled, axis=0)])

    deletion, insertion, random = np.array(curves).swapaxes(0, 1)  # (N, F) each
    return Curves(np.array(fractions), deletion, insertion, random)


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
    together = max(1, TOKENS // words.shape[1])
    parts = [final_with(inputs, some)[:, target.position] for some in torch.split(words, together)]
    logits = inputs.reading.net.head(torch.cat(parts))  # (B, V)
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
