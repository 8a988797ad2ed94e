"""Beam search: keep the best few beginnings, not only the best one. Results equal Hugging Face's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassformer.generation.decode import Answer, check_prompt, prefill, restrict
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, log_softmax
from glassformer.generation.stepper import Logits, Stepper

NOWHERE = np.float32(-1e9)


@dataclass(frozen=True)
class Beam:
    """A sequence of tokens with the sum of its log-probabilities; `score` once it is finished."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    total: np.float32
    row: int = 0
    score: float = -np.inf
    finish: str = ""


def beam_search(
    model: Stepper,
    prompt: Sequence[int],
    options: Options,
    *,
    end: int | None = None,
    known: int | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[Beam]:
    """The `num_return_sequences` best answers to one prompt, best first; once `cancelled`, those that are there."""
    room = check_prompt(model, prompt, options)
    width = options.num_beams
    if room == 0:
        return [Beam((), (), np.float32(0), score=0.0, finish="length")] * options.num_return_sequences
    logits, cache = prefill(model, [Answer(0, 0, prompt)], options)
    logits, cache = logits.repeat(width, axis=0), cache.select([0] * width)
    running = [Beam((), (), np.float32(0) if beam == 0 else NOWHERE) for beam in range(width)]
    finished: list[Beam] = []
    for length in range(1, room + 1):
        if cancelled is not None and cancelled():
            return [replace(beam, finish=beam.finish or "cancelled") for beam in finished + running][
                : options.num_return_sequences
            ]
        candidates = _continuations(logits, running, prompt, options, end, known)
        ended = [beam for beam in candidates[:width] if beam.tokens[-1] == end or length == room]
        finished = _best(finished + [_finish(beam, end, options) for beam in ended], width)
        running = [beam for beam in candidates if beam.tokens[-1] != end][:width]
        if length == room or _settled(running, finished, room, options):
            break
        cache = cache.select([beam.row for beam in running])
        logits = model.step(np.array([[beam.tokens[-1]] for beam in running], dtype=np.int64), cache)
    return finished[: options.num_return_sequences]


def _continuations(
    logits: Logits,
    running: list[Beam],
    prompt: Sequence[int],
    options: Options,
    end: int | None,
    known: int | None,
) -> list[Beam]:
    """The best 2 × num_beams ways to go on: enough, even if half of them end here."""
    rows = []
    for beam, row in zip(running, logits, strict=True):
        allowed = restrict(row, known, end, may_end=len(beam.tokens) >= options.min_new_tokens)
        # Masked tokens keep their share in the normalisation, as they do elsewhere.
        logp = np.where(np.isneginf(allowed), -np.inf, log_softmax(row)).astype(np.float32)
        rows.append(adjust(logp, options, prompt, beam.tokens) + beam.total)
    totals: np.ndarray[Any, np.dtype[np.float32]] = np.concatenate(rows)
    best = np.argsort(-totals, kind="stable")[: 2 * options.num_beams]
    vocab = logits.shape[1]
    raw = {row: log_softmax(logits[row]) for row in {int(place) // vocab for place in best}}
    return [
        Beam(
            (*running[row].tokens, token),
            (*running[row].logprobs, float(raw[row][token])),
            totals[row * vocab + token],
            row,
        )
        for row, token in (divmod(int(place), vocab) for place in best)
    ]


def _finish(beam: Beam, end: int | None, options: Options) -> Beam:
    """Score a finished beam by its mean log-probability, so to speak: total / length ** length_penalty."""
    score = float(beam.total) / len(beam.tokens) ** options.length_penalty
    if beam.tokens[-1] == end:
        return Beam(beam.tokens[:-1], beam.logprobs[:-1], beam.total, beam.row, score, "stop")
    return Beam(beam.tokens, beam.logprobs, beam.total, beam.row, score, "length")


def _best(beams: list[Beam], width: int) -> list[Beam]:
    return sorted(beams, key=lambda beam: -beam.score)[:width]


def _settled(running: list[Beam], finished: list[Beam], room: int, options: Options) -> bool:
    """Whether going on could not help: enough have finished, and the best that runs cannot beat the worst of them."""
    if len(finished) < options.num_beams:
        return False
    if options.early_stopping is True:
        return True
    longest = options.early_stopping == "never" and options.length_penalty > 0
    hopeful = (
        float(running[0].total) / (room if longest else len(running[0].tokens)) ** options.length_penalty
    )
    return bool(hopeful <= finished[-1].score)
