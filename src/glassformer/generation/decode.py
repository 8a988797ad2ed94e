"""Prefill, step, stop: the loop that turns a model into a stream of tokens."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.generation.sampling import Rules, choose
from glassformer.generation.speculation import Drafts, Speculation
from glassformer.generation.stepper import Cache, Ids, Logits, PiecewiseStepper, Stepper, is_piecewise


@dataclass(eq=False)
class Continuation:
    """One sequence that is being generated. The consumer of the events may `stop` it at any token."""

    prompt: int  # which prompt it continues
    choice: int  # which of the continuations of this prompt it is
    given: Sequence[int]  # the prompt's tokens
    tokens: list[int] = field(default_factory=list)
    dropped: int = 0  # how many of the first tokens are no longer in the context
    finished: bool = False
    drafts: Drafts = field(default_factory=Drafts)

    @property
    def length(self) -> int:
        """Prompt and continuation together."""
        return len(self.given) + len(self.tokens)

    def stop(self) -> None:
        """End it here: no further token is generated."""
        self.finished = True

    def outgrew(self, context: int | None) -> bool:
        """Whether it no longer fits the context."""
        return context is not None and self.length - self.dropped > context

    def window(self) -> list[int]:
        """The tokens that the model attends to."""
        return [*self.given, *self.tokens][self.dropped :]


class Event(NamedTuple):
    """A token of a continuation, or its end, or both."""

    continuation: Continuation
    token: int | None = None
    logprob: float | None = None  # of the model itself, before temperature and filters
    finish: str | None = None  # "stop", "length" (max_new_tokens), "context" (it is full) or "cancelled"
    end: int | None = None  # the end token that was chosen, which is not part of the continuation

    @property
    def prompt(self) -> int:
        """Which prompt this belongs to."""
        return self.continuation.prompt

    @property
    def choice(self) -> int:
        """Which continuation of the prompt this belongs to."""
        return self.continuation.choice


def generate(
    model: Stepper,
    prompts: Sequence[Sequence[int]],
    *,
    options: Options,
    ends: Collection[int] = (),
    known: int | None = None,
    forbidden: Collection[int] = (),
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Continue every prompt `num_return_sequences` times, all at once; yields tokens as they are chosen.

    Any token of `ends` ends a continuation (and is not part of it); ids from `known` on, and `forbidden`
    ones, are never chosen; `cancelled` is asked before every step. The consumer ends a continuation by
    `event.continuation.stop()`.
    Options and prompts are checked now, before the first token is asked for.
    """
    rooms = check_prompts(model, prompts, options=options)
    continuations = [
        Continuation(which, choice, prompt)
        for which, prompt in enumerate(prompts)
        for choice in range(options.num_return_sequences)
    ]
    rules = Rules(options, frozenset(ends), known, frozenset(forbidden))
    return _Loop(model, Chooser(model.context, rules)).run(continuations, rooms, cancelled)


def check_prompts(model: Stepper, prompts: Sequence[Sequence[int]], *, options: Options) -> list[int]:
    """How many tokens may follow each prompt; one that is empty, unknown or too long is refused."""
    for name, ids in options.named_tokens.items():
        unknown = next((id for id in ids if id >= model.vocab), None)
        if unknown is not None:
            raise InputError(f"{name}: {unknown} is not a token id of this model (0 to {model.vocab - 1})")
    return [_room(model, prompt, options, which) for which, prompt in enumerate(prompts)]


def _room(model: Stepper, prompt: Sequence[int], options: Options, which: int) -> int:
    if not prompt:
        raise InputError(f"prompt {which} is empty; an unconditional text starts from the end-of-text token")
    unknown = next((id for id in prompt if not 0 <= id < model.vocab), None)
    if unknown is not None:
        raise InputError(
            f"prompt {which}: {unknown} is not a token id of this model (0 to {model.vocab - 1})"
        )
    if model.context is None or options.overflow == "slide":
        return options.max_new_tokens
    over = len(prompt) - model.context
    if over > 0:
        slide = ' or slide (overflow="slide", --slide)' if options.max_new_tokens else ""
        raise InputError(
            f"the prompt has {len(prompt):,} tokens, {over:,} more than the model's context of"
            f" {model.context:,}; shorten it{slide}"
        )
    return min(options.max_new_tokens, model.context - len(prompt))


@dataclass(frozen=True)
class Chooser:
    """How the tokens of a continuation are chosen, and where it ends."""

    context: int | None  # of the model
    rules: Rules

    def advance(self, one: Continuation, raw: Logits, *, log_total: float) -> Event:
        """Choose the next token of one continuation, and see whether it was the last."""
        options, room = self.rules.options, self.room(one)
        scores = self.rules.apply(raw, prompt=one.given, answer=one.tokens, room=room)
        token = choose(scores, options, choice=one.choice, position=one.length)
        if token in self.rules.ends:
            one.stop()
            # The end token was the last for which there was room, if it was forced.
            edge = end_of_room(len(one.tokens) + 1, options)
            return Event(one, finish=edge if self.rules.forces_end(room) else "stop", end=token)
        one.tokens.append(token)
        finish = None
        if room == 1:
            one.stop()
            finish = end_of_room(len(one.tokens), options)
        return Event(one, token, float(raw[token]) - log_total, finish)

    def room(self, one: Continuation) -> int:
        """How many tokens may still follow."""
        room = self.rules.options.max_new_tokens - len(one.tokens)
        if self.context is None or self.rules.options.overflow == "slide":
            return room
        return min(room, self.context - one.length)


@dataclass(frozen=True)
class _Loop:
    """What stays the same during one call of `generate`."""

    model: Stepper
    chooser: Chooser

    @property
    def options(self) -> Options:
        """How tokens are chosen."""
        return self.chooser.rules.options

    def run(
        self, continuations: list[Continuation], rooms: list[int], cancelled: Callable[[], bool] | None
    ) -> Iterator[Event]:
        for one in continuations:
            if rooms[one.prompt] == 0:
                one.stop()
                yield Event(one, finish=end_of_room(0, self.options))
        alive = [one for one in continuations if not one.finished]
        cache: Any = None
        piecewise = self._piecewise()
        speculation: Speculation | None = None
        while alive:
            if cancelled is not None and cancelled():
                yield from (Event(one, finish="cancelled") for one in alive)
                return
            if cache is None or any(one.outgrew(self.model.context) for one in alive):
                # Positions in the cache are absolute: when one sequence outgrew the context and lost its
                # beginning, all rows of the batch are read again.
                logits, cache = prefill(self.model, alive, max_new_tokens=self.options.max_new_tokens)
                if speculation is not None:
                    speculation.restart(cache, end=self._end_of_drafts(alive[0]))
            elif piecewise is not None and len(alive) == 1:  # rows of a batch would accept unequal numbers
                one = alive[0]
                if speculation is None:
                    most = self.options.prompt_lookup_num_tokens
                    speculation = Speculation(piecewise, prompt=one.given, most=most, drafts=one.drafts)
                    speculation.restart(cache, end=self._end_of_drafts(one))
                logits = speculation.step(one.tokens)
            else:
                last: Ids = np.array([[one.tokens[-1]] for one in alive], dtype=np.int64)
                logits = self.model.step(last, cache)
            for one, row, total in zip(alive, logits, self.model.log_sums(logits), strict=True):
                yield self.chooser.advance(one, row, log_total=total)

            rows = [row for row, one in enumerate(alive) if not one.finished]
            if 0 < len(rows) < len(alive):
                cache = cache.select(rows)
            alive = [alive[row] for row in rows]

    def _piecewise(self) -> PiecewiseStepper | None:
        """The model, if it can read ahead of what is chosen, and should."""
        wanted = self.options.prompt_lookup_num_tokens > 0
        return self.model if wanted and is_piecewise(self.model) else None

    def _end_of_drafts(self, one: Continuation) -> int:
        """The most tokens of a continuation, drafted ones included, for which cache and context have room."""
        room = self.chooser.room(one) - 1
        if self.model.context is not None:
            room = min(room, self.model.context - (one.length - one.dropped))
        return len(one.tokens) + room


def end_of_room(length: int, options: Options) -> str:
    """Why a continuation of this length has no room for more: what was asked for is done, or the context is
    full.
    """
    return "length" if length >= options.max_new_tokens else "context"


def prefill(
    model: Stepper, continuations: Sequence[Continuation], *, max_new_tokens: int
) -> tuple[Logits, Cache]:
    """Read what every continuation has so far, padded on the left; equal ones of a prompt are read once.

    Those of two prompts are not: each prompt may have a source of its own, which tells them apart.
    """
    for one in continuations:
        if model.context is not None and one.outgrew(model.context):
            one.dropped = one.length - max(1, model.context // 2)
    windows = [(one.prompt, tuple(one.window())) for one in continuations]
    distinct = list(dict.fromkeys(windows))
    width = max(len(window) for _, window in distinct)
    padding = np.array([width - len(window) for _, window in distinct], dtype=np.int64)
    ids = np.zeros((len(distinct), width), dtype=np.int64)
    for row, (_, window) in enumerate(distinct):
        ids[row, padding[row] :] = window

    capacity = width + max(max_new_tokens - len(one.tokens) for one in continuations)
    if model.context is not None:
        capacity = min(capacity, model.context + int(padding.max()))
    cache: Cache = model.new_cache(len(distinct), capacity, padding=padding)
    logits = model.step(ids, cache)
    rows = [distinct.index(window) for window in windows]
    if rows == list(range(len(distinct))):
        return logits, cache
    return logits[rows], cache.select(rows)
