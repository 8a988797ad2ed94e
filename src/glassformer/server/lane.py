"""A lane beside the engine: one thread for what torch computes, so that the engine's streams keep their pace.

Insides, embeddings and generations with edits go this way, one at a time.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from glassformer.generation.decode import Continuation, end_of_room, prefill
from glassformer.generation.sampling import Rules, best, choose
from glassformer.server.errors import QueueFull
from glassformer.server.runner import Ask, Running, Scored, Token

if TYPE_CHECKING:
    from glassformer.generation.stepper import Logits
    from glassformer.tasks.backends import Backend
    from glassformer.tasks.complete import LanguageModel

NICENESS = 10  # of 19
Result = TypeVar("Result")


class Lane:
    """A thread with a bounded queue before it."""

    def __init__(self, *, most: int) -> None:
        self.most, self.jobs = most, 0  # jobs that wait or run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="glass-lane", initializer=_step_back)

    def put(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Begin a job when those before it are done; refused if too many are waiting."""
        if self.jobs >= self.most:
            raise QueueFull("too many requests are waiting")
        self.jobs += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: "asyncio.Future[Any]") -> None:
        self.jobs -= 1
        if not future.cancelled():
            future.exception()  # it was seen: whoever awaits the job has it too

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of a job. If the caller is cancelled, a job that has not begun never does."""
        result: Result = await self.put(work)
        return result

    def generate(
        self, model: "LanguageModel", ask: Ask, *, inside: Callable[[], AbstractContextManager[Any]]
    ) -> Running:
        """A continuation by torch, `inside` its edits; the same interface as a runner's."""
        running = Running()

        def tokens() -> Iterator[Token]:
            with inside():
                yield from written(model, model.backend, ask=ask, running=running)

        self.put(lambda: running.fill(tokens))
        return running

    def close(self) -> None:
        """End the thread when its job is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _step_back() -> None:
    """Let this thread, and those that torch starts from it, wait for the engine's where cores are scarce."""
    if sys.platform != "linux":  # elsewhere it would be the whole process
        return
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def written(model: "LanguageModel", backend: "Backend", *, ask: Ask, running: Running) -> Iterator[Token]:
    """The tokens of one continuation, the one that ends a text included."""
    known = None if model.tokenizer is None else len(model.tokenizer)
    rules = Rules(ask.options, model.ends, known)
    one = Continuation(0, ask.choice, ask.prompt)
    if ask.score_prompt:
        running.prompt_scores[:] = prompt_scores(backend, ask)

    cache: Any = None
    while True:
        if running.cancelled.is_set():
            yield Token(None, None, finish="cancelled")
            return
        room = ask.options.max_new_tokens - len(one.tokens)
        if backend.context is not None:
            room = min(room, backend.context - one.length)
        if room <= 0:
            yield Token(None, None, finish=end_of_room(len(one.tokens), ask.options))
            return
        if cache is None:
            logits, cache = prefill(backend, [one], max_new_tokens=ask.options.max_new_tokens)
        else:
            logits = backend.step(np.array([[one.tokens[-1]]], dtype=np.int64), cache)
        raw, total = logits[0], backend.log_sums(logits)[0]
        scores = rules.apply(raw, prompt=one.given, answer=one.tokens, room=room)
        id = choose(scores, ask.options, choice=ask.choice, position=one.length)
        found = scored(id, raw, total=total, ask=ask)
        if id in model.ends:
            yield Token(id, *found, finish="stop")
            return
        one.tokens.append(id)
        finish = end_of_room(len(one.tokens), ask.options) if room == 1 else None
        yield Token(id, *found, finish=finish)
        if finish is not None:
            return


def prompt_scores(backend: "Backend", ask: Ask) -> list[Scored | None]:
    """Log-probabilities of every token of the prompt but the first, which has nothing before it."""
    rows = backend.logits(np.array([ask.prompt], dtype=np.int64))[0]  # (T, V)
    found: list[Scored | None] = [None]
    for at, id in enumerate(ask.prompt[1:]):
        total = backend.log_sums(rows[at : at + 1])[0]
        found.append(scored(id, rows[at], total=total, ask=ask))
    return found


def scored(id: int, raw: "Logits", *, total: float, ask: Ask) -> Scored:
    """The log-probabilities that are asked for with a token."""
    likeliest: tuple[tuple[int, float], ...] = ()
    if ask.top:
        ids = best(raw, ask.top)
        order = np.lexsort((ids, -raw[ids]))[: ask.top]
        likeliest = tuple((int(ids[at]), float(raw[ids[at]]) - total) for at in order)
    named = tuple(float(raw[other]) - total for other in ask.named)
    return Scored(float(raw[id]) - total, likeliest, named)
