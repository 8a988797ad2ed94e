"""`POST /v1/responses`, stateless: nothing is stored, so every request carries its whole conversation."""

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.server import logprobs
from glassformer.server.chat import content_of, own_stops, prompt_of
from glassformer.server.errors import invalid, late_error
from glassformer.server.generation import (
    check_edits,
    from_page,
    logged,
    note,
    notes_of,
    options_of,
    prepare,
    rest_of_context,
    stops_of,
)
from glassformer.server.runner import GenerationRequest
from glassformer.server.schemas import Generation, ResponsesRequest
from glassformer.server.sse import DONE, EventStream, event
from glassformer.server.state import State, unless_gone
from glassformer.server.writing import Form, Part, Writing

LOGPROBS = "message.output_text.logprobs"
STATEFUL = ("previous_response_id", "conversation", "background", "prompt")


class Responses:
    """The object `response`, and the events that it is built from."""

    def __init__(self, writing: Writing, body: ResponsesRequest) -> None:
        self.writing, self.body = writing, body
        self.id, self.item = f"resp_{secrets.token_hex(16)}", f"msg_{secrets.token_hex(16)}"
        self.created = int(time.time())
        self.scored = writing.choices[0].form.scored
        self.number = 0  # of the next event

    @property
    def choice(self) -> Any:
        """The one continuation."""
        return self.writing.choices[0]

    def content(self, text: str, entries: list[logprobs.Entry]) -> dict[str, Any]:
        """The text as a part of the message."""
        found = logprobs.chat(entries) if self.scored else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": found}

    def message(self, status: str) -> dict[str, Any]:
        """The message that is written."""
        content = [] if status == "in_progress" else [self.content(self.choice.text, self.choice.entries)]
        about = {"id": self.item, "type": "message", "role": "assistant"}
        return about | {"status": status, "content": content}

    def whole(self, status: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
        """The response as it is now."""
        body = self.body
        done = status in ("completed", "incomplete")
        found = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self.writing.served.id,
            "output": [self.message(status)] if done else [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": self.choice.request.options.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": self.choice.request.options.top_p,
            "truncation": "disabled",
            "metadata": body.metadata or {},
            "usage": self.usage() if done else None,
        }
        if self.choice.explain is not None:
            found["explain"] = self.choice.explain
        return found

    def usage(self) -> dict[str, Any]:
        """Tokens, under the names of this endpoint."""
        used = self.writing.usage()
        cached = used["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used["total_tokens"],
        }

    @property
    def status(self) -> str:
        """How it ended."""
        return "completed" if self.choice.finish == "stop" else "incomplete"

    def made(self, kind: str, **about: Any) -> bytes:
        """An event with its number."""
        data = {"type": kind, "sequence_number": self.number, **about}
        self.number += 1
        return event(data, name=kind)

    async def events(self) -> AsyncIterator[bytes]:
        """All events, in the order in which clients put a response together."""
        try:
            for kind in ("response.created", "response.in_progress"):
                yield self.made(kind, response=self.whole("in_progress"))
            yield self.made("response.output_item.added", output_index=0, item=self.message("in_progress"))
            yield self._placed("response.content_part.added", part=self.content("", []))
            async for part in self.writing.parts():
                if part.text or part.explain is not None:
                    yield self._delta(part)
            for one in self._end():
                yield one
        except Exception as error:
            about = late_error(error).body["error"]
            failure = {"code": about["code"] or about["type"], "message": about["message"]}
            yield self.made("response.failed", response=self.whole("failed", failure))
        finally:
            self.writing.cancel()
        yield DONE

    def _placed(self, kind: str, **about: Any) -> bytes:
        return self.made(kind, item_id=self.item, output_index=0, content_index=0, **about)

    def _delta(self, part: Part) -> bytes:
        found = logprobs.chat(part.entries) if self.scored else []
        more = {} if part.explain is None else {"explain": part.explain}
        return self._placed("response.output_text.delta", delta=part.text, logprobs=found, **more)

    def _end(self) -> Iterator[bytes]:
        """The last events, each made when the one before it was sent: they repeat the whole text."""
        content = self.content(self.choice.text, self.choice.entries)
        text = {"text": content["text"], "logprobs": content["logprobs"]}
        status = self.status
        yield self._placed("response.output_text.done", **text)
        yield self._placed("response.content_part.done", part=content)
        yield self.made("response.output_item.done", output_index=0, item=self.message(status))
        yield self.made(f"response.{status}", response=self.whole(status))


def router(state: State) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["text"])

    @routes.post("/v1/responses")
    async def responses(body: ResponsesRequest, request: Request) -> Response:
        """Continue a conversation; nothing is kept for the next request."""
        check(body)
        writing = await _prepare(state, body, first=from_page(request))
        made = Responses(writing, body)
        notes, settings = notes_of(request, body, model=writing.served.id), state.settings
        if body.stream:
            events = logged(made.events(), writing, notes=notes)
            return EventStream(events, ping=settings.ping, close=writing.cancel)
        await unless_gone(request, writing.finish())
        note(writing, notes)
        return JSONResponse(made.whole(made.status), headers=writing.timing())

    return routes


def check(body: ResponsesRequest) -> None:
    """Refuse what would need a store, and what is not offered."""
    for name in STATEFUL:
        if getattr(body, name):
            raise invalid(name, "responses are not stored here; send the whole conversation as `input`")
    if body.tools:
        raise invalid("tools", "is not offered: these models only continue a text")
    form = (body.text or {}).get("format") or {"type": "text"}
    if not isinstance(form, dict) or form.get("type") != "text":
        raise invalid("text", "only the format text is offered")
    if body.max_output_tokens == 0:
        raise invalid("max_output_tokens", "must be at least 1")


def turns_of(body: ResponsesRequest) -> list[tuple[str, str]]:
    """Roles and texts of the conversation."""
    turns = [] if not body.instructions else [("system", body.instructions)]
    if isinstance(body.input, str):
        return [*turns, ("user", body.input)]
    for at, item in enumerate(body.input):
        turns.append((item.role, content_of(item.content, param=f"input[{at}].content")))
    return turns


async def _prepare(state: State, body: ResponsesRequest, *, first: bool) -> Writing:
    served = state.library.find(body.model)
    prompt = await prompt_of(served, turns_of(body))
    scored = LOGPROBS in (body.include or ()) or body.top_logprobs is not None
    given = body.max_output_tokens
    max_tokens = rest_of_context(served, prompt) if given is None else given
    names = (
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "seed",
        "stop",
        "stream",
        "cache_salt",
        "engine",
        "explain",
        "edits",
    )
    same = Generation(**{name: getattr(body, name) for name in names})
    await check_edits(served, same)
    request = GenerationRequest(
        prompt=prompt,
        options=options_of(served, same, max_tokens=max_tokens),
        top=body.top_logprobs or 0,
        salt=body.cache_salt or "",
        first=first,
    )
    form = Form(stops=(*stops_of(same), *own_stops(served)), scored=scored, top=body.top_logprobs or 0)
    return prepare(state, same, served=served, prompts=[prompt], each=1, request=request, form=form)
