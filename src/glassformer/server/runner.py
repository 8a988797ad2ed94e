"""One thread that computes, and the asynchronous side that asks it: texts go in, their tokens come out.

The thread owns the batch. Others leave what they ask for in an inbox, and get tokens on their own
event loop, once for all texts of a step.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from glassformer.errors import GlassError
from glassformer.generation.batching import (
    Batch,
    GenerationRequest,
    OneByOne,
    RequestState,
    Scored,
    Slots,
    StepOutput,
    check_request,
)
from glassformer.generation.stepper import has_slots
from glassformer.server.errors import QueueFull, stopping
from glassformer.tasks.complete import LanguageModel

__all__ = ["GenerationRequest", "Runner", "Running", "Scored", "Token"]


class Token(NamedTuple):
    """What arrives: a token of the text; with a `finish`, the last one, the end token, or none."""

    id: int | None
    logprob: float | None  # of the model itself, before temperature and filters
    top: tuple[tuple[int, float], ...] = ()
    named: tuple[float, ...] = ()
    finish: str | None = None  # "stop" (by the end token), "length", "context" or "cancelled"

    @classmethod
    def of(cls, output: StepOutput) -> "Token":
        """What a step says about a text; what is wrong with it is raised."""
        if output.error is not None:
            raise output.error
        found = output.token or output.end
        if found is None:
            return cls(None, None, finish=output.finish)
        return cls(found.id, found.logprob, found.top, found.named, output.finish)


@dataclass
class Timings:
    """Seconds that a text waited, that its prompt took, and that its tokens took."""

    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


@dataclass
class _Clock:
    """When what happened, on the clock that only goes forward; 0: not yet."""

    asked: float = field(default_factory=time.monotonic)
    admitted: float = 0.0
    first: float = 0.0
    ended: float = 0.0


class Running:
    """A text that is being written, or waits for that: iterate over it for its tokens."""

    def __init__(
        self, request: GenerationRequest, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]
    ) -> None:
        self.request, self.loop, self.clock = request, loop, _Clock()
        self._wake = wake
        self._outputs: deque[StepOutput] = deque()
        self._news = asyncio.Event()
        self._state: RequestState | None = None
        self._cancelled = False
        self._failed: Exception | None = None

    @property
    def prompt_scores(self) -> list[Scored | None]:
        """The scores of the prompt's tokens, of the first one None, once the first new token is there."""
        return [None, *self._state.prompt_scores] if self._state is not None else []

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt were not computed again."""
        return 0 if self._state is None else self._state.cached

    @property
    def timings(self) -> Timings:
        """What took how long, until now or its end."""
        clock, now = self.clock, self.clock.ended or time.monotonic()
        admitted = clock.admitted or now
        first = clock.first or now
        return Timings(admitted - clock.asked, first - admitted, now - first)

    @property
    def waits(self) -> bool:
        """Whether it has had no slot yet."""
        return not self.clock.admitted

    def cancel(self) -> None:
        """Let go of it: its slot is free at the next step. After its end this does nothing."""
        self._cancelled = True
        if self._state is not None:
            self._state.cancel()
        self._wake()

    async def __aiter__(self) -> AsyncIterator[Token]:
        """Its tokens as they come; what is wrong with it is raised. Leaving the loop early cancels it."""
        try:
            while True:
                while not self._outputs and self._failed is None:
                    self._news.clear()
                    await self._news.wait()
                if self._failed is not None:
                    raise self._failed
                token = Token.of(self._outputs.popleft())
                yield token
                if token.finish is not None:
                    return
        finally:
            if not self.clock.ended:
                self.cancel()

    def fail(self, error: Exception) -> None:
        """On its event loop: the request that iterates over it gets this error instead of its next token."""
        self._failed = error
        self._news.set()

    def begin(self, batch: Batch) -> RequestState:
        """By the computing thread: take it into the batch."""
        self._state = batch.add(self.request)
        if self._cancelled:
            self._state.cancel()
        return self._state

    def hear(self, output: StepOutput) -> None:
        """On its event loop: something new about it."""
        self._outputs.append(output)
        self._news.set()


class Runner:
    """A model that writes many texts at once. `start` it inside an event loop, and `close` it."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        slots: int = 8,
        queue: int = 32,
        queue_tokens: int = 65_536,
        budget: int = 64,
    ) -> None:
        """`queue` is how many may wait, `queue_tokens` how long they may be together; `budget` is how many
        tokens a step may read.
        """
        self.model, self.backend = model, model.backend
        self.queue, self.queue_tokens = queue, queue_tokens
        self.name = self.backend.name
        self.slots = slots if has_slots(self.backend) else 1
        self._budget = budget
        self._inbox: deque[Running] = deque()
        self._live: dict[RequestState, Running] = {}
        self._change = threading.Condition()
        self._closing = False
        self.steps, self.step_texts, self.step_seconds = 0, 0, 0.0  # counted by the computing thread alone
        self._thread = threading.Thread(target=self._work, name=f"runner of {model.name}", daemon=True)

    @property
    def cache_bytes(self) -> int:
        """What the cache of all slots takes."""
        return self.backend.cache_size(self.slots, self.backend.context or 0)

    @property
    def running(self) -> int:
        """How many texts are being written."""
        return sum(not one.waits for one in list(self._live.values()))

    @property
    def waiting(self) -> int:
        """How many texts wait for a slot."""
        return len(self._inbox) + len(self._live) - self.running

    @property
    def waiting_tokens(self) -> int:
        """How many tokens are to be read and written for the texts that wait."""
        waiting = [*self._inbox, *(one for one in list(self._live.values()) if one.waits)]
        return sum(self._size(one.request) for one in waiting)

    def _size(self, request: GenerationRequest) -> int:
        """The most tokens of a text."""
        most = len(request.prompt) + request.options.max_new_tokens
        return most if self.backend.context is None else min(most, self.backend.context)

    async def start(self) -> None:
        """Begin to compute."""
        self._thread.start()

    def check(self, request: GenerationRequest) -> None:
        """Refuse a text that the model cannot continue."""
        check_request(self.backend, request)

    def submit(self, request: GenerationRequest) -> Running:
        """Take a text on, if there is a place to wait."""
        if self._closing:
            raise stopping()
        self.check(request)
        if self.waiting >= self.queue + self.slots - self.running:
            raise QueueFull(f"{self.queue} requests are waiting already; try again later")
        waiting = self.waiting_tokens
        if waiting and waiting + self._size(request) > self.queue_tokens:  # a text alone may always wait
            raise QueueFull(f"{waiting:,} tokens are waiting already; try again later")
        running = Running(for_model(request, self.model), asyncio.get_running_loop(), self._wake)
        self._inbox.append(running)
        self._wake()
        return running

    async def close(self, grace: float = 30.0) -> None:
        """Take nothing on, finish what is begun within the seconds given, cancel the rest, and end."""
        self._closing = True
        end = time.monotonic() + grace
        while (self._inbox or self._live) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        for one in [*self._inbox, *self._live.values()]:
            one.cancel()
        self._wake()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _wake(self) -> None:
        with self._change:
            self._change.notify()

    def _work(self) -> None:
        """The computing thread."""
        slotted = self.backend if has_slots(self.backend) else None
        batch: Batch = OneByOne(self.backend)
        if slotted is not None:
            batch = Slots(slotted, slots=self.slots, budget=self._budget)
        while True:
            with self._change:
                while not self._inbox and not self._live and not self._closing:
                    self._change.wait()
            if not self._inbox and not self._live:
                return
            while self._inbox:
                running = self._inbox.popleft()
                self._live[running.begin(batch)] = running
            self._spread(self._step(batch))

    def _step(self, batch: Batch) -> list[StepOutput]:
        begun = time.monotonic()
        try:
            output = batch.step()
        except Exception as error:  # whatever it is: the server lives, and waiting requests learn of it
            reason = error if isinstance(error, GlassError) else GlassError(f"a step failed: {error}")
            output = batch.fail(reason)
        now = time.monotonic()
        self.steps += 1
        self.step_seconds += now - begun
        self.step_texts += len({one.state for one in output} | set(batch.running))
        for state in batch.running:
            clock = self._live[state].clock
            clock.admitted = clock.admitted or now
        return output

    def _spread(self, output: list[StepOutput]) -> None:
        """Hand every text its output, with one call for each event loop."""
        now = time.monotonic()
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Running, StepOutput]]] = {}
        for one in output:
            running = self._live[one.state]
            clock = running.clock
            clock.admitted = clock.admitted or now
            clock.first = clock.first or now
            if one.finish is not None or one.error is not None:
                clock.ended = now
                del self._live[one.state]
            loops.setdefault(running.loop, []).append((running, one))
        for loop, news in loops.items():
            with contextlib.suppress(RuntimeError):  # it is closed: no request waits any more
                loop.call_soon_threadsafe(_hear, news)


def for_model(request: GenerationRequest, model: LanguageModel) -> GenerationRequest:
    """The same text, with the end tokens of a model and the size of its vocabulary."""
    known = None if model.tokenizer is None else len(model.tokenizer)
    return replace(request, ends=request.ends or model.ends, known=known)


def _hear(news: list[tuple[Running, StepOutput]]) -> None:
    for running, output in news:
        running.hear(output)
