"""Beam search: keep the best few beginnings, not only the best one. Results equal Hugging Face's."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glassformer.generation.decode import Continuation, check_prompts, end_of_room, prefill
from glassformer.generation.options import Options
from glassformer.generation.sampling import Rules, best, renormalize
from glassformer.generation.stepper import Cache, Logits, Stepper, is_reorderable

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


@dataclass(frozen=True)
class Step:
    """What one step of a search chose from: the best ways to continue its beams, best first.

    Their tokens include the end token, if they end with it.
    """

    candidates: list[Beam]
    running: list[Beam]  # those that are continued
    ended: list[Beam]  # those that are finished, with their score


def beam_search(
    model: Stepper,
    prompts: Sequence[Sequence[int]],
    *,
    options: Options,
    ends: Collection[int] = (),
    known: int | None = None,
    forbidden: Collection[int] = (),
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[list[Beam]]:
    """For each prompt the `num_return_sequences` best continuations, best first; all prompts at once.

    Once `cancelled`, those found so far.
    Options and prompts are checked now, before the first result is asked for.
    """
    rules = Rules(options, frozenset(ends), known, frozenset(forbidden))
    searches = _searches(model, prompts, rules)
    return _results(model, searches, cancelled or (lambda: False))


def beam_steps(
    model: Stepper,
    prompt: Sequence[int],
    *,
    options: Options,
    ends: Collection[int] = (),
    forbidden: Collection[int] = (),
) -> Iterator[Step]:
    """The same search for one prompt, step by step."""
    searches = _searches(model, [prompt], Rules(options, frozenset(ends), None, frozenset(forbidden)))
    for _ in _run(model, searches, lambda: False):
        yield searches[0].last


def _searches(model: Stepper, prompts: Sequence[Sequence[int]], rules: Rules) -> list["_Search"]:
    rooms = check_prompts(model, prompts, options=rules.options)
    return [
        _Search(number, prompt, room, rules.options, rules)
        for number, (prompt, room) in enumerate(zip(prompts, rooms, strict=True))
    ]


def _results(
    model: Stepper, searches: Sequence["_Search"], cancelled: Callable[[], bool]
) -> Iterator[list[Beam]]:
    """The results of all searches, in the order of the prompts."""
    for _ in _run(model, searches, cancelled):
        pass
    yield from (search.results() for search in searches)


def _run(model: Stepper, searches: Sequence["_Search"], cancelled: Callable[[], bool]) -> Iterator[None]:
    """All searches together, each step one batch; yields after every step."""
    alive = [search for search in searches if not search.done]
    logits, cache = _begin(model, alive) if alive else (None, None)
    while alive and logits is not None and cache is not None:
        if cancelled():
            for search in alive:
                search.cancel()
            break
        totals = model.log_sums(logits)
        rows = []
        for place, search in enumerate(alive):
            mine = slice(place * search.width, (place + 1) * search.width)
            search.advance(logits[mine], totals[mine])
            rows += [] if search.done else [mine.start + beam.row for beam in search.running]
        yield
        alive = [search for search in alive if not search.done]
        if alive:
            cache = _reordered(cache, rows, count=len(logits))
            last = [[beam.tokens[-1]] for search in alive for beam in search.running]
            logits = model.step(np.array(last, dtype=np.int64), cache)


def _begin(model: Stepper, searches: Sequence["_Search"]) -> tuple[Logits, Cache]:
    """Read all prompts, and give every beam a row of its own."""
    start = [Continuation(search.number, 0, search.prompt) for search in searches]
    longest = max(search.options.max_new_tokens for search in searches)
    logits, cache = prefill(model, start, max_new_tokens=longest)
    rows = [row for row, search in enumerate(searches) for _ in range(search.width)]
    return logits[rows], cache.select(rows)


def _reordered(cache: Cache, rows: list[int], *, count: int) -> Cache:
    """The cache of the beams that go on: each has one of `count` rows, and several may have the same."""
    if len(rows) == count and is_reorderable(cache):
        cache.reorder(rows)
        return cache
    return cache.select(rows)


@dataclass
class _Search:
    """The search of one prompt: beams that are running, and beams that have ended."""

    number: int
    prompt: Sequence[int]
    room: int
    options: Options
    rules: Rules
    running: list[Beam] = field(default_factory=list)
    ended: list[Beam] = field(default_factory=list)
    length: int = 0
    done: bool = False  # nothing better can be found
    last: Step = field(default_factory=lambda: Step([], [], []))

    def __post_init__(self) -> None:
        # All beams begin alike, so only the first may be continued in the first step.
        totals = [np.float32(0), *[NOWHERE] * (self.width - 1)]
        self.running = [Beam((), (), total) for total in totals]
        if self.room == 0:
            self.done = True
            finish = end_of_room(0, self.options)
            self.ended = [Beam((), (), np.float32(0), score=0.0, finish=finish)] * self.width

    @property
    def width(self) -> int:
        """How many beams there are."""
        return self.options.num_beams

    @property
    def left(self) -> int:
        """How many tokens may still follow, that of this step included."""
        return 1 + self.room - self.length

    def results(self) -> list[Beam]:
        """The best, as many as were asked for."""
        return self.ended[: self.options.num_return_sequences]

    def cancel(self) -> None:
        """End here, with what was found so far."""
        found = [*self.ended, *self.running]
        self.ended = [replace(beam, finish=beam.finish or "cancelled") for beam in found]
        self.done = True

    def advance(self, logits: Logits, totals: Sequence[float]) -> None:
        """One token more for every beam: logits (beams, V), and the log of the sum of e^logit of each."""
        self.length += 1
        candidates = self._extensions(logits, totals)
        at_edge = self.left == 1
        ended = [beam for beam in candidates[: self.width] if self._ends(beam) or at_edge]
        finished = [self._finish(beam) for beam in ended]
        self.ended = _best([*self.ended, *finished], self.width)
        self.running = [beam for beam in candidates if not self._ends(beam)][: self.width]
        self.done = at_edge or self._settled()
        scored = [replace(beam, score=done.score) for beam, done in zip(ended, finished, strict=True)]
        self.last = Step(candidates, self.running, scored)

    def _ends(self, beam: Beam) -> bool:
        return beam.tokens[-1] in self.rules.ends

    def _extensions(self, logits: Logits, totals: Sequence[float]) -> list[Beam]:
        """The best ways to go on: enough of them, even if all that can end do so here."""
        options = self.options
        count = max(2, 1 + len(self.rules.ends)) * options.num_beams
        found: list[tuple[np.float32, int, int]] = []  # the new total, the beam, the token
        for row, (beam, scores, total) in enumerate(zip(self.running, logits, totals, strict=True)):
            # Masked tokens keep their share in the normalization, as they do in Hugging Face's search.
            logp = (scores - np.float32(total)).astype(np.float32)
            logp = self.rules.apply(logp, prompt=self.prompt, answer=beam.tokens, room=self.left)
            if options.renormalize_logits:
                logp = renormalize(logp)
            # No beam can have more than `count` of the best: the others of its row need no order.
            found += [(logp[token] + beam.total, row, int(token)) for token in best(logp, count)]
        found.sort(key=lambda one: (-one[0], one[1], one[2]))

        extended = []
        for reached, row, token in found[:count]:
            beam = self.running[row]
            logprobs = (*beam.logprobs, float(logits[row, token]) - totals[row])
            extended.append(Beam((*beam.tokens, token), logprobs, reached, row))
        return extended

    def _finish(self, beam: Beam) -> Beam:
        """A finished beam with its score: total / length ** length_penalty."""
        score = float(beam.total) / len(beam.tokens) ** self.options.length_penalty
        edge = end_of_room(len(beam.tokens), self.options)
        if self._ends(beam):
            finish = edge if self.rules.forces_end(self.left) else "stop"
            return Beam(beam.tokens[:-1], beam.logprobs[:-1], beam.total, beam.row, score, finish)
        return Beam(beam.tokens, beam.logprobs, beam.total, beam.row, score, edge)

    def _settled(self) -> bool:
        """Whether to end: enough beams finished, and the best that runs cannot beat the worst of them."""
        options = self.options
        if len(self.ended) < options.num_beams:
            return False
        if options.early_stopping is True:
            return True
        # With "never" and a positive penalty, a running beam is judged by the longest it may still become.
        longest = options.early_stopping == "never" and options.length_penalty > 0
        length = self.room if longest else len(self.running[0].tokens)
        hopeful = float(self.running[0].total) / length**options.length_penalty
        return bool(hopeful <= self.ended[-1].score)


def _best(beams: list[Beam], width: int) -> list[Beam]:
    return sorted(beams, key=lambda beam: -beam.score)[:width]
