"""From logits to one token: pure functions on one row of numbers.

The order is that of Hugging Face's `generate`: bias and penalties, temperature, top-k, top-p, min-p, draw.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.generation.options import Options

Row = np.ndarray[Any, np.dtype[np.floating[Any]]]


def log_softmax(logits: Row) -> Row:
    """log p of every token, in float64."""
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def adjust(logits: Row, options: Options, prompt: Sequence[int], answer: Sequence[int]) -> Row:
    """Bias and penalties: what was said before changes what may be said now."""
    if options.logit_bias:
        logits = logits.copy()
        ids = [id for id in options.logit_bias if id < len(logits)]
        logits[ids] += np.array([options.logit_bias[id] for id in ids], dtype=logits.dtype)
    if options.repetition_penalty != 1.0 and (prompt or answer):
        seen = np.unique(np.array([*prompt, *answer], dtype=np.int64))
        scores = logits[seen]
        logits = logits.copy()
        logits[seen] = np.where(scores < 0, scores * options.repetition_penalty, scores / options.repetition_penalty)
    if (options.presence_penalty or options.frequency_penalty) and answer:
        said, counts = np.unique(np.array(answer, dtype=np.int64), return_counts=True)
        logits = logits.copy()
        logits[said] -= (options.presence_penalty + options.frequency_penalty * counts).astype(logits.dtype)
    return logits


def distribution(logits: Row, options: Options) -> Row:
    """The probabilities from which the token is drawn: temperature, then the three filters."""
    scores: Row = logits.astype(np.float64) / options.temperature
    scores = keep_top_k(scores, options.top_k)
    scores = keep_top_p(scores, options.top_p)
    scores = keep_min_p(scores, options.min_p)
    return np.exp(log_softmax(scores))


def keep_top_k(scores: Row, k: int) -> Row:
    """The k best and whoever ties with the last of them."""
    if not 0 < k < len(scores):
        return scores
    limit = np.partition(scores, -k)[-k]
    return np.where(scores < limit, -np.inf, scores)


def keep_top_p(scores: Row, p: float) -> Row:
    """The fewest best tokens whose probabilities reach p together; at least one."""
    if p >= 1.0:
        return scores
    order = np.argsort(scores, kind="stable")
    weights = np.exp(scores - scores.max())[order]
    below = np.cumsum(weights) / weights.sum()  # exact where the probabilities are
    drop = order[:-1][below[:-1] <= 1.0 - p]
    kept = scores.copy()
    kept[drop] = -np.inf
    return kept


def keep_min_p(scores: Row, p: float) -> Row:
    """The tokens that are at least p times as likely as the likeliest."""
    if p <= 0.0:
        return scores
    with np.errstate(divide="ignore"):
        return np.where(scores < scores.max() + np.log(p), -np.inf, scores)


def uniform(seed: int, choice: int, position: int) -> float:
    """The draw of one position of one choice: a number in [0, 1) that depends on these three alone."""
    generator = np.random.Philox(key=np.array([seed, choice], dtype=np.uint64), counter=[position, 0, 0, 0])
    return float(generator.random_raw() >> 11) * 2.0**-53


def choose(logits: Row, options: Options, *, choice: int, position: int) -> int:
    """One token: the likeliest (the lowest id of equals) or one drawn from the distribution."""
    if options.greedy:
        return int(logits.argmax())
    rising = distribution(logits, options).cumsum()
    draw = uniform(options.seed, choice, position) * rising[-1]
    return int(np.searchsorted(rising, draw, side="right"))
