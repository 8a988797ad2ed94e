"""`POST /v1/completions`: continue a prompt, or score one (`echo`)."""

import secrets
import time
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
from glassformer.server.schemas import MOST_PROMPTS, CompletionRequest
from glassformer.server.state import State, fingerprint
from glassformer.server.writing import Choice, Form, Part, Writing, best_of


class Completions(Shape):
    """The object `text_completion`, which is that of a stream too."""

    def __init__(self, writing: Writing, body: CompletionRequest, *, n: int, each: int) -> None:
        super().__init__(writing, body)
        self.n, self.each = n, each
        self.scored = writing.choices[0].form.scored
        self.ids = bool(body.return_token_ids)
        self.sent: set[int] = set()  # choices whose prompt ids were sent
        self.about = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": writing.served.id,
            "system_fingerprint": fingerprint(writing.served, by_torch=writing.by_torch),
        }

    def whole(self) -> dict[str, Any]:
        """All choices, and the usage."""
        choices = self.writing.choices
        if self.each > self.n:
            choices = best_of(choices, n=self.n, each=self.each)
        return self.about | {"choices": [self._whole(one) for one in choices], "usage": self.writing.usage()}

    def _whole(self, choice: Choice) -> dict[str, Any]:
        found = self._choice(choice.index, choice.text, choice.entries, finish=choice.finish)
        if self.ids:
            found |= {"token_ids": choice.ids, "prompt_token_ids": list(choice.request.prompt)}
        return found if choice.explain is None else found | {"explain": choice.explain}

    def _choice(
        self, index: int, text: str, entries: list[logprobs.Entry], *, finish: str | None
    ) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs.legacy(entries) if self.scored else None,
            "finish_reason": finish,
        }

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The same object with what is new."""
        return self.about | {"choices": choices}

    def parts(self, part: Part) -> list[dict[str, Any]]:
        """One choice."""
        found = self._choice(part.index, part.text, part.entries, finish=part.finish)
        if self.ids:
            found["token_ids"] = part.ids
            if part.index not in self.sent:
                self.sent.add(part.index)
                found["prompt_token_ids"] = list(self.writing.choices[part.index].request.prompt)
        return [found if part.explain is None else found | {"explain": part.explain}]


def router(state: State) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.post("/v1/completions", tags=["text"])
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue a text: `prompt` is a text, several, token ids, or several lists of them."""
        served = state.library.find(body.model)
        check(body)
        prompts = await served.prompts(body.prompt)
        await check_edits(served, body)
        writing = _prepare(state, body, prompts, first=from_page(request))
        shape = Completions(writing, body, n=body.n or 1, each=len(writing.choices) // len(prompts))
        return await respond(state, request, shape, body=body)

    return routes


def check(body: CompletionRequest) -> None:
    """Refuse fields that are not offered, or do not go together."""
    check_generation(body)
    if body.suffix:
        raise invalid("suffix", "these models only continue a text; they cannot fill in before a suffix")
    if (
        isinstance(body.prompt, list)
        and len(body.prompt) > MOST_PROMPTS
        and not isinstance(body.prompt[0], int)
    ):
        raise invalid("prompt", f"at most {MOST_PROMPTS} prompts, not {len(body.prompt):,}")
    n, best = body.n or 1, body.best_of
    if best is not None and best < n:
        raise invalid("best_of", f"must be at least n ({n}), not {best}")
    if best is not None and best > n and body.stream:
        raise invalid("best_of", "cannot be streamed: which texts are best is known at the end")
    if body.max_tokens == 0 and not body.echo:
        raise invalid("max_tokens", "0 is only for scoring a prompt, with `echo: true`")


def _prepare(
    state: State, body: CompletionRequest, prompts: list[tuple[int, ...]], *, first: bool
) -> Writing:
    """The continuations that a request asks for."""
    served = state.library.find(body.model)
    named = named_of(served, body)
    scored = body.logprobs is not None or bool(named)
    most = max(rest_of_context(served, prompt) for prompt in prompts)
    max_tokens = most if body.max_tokens is None else body.max_tokens
    request = GenerationRequest(
        prompt=prompts[0],
        options=options_of(served, body, max_tokens=max_tokens),
        top=body.logprobs or 0,
        named=named,
        salt=body.cache_salt or "",
        first=first,
        score_prompt=scored and bool(body.echo),
    )
    form = Form(
        stops=stops_of(body),
        stop_ids=frozenset(body.stop_token_ids or ()),
        echo=bool(body.echo),
        scored=scored,
        top=body.logprobs or 0,
        keep_entries=not body.stream,
    )
    each = max(body.n or 1, body.best_of or 1)
    return prepare(state, body, served=served, prompts=prompts, each=each, request=request, form=form)
