"""One request after another, in a thread: the interface of a runner."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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


class Running(Protocol):
    """A continuation that is being written."""

    prompt_scores: list[Any]
    cached_tokens: int
    timings: Any

    def __aiter__(self) -> AsyncIterator[Token]: ...
    def cancel(self) -> None:
        """Stop; the slot is free within two steps."""


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
        from glassformer.server.lane import LaneRunning, written

        running = LaneRunning()
        self._lane.put(lambda: running.fill(written(self.model, self._backend, ask=ask, running=running)))
        return running
