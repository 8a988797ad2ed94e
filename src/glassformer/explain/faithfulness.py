"""The test that an explanation carries: take away what it calls important, and see whether the token falls.

Attention and gradients are suggestive pictures; whether they name what the model used can be measured. Deletion blanks the
tokens from the most important on: a good explanation makes the token unlikely soon. Insertion begins with nothing and puts
them back in the same order: a good one makes it likely soon.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.explain.decoder import Array, Decoder, as_row, numbers
from glassformer.explain.saliency import Saliency, Target, final_with

Progress = Callable[[int, int], object]
FRACTIONS = tuple(n / 10 for n in range(11))


@dataclass(frozen=True)
class Curves:
    """Probability of the token asked about, N questions, F fractions of the tokens before it."""

    fractions: Array  # (F,)
    deletion: Array  # (N, F) with this share of the tokens blank, the most important first
    insertion: Array  # (N, F) with only this share of the tokens there

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
    model: Decoder,
    ids: list[int],
    found: Saliency,
    *,
    blank: int | None = None,
    fractions: tuple[float, ...] = FRACTIONS,
    progress: Progress = lambda done, total: None,
) -> Curves:
    """Deletion and insertion for every question of an explanation; all fractions of a question are one pass."""
    words = model.tokens(as_row(model, ids))[0]  # (T, D)
    void = torch.zeros_like(words[0]) if blank is None else model.tokens.weight[blank]
    curves = []
    for number, (target, scores) in enumerate(zip(found.targets, found.scores, strict=True), 1):
        size = target.position + 1
        order = np.argsort(-scores[:size], kind="stable")  # what speaks against the token comes last
        place = np.empty(size, dtype=int)
        place[order] = np.arange(size)  # how important: 0 is the most
        counts = np.array([round(fraction * size) for fraction in fractions])
        gone = place < counts[:, None]  # (F, T)
        blanks = torch.as_tensor(np.concatenate([gone, ~gone]), device=words.device)[..., None]  # (2F, T, 1)
        curves.append(_probability(model, ids[:size], target, torch.where(blanks, void, words[:size])))
        progress(number, len(found.targets))
    both = np.stack(curves).reshape(len(curves), 2, len(fractions))
    return Curves(np.array(fractions), both[:, 0], both[:, 1])


def _probability(model: Decoder, ids: list[int], target: Target, words: Any) -> Array:
    """(B,) of the token asked about, for B ways to put in words (B, T, D)."""
    logits = model.head(final_with(model, as_row(model, ids), words)[:, -1])  # (B, V)
    return numbers(logits.float().softmax(-1)[:, target.token])


def agreement(found: Mapping[str, Saliency]) -> dict[tuple[str, str], float]:
    """How alike two explanations order the tokens: Spearman's correlation of their scores, mean over the questions."""
    names = list(found)
    return {
        (one, other): float(np.mean([
            _spearman(a[: target.position + 1], b[: target.position + 1])
            for target, a, b in zip(found[one].targets, found[one].scores, found[other].scores, strict=True)
        ]))
        for number, one in enumerate(names) for other in names[number + 1 :]
    }  # fmt: skip


def _spearman(a: Array, b: Array) -> float:
    """Correlation of ranks, ties sharing theirs; 1 for texts of a single token, which cannot be ordered otherwise."""
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
