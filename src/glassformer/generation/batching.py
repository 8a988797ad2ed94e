"""Continuous batching: texts join a running batch and leave it between two steps.

A batch has slots, rows of one cache. In every step each text that is being written reads its last token, and
texts that are still being read take chunks of what is left of the step's budget. A slot remembers what was
read in it: a text that begins alike goes on from there. None of this changes a bit of any text: see
`SlottedStepper`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glassformer.errors import GlassError, InputError
from glassformer.generation.decode import Chooser, Continuation, check_prompts, end_of_room
from glassformer.generation.options import Options
from glassformer.generation.sampling import Rules, best
from glassformer.generation.stepper import Logits, Piece, Scorer, SlottedStepper, Stepper


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One continuation of one prompt, and which log-probabilities to report with its tokens."""

    prompt: Sequence[int]
    options: Options
    choice: int = 0  # which of several continuations: random numbers depend on seed, choice and position
    ends: Collection[int] = ()
    known: int | None = None  # ids from here on have no token
    top: int = 0  # how many of the likeliest tokens
    named: Sequence[int] = ()  # and these tokens, whatever their rank
    score_prompt: bool = False  # also for every token of the prompt, behind those before it


class Scored(NamedTuple):
    """A token with log-probabilities of the model itself, before temperature and filters."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    named: tuple[float, ...] = ()


class Scores(NamedTuple):
    """The logits (N, V) of tokens that were read, the last ones of a text, and log Σ exp of each row."""

    logits: Logits
    totals: Sequence[float]


class StepOutput(NamedTuple):
    """What a step says about one text: its next token, its end, or what is wrong with it."""

    state: "RequestState"
    token: Scored | None = None
    finish: str | None = None  # "stop", "length", "context" or "cancelled"
    end: Scored | None = None  # the end token, which is not part of the text
    error: GlassError | None = None


@dataclass(eq=False)
class RequestState:
    """A text in a batch, or waiting for a slot."""

    request: GenerationRequest
    chooser: Chooser
    continuation: Continuation
    slot: int | None = None  # None: it waits
    read: int = 0  # how many of its tokens are in the slot
    cached: int = 0  # how many of its prompt were there already
    prompt_scores: list[Scored] = field(default_factory=list)  # of the second token and all behind it
    cancelled: bool = False

    @property
    def tokens(self) -> list[int]:
        """Prompt and continuation."""
        return [*self.request.prompt, *self.continuation.tokens]

    @property
    def unread(self) -> int:
        """How many of its tokens are still to be read."""
        return self.continuation.length - self.read

    def ahead(self, count: int) -> list[int]:
        """The next tokens that are to be read."""
        written = self.read - len(self.request.prompt)
        if written >= 0:  # nearly always: the whole text is not put together for its last token
            return self.continuation.tokens[written : written + count]
        return self.tokens[self.read : self.read + count]

    def cancel(self) -> None:
        """Leave the batch at the next step; another thread may call this."""
        self.cancelled = True


class Batch:
    """Texts that are written together, first come, first served. One thread uses it."""

    def __init__(self, model: Stepper, *, slots: int) -> None:
        self.model, self.slots = model, slots
        self.waiting: deque[RequestState] = deque()
        self.running: list[RequestState] = []

    def add(self, request: GenerationRequest) -> RequestState:
        """Take a text on; one that the model cannot continue is refused."""
        check_request(self.model, request)
        rules = Rules(request.options, frozenset(request.ends), request.known)
        chooser = Chooser(self.model.context, rules)
        state = RequestState(request, chooser, Continuation(0, request.choice, list(request.prompt)))
        self.waiting.append(state)
        return state

    def step(self) -> list[StepOutput]:
        """One step of all texts in the batch; what there is to report about each."""
        outputs = self._drop_cancelled()
        self._admit()
        for state, logits in self._read():
            try:
                outputs += self._outputs_of(state, logits)
            except Exception as error:  # of this text alone, whatever it is: the others go on
                reason = error if isinstance(error, GlassError) else GlassError(f"a step failed: {error!r}")
                outputs.append(StepOutput(state, error=reason))
                state.continuation.stop()
        self._free([one for one in self.running if one.continuation.finished])
        return outputs

    def fail(self, error: GlassError) -> list[StepOutput]:
        """Let go of all texts in the batch, after a step that failed; those who wait may still be served."""
        failed = [StepOutput(one, error=error) for one in self.running]
        self._free(list(self.running))
        return failed

    def _admit(self) -> None:
        """Give free slots to those who wait."""
        raise NotImplementedError

    def _read(self) -> list[tuple[RequestState, Scores]]:
        """Let the model read, and the scores that each text gets from it."""
        raise NotImplementedError

    def _drop_cancelled(self) -> list[StepOutput]:
        gone = [one for one in (*self.running, *self.waiting) if one.cancelled]
        self.waiting = deque(one for one in self.waiting if not one.cancelled)
        self._free([one for one in gone if one.slot is not None])
        return [StepOutput(one, finish="cancelled") for one in gone]

    def _free(self, states: Sequence[RequestState]) -> None:
        for one in states:
            one.slot = None
            self.running.remove(one)

    def _outputs_of(self, state: RequestState, found: Scores) -> list[StepOutput]:
        """The log-probabilities of the prompt's tokens that were read; the next token, if all are read."""
        one, request = state.continuation, state.request
        if request.score_prompt and not one.tokens:
            begin = state.read - len(found.logits)
            following = request.prompt[begin + 1 : state.read + 1]
            for id, raw, total in zip(following, found.logits, found.totals, strict=False):
                state.prompt_scores.append(scored(id, raw, log_total=total, request=request))
        if state.unread:
            return []
        if not state.chooser.room(one):
            one.stop()
            return [StepOutput(state, finish=end_of_room(0, request.options))]
        raw, total = found.logits[-1], found.totals[-1]
        event = state.chooser.advance(one, raw, log_total=total)
        token, end = (
            None if id is None else scored(id, raw, log_total=total, request=request)
            for id in (event.token, event.end)
        )
        return [StepOutput(state, token, event.finish, end)]


class Slots(Batch):
    """A batch on a model that reads pieces of several rows at once."""

    def __init__(self, model: SlottedStepper, *, slots: int, budget: int) -> None:
        """`budget` is the most tokens that a step reads: a long prompt must not keep the others waiting."""
        super().__init__(model, slots=slots)
        assert model.context is not None, "a model without a context has no cache to share"
        self.slotted, self.budget = model, max(budget, slots)
        self.cache: Any = model.new_cache(slots, model.context)
        self.kept: list[list[int]] = [[] for _ in range(slots)]  # the tokens in every slot

    def fail(self, error: GlassError) -> list[StepOutput]:
        """What their slots hold after a step that failed is not known."""
        for one in self.running:
            self.kept[one.slot or 0] = []
        return super().fail(error)

    def _admit(self) -> None:
        """Give free slots to those who wait, each the one in which most of its prompt was read already."""
        free = [slot for slot in range(len(self.kept)) if all(one.slot != slot for one in self.running)]
        while free and self.waiting:
            state = self.waiting.popleft()
            # Log-probabilities of the prompt need its logits, which no slot keeps.
            shared = [
                0 if state.request.score_prompt else common(self.kept[s], state.request.prompt) for s in free
            ]
            most = max(shared)
            # Of those that share nothing, an empty slot, or the one whose text is shortest: it is lost.
            slot = min(
                (slot for slot, count in zip(free, shared, strict=True) if count == most),
                key=lambda slot: len(self.kept[slot]),
            )
            free.remove(slot)
            # The last token is read again: its logits are what is needed next.
            state.slot, state.read = slot, min(most, len(state.request.prompt) - 1)
            state.cached = state.read
            self.running.append(state)

    def _plan(self) -> tuple[list[Piece], list[RequestState]]:
        """What the next step reads: one token of those who write, chunks of those who still read."""
        room = self.budget - sum(one.unread == 1 for one in self.running)
        pieces, writers = [], []
        for one in self.running:
            assert one.slot is not None
            count = one.unread
            if count > 1:
                count = min(count, room)
                room -= count
            if not count:
                continue
            whole = count == one.unread
            scored = count if one.request.score_prompt and not one.continuation.tokens else int(whole)
            pieces.append(Piece(one.slot, one.read, one.ahead(count), scored))
            writers.append(one)
        return pieces, writers

    def _read(self) -> list[tuple[RequestState, Scores]]:
        pieces, writers = self._plan()
        if not pieces:
            return []
        logits = self.slotted.step_pieces(pieces, self.cache)
        totals = self.model.log_sums(logits) if len(logits) else []
        found, first = [], 0
        for piece, state in zip(pieces, writers, strict=True):
            rows = slice(first, first + piece.scored)
            first += piece.scored
            self.kept[piece.row][piece.start :] = piece.ids
            state.read += len(piece.ids)
            found.append((state, Scores(logits[rows], totals[rows])))
        return found


class OneByOne(Batch):
    """A batch of one, on any model: the others wait until it is written."""

    def __init__(self, model: Scorer) -> None:
        super().__init__(model, slots=1)
        self.scorer = model
        self.cache: Any = None

    def _admit(self) -> None:
        if self.waiting and not self.running:
            state = self.waiting.popleft()
            state.slot, self.cache = 0, None
            self.running.append(state)

    def _read(self) -> list[tuple[RequestState, Scores]]:
        found = []
        for one in self.running:
            ids = np.array([one.tokens[one.read :]], dtype=np.int64)
            if self.cache is None:
                room = one.continuation.length + one.chooser.room(one.continuation)
                self.cache = self.model.new_cache(1, room)
            every = one.request.score_prompt and not one.continuation.tokens
            last = self.model.step(ids, self.cache)
            logits = self.scorer.logits(ids)[0] if every else last
            one.read += ids.shape[1]
            found.append((one, Scores(logits, self.model.log_sums(logits))))
        return found


def generate_alone(
    model: Scorer, request: GenerationRequest, *, is_cancelled: Callable[[], bool] = lambda: False
) -> Iterator[StepOutput]:
    """All outputs of one text, which is written alone, to its end."""
    batch = OneByOne(model)
    state = batch.add(request)
    while True:
        if is_cancelled():
            state.cancel()
        for output in batch.step():
            yield output
            if output.finish is not None or output.error is not None:
                return


def check_request(model: Stepper, request: GenerationRequest) -> None:
    """Refuse a text that the model cannot continue, or not in a batch."""
    check_prompts(model, [request.prompt], options=request.options)
    if request.options.num_beams > 1 or request.options.overflow != "stop":
        raise InputError("texts of a batch are written token by token, and stop at the end of the context")


def scored(id: int, raw: Logits, *, log_total: float, request: GenerationRequest) -> Scored:
    """A token with the log-probabilities that were asked for."""
    likeliest: tuple[tuple[int, float], ...] = ()
    if request.top:
        ids = best(raw, request.top)
        order = np.lexsort((ids, -raw[ids]))[: request.top]
        likeliest = tuple((int(ids[at]), float(raw[ids[at]]) - log_total) for at in order)
    named = tuple(float(raw[other]) - log_total for other in request.named)
    return Scored(id, float(raw[id]) - log_total, likeliest, named)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    length = min(len(one), len(other))
    for place in range(length):
        if one[place] != other[place]:
            return place
    return length
