"""One thread that computes, and the asynchronous side that asks it: texts go in, their tokens come out.

The thread owns the batch. Others leave what they ask for in an inbox, and get tokens on their own
event loop, once for all texts of a step. What a client has not read yet is bounded: its text is paused until
it reads, and others have its slot meanwhile.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from glassformer.server.errors import QueueFull, not_read, stopping
from glassformer.server.metrics import SECONDS, TEXTS, Histogram
from glassformer.tasks.complete import LanguageModel

__all__ = ["GenerationRequest", "Runner", "Running", "Scored", "Token"]

# A client that does not read may hold 256 kB. What waits for it here is half of that at most (one more output
# may come when it is nearly full); the rest is in its connection, and on the way there.
AHEAD = 64 << 10  # bytes of outputs that a client has not read, of all texts of its request
OUTPUT, LOGPROB = 300, 110  # bytes of an output, about, and of each log-probability with it
PROMPT_PIECE = 64  # log-probabilities of a prompt that are handed on at a time
MOST_PAUSED = 64  # texts whose clients do not read; of more, the one that has waited longest is given up
# Tokens within this interval are sent together, except the first and the last of a text: to wake the event
# loop takes a core from the engine for half the time of a small model's token.
FLUSH_INTERVAL = 0.02  # seconds
STALL = 5.0  # seconds that a client may keep others waiting where texts are written one by one


class Token(NamedTuple):
    """What arrives: a token of the text; with a `finish`, the last one, the end token, or none."""

    id: int | None
    logprob: float | None  # of the model itself, before temperature and filters
    top: tuple[tuple[int, float], ...] = ()
    named: tuple[float, ...] = ()
    finish: str | None = None  # "stop" (by the end token), "length", "context" or "cancelled"
    prompt: tuple[Scored, ...] = ()  # in place of all that: scores of the prompt's next tokens


def tokens_of(output: StepOutput) -> Iterator[Token]:
    """What a step says about a text, in pieces; what is wrong with it is raised."""
    if output.error is not None:
        raise output.error
    if output.prompt:
        first = output.prompt[0]
        count = max(1, PROMPT_PIECE // (1 + len(first.top) + len(first.named)))
        for start in range(0, len(output.prompt), count):
            yield Token(None, None, prompt=tuple(output.prompt[start : start + count]))
    found = output.token or output.end
    if found is not None:
        yield Token(found.id, found.logprob, found.top, found.named, output.finish)
    elif output.finish is not None:
        yield Token(None, None, finish=output.finish)


def size_of(output: StepOutput) -> int:
    """The memory that an output takes until it is read, about."""
    found = output.token or output.end
    logprobs = 0 if found is None else len(found.top) + len(found.named)
    prompt = 0 if output.prompt is None else output.prompt.nbytes
    return OUTPUT + LOGPROB * logprobs + prompt


def token_size(request: GenerationRequest) -> int:
    """The memory of the output of a token, about."""
    return OUTPUT + LOGPROB * (request.top + len(request.named))


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

    def __init__(self, request: GenerationRequest, *, wake: Callable[[], None]) -> None:
        """Inside of the event loop that iterates; `wake` is called when something was read, or cancelled."""
        self.request, self.clock = request, _Clock()
        self.loop = asyncio.get_running_loop()
        self.ahead = AHEAD  # bytes of outputs that may wait to be read
        self.cancelled = False
        self.paused_at = 0.0  # 0: it is not
        self._wake = wake
        self._outputs: deque[StepOutput | Exception] = deque()
        self._news = asyncio.Event()
        self._state: RequestState | None = None
        self._failed: Exception | None = None
        self._made = self._read = 0  # bytes: the one counted by the computing thread, the other by the loop

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt were not computed again."""
        return 0 if self._state is None else self._state.cached or 0

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
        had_slot = self._state is not None and self._state.cached is not None
        return not had_slot and not self.clock.admitted

    @property
    def full(self) -> bool:
        """Whether its client must read before more is written."""
        return self._made - self._read > self.ahead

    def progress(self) -> dict[str, Any]:
        """How far it is, in numbers."""
        state, prompt = self._state, len(self.request.prompt)
        read = 0 if state is None else state.read
        phase = "reading" if read < prompt else "writing"
        if self.waits or self.paused_at:
            phase = "waiting" if self.waits else "paused"
        return {
            "phase": phase,
            "slot": None if state is None else state.slot,
            "prompt_tokens": prompt,
            "cached_tokens": self.cached_tokens,
            "read_tokens": read,
            "completion_tokens": 0 if state is None else len(state.continuation.tokens),
            "seconds": round(time.monotonic() - self.clock.asked, 3),
        }

    def cancel(self) -> None:
        """Let go of it: its slot is free at the next step. After its end this does nothing."""
        self.cancelled = True
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
                output = self._outputs.popleft()
                if isinstance(output, Exception):
                    raise output
                for token in tokens_of(output):
                    yield token
                    if token.finish is not None:
                        return
                    if token.prompt:  # of which there may be much: other requests have their turn between
                        await asyncio.sleep(0)
                self._read += size_of(output)
                self._wake()
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
        if self.cancelled:
            self._state.cancel()
        return self._state

    def note(self, output: StepOutput) -> None:
        """By the computing thread: an output is on its way."""
        now, clock = time.monotonic(), self.clock
        ends = output.finish is not None or output.error is not None
        clock.admitted = clock.admitted or now
        if output.token is not None or ends:
            clock.first = clock.first or now
        if ends:
            clock.ended = now
        self._made += size_of(output)

    def hear(self, output: StepOutput | Exception) -> None:
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
        self._batch: Slots | None = None
        self._pending: list[tuple[Running, StepOutput]] = []  # by the computing thread: not yet sent
        self._flushed_at = 0.0  # when that was done last
        self.step_times, self.batch_sizes = Histogram(SECONDS), Histogram(TEXTS)  # by the computing thread
        self._thread = threading.Thread(target=self._work, name=f"runner of {model.name}", daemon=True)

    @property
    def cache_bytes(self) -> int:
        """What the cache of all slots takes."""
        return self.backend.cache_size(self.slots, self.backend.context or 0)

    @property
    def cache_used(self) -> int:
        """What of it holds tokens, of texts that are written and of those that may begin alike."""
        context = self.backend.context or 0
        tokens = min(sum(map(len, self._batch.kept)), self.slots * context) if self._batch else 0
        return self.cache_bytes * tokens // max(1, self.slots * context)

    @property
    def running(self) -> int:
        """How many texts are being written."""
        return sum(not one.waits and not one.paused_at for one in list(self._live.values()))

    @property
    def paused(self) -> int:
        """How many texts go on when their clients have read what there is."""
        return sum(one.paused_at > 0 for one in list(self._live.values()))

    @property
    def waiting(self) -> int:
        """How many texts wait for a slot."""
        return len(self._inbox) + sum(one.waits for one in list(self._live.values()))

    @property
    def waiting_tokens(self) -> int:
        """How many tokens are to be read and written for the texts that wait."""
        waiting = [*self._inbox, *(one for one in list(self._live.values()) if one.waits)]
        return sum(self._size(one.request) for one in waiting)

    def _size(self, request: GenerationRequest) -> int:
        """The most tokens of a text."""
        most = len(request.prompt) + request.options.max_new_tokens
        return most if self.backend.context is None else min(most, self.backend.context)

    def texts(self) -> list[dict[str, Any]]:
        """Every text that waits or is written, without a word of it: how far it is, and where."""
        waiting = [one.progress() for one in list(self._inbox)]
        return [*(one.progress() for one in list(self._live.values())), *waiting]

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
        running = Running(for_model(request, self.model), wake=self._wake)
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
            batch = self._batch = Slots(slotted, slots=self.slots, budget=self._budget)
        while True:
            with self._change:
                while not self._has_work(batch):
                    self._flush()  # a client that is waited for must have received everything
                    self._change.wait(1.0 if self._live else None)  # a paused text may become too old
            if not self._inbox and not self._live:
                return
            while self._inbox:
                running = self._inbox.popleft()
                self._live[running.begin(batch)] = running
            self._dispatch([*self._give_up(batch), *self._step(batch)])

    def _has_work(self, batch: Batch) -> bool:
        """Whether there is a step to compute; texts whose clients do not read are paused."""
        now = time.monotonic()
        for state, one in self._live.items():
            state.paused = one.full
            one.paused_at = (one.paused_at or now) if one.full else 0.0
        ends = self._closing and not self._live
        return ends or bool(self._inbox) or batch.can_step or bool(self._too_old(batch))

    def _too_old(self, batch: Batch) -> list[RequestState]:
        """Paused texts that are given up: too many of them, or one that keeps others from their turn."""
        paused = sorted(
            (one.paused_at, id(state), state) for state, one in self._live.items() if one.paused_at
        )
        found = [state for _, _, state in paused[: max(0, len(paused) - MOST_PAUSED)]]
        if isinstance(batch, OneByOne) and batch.waiting:
            late = time.monotonic() - STALL
            found += [state for at, _, state in paused if at < late and state not in found]
        return found

    def _give_up(self, batch: Batch) -> list[StepOutput]:
        """Let go of paused texts that are too old."""
        return batch.drop(self._too_old(batch), not_read())

    def _step(self, batch: Batch) -> list[StepOutput]:
        begun = time.monotonic()
        output = batch.step()
        now = time.monotonic()
        self.step_times.add(now - begun)
        active = {one for one in batch.running if not one.paused}
        self.batch_sizes.add(len({one.state for one in output} | active))
        for state in batch.running:
            clock = self._live[state].clock
            clock.admitted = clock.admitted or now
        return output

    def _dispatch(self, output: list[StepOutput]) -> None:
        """Queue the output of every text, and flush at once where a client should not wait."""
        at_once = time.monotonic() - self._flushed_at >= FLUSH_INTERVAL
        for one in output:
            running = self._live[one.state]
            at_once = at_once or not running.clock.first  # its first token, or a part of its prompt
            running.note(one)
            if running.clock.ended:
                at_once = True
                del self._live[one.state]
            self._pending.append((running, one))
        if at_once:
            self._flush()

    def _flush(self) -> None:
        """Send all pending outputs, with one call for each event loop."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Running, StepOutput]]] = {}
        for running, one in self._pending:
            loops.setdefault(running.loop, []).append((running, one))
        self._pending, self._flushed_at = [], time.monotonic()
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
