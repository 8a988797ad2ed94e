"""A lane beside the engine: one thread for what torch computes, so that the engine's streams keep their pace.

Insides, embeddings and generations with edits go this way, one at a time.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from glassformer.generation.batching import StepOutput, generate_alone
from glassformer.server.errors import QueueFull, not_read
from glassformer.server.runner import STALL, GenerationRequest, Running, for_model
from glassformer.waiting import Waiting, cancellable

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel

NICENESS = 10  # of 19
Result = TypeVar("Result")
Inside = Callable[[], AbstractContextManager[Any]]


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
            with cancellable(waits):
                return work()

        try:
            result: Result = await self.put(job)
        finally:
            waits.cancelled.set()
        return result

    def generate(self, model: "LanguageModel", request: GenerationRequest, *, inside: Inside) -> Running:
        """A continuation by torch, `inside` its edits."""
        change = threading.Condition()

        def wake() -> None:
            with change:
                change.notify()

        running = Running(for_model(request, model), wake=wake)
        self.put(lambda: _generate(model, running, inside=inside, change=change))
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


def _generate(
    model: "LanguageModel", running: Running, *, inside: Inside, change: threading.Condition
) -> None:
    """In the lane's thread: one continuation, whose outputs go to the event loop of its request."""

    def send(found: StepOutput | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
            running.loop.call_soon_threadsafe(running.hear, found)

    running.clock.admitted = time.monotonic()
    try:
        with inside():
            for output in generate_alone(
                model.backend, running.request, is_cancelled=lambda: running.cancelled
            ):
                running.note(output)
                if output.error is not None:
                    raise output.error  # through the edits, which may be the reason
                send(output)
                if not running.clock.ended:
                    _wait_for_reader(running, change)
    except Exception as error:
        running.clock.ended = time.monotonic()
        send(error)


def _wait_for_reader(running: Running, change: threading.Condition) -> None:
    """Go on when the client has read enough; one that does not read keeps the next job waiting."""
    with change:
        reads = change.wait_for(lambda: not running.full or running.cancelled, STALL)
    if not reads:
        raise not_read()
