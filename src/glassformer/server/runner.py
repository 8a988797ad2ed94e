"""One request after another, in a thread: the interface of a runner."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from glassformer.generation.decode import check_prompts
from glassformer.generation.options import Options

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One continuation of one prompt."""

    prompt: tuple[int, ...]  # token ids, checked, at least one
    options: Options
    choice: int = 0  # which of n: the random numbers depend on seed, choice and position
    top: int = 0  # log-probabilities of so many likeliest tokens with every token
    named: tuple[int, ...] = ()  # and of these tokens, whatever their rank
    score_prompt: bool = False  # also of every prompt token behind those before it


class Token(NamedTuple):
    """What arrives."""

    id: int | None  # None: only the end
    logprob: float | None  # of the model itself, before temperature and filters
    top: tuple[tuple[int, float], ...] = ()
    named: tuple[float, ...] = ()
    finish: str | None = None  # "stop", "length", "context" or "cancelled"


class Scored(NamedTuple):
    """A token of the prompt."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    named: tuple[float, ...] = ()


@dataclass
class Timings:
    """Seconds."""

    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


class Running:
    """A continuation that is being written."""

    def __init__(self) -> None:
        self.prompt_scores: list[Scored | None] = []
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
        """Stop; the slot is free within two steps."""
        self.cancelled.set()

    def fill(self, tokens: Callable[[], Iterator[Token]]) -> None:
        """Deliver tokens, from another thread."""
        try:
            for token in tokens():
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, token)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
        except Exception as error:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, error)


class Runner:
    """One engine thread for one model."""

    def __init__(self, model: "LanguageModel", *, slots: int, queue: int, budget: int) -> None:
        from glassformer.server.lane import Lane

        self.model, self.slots = model, slots
        self._backend = model.backend
        self.name = self._backend.name
        self._lane = Lane(most=slots + queue)

    async def start(self) -> None:
        """Begin."""

    async def close(self, grace: float) -> None:
        """End."""
        self._lane.close()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return max(0, self._lane.jobs - 1)

    @property
    def running(self) -> int:
        """How many run."""
        return min(1, self._lane.jobs)

    @property
    def cache_bytes(self) -> int:
        """The memory of all slots."""
        return self._backend.cache_size(self.slots, self._backend.context or 1024)

    def check(self, ask: Ask) -> None:
        """Refuse what does not fit."""
        check_prompts(self._backend, [ask.prompt], options=ask.options)

    def submit(self, ask: Ask) -> Running:
        """Take a request on."""
        from glassformer.server.lane import written

        running = Running()
        self._lane.put(
            lambda: running.fill(lambda: written(self.model, self._backend, ask=ask, running=running))
        )
        return running
