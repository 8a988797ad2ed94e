"""A lane beside the engine: one thread for what torch computes, so that the engine's streams keep their pace.

Insides, embeddings and generations with edits go this way, one at a time.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from glassformer.generation.batching import write_alone
from glassformer.server.errors import QueueFull
from glassformer.server.runner import Ask, Timings, Token, of_model
from glassformer.waiting import Waiting, waited_for

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel

NICENESS = 10  # of 19
Result = TypeVar("Result")
Inside = Callable[[], AbstractContextManager[Any]]


class LaneRunning:
    """A continuation that the lane writes; a runner's have the same interface."""

    def __init__(self) -> None:
        self.prompt_scores: list[Any] = []
        self.cached_tokens = 0
        self.timings = Timings()
        self.cancelled = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Token | Exception] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Token]:
        while True:
            token = await self._arrived.get()
            if isinstance(token, Exception):
                raise token
            yield token
            if token.finish is not None:
                return

    def cancel(self) -> None:
        """End it before its next token."""
        self.cancelled.set()

    def fail(self, error: Exception) -> None:
        """On its event loop: the request that iterates over it gets this error."""
        self._arrived.put_nowait(error)

    def fill(self, tokens: Iterator[Token]) -> None:
        """Deliver tokens, and what went wrong, from the lane's thread."""
        try:
            for token in tokens:
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, token)
        except Exception as error:
            if not self._loop.is_closed():  # else no request waits any more
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, error)


class Lane:
    """A thread with a bounded queue before it."""

    def __init__(self, *, most: int) -> None:
        self.most, self.jobs = most, 0  # jobs that wait or run
        self.working = False  # also on a job whose caller has left
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="glass-lane", initializer=_step_back)

    def put(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Begin a job when those before it are done; refused if too many are waiting."""
        if self.jobs >= self.most:
            raise QueueFull("too many requests are waiting")
        self.jobs += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
        future.add_done_callback(self._done)
        return future

    def _work(self, work: Callable[[], Any]) -> Any:
        """In the lane's thread: one job."""
        self.working = True
        try:
            return work()
        finally:
            self.working = False

    def _done(self, future: "asyncio.Future[Any]") -> None:
        self.jobs -= 1
        if not future.cancelled():
            future.exception()  # it was seen: the request that awaits the job has it too

    async def run(self, work: Callable[[], Result], waits: Waiting | None = None) -> Result:
        """The result of a job. If the caller is cancelled, a job that has not begun never does.

        One that has ends before the model runs again. `waits` learns how far it is.
        """
        waits = waits or Waiting()

        def job() -> Result:
            with waited_for(waits):
                return work()

        try:
            result: Result = await self.put(job)
        finally:
            waits.left.set()
        return result

    def generate(self, model: "LanguageModel", ask: Ask, *, inside: Inside) -> LaneRunning:
        """A continuation by torch, `inside` its edits."""
        running = LaneRunning()

        def tokens() -> Iterator[Token]:
            with inside():
                yield from written(model, ask, running=running)

        self.put(lambda: running.fill(tokens()))
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


def written(model: "LanguageModel", ask: Ask, *, running: LaneRunning) -> Iterator[Token]:
    """The tokens of one continuation, the one that ends a text included."""
    asked = of_model(ask, model)
    for output in write_alone(model.backend, asked, is_cancelled=running.cancelled.is_set):
        running.prompt_scores = [None, *output.of.prompt_scores]
        yield Token.of(output)
