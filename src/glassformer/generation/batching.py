"""Continuous batching: texts join a running batch and leave it between two steps.

A batch has slots, rows of one cache. In every step each text that is being written reads its last token, and
texts that are still being read take chunks of what is left of the step's budget. A slot remembers what was
read in it: a text that begins alike goes on from there, in that slot if it is free, else in a copy. A text
may be paused, and leaves its slot to another one then. None of this changes a bit of any text: see
`SlottedStepper`.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassformer.errors import GlassError, InputError
from glassformer.generation.decode import Chooser, Continuation, check_prompts, end_of_room
from glassformer.generation.options import Options
from glassformer.generation.sampling import Rules, best
from glassformer.generation.stepper import Logits, Piece, Scorer, SlottedStepper, Stepper

STEP_SECONDS = 0.05  # that a step takes at most, about, while texts wait for their next token
LEAST_CHUNK = 16  # tokens of prompts that a step reads all the same
WORTH_WAITING = 32  # tokens that another text is reading just now, which need not be read twice
MOST_PROMPT_SCORES = 1 << 14  # numbers that one step reports about a prompt: 64 kB


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
    salt: str = ""  # texts of another salt do not share what was read
    first: bool = False  # goes before others that wait

    @property
    def numbers(self) -> int:
        """How many numbers are reported with a token of the prompt, ids included."""
        return 2 + 2 * self.top + len(self.named)


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


class PromptScores(Sequence[Scored]):
    """The scores of some tokens of a prompt, in arrays: as tuples they would take ten times the memory."""

    def __init__(self, ids: Sequence[int], found: Scores, *, request: GenerationRequest) -> None:
        """`ids` are the tokens that follow those whose logits were found."""
        count, k = len(ids), min(request.top, found.logits.shape[-1])
        logits = found.logits[:count]
        top = [_likeliest(row, request.top) for row in logits]
        self.ids = np.array(ids, dtype=np.int32)  # (N,)
        self.raw = logits[np.arange(count), self.ids].astype(np.float32)  # (N,)
        self.top = np.array(top, dtype=np.int32).reshape(count, k)  # (N, k)
        self.top_raw = np.take_along_axis(logits, self.top, axis=1)  # (N, k)
        self.named = logits[:, list(request.named)]  # (N, M)
        self.totals = np.array(found.totals[:count], dtype=np.float64)  # (N,)

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        return sum(one.nbytes for one in vars(self).values())

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        total = float(self.totals[at])
        pairs = zip(self.top[at], self.top_raw[at], strict=True)
        top = tuple((int(id), float(raw) - total) for id, raw in pairs)
        named = tuple(float(raw) - total for raw in self.named[at])
        return Scored(int(self.ids[at]), float(self.raw[at]) - total, top, named)


class StepOutput(NamedTuple):
    """What a step says about one text: its next token, its end, or what is wrong with it."""

    state: "RequestState"
    token: Scored | None = None
    finish: str | None = None  # "stop", "length", "context" or "cancelled"
    end: Scored | None = None  # the end token, which is not part of the text
    error: GlassError | None = None
    prompt: PromptScores | None = None  # of tokens of the prompt that were read, from its second token on


@dataclass(eq=False)
class RequestState:
    """A text in a batch, or waiting for a slot."""

    request: GenerationRequest
    chooser: Chooser
    continuation: Continuation
    slot: int | None = None  # None: it waits
    read: int = 0  # how many of its tokens are in the slot
    scored: int = 0  # how many tokens of the prompt were read for their scores
    cached: int | None = None  # how many of its prompt were there already; None: it never had a slot
    paused: bool = False  # no token is computed; its slot may be given to another text
    cancelled: bool = False

    @property
    def tokens(self) -> list[int]:
        """Prompt and continuation."""
        return [*self.request.prompt, *self.continuation.tokens]

    @property
    def unread(self) -> int:
        """How many of its tokens are still to be read."""
        return self.continuation.length - self.read

    @property
    def scoring(self) -> bool:
        """Whether its prompt is read for the scores of its tokens."""
        return self.request.score_prompt and not self.continuation.tokens

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
    """Texts that are written together, first come, first served; `first` ones before all others. One thread
    uses it.
    """

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
        before = sum(one.request.first for one in self.waiting) if request.first else len(self.waiting)
        self.waiting.insert(before, state)
        return state

    def step(self) -> list[StepOutput]:
        """One step of all texts in the batch; what there is to report about each. If the model fails, that is
        what is reported, and those who wait may still be served.
        """
        outputs = self._drop_cancelled()
        self._admit()
        try:
            read = self._read()
        except Exception as error:
            return [*outputs, *self.fail(_reason(error))]
        for state, logits in read:
            try:
                outputs += self._outputs_of(state, logits)
            except Exception as error:  # of this text alone, whatever it is: the others go on
                outputs.append(StepOutput(state, error=_reason(error)))
                state.continuation.stop()
        self._free([one for one in self.running if one.continuation.finished])
        return outputs

    def fail(self, error: GlassError) -> list[StepOutput]:
        """Let go of all texts in the batch, after a step that failed."""
        return self.drop(list(self.running), error)

    def drop(self, states: Sequence[RequestState], error: GlassError) -> list[StepOutput]:
        """Let go of some texts, with the reason."""
        for one in states:
            if one in self.waiting:
                self.waiting.remove(one)
        self._free([one for one in states if one.slot is not None])
        return [StepOutput(one, error=error) for one in states]

    @property
    def can_step(self) -> bool:
        """Whether a step would do anything."""
        raise NotImplementedError

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
        prompt = None
        if state.scoring:
            begin = state.read - len(found.logits)
            following = request.prompt[begin + 1 : state.read + 1]
            prompt = PromptScores(following, found, request=request)
            state.scored = max(state.scored, state.read)  # after a pause, some is read again
        if state.unread:
            return [StepOutput(state, prompt=prompt)] if prompt else []
        if not state.chooser.room(one):
            one.stop()
            return [StepOutput(state, finish=end_of_room(0, request.options), prompt=prompt)]
        raw, total = found.logits[-1], found.totals[-1]
        event = state.chooser.advance(one, raw, log_total=total)
        token, end = (
            None if id is None else scored(id, raw, log_total=total, request=request)
            for id in (event.token, event.end)
        )
        return [StepOutput(state, token, event.finish, end, prompt=prompt)]


class Slots(Batch):
    """A batch on a model that reads pieces of several rows at once."""

    def __init__(self, model: SlottedStepper, *, slots: int, budget: int) -> None:
        """`budget` is the most tokens that a step reads; fewer while texts are written, which a long prompt
        must not keep waiting.
        """
        super().__init__(model, slots=slots)
        assert model.context is not None, "a model without a context has no cache to share"
        self.slotted, self.budget = model, max(budget, slots)
        self.cache: Any = model.new_cache(slots, model.context)
        self.kept: list[list[int]] = [[] for _ in range(slots)]  # the tokens in every slot
        self.salts = [""] * slots  # of the texts that they are from
        self._speed = 0.0  # tokens a second, of steps that read prompts; 0: not known yet

    def fail(self, error: GlassError) -> list[StepOutput]:
        """What their slots hold after a step that failed is not known."""
        for one in self.running:
            self.kept[one.slot or 0] = []
        return super().fail(error)

    @property
    def can_step(self) -> bool:
        """Unless all texts are paused: one that is not takes the slot of one that is."""
        return any(one.cancelled or not one.paused for one in (*self.running, *self.waiting))

    def _admit(self) -> None:
        """Give slots to those who wait, each the one in which most of its tokens were read already."""
        ready = [one for one in self.waiting if not one.paused]
        self._preempt(len(ready))
        taken = {one.slot for one in self.running}
        free = [slot for slot in range(self.slots) if slot not in taken]
        for state in ready[: 2 * self.slots]:  # looking at all of many would take long
            if not free:
                break
            shared = [self._shared(slot, state, self.kept[slot]) for slot in range(self.slots)]
            if self._better_soon(state, shared):
                continue  # those behind it may go first: it will be the quicker for it
            self.waiting.remove(state)
            most = max(shared[slot] for slot in free)
            # Of those that share as much, an empty slot, or the one whose text is shortest: it is lost.
            slot = min((one for one in free if shared[one] == most), key=lambda one: len(self.kept[one]))
            free.remove(slot)
            self._take(slot, state, shared)

    def _take(self, slot: int, state: RequestState, shared: Sequence[int]) -> None:
        """Start a request in a slot, from its longest cached prefix, copied if that is in another slot."""
        if self.salts[slot] != state.request.salt:
            self.salts[slot], self.kept[slot] = state.request.salt, []
        source = max(range(self.slots), key=lambda one: (shared[one], one == slot))
        if source != slot:
            self.cache.copy_row(source, slot, length=shared[source])
            self.kept[slot] = self.kept[source][: shared[source]]
        state.slot, state.read = slot, shared[source]
        state.cached = shared[source] if state.cached is None else state.cached
        self.running.append(state)

    def _shared(self, slot: int, state: RequestState, tokens: Sequence[int]) -> int:
        """How many tokens of a text need not be read again, if a slot has these."""
        if self.salts[slot] != state.request.salt:
            return 0
        # Log-probabilities of the prompt need its logits, which no slot keeps. Otherwise only the last token
        # is read again: its logits are what is needed next.
        most = state.scored if state.scoring else state.continuation.length - 1
        return min(most, common(tokens, state.tokens))

    def _better_soon(self, state: RequestState, shared: Sequence[int]) -> bool:
        """Whether another text is reading what this one begins with, and much of it."""
        reading = [one for one in self.running if one.unread > 1 and not one.paused and not one.cancelled]
        soon = max((self._shared(one.slot or 0, state, one.tokens) for one in reading), default=0)
        slots = {one.slot for one in reading}
        elsewhere = max((found for slot, found in enumerate(shared) if slot not in slots), default=0)
        return soon > max(shared) and soon >= elsewhere + WORTH_WAITING

    def _preempt(self, wanted: int) -> None:
        """Take slots from paused texts, if more are wanted than are free; what was read stays there."""
        missing = wanted - (self.slots - len(self.running))
        for one in [one for one in self.running if one.paused][: max(0, missing)]:
            self._free([one])
            self.waiting.appendleft(one)  # it came before all others that wait

    def _plan(self) -> tuple[list[Piece], list[RequestState]]:
        """What the next step reads: one token of those who write, chunks of those who still read."""
        active = [one for one in self.running if not one.paused]
        room = self._room(active)
        pieces, writers = [], []
        for one in active:
            assert one.slot is not None
            count = one.unread
            if count > 1:
                count = min(count, room)
                if one.scoring:
                    count = min(count, max(1, MOST_PROMPT_SCORES // one.request.numbers))
                room -= count
            if not count:
                continue
            scored = int(count == one.unread)
            if one.scoring:  # what was scored before it was paused is not scored again
                scored = max(0, one.read + count - one.scored)
            pieces.append(Piece(one.slot, one.read, one.ahead(count), scored))
            writers.append(one)
        return pieces, writers

    def _room(self, active: Sequence[RequestState]) -> int:
        """How many tokens of prompts the next step may read."""
        written = sum(one.unread == 1 for one in active)
        room = self.budget - written
        if written and self._speed:
            room = min(room, max(LEAST_CHUNK, int(STEP_SECONDS * self._speed) - written))
        return room

    def _learn_speed(self, pieces: Sequence[Piece], seconds: float) -> None:
        """From a step that read a part of a prompt. Its time is not quite proportional to its tokens, but the
        next step is nearer to the time that it may take.
        """
        tokens = sum(len(piece.ids) for piece in pieces)
        if tokens >= len(pieces) + LEAST_CHUNK - 1 and seconds > 0:
            speed = tokens / seconds
            self._speed = (self._speed + speed) / 2 if self._speed else speed

    def _read(self) -> list[tuple[RequestState, Scores]]:
        pieces, writers = self._plan()
        if not pieces:
            return []
        begun = time.perf_counter()
        logits = self.slotted.step_pieces(pieces, self.cache)
        self._learn_speed(pieces, time.perf_counter() - begun)
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

    @property
    def can_step(self) -> bool:
        """A paused text keeps its place: to read it again would change its last bits."""
        next_one = self.running or self.waiting
        cancelled = any(one.cancelled for one in (*self.running, *self.waiting))
        return cancelled or any(not one.paused for one in next_one)

    def _admit(self) -> None:
        if self.waiting and not self.running:
            state = self.waiting.popleft()
            state.slot, state.cached, self.cache = 0, 0, None
            self.running.append(state)

    def _read(self) -> list[tuple[RequestState, Scores]]:
        found = []
        for one in self.running:
            if one.paused:
                continue
            ids = np.array([one.tokens[one.read :]], dtype=np.int64)
            if self.cache is None:
                room = one.continuation.length + one.chooser.room(one.continuation)
                self.cache = self.model.new_cache(1, room)
            last = self.model.step(ids, self.cache)
            logits = self.scorer.logits(ids)[0] if one.scoring else last
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


def _reason(error: Exception) -> GlassError:
    return error if isinstance(error, GlassError) else GlassError(f"a step failed: {error!r}")


def check_request(model: Stepper, request: GenerationRequest) -> None:
    """Refuse a text that the model cannot continue, or not in a batch."""
    check_prompts(model, [request.prompt], options=request.options)
    if request.options.num_beams > 1 or request.options.overflow != "stop":
        raise InputError("texts of a batch are written token by token, and stop at the end of the context")


def scored(id: int, raw: Logits, *, log_total: float, request: GenerationRequest) -> Scored:
    """A token with the log-probabilities that were asked for."""
    likeliest = tuple((int(id), float(raw[id]) - log_total) for id in _likeliest(raw, request.top))
    named = tuple(float(raw[other]) - log_total for other in request.named)
    return Scored(id, float(raw[id]) - log_total, likeliest, named)


def _likeliest(raw: Logits, count: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The ids of the largest logits, the largest first, of equals the lower id."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    ids = best(raw, count)
    return np.asarray(ids[np.lexsort((ids, -raw[ids]))[:count]])


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    same, step = 0, 1
    length = min(len(one), len(other))
    while same < length and step:  # whole pieces are compared at once: token by token would take longer
        if one[same : same + step] == other[same : same + step]:
            same, step = min(length, same + step), 2 * step
        else:
            step //= 2
    return same
