"""Prefill, step, stop: the loop that turns a model into text, as a stream of tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from glassformer.errors import GlassError, InputError
from glassformer.generation.options import Options
from glassformer.generation.sampling import adjust, choose, log_sum
from glassformer.generation.stepper import Cache, Logits, Stepper


class Event(NamedTuple):
    """One thing that happened to one answer: a token came, or the answer ended, or both."""

    prompt: int
    choice: int
    token: int | None = None
    logprob: float | None = None  # of the model itself, before temperature and filters
    finish: str | None = None  # "stop", "length" or "cancelled"


@dataclass
class Answer:
    """One sequence in the making."""

    prompt: int
    choice: int
    given: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    dropped: int = 0  # how many of the first tokens the model no longer looks at
    finished: bool = False

    @property
    def position(self) -> int:
        return len(self.given) + len(self.tokens)

    def window(self) -> list[int]:
        """What the model looks at."""
        return [*self.given, *self.tokens][self.dropped :]


def generate(
    model: Stepper,
    prompts: Sequence[Sequence[int]],
    options: Options,
    *,
    end: int | None = None,
    known: int | None = None,
    halt: Callable[[Event], bool] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Answer every prompt `num_return_sequences` times, all at once; yield tokens as they are chosen.

    `end` is the token that ends an answer (it is not part of it); ids from `known` on are never chosen; `halt` may end
    an answer after any token; `cancelled` is asked before every step.
    """
    room = [check_prompt(model, prompt, options, which) for which, prompt in enumerate(prompts)]
    answers = [
        Answer(which, choice, prompt)
        for which, prompt in enumerate(prompts)
        for choice in range(options.num_return_sequences)
    ]
    for answer in answers:
        if room[answer.prompt] == 0:
            answer.finished = True
            yield Event(answer.prompt, answer.choice, finish="length")
    alive = [answer for answer in answers if not answer.finished]
    logits: Logits | None = None
    cache: Cache | None = None
    if alive:
        logits, cache = prefill(model, alive, options)
    while alive:
        if cancelled is not None and cancelled():
            yield from (Event(answer.prompt, answer.choice, finish="cancelled") for answer in alive)
            return
        if logits is None:
            ids = np.array([[answer.tokens[-1]] for answer in alive], dtype=np.int64)
            logits = model.step(ids, cache)
        for answer, row, total in zip(alive, logits, _log_sums(model, logits), strict=True):
            yield _advance(model, answer, row, total, options, end, known, halt)
        logits = None
        staying = [row for row, answer in enumerate(alive) if not answer.finished]
        if cache is not None and 0 < len(staying) < len(alive):
            cache = cache.select(staying)
        alive = [alive[row] for row in staying]
        if any(answer.position - answer.dropped > model.context for answer in alive):
            logits, cache = prefill(model, alive, options)  # somebody slides on


def check_prompt(model: Stepper, prompt: Sequence[int], options: Options, which: int = 0) -> int:
    """How many tokens may follow a prompt; raises if it is empty, has strange ids, or does not fit the context."""
    if not prompt:
        raise InputError(f"prompt {which} is empty; an unconditional text starts from the end-of-text token")
    strange = next((id for id in prompt if not 0 <= id < model.vocab), None)
    if strange is not None:
        raise InputError(
            f"prompt {which}: {strange} is not a token id of this model (0 to {model.vocab - 1})"
        )
    strange = next((id for id in options.logit_bias if id >= model.vocab), None)
    if strange is not None:
        raise InputError(f"logit_bias: {strange} is not a token id of this model (0 to {model.vocab - 1})")
    if options.overflow == "slide":
        return options.max_new_tokens
    over = len(prompt) - model.context
    if over > 0:
        raise InputError(
            f"the prompt has {len(prompt):,} tokens, {over:,} more than the model's context of {model.context:,};"
            " shorten it, or, to write on, let the window slide (overflow)"
        )
    return min(options.max_new_tokens, model.context - len(prompt))


def prefill(model: Stepper, answers: Sequence[Answer], options: Options) -> tuple[Logits, Cache]:
    """Read what every answer has so far, padded on the left; equal texts are read once."""
    for answer in answers:
        if answer.position - answer.dropped > model.context:
            answer.dropped = answer.position - max(1, model.context // 2)
    windows = [tuple(answer.window()) for answer in answers]
    distinct = list(dict.fromkeys(windows))
    width = max(map(len, distinct))
    padding = np.array([width - len(window) for window in distinct], dtype=np.int64)
    ids = np.zeros((len(distinct), width), dtype=np.int64)
    for row, window in enumerate(distinct):
        ids[row, padding[row] :] = window
    left = max(options.max_new_tokens - len(answer.tokens) for answer in answers)
    capacity = min(width + left, model.context + int(padding.max()))
    cache: Cache = model.new_cache(len(distinct), capacity, padding)
    logits = model.step(ids, cache)
    rows = [distinct.index(window) for window in windows]
    if rows == list(range(len(distinct))):
        return logits, cache
    return logits[rows], cache.select(rows)


def restrict(logits: Logits, known: int | None, end: int | None, *, may_end: bool) -> Logits:
    """Take away what may not be chosen: ids without a token, and the end where it is too early for it."""
    if not np.isfinite(logits).all():
        raise GlassError(
            "the model's output holds NaN or infinite numbers; its weights are broken, or an edit is too strong"
        )
    if (known is not None and known < len(logits)) or (end is not None and not may_end):
        logits = logits.copy()
        logits[len(logits) if known is None else known :] = -np.inf
        if end is not None and not may_end:
            logits[end] = -np.inf
    return logits


def _log_sums(model: Stepper, logits: Logits) -> Sequence[float]:
    own: Callable[[Logits], Sequence[float]] | None = getattr(model, "log_sums", None)
    return own(logits) if own is not None else [log_sum(row) for row in logits]


def _advance(
    model: Stepper,
    answer: Answer,
    raw: Logits,
    log_total: float,
    options: Options,
    end: int | None,
    known: int | None,
    halt: Callable[[Event], bool] | None,
) -> Event:
    """Choose the next token of one answer, and see whether it was the last."""
    logits = restrict(raw, known, end, may_end=len(answer.tokens) >= options.min_new_tokens)
    logits = adjust(logits, options, answer.given, answer.tokens)
    token = choose(logits, options, choice=answer.choice, position=answer.position)
    if token == end:
        answer.finished = True
        return Event(answer.prompt, answer.choice, finish="stop")
    answer.tokens.append(token)
    event = Event(answer.prompt, answer.choice, token, float(raw[token]) - log_total)
    full = options.overflow == "stop" and answer.position >= model.context
    if halt is not None and halt(event):
        event = event._replace(finish="stop")
    elif full or len(answer.tokens) >= options.max_new_tokens:
        event = event._replace(finish="length")
    answer.finished = event.finish is not None
    return event
