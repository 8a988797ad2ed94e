"""From logits to one token: pure functions on one row of numbers.

The order is that of Hugging Face's `generate`: bias and penalties, temperature, top-k, top-p, min-p, draw.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.errors import GlassError
from glassformer.generation.options import Options

Row = np.ndarray[Any, np.dtype[np.floating[Any]]]
Ids = np.ndarray[Any, np.dtype[np.int64]]
BLOCK = 64  # scores whose best is looked at first
HEAD = 1024  # tokens that nearly always hold what top-p keeps


def log_softmax(logits: Row) -> Row:
    """log p of every token, in float64."""
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def entropy_bits(logp: Row) -> float:
    """How unsure a distribution is, from log p of every token; one that cannot come adds nothing."""
    # Not `@`: the threads of a matrix library take longer to meet than this sum does.
    shares = np.exp(logp)
    return float(-(shares * np.where(shares > 0, logp, 0)).sum() / np.log(2))


class BrokenLogits(GlassError):
    """A model's output is no distribution: its weights are broken, or it was edited too much."""


def renormalize(logp: Row) -> Row:
    """log p of every token again, after some lost their share: float32."""
    with np.errstate(over="ignore"):
        left = float(np.exp(logp).sum())
    if not 1e-3 < left < 1e3:  # too little, or too much, for a plain sum in float32
        return log_softmax(logp).astype(np.float32)
    return np.asarray(logp - np.float32(np.log(left)))


def restrict(logits: Row, *, known: int | None = None, forbidden: Collection[int] = ()) -> Row:
    """Mask what may not be chosen: ids from `known` on, which have no token, and `forbidden` ones."""
    if not np.isfinite(logits).all():
        raise BrokenLogits(
            "the model's output holds NaN or infinite numbers;"
            " its weights are broken, or an edit is too strong"
        )
    if forbidden or (known is not None and known < len(logits)):
        logits = logits.copy()
        logits[len(logits) if known is None else known :] = -np.inf
        logits[list(forbidden)] = -np.inf
    return logits


@dataclass(frozen=True)
class Rules:
    """What changes the scores of a model before a token is chosen: options, and tokens of a special kind."""

    options: Options
    ends: frozenset[int] = frozenset()  # end a text; they wait for `min_new_tokens`
    known: int | None = None  # ids from here on have no token
    forbidden: frozenset[int] = frozenset()  # never chosen

    def apply(self, scores: Row, *, prompt: Sequence[int], answer: Sequence[int], room: int) -> Row:
        """The scores that count, -inf where a token may not come next; `room` tokens may still follow."""
        if self.forces_end(room):
            scores = np.full_like(restrict(scores), -np.inf)
            scores[self.options.forced_eos_token_id] = 0.0
            return scores
        forbidden = self.forbidden | self.bad_ends([*prompt, *answer])
        if len(answer) < self.options.min_new_tokens:
            forbidden |= self.ends
        scores = restrict(scores, known=self.known, forbidden=forbidden)
        return adjust(scores, self.options, prompt=prompt, answer=answer)

    def forces_end(self, room: int) -> bool:
        """Whether the next token is the last one, and is given."""
        return room == 1 and self.options.forced_eos_token_id is not None

    def bad_ends(self, tokens: Sequence[int]) -> set[int]:
        """The tokens that would complete one of the `bad_words_ids`; an end token alone is none of these."""
        found = set()
        for *begin, last in self.options.bad_words_ids:
            is_end = not begin and last in self.ends
            if not is_end and begin == list(tokens[len(tokens) - len(begin) :]):
                found.add(last)
        return found


def adjust(logits: Row, options: Options, *, prompt: Sequence[int], answer: Sequence[int]) -> Row:
    """Apply the bias and the penalties on tokens of the prompt and of the answer so far."""
    if options.logit_bias:
        logits = logits.copy()
        ids = [id for id in options.logit_bias if id < len(logits)]
        logits[ids] += np.array([options.logit_bias[id] for id in ids], dtype=logits.dtype)
    if options.repetition_penalty != 1.0 and (prompt or answer):
        seen = np.unique(np.array([*prompt, *answer], dtype=np.int64))
        scores = logits[seen]
        logits = logits.copy()
        logits[seen] = np.where(
            scores < 0, scores * options.repetition_penalty, scores / options.repetition_penalty
        )
    if (options.presence_penalty or options.frequency_penalty) and answer:
        used, counts = np.unique(np.array(answer, dtype=np.int64), return_counts=True)
        logits = logits.copy()
        logits[used] -= (options.presence_penalty + options.frequency_penalty * counts).astype(logits.dtype)
    return logits


def distribution(logits: Row, options: Options) -> Row:
    """The probabilities from which the token is drawn: temperature, then the filters."""
    ids, weights = candidates(logits, options)
    spread = np.zeros(len(logits))
    spread[ids] = weights / weights.sum()
    return spread


def candidates(logits: Row, options: Options) -> tuple[Ids, Row]:
    """The tokens that may be sampled, in order, and their weights: temperature, then the filters."""
    ids = best(logits, options.top_k)
    weights = warm(logits[ids] if len(ids) < len(logits) else logits, options.temperature)
    ids, weights = keep_top_p(ids, weights, p=options.top_p)
    ids, weights = keep_min_p(ids, weights, p=options.min_p)
    return keep_typical(ids, weights, p=options.typical_p)


def warm(logits: Row, temperature: float) -> Row:
    """Weights of tokens at a temperature; the likeliest has 1."""
    scores: Row = logits.astype(np.float64) / temperature
    return np.asarray(np.exp(scores - scores.max()))


def best(logits: Row, k: int) -> Ids:
    """The k best tokens and all that tie with the last of them, in order; 0 means all."""
    if not 0 < k < len(logits):
        return np.arange(len(logits))
    blocks = len(logits) // BLOCK
    # Sorting the whole vocabulary would take longer than the rest of a step. At least k tokens are as good as
    # the k-th of the blocks' best, so no token below that one can be among the k best: few are left.
    if blocks > k:
        # A block's tokens lie `blocks` apart, not side by side: then NumPy finds all maxima in one pass.
        tops = logits[: blocks * BLOCK].reshape(BLOCK, blocks).max(axis=0)
        ids = np.flatnonzero(logits >= np.partition(tops, -k)[-k])
    else:
        ids = np.arange(len(logits))
    scores = logits[ids]
    limit = np.partition(scores, -k)[-k]
    return np.asarray(ids[scores >= limit])


def keep_top_p(ids: Ids, weights: Row, *, p: float) -> tuple[Ids, Row]:
    """The fewest best tokens whose probabilities reach p together; at least one."""
    if p >= 1.0:
        return ids, weights
    total, rest = weights.sum(), 0.0
    if len(ids) > 4 * HEAD:  # a few tokens nearly always hold what is kept: the others need no order
        head = best(weights, HEAD)
        left = total - weights[head].sum()
        if left < (1.0 - p) * total:
            ids, weights, rest = ids[head], weights[head], left
    # Values alone sort many times as fast as their places, which matters where a text keeps others waiting.
    rising = np.sort(weights)
    below = rest + np.cumsum(rising)
    dropped = int(np.count_nonzero(below[:-1] / total <= 1.0 - p))
    limit = rising[dropped]
    kept = weights >= limit
    ties = dropped - int(np.count_nonzero(weights < limit))
    kept[np.flatnonzero(weights == limit)[:ties]] = False  # of equals, the first ones
    return ids[kept], weights[kept]


def keep_min_p(ids: Ids, weights: Row, *, p: float) -> tuple[Ids, Row]:
    """The tokens that are at least p times as likely as the likeliest."""
    if p <= 0.0:
        return ids, weights
    kept = weights >= p * weights.max()
    return ids[kept], weights[kept]


def keep_typical(ids: Ids, weights: Row, *, p: float) -> tuple[Ids, Row]:
    """The tokens whose surprise, -log p, is nearest to the expected one, until they reach p together."""
    if p >= 1.0:
        return ids, weights
    shares = weights / weights.sum()
    with np.errstate(divide="ignore"):
        surprise = -np.log(shares)
    expected = float(shares[shares > 0] @ surprise[shares > 0])
    distance = np.abs(surprise - expected)
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(shares[order])
    last = min(int(np.count_nonzero(reached < p)), len(order) - 1)
    kept = distance <= distance[order[last]]
    return ids[kept], weights[kept]


def uniform(seed: int, *, choice: int, position: int) -> float:
    """The draw of one position of one choice: a number in [0, 1) that depends on these three alone."""
    generator = np.random.Philox(key=np.array([seed, choice], dtype=np.uint64), counter=[position, 0, 0, 0])
    return float(generator.random_raw() >> 11) * 2.0**-53


def choose(logits: Row, options: Options, *, choice: int, position: int) -> int:
    """One token: the likeliest (the lowest id of equals) or one drawn from the distribution."""
    if options.greedy:
        return int(logits.argmax())
    ids, weights = candidates(logits, options)
    rising = weights.cumsum()
    draw = uniform(options.seed, choice=choice, position=position) * rising[-1]
    return int(ids[np.searchsorted(rising, draw, side="right")])
