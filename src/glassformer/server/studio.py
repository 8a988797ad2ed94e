"""`/studio/…`: what the pages of `glass studio` ask beside the API that every client has."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.server import insides, pages, snippets
from glassformer.server.errors import invalid
from glassformer.server.schemas import Ids, Whole
from glassformer.server.schemas import Request as Body
from glassformer.server.settings import Settings
from glassformer.server.shelf import Load, Shelf
from glassformer.server.state import State, unless_gone

if TYPE_CHECKING:
    from glassformer.server.served import Served

NARROWEST, WIDEST = 240, 4000  # of a picture
Width = Annotated[Whole, Field(ge=NARROWEST, le=WIDEST)]
Name = Annotated[str, Field(max_length=200)]
LONGEST = 200_000  # characters of a text


class TextRequest(Body):
    """A text of a model: its ids or, if it was typed, its characters."""

    model: Name
    text: Annotated[str, Field(max_length=LONGEST)] | None = None
    ids: Ids | None = None


class ViewRequest(TextRequest):
    """`POST /studio/view`: a question about a text, and how wide its picture may be."""

    question: Annotated[str, Field(max_length=40)]
    options: dict[str, Any] = Field(default_factory=dict)
    prompt: Annotated[Whole, Field(ge=0)] = 0  # tokens that were given; the others were generated
    drawing: Annotated[str, Field(max_length=40)] | None = None
    width: Width = 960


class PatternsRequest(TextRequest):
    """`POST /studio/patterns`: attention of all heads, or of one, as numbers."""

    stack: Annotated[str, Field(max_length=40)] = ""
    part: Annotated[str, Field(max_length=10)] = "attn"
    layer: Annotated[Whole, Field(ge=0)] | None = None
    head: Annotated[Whole, Field(ge=0)] | None = None
    most: Annotated[Whole, Field(ge=4, le=1024)] = 48  # rows and columns of a head


class ModelRequest(Body):
    """`POST /studio/models/load`, `/studio/models/parameters`"""

    name: Name
    width: Width = 960


@dataclass(eq=False)
class Studio:
    """What `glass studio` adds to a server: its page, its door and its models."""

    load: Load
    first: tuple[str, ...]
    door: pages.Door = field(default_factory=pages.Door)
    files: dict[str, pages.File] = field(default_factory=pages.built_files)

    def settings(self, **given: Any) -> Settings:
        """Settings of its server: everything but the page needs the cookie, or the token as a key."""
        public = pages.public_paths(self.files)
        return Settings(**given, key=self.door.token, session=self.door.session, public=public)

    def mount(self, state: State) -> "Mounted":
        """Its part of a server."""
        shelf = Shelf(self.load, first=self.first)
        routes = pages.router(state.settings, self.door, files=self.files)
        routes.include_router(router(state, shelf))
        return Mounted(routes, lambda: shelf.start(state.library))


class Mounted(NamedTuple):
    """The studio's routes, and what begins to load its models when the server has started."""

    routes: APIRouter
    start: Callable[[], None]


def router(state: State, shelf: Shelf) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/studio", include_in_schema=False)
    answers = insides.Answers()
    _add_models(routes, state, shelf)

    async def found(body: TextRequest) -> "tuple[Served, tuple[int, ...]]":
        shelf.check(body.model)
        served = state.library.find(body.model)
        if (body.text is None) == (body.ids is None):
            raise invalid("text", "give either a text or its ids")
        if body.text is not None:
            return served, await served.encode(body.text, param="text")
        return served, served.ids(body.ids or (), param="ids")

    @routes.post("/reading")
    async def reading(body: TextRequest, request: Request) -> dict[str, Any]:
        """A text token by token: how likely each was, how unsure the model was, and what else was likely."""
        served, ids = await found(body)
        assert served.writer is not None
        return await unless_gone(request, served.lane.run(lambda: insides.read(served, ids)))

    @routes.post("/scores")
    async def scores(body: TextRequest, request: Request) -> Response:
        """The logits of the whole vocabulary after a text: what sliders need to draw again by themselves."""
        served, ids = await found(body)
        assert served.writer is not None
        numbers = await unless_gone(request, served.lane.run(lambda: insides.scores(served, ids)))
        return Response(numbers, media_type="application/octet-stream")

    @routes.post("/patterns")
    async def patterns(body: PatternsRequest, request: Request) -> Response:
        """Attention weights as little-endian float16, pooled to at most `most` rows and columns a head."""
        served, ids = await found(body)
        how = {name: value for name, value in (("stack", body.stack), ("part", body.part)) if value}

        def work() -> Any:
            answer: Any = answers.find(served, "heads", ids=ids, prompt=len(ids), options=how)
            return insides.pooled(_of_head(answer.patterns, body), body.most)

        weights = await unless_gone(request, served.lane.run(work))
        headers = {"x-shape": ",".join(map(str, weights.shape))}
        content = np.ascontiguousarray(weights, dtype="<f2").tobytes()
        return Response(content, media_type="application/octet-stream", headers=headers)

    @routes.post("/view")
    async def view(body: ViewRequest, request: Request) -> Response:
        """The picture of an answer, laid out for a width, and the code that makes the same."""
        served, ids = await found(body)
        prompt = min(body.prompt, len(ids)) or len(ids)

        def work() -> dict[str, Any]:
            how: dict[str, Any] = {"ids": ids, "prompt": prompt, "options": body.options}
            answer = answers.find(served, body.question, **how)
            drawn = answer.view(body.drawing)
            code = snippets.code(served, body.question, answer=answer, **how)
            layouts = [drawn.to_marks(width=body.width)]
            return {"view": drawn.spec, "layouts": layouts, "drawings": list(answer.views), "code": code}

        return JSONResponse(await unless_gone(request, served.lane.run(work)))

    return routes


def _of_head(patterns: Any, body: PatternsRequest) -> Any:
    """(L, H, T, S), or of one layer, or of one head."""
    layers, heads = patterns.shape[:2]
    if body.layer is None:
        return patterns
    if body.layer >= layers:
        raise invalid("layer", f"must be from 0 to {layers - 1}")
    if body.head is None:
        return patterns[body.layer]
    if body.head >= heads:
        raise invalid("head", f"must be from 0 to {heads - 1}")
    return patterns[body.layer, body.head]


def _add_models(routes: APIRouter, state: State, shelf: Shelf) -> None:
    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """Which models there are, and how far those are that were asked for."""
        listed, pullable = await asyncio.to_thread(lambda: (shelf.listed(), shelf.pullable()))
        statuses = [one.to_dict() for one in shelf.statuses.values()]
        return {"models": listed, "pullable": pullable, "statuses": statuses, "first": shelf.first}

    @routes.get("/status")
    async def status() -> dict[str, Any]:
        """How far the models are; asked often while one is loading."""
        return {"statuses": [one.to_dict() for one in shelf.statuses.values()]}

    @routes.post("/models/load")
    async def load(body: ModelRequest) -> dict[str, Any]:
        """Begin to load a model of the list."""
        return shelf.want(body.name, state.library).to_dict()

    @routes.post("/models/parameters")
    async def parameters(body: ModelRequest) -> dict[str, Any]:
        """Where a model's parameters are, counted from its file; nothing is loaded."""

        def work() -> dict[str, Any]:
            answer = shelf.parameters(body.name)
            drawn = answer.view()
            code = snippets.of_model(body.name)
            layouts = [drawn.to_marks(width=body.width)]
            return {"view": drawn.spec, "layouts": layouts, "drawings": list(answer.views), "code": code}

        return await asyncio.to_thread(work)
