"""Beam search: keep the best few beginnings, not only the best one. Results equal Hugging Face's."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassformer.generation.decode import Continuation, check_prompts, end_of_room, prefill
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, log_softmax, restrict
from glassformer.generation.stepper import Ids, Logits, Stepper

NOWHERE = np.float32(-1e9)  # the total of a beam that no real one loses against


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
    prompts: Sequence[Sequence[int]],
    *,
    options: Options,
    ends: Collection[int] = (),
    known: int | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[list[Beam]]:
    """For each prompt the `num_return_sequences` best continuations, best first.

    Once `cancelled`, those found so far.
    Options and prompts are checked now, before the first result is asked for.
    """
    rooms = check_prompts(model, prompts, options=options)
    search = _Search(model, options, frozenset(ends), known)
    return (search.run(prompt, room, cancelled) for prompt, room in zip(prompts, rooms, strict=True))


@dataclass(frozen=True)
class _Search:
    """What stays the same during one call of `beam_search`."""

    model: Stepper
    options: Options
    ends: frozenset[int]
    known: int | None

    def run(self, prompt: Sequence[int], room: int, cancelled: Callable[[], bool] | None) -> list[Beam]:
        width, wanted = self.options.num_beams, self.options.num_return_sequences
        if room == 0:
            return [Beam((), (), np.float32(0), score=0.0, finish=end_of_room(0, self.options))] * wanted
        start = [Continuation(0, 0, prompt)]
        logits, cache = prefill(self.model, start, max_new_tokens=self.options.max_new_tokens)
        logits, cache = logits.repeat(width, axis=0), cache.select([0] * width)
        # All beams begin alike, so only the first may be continued in the first step.
        running = [Beam((), (), np.float32(0) if beam == 0 else NOWHERE) for beam in range(width)]
        finished: list[Beam] = []
        for length in range(1, room + 1):
            if cancelled is not None and cancelled():
                found = [*finished, *running][:wanted]
                return [replace(beam, finish=beam.finish or "cancelled") for beam in found]
            candidates = self._extensions(logits, running, prompt)
            ended = [beam for beam in candidates[:width] if self._ends(beam) or length == room]
            finished = _best([*finished, *map(self._finish, ended)], width)
            running = [beam for beam in candidates if not self._ends(beam)][:width]
            if length == room or self._settled(running, finished, room):
                break
            cache = cache.select([beam.row for beam in running])
            last: Ids = np.array([[beam.tokens[-1]] for beam in running], dtype=np.int64)
            logits = self.model.step(last, cache)
        return finished[:wanted]

    def _ends(self, beam: Beam) -> bool:
        return beam.tokens[-1] in self.ends

    def _extensions(self, logits: Logits, running: list[Beam], prompt: Sequence[int]) -> list[Beam]:
        """The best ways to go on: enough of them, even if all that can end do so here."""
        options = self.options
        rows = []
        for beam, row in zip(running, logits, strict=True):
            too_early = len(beam.tokens) < options.min_new_tokens
            allowed = restrict(row, known=self.known, forbidden=self.ends if too_early else ())
            # Masked tokens keep their share in the normalization, as they do in Hugging Face's search.
            logp = np.where(np.isneginf(allowed), -np.inf, log_softmax(row)).astype(np.float32)
            rows.append(adjust(logp, options, prompt=prompt, answer=beam.tokens) + beam.total)
        totals: np.ndarray[Any, np.dtype[np.float32]] = np.concatenate(rows)
        count = max(2, 1 + len(self.ends)) * options.num_beams
        best = np.argsort(-totals, kind="stable")[:count]

        vocab = logits.shape[1]
        places = [divmod(int(place), vocab) for place in best]
        raw = {row: log_softmax(logits[row]) for row in {row for row, _ in places}}
        extended = []
        for row, token in places:
            beam = running[row]
            logprobs = (*beam.logprobs, float(raw[row][token]))
            extended.append(Beam((*beam.tokens, token), logprobs, totals[row * vocab + token], row))
        return extended

    def _finish(self, beam: Beam) -> Beam:
        """A finished beam with its score: total / length ** length_penalty."""
        score = float(beam.total) / len(beam.tokens) ** self.options.length_penalty
        if self._ends(beam):
            return Beam(beam.tokens[:-1], beam.logprobs[:-1], beam.total, beam.row, score, "stop")
        finish = end_of_room(len(beam.tokens), self.options)
        return Beam(beam.tokens, beam.logprobs, beam.total, beam.row, score, finish)

    def _settled(self, running: list[Beam], finished: list[Beam], room: int) -> bool:
        """Whether to end: enough beams finished, and the best that runs cannot beat the worst of them."""
        options = self.options
        if len(finished) < options.num_beams:
            return False
        if options.early_stopping is True:
            return True
        # With "never" and a positive penalty, a running beam is judged by the longest it may still become.
        longest = options.early_stopping == "never" and options.length_penalty > 0
        length = room if longest else len(running[0].tokens)
        hopeful = float(running[0].total) / length**options.length_penalty
        return bool(hopeful <= finished[-1].score)


def _best(beams: list[Beam], width: int) -> list[Beam]:
    return sorted(beams, key=lambda beam: -beam.score)[:width]
