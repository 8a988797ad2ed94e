"""From what a runner delivers to what a request gets: texts without half characters and stop strings, with
their log-probabilities, of one continuation or of several at once.
"""

import asyncio
import codecs
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from glassformer.server.errors import ApiError, QueueFull
from glassformer.server.logprobs import Entry, finite
from glassformer.server.metrics import Metrics
from glassformer.server.runner import AHEAD, GenerationRequest, Running, Scored, Token, token_size
from glassformer.server.served import Served
from glassformer.tokenizers import TextStream

RETRY = 0.05  # seconds until a request of several prompts asks for the next free place


@dataclass
class Part:
    """What became certain of one continuation."""

    index: int
    text: str = ""
    entries: list[Entry] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finish: str | None = None  # "stop" or "length"
    explain: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.text or self.entries or self.finish)


@dataclass(frozen=True, kw_only=True)
class Form:
    """How continuations become texts."""

    stops: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    echo: bool = False
    scored: bool = False  # with log-probabilities,
    top: int = 0  # and those of the likeliest tokens
    live: int = 0  # how many of the likeliest tokens a stream tells with each token
    keep_entries: bool = True  # a stream has sent them, and needs them no more


class Choice:
    """One continuation as it comes."""

    def __init__(
        self, served: Served, index: int, *, of: int, request: GenerationRequest, form: Form
    ) -> None:
        """The continuation number `index` of all, of the prompt number `of`."""
        self.served, self.index, self.of, self.request, self.form = served, index, of, request, form
        self.model = served.writer
        self.text, self.finish = "", ""
        self.tokens: list[int] = []  # without the one that ended it
        self.logprobs: list[float] = []
        self.entries: list[Entry] = []
        self.ids: list[int] = []  # all that were generated
        self.running: Running | None = None
        self.explain: dict[str, Any] | None = None
        self._stream = TextStream(self.model.bytes_of, form.stops, after=request.prompt[-1])
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._after = request.prompt[-1]
        self._offset = 0  # characters before the next token
        self._waiting: list[Entry] = []  # of tokens whose text is held back
        # What is echoed, until all of it was delivered.
        self._echo: str | None = self.model.text_of(request.prompt) if form.echo else None
        self._prompt_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._prompt_tokens = 0  # how many have their entry
        self._sent = 0  # how many ids were sent so far
        self._live: dict[str, list[Any]] = {}  # what is reported with each token, not yet sent

    @property
    def mean_logprob(self) -> float:
        """Per token; what `best_of` ranks by."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else 0.0

    @property
    def most_logprobs(self) -> int:
        """How many log-probabilities may be kept for the answer."""
        if not (self.form.scored and self.form.keep_entries):
            return 0
        prompt, new = len(self.request.prompt), self.request.options.max_new_tokens
        if self.served.context is not None:
            new = min(new, self.served.context - prompt)
        tokens = prompt + new if self.form.echo else new
        return tokens * (1 + self.form.top + len(self.request.named))

    def push(self, token: Token) -> Part:
        """What became certain with a token."""
        text = self._echoed(token)
        ends = self._take(token)
        if token.id is not None and not ends:
            text += self._stream.push(token.id)
        finish = self._finish(token, ends)
        if finish:
            text += self._stream.finish()
        self.text += text
        self.finish = finish

        entries = self._certain()
        if self.form.keep_entries:
            self.entries += entries
        part = Part(self.index, text, entries, self.ids[self._sent :], finish or None)
        if part:
            self._sent = len(self.ids)
            if self._live:
                part.explain, self._live = self._live, {}
        return part

    def _take(self, token: Token) -> bool:
        """Count a token; whether it is one that ends a text and is no part of it."""
        if token.id is None:
            return False
        self.ids.append(token.id)
        ends = token.id in self.form.stop_ids or (token.finish == "stop" and token.id in self.model.ends)
        if not ends:
            self.tokens.append(token.id)
            self.logprobs.append(token.logprob or 0.0)
        if self.form.live:
            self.report("top", self.candidates(token.top[: self.form.live]))
        if self.form.scored:
            entry = self._entry(token.id, token, after=self._after)
            self._waiting.append(entry)
            if not ends:
                self._offset += len(self._decoder.decode(entry.raw))
        self._after = token.id
        return ends

    def _finish(self, token: Token, ends: bool) -> str:
        if token.finish == "cancelled":
            raise ApiError(503, "the generation was ended by the server", headers={"Retry-After": "2"})
        if ends or self._stream.stopped or token.finish == "stop":
            return "stop"
        return "" if token.finish is None else "length"

    def _certain(self) -> list[Entry]:
        """The entries of tokens whose text was delivered; at the end, those of all but a stop string's."""
        if self.finish and not self._stream.stopped:
            found, self._waiting = self._waiting, []
            return found
        count = next((n for n, one in enumerate(self._waiting) if one.offset >= len(self.text)), None)
        if count is None:
            count = len(self._waiting)
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def report(self, name: str, about: Any) -> None:
        """Something about the next token, to be sent with it."""
        self._live.setdefault(name, []).append(about)

    def candidates(self, top: Iterable[tuple[int, float]]) -> list[dict[str, Any]]:
        """Tokens that might come next, and their log-probabilities, as the question `top` has them."""
        found = []
        for id, logprob in top:
            text = self.model.bytes_of(int(id), self._after).decode("utf-8", "replace")
            chance = {"probability": math.exp(logprob), "logprob": finite(float(logprob))}
            found.append({"token": int(id), "text": text, **chance})
        return found

    def begun_again(self) -> "Choice":
        """The same continuation before its first token, without the prompt and without scores."""
        request = replace(self.request, top=0, named=(), score_prompt=False)
        form = Form(stops=self.form.stops, stop_ids=self.form.stop_ids)
        return Choice(self.served, self.index, of=self.of, request=request, form=form)

    def _entry(self, id: int, scored: Any, *, after: int | None) -> Entry:
        """A token with its bytes, and those of the others that were scored."""

        def bytes_of(other: int) -> bytes:
            return self.model.bytes_of(other, after)

        top = tuple((other, bytes_of(other), logprob) for other, logprob in scored.top[: self.form.top])
        named = tuple(
            (other, bytes_of(other), logprob)
            for other, logprob in zip(self.request.named, scored.named, strict=False)
        )
        # The same float wherever a token is listed: clients look whether it was the likeliest by equality.
        logprob = dict(scored.top).get(id, scored.logprob)
        return Entry(id, bytes_of(id), self._offset, logprob, top, named)

    def _echoed(self, token: Token) -> str:
        """What is echoed of the prompt with a token, or with the scores of a part of the prompt."""
        if self._echo is None:
            return ""
        whole, begin = self._echo, len(self.text)
        if self.form.scored:
            if not self._prompt_tokens:
                self._add_prompt_entry(None)
            for one in token.prompt:
                self._add_prompt_entry(one)
        if token.prompt:  # more follows, at least a token
            return whole[begin : self._offset]
        self._echo, self._offset = None, len(whole)
        return whole[begin:]

    def _add_prompt_entry(self, scored: Scored | None) -> None:
        """The entry of the prompt's next token; the first has no score, as it is behind nothing."""
        at = self._prompt_tokens
        prompt = self.request.prompt
        after = prompt[at - 1] if at else None
        if scored is None:
            entry = Entry(prompt[at], self.model.bytes_of(prompt[at], after), self._offset, None)
        else:
            entry = self._entry(scored.id, scored, after=after)
        self._waiting.append(entry)
        self._offset += len(self._prompt_decoder.decode(entry.raw))
        self._prompt_tokens += 1


Explainer = Callable[[Choice], Awaitable[dict[str, Any]]]
Live = Callable[[Choice, int], Awaitable[Any]]
Submit = Callable[[GenerationRequest], Running]


class Writing:
    """All continuations of one request."""

    def __init__(
        self,
        served: Served,
        choices: list[Choice],
        *,
        metrics: Metrics,
        submit: Submit | None = None,
        explain: Explainer | None = None,
        live_lens: Live | None = None,
    ) -> None:
        self.served, self.choices, self.metrics = served, choices, metrics
        self.submit, self.by_torch = submit or served.writing.submit, submit is not None
        self.explain, self.live_lens = explain, live_lens
        self.deadline = time.monotonic() + served.settings.longest
        # How many of them are written at a time: what each may be ahead of its reader is a part of the whole.
        fitting = AHEAD // token_size(choices[0].request)
        self.parallel = max(1, min(served.writing.slots, len(choices), fitting))
        self._phase = "queue"
        self._ended = False

    def start(self) -> None:
        """Refuse what cannot be done, and take the first place: from now on nothing is refused."""
        for choice in self.choices:
            self.served.writing.check(choice.request)
        self.choices[0].running = self._submit(self.choices[0].request)

    def _submit(self, request: GenerationRequest) -> Running:
        """Take a place for one continuation."""
        running = self.submit(request)
        running.ahead = AHEAD // self.parallel
        return running

    def cancel(self) -> None:
        """End whatever still runs; its slots are free within two steps."""
        unfinished = [choice for choice in self.choices if not choice.finish]
        if self._ended:
            return
        self._ended = True
        for choice in unfinished:
            if choice.running is not None:
                choice.running.cancel()
        if unfinished:
            begun = any(one.running is not None and not one.running.waits for one in self.choices)
            phase = "prefill" if self._phase == "queue" and begun else self._phase
            self.metrics.count("cancelled_total", model=self.served.id, phase=phase)

    async def parts(self) -> AsyncIterator[Part]:
        """What became certain, of whichever continuation."""
        several = self._merged() if len(self.choices) > 1 else self._parts_of(self.choices[0])
        try:
            async for part in several:
                yield part
        finally:
            await several.aclose()  # type: ignore[attr-defined]

    async def finish(self) -> None:
        """Everything to its end."""
        try:
            async for _ in self.parts():
                pass
        finally:
            self.cancel()

    async def _parts_of(self, choice: Choice) -> AsyncIterator[Part]:
        running = choice.running or await self._place(choice.request)
        choice.running = running
        tokens = aiter(running)
        clock = self.metrics.clock(self.served.id)
        # One timer for a text, not one for each of its tokens: those would take longer than their JSON.
        loop, settings = asyncio.get_running_loop(), self.served.settings
        end = loop.call_later(self.deadline - time.monotonic(), running.fail, self._too_long())
        turn = loop.call_later(settings.patience, self._check_turn, running)
        try:
            while not choice.finish:
                token = await anext(tokens)
                turn.cancel()
                if not token.prompt:
                    self._phase = "decode"
                    clock.token()
                if self.live_lens is not None and token.id is not None:
                    choice.report("lens", await self.live_lens(choice, token.id))
                part = choice.push(token)
                if choice.finish:
                    if token.finish is None:  # a stop string: the runner does not know of it
                        running.cancel()
                    clock.finish(running, prompt=len(choice.request.prompt), reason=choice.finish)
                    await self._explain(choice, part)
                if part:
                    yield part
        finally:
            turn.cancel()
            end.cancel()

    async def _explain(self, choice: Choice, part: Part) -> None:
        """Answer the questions about a text that is written, if there are any, in the time that is left."""
        if self.explain is None:
            return
        self._phase = "insides"
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                choice.explain = await self.explain(choice)
        except TimeoutError:
            raise self._too_long() from None
        part.explain = (part.explain or {}) | choice.explain

    def _too_long(self) -> ApiError:
        message = f"the request took longer than {self.served.settings.longest:g} seconds"
        return ApiError(503, message, headers={"x-should-retry": "false"})

    def _check_turn(self, running: Running) -> None:
        """Give up a text that still waits for its turn; one whose prompt is being read may take longer."""
        if running.waits:
            message = f"the request waited longer than {self.served.settings.patience:g} seconds for its turn"
            running.fail(ApiError(503, message, headers={"Retry-After": "5"}))

    async def _place(self, request: GenerationRequest) -> Running:
        """Wait for a place in the queue: the request as a whole has one already."""
        while True:
            try:
                return self._submit(request)
            except QueueFull:
                if time.monotonic() > self.deadline:
                    raise
                await asyncio.sleep(RETRY)

    async def _merged(self) -> AsyncIterator[Part]:
        """The parts of all continuations as they come, some of them at a time."""
        gate = asyncio.Semaphore(self.parallel)
        arrived: asyncio.Queue[Part | Exception | None] = asyncio.Queue(1)  # what waits is held back before

        async def pump(choice: Choice) -> None:
            try:
                async with gate:
                    async for part in self._parts_of(choice):
                        await arrived.put(part)
                await arrived.put(None)
            except Exception as error:
                await arrived.put(error)

        tasks = [asyncio.create_task(pump(choice)) for choice in self.choices]
        try:
            left = len(tasks)
            while left:
                part = await arrived.get()
                if isinstance(part, Exception):
                    raise part
                if part is None:
                    left -= 1
                else:
                    yield part
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def usage(self) -> dict[str, Any]:
        """Tokens: every prompt once, an end token too."""
        prompts: dict[int, int] = {}
        cached: dict[int, int] = {}
        for choice in self.choices:
            prompts[choice.of] = len(choice.request.prompt)
            if choice.running is not None:  # of the first one: others go on from what it has read
                cached.setdefault(choice.of, choice.running.cached_tokens)
        prompt, completion = sum(prompts.values()), sum(len(choice.ids) for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(cached.values())},
        }

    def timing(self) -> dict[str, str]:
        """The header `Server-Timing`, in milliseconds: of several texts the longest of each phase."""
        found = [choice.running.timings for choice in self.choices if choice.running is not None]
        phases = ("queue", "prefill", "decode")
        longest = {phase: max((getattr(one, phase) for one in found), default=0.0) for phase in phases}
        return {"Server-Timing": ", ".join(f"{name};dur={1000 * took:.1f}" for name, took in longest.items())}


def best_of(choices: list[Choice], *, n: int, each: int) -> list[Choice]:
    """Of every prompt's continuations the n whose tokens were likeliest, numbered anew."""
    found: list[Choice] = []
    for start in range(0, len(choices), each):
        group = sorted(choices[start : start + each], key=lambda one: -one.mean_logprob)
        found += group[:n]
    for index, choice in enumerate(found):
        choice.index = index
    return found


def choices_for(
    served: Served, prompts: list[tuple[int, ...]], *, each: int, request: GenerationRequest, form: Form
) -> list[Choice]:
    """Every continuation: the n of the first prompt, then those of the second, and so on."""
    found = []
    for of, prompt in enumerate(prompts):
        for k in range(each):
            one = replace(request, prompt=prompt, choice=k)
            found.append(Choice(served, of * each + k, of=of, request=one, form=form))
    return found
