"""`POST /v1/chat/completions`: a conversation, written down as a text that the model continues.

These models were trained to continue texts, and know no roles. A conversation becomes a plain transcript:

    Be brief.

    User: Hello!
    Assistant: Hi.
    User: How are you?
    Assistant:

and the answer ends where the next `User:` would begin. DialoGPT has learned conversations in another form:
turns without names, each ended by `<|endoftext|>`. A model's own chat template is a program, and is never
executed.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from glassformer.server import logprobs
from glassformer.server.errors import invalid
from glassformer.server.generation import (
    Shape,
    check_edits,
    check_generation,
    from_page,
    named_of,
    options_of,
    prepare,
    respond,
    rest_of_context,
    stops_of,
)
from glassformer.server.runner import GenerationRequest
from glassformer.server.schemas import ChatRequest, Message, Part
from glassformer.server.served import Served
from glassformer.server.state import State, fingerprint
from glassformer.server.writing import Choice, Form, Writing
from glassformer.server.writing import Part as Piece

NAMES = {"user": "User", "assistant": "Assistant"}
NEXT_TURN = "\nUser:"
TEXT_PARTS = ("text", "input_text", "output_text")
NOT_OFFERED = ("tools", "functions", "audio", "prediction", "web_search_options")


def content_of(content: str | Sequence[Part] | None, *, param: str) -> str:
    """The text of a message: a string, or text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in TEXT_PARTS or part.text is None:
            raise invalid(param, f"only text parts are read here, not {part.type[:40]!r}")
    return "".join(part.text or "" for part in content)


def transcript(turns: Sequence[tuple[str, str]]) -> str:
    """A conversation as a text that the assistant's next words continue."""
    lines = []
    for role, text in turns:
        name = NAMES.get(role)
        lines.append(f"{text.strip()}\n\n" if name is None else f"{name}: {text.strip()}\n")
    return "".join(lines) + "Assistant:"


def turns_of(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Roles and texts."""
    return [
        (one.role, content_of(one.content, param=f"messages[{at}].content"))
        for at, one in enumerate(messages)
    ]


async def prompt_of(served: Served, turns: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    """The ids of a conversation, in the form that suits the model."""
    if not served.turns:
        return await served.encode(transcript(turns), param="messages")
    end = served.tokenizer.end
    ids: list[int] = []
    for role, text in turns:
        if role in NAMES and text and end is not None:
            ids += [*await served.encode(text, param="messages"), end]
    return served.fitting(ids or served.model.encode(""))


def own_stops(served: Served) -> tuple[str, ...]:
    """Where an answer ends, in the form that suits the model."""
    return () if served.turns else (NEXT_TURN,)


class Chat(Shape):
    """The objects `chat.completion` and `chat.completion.chunk`."""

    def __init__(self, writing: Writing, body: ChatRequest) -> None:
        super().__init__(writing, body)
        self.scored = writing.choices[0].form.scored
        self.ids = bool(body.return_token_ids)
        self.about = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": writing.served.id,
            "system_fingerprint": fingerprint(writing.served, by_torch=writing.by_torch),
        }

    def whole(self) -> dict[str, Any]:
        """All choices, and the usage."""
        choices = [self._whole(one) for one in self.writing.choices]
        return self.about | {"choices": choices, "usage": self.writing.usage()}

    def _whole(self, choice: Choice) -> dict[str, Any]:
        found = {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.entries),
            "finish_reason": choice.finish,
        }
        if self.ids:
            found |= {"token_ids": choice.ids, "prompt_token_ids": list(choice.request.prompt)}
        return found if choice.explain is None else found | {"explain": choice.explain}

    def _logprobs(self, entries: list[logprobs.Entry]) -> dict[str, Any] | None:
        return {"content": logprobs.chat(entries), "refusal": None} if self.scored else None

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk of a stream."""
        return self.about | {"choices": choices}

    def first(self) -> list[dict[str, Any]]:
        """The role of every choice, once and in order: clients build their message from it."""
        delta = {"role": "assistant", "content": ""}
        return [self._choice(one.index, delta) for one in self.writing.choices]

    def _choice(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def parts(self, part: Piece) -> list[dict[str, Any]]:
        """The new text; the end of a choice is a chunk of its own, whose delta is empty."""
        found = []
        entries = part.entries
        if part.text:
            found.append(self._choice(part.index, {"content": part.text}))
            found[-1]["logprobs"] = self._logprobs(entries)
            entries = []
        if entries or part.finish:
            found.append(self._choice(part.index, {}))
            found[-1]["finish_reason"] = part.finish
            found[-1]["logprobs"] = self._logprobs(entries) if entries else None
        if self.ids:
            found[0]["token_ids"] = part.ids
        if part.explain is not None:
            found[-1]["explain"] = part.explain
        return found


def router(state: State) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.post("/v1/chat/completions", tags=["text"])
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Continue a conversation, which becomes a plain transcript."""
        served = state.library.find(body.model)
        check(body)
        prompt = await prompt_of(served, turns_of(body.messages))
        await check_edits(served, body)
        writing = _prepare(state, served, body, prompt=prompt, first=from_page(request))
        return await respond(state, request, Chat(writing, body), body=body)

    return routes


def check(body: ChatRequest) -> None:
    """Refuse fields that are not offered, or do not go together."""
    check_generation(body)
    for name in NOT_OFFERED:
        if getattr(body, name):
            raise invalid(name, "is not offered: these models only continue a text")
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        raise invalid("response_format", "only text is offered")
    if any(one != "text" for one in body.modalities or ()):
        raise invalid("modalities", "only text is offered")
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "needs `logprobs: true`")


def _prepare(
    state: State, served: Served, body: ChatRequest, *, prompt: tuple[int, ...], first: bool
) -> Writing:
    given = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if given == 0:
        field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        raise invalid(field, "must be at least 1")
    max_tokens = rest_of_context(served, prompt) if given is None else given
    named = named_of(served, body)
    request = GenerationRequest(
        prompt=prompt,
        options=options_of(served, body, max_tokens=max_tokens),
        top=body.top_logprobs or 0,
        named=named,
        salt=body.cache_salt or "",
        first=first,
    )
    form = Form(
        stops=(*stops_of(body), *own_stops(served)),
        stop_ids=frozenset(body.stop_token_ids or ()),
        scored=bool(body.logprobs) or bool(named),
        top=body.top_logprobs or 0,
        keep_entries=not body.stream,
    )
    return prepare(state, body, served=served, prompts=[prompt], each=body.n or 1, request=request, form=form)
