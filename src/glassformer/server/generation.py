"""What completions, chats and responses share: from the fields of a request to continuations."""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.generation.sampling import BrokenLogits
from glassformer.server.errors import invalid, late_error
from glassformer.server.explain import Asked, Explainer, LayersOfTokens, parse
from glassformer.server.lane import Inside
from glassformer.server.runner import GenerationRequest, Running
from glassformer.server.schemas import Generation, Sampling
from glassformer.server.served import Served
from glassformer.server.sse import DONE, EventStream, PiecewiseJSON, dumps, event
from glassformer.server.state import State, unless_gone
from glassformer.server.writing import Choice, Form, Part, Writing, choices_for

BAN = -1e4  # what a bias of -100 means: never
MOST_CONTINUATIONS = 256  # prompts × n of one request
MOST_LOGPROBS = 400_000  # of one answer that is not streamed: about 50 MB while it is put together


def sampling_of(body: Sampling) -> dict[str, Any]:
    """The options that a request gives; those that it leaves out are the model's own."""
    penalties = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    names = ("temperature", "top_p", "min_p", "typical_p", *penalties)
    given = {name: getattr(body, name, None) for name in names}
    if body.top_k is not None:
        given["top_k"] = max(0, body.top_k)  # -1 means "all" to other servers
    seed = int.from_bytes(os.urandom(4)) if body.seed is None else body.seed
    given["seed"] = seed % (1 << 64)
    return {name: value for name, value in given.items() if value is not None}


def options_of(served: Served, body: Generation, *, max_tokens: int) -> Options:
    """How the tokens of a request are chosen."""
    given = sampling_of(body)
    given["max_new_tokens"] = max_tokens
    given["min_new_tokens"] = max_tokens if body.ignore_eos else min(body.min_tokens or 0, max_tokens)
    if body.logit_bias:
        biases = {int(id): bias for id, bias in body.logit_bias.items()}
        served.check_ids(list(biases), param="logit_bias")
        given["logit_bias"] = {id: BAN if bias == -100 else bias for id, bias in biases.items()}
    return served.writer.options(**given, num_beams=1, num_return_sequences=1, prompt_lookup_num_tokens=0)


def stops_of(body: Generation) -> tuple[str, ...]:
    """The stop strings."""
    if body.stop is None:
        return ()
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)


def named_of(served: Served, body: Generation) -> tuple[int, ...]:
    """The tokens whose log-probabilities are asked for by name."""
    ids = list(body.logprob_token_ids or ())
    served.check_ids(ids, param="logprob_token_ids")
    for text in body.logprob_tokens or ():
        found = served.tokenizer.encode(text)
        if len(found) != 1:
            raise invalid("logprob_tokens", f"{text[:40]!r} is {len(found)} tokens of {served.id}, not one")
        ids += found
    return tuple(ids)


def rest_of_context(served: Served, prompt: Sequence[int]) -> int:
    """How many tokens may follow a prompt, if a request does not say."""
    if served.context is None:
        return Options().max_new_tokens
    return served.context - len(prompt)


def check_generation(body: Generation) -> None:
    """Refuse fields that do not go together."""
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "is only for `stream: true`")


def from_page(request: Request) -> bool:
    """Whether a person waits for the answer, at the studio's page: those go before programs."""
    return request.headers.get("sec-fetch-site") == "same-origin"


async def check_edits(served: Served, body: Generation) -> None:
    """Refuse edits that cannot be made, before a stream begins. Reading them runs the model, in its lane."""
    if not body.edits:
        return
    edits = body.edits

    def work() -> None:
        with served.writer.edit(edits):
            pass

    try:
        await served.lane.run(work)
    except InputError as error:
        raise invalid("edits", str(error)) from None


def prepare(
    state: State,
    body: Generation,
    *,
    served: Served,
    prompts: list[tuple[int, ...]],
    each: int,
    request: GenerationRequest,
    form: Form,
) -> Writing:
    """Everything checked, and the first place taken."""
    if len(prompts) * each > MOST_CONTINUATIONS:
        raise invalid("prompt", f"prompts × n may be at most {MOST_CONTINUATIONS}, not {len(prompts) * each}")
    served.check_ids(body.stop_token_ids or (), param="stop_token_ids")
    asked = None if body.explain is None else parse(served, body.explain)
    if asked is not None:
        _check_asked(asked, body)
    live = asked.live if asked is not None and body.stream else 0
    if asked is not None and live:
        asked = asked.without("top")
        request, form = replace(request, top=max(request.top, live)), replace(form, live=live)
    choices = choices_for(served, prompts, each=each, request=request, form=form)
    check_size(choices)
    inside = _inside(served, body)
    explain, lens = None, None
    if asked is not None and asked.live_lens:
        lens = LayersOfTokens(served, k=asked.live_lens, inside=inside)
        asked = asked.without("lens")
    if asked is not None:
        explain = Explainer(
            metrics=state.metrics,
            traces=state.traces,
            served=served,
            asked=asked,
            inside=inside,
            edits=body.edits or (),
        )
    submit = None if inside is None else _by_torch(served, inside)
    writing = Writing(served, choices, metrics=state.metrics, submit=submit, explain=explain, live_lens=lens)
    writing.start()
    return writing


def check_size(choices: list[Choice]) -> None:
    """Refuse an answer whose log-probabilities would fill the memory before it is sent."""
    found = sum(choice.most_logprobs for choice in choices)
    if found > MOST_LOGPROBS:
        message = (
            f"an answer has at most {MOST_LOGPROBS:,} log-probabilities, and this one could have {found:,};"
            " ask for a stream, or for less at a time"
        )
        raise invalid("logprobs", message)


def _check_asked(asked: Asked, body: Generation) -> None:
    """Refuse questions that the rest of a request gives no sense."""
    if asked.live_lens and not body.stream:
        raise invalid("explain.lens.live", "is only for `stream: true`")
    if asked.plain and not body.edits:
        raise invalid("explain.plain", "is the text without edits, and the request has none")


def _inside(served: Served, body: Generation) -> Inside | None:
    """What a request by torch runs inside of; None for the engine."""
    if body.edits:
        edits = body.edits
        return lambda: _edited(served, edits)
    return served.writer.in_torch if body.engine == "torch" else None


@contextmanager
def _edited(served: Served, edits: list[Any]) -> Iterator[None]:
    """Inside of edits. What only shows when the model runs, such as NaN, is their mistake too."""
    try:
        with served.writer.edit(edits):
            yield
    except (InputError, BrokenLogits) as error:
        raise invalid("edits", str(error)) from None


def _by_torch(served: Served, inside: Inside) -> Callable[[GenerationRequest], Running]:
    return lambda request: served.lane.generate(served.writer, request, inside=inside)


class Shape:
    """How one endpoint writes its objects: whole, or chunk by chunk."""

    def __init__(self, writing: Writing, body: Generation) -> None:
        self.writing, options = writing, body.stream_options
        self.include_usage = bool(options and options.include_usage)
        self.continuous = bool(options and options.continuous_usage_stats)

    def whole(self) -> dict[str, Any]:
        """The object of a request that is not streamed."""
        raise NotImplementedError

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk of a stream."""
        raise NotImplementedError

    def first(self) -> list[dict[str, Any]]:
        """What a stream begins with: chunks' choices."""
        return []

    def parts(self, part: Part) -> list[dict[str, Any]]:
        """A part as the choices of one chunk, or of several in a row."""
        raise NotImplementedError

    def made(self, choices: list[dict[str, Any]]) -> bytes:
        """A chunk as an event; usage where it is asked for."""
        if self.continuous:
            return event(self.chunk(choices) | {"usage": self.writing.usage()})
        head, tail = self._frame
        return head + dumps(choices).encode("utf-8", "replace") + tail

    @cached_property
    def _frame(self) -> tuple[bytes, bytes]:
        """What is before and behind the choices of every event: the same in all of them."""
        usage = {"usage": None} if self.include_usage else {}
        head, _, tail = event(self.chunk([]) | usage).rpartition(b'"choices":[]')
        return head + b'"choices":', tail

    async def events(self) -> AsyncIterator[bytes]:
        """All events of a stream; an error after its beginning is one too."""
        try:
            for choice in self.first():
                yield self.made([choice])
            async for part in self.writing.parts():
                for choice in self.parts(part):
                    yield self.made([choice])
            if self.include_usage:
                yield event(self.chunk([]) | {"usage": self.writing.usage()})
        except Exception as error:
            yield event(late_error(error).body)
        finally:
            self.writing.cancel()
        yield DONE


def notes_of(request: Request, body: Sampling, *, model: str) -> dict[str, Any]:
    """What the log says of a request; fields that nothing here reads are named in it."""
    notes: dict[str, Any] = request.scope["state"]["notes"]
    notes["model"] = model
    if body.unknown:
        notes["unknown"] = [name[:40] for name in body.unknown[:20]]
    return notes


async def respond(state: State, request: Request, shape: Shape, *, body: Generation) -> Response:
    """The answer, streamed or whole."""
    settings, writing = state.settings, shape.writing
    notes = notes_of(request, body, model=writing.served.id)
    if body.stream:
        return EventStream(
            logged(shape.events(), writing, notes=notes),
            ping=settings.ping,
            close=writing.cancel,
        )
    await unless_gone(request, writing.finish())
    whole = shape.whole()
    note(writing, notes)
    how = JSONResponse if body.explain is None else PiecewiseJSON  # insides may be megabytes
    return how(whole, headers=writing.timing())


def note(writing: Writing, notes: dict[str, Any]) -> None:
    """What the log says of a generation; never its text, unless that is asked for."""
    notes |= writing.usage()
    if writing.served.settings.log_text:
        notes["prompt"] = [choice.model.text_of(choice.request.prompt) for choice in writing.choices]
        notes["text"] = [choice.text for choice in writing.choices]


async def logged(
    events: AsyncIterator[bytes], writing: Writing, *, notes: dict[str, Any]
) -> AsyncIterator[bytes]:
    """The same events; at their end, the log learns how many tokens there were."""
    try:
        async for one in events:
            yield one
    finally:
        await events.aclose()  # type: ignore[attr-defined]
        note(writing, notes)
