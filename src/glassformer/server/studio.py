"""`/studio/…`: what the pages of `glass studio` ask beside the API that every client has."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.server import compositions, insides, pages, snippets
from glassformer.server.errors import invalid
from glassformer.server.schemas import Ids, Whole
from glassformer.server.schemas import Request as Body
from glassformer.server.settings import Settings
from glassformer.server.shelf import Load, Shelf
from glassformer.server.state import State, unless_gone
from glassformer.server.translations import Translations

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
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


class TranslationRequest(Body):
    """`POST /studio/translation`"""

    model: Name
    text: Annotated[str, Field(max_length=LONGEST)]
    to: Annotated[str, Field(max_length=40)] | None = None


class TranslationViewRequest(TranslationRequest):
    """`POST /studio/translation/view`"""

    question: Annotated[str, Field(max_length=40)]
    options: dict[str, Any] = Field(default_factory=dict)
    drawing: Annotated[str, Field(max_length=40)] | None = None
    width: Width = 960


class ModelRequest(Body):
    """`POST /studio/models/load`, `/studio/models/parameters`"""

    name: Name
    width: Width = 960


@dataclass(eq=False)
class Studio:
    """What `glass studio` adds to a server: its page, its door and its models."""

    load: Load
    first: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)  # what was typed, by what the page calls it
    door: pages.Door = field(default_factory=pages.Door)
    files: dict[str, pages.File] = field(default_factory=pages.built_files)

    def settings(self, **given: Any) -> Settings:
        """Settings of its server: everything but the page needs the cookie, or the token as a key."""
        public = pages.public_paths(self.files)
        return Settings(**given, key=self.door.token, session=self.door.session, public=public)

    def mount(self, state: State) -> "Mounted":
        """Its part of a server."""
        shelf = Shelf(self.load, first=self.first, names=self.names)
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
    _add_models(routes, state, shelf)
    find = Finder(state, shelf)
    answers = insides.Answers()
    _add_numbers(routes, find, answers)
    _add_views(routes, find, answers)
    _add_translations(routes, find)
    _add_compositions(routes, find)
    return routes


@dataclass(frozen=True)
class Finder:
    """Which model a request is about, and which tokens."""

    state: State
    shelf: Shelf

    def model(self, name: str) -> "Served":
        """A model that is loaded."""
        self.shelf.check(name)
        return self.state.library.find(name)

    async def text(self, body: TextRequest) -> "tuple[Served, tuple[int, ...]]":
        """The model and the tokens of a text."""
        served = self.model(body.model)
        if (body.text is None) == (body.ids is None):
            raise invalid("text", "give either a text or its ids")
        if body.text is not None:
            return served, await served.encode(body.text, param="text")
        return served, served.ids(body.ids or (), param="ids")


def _add_numbers(routes: APIRouter, find: Finder, answers: insides.Answers) -> None:
    @routes.post("/reading")
    async def reading(body: TextRequest, request: Request) -> dict[str, Any]:
        """A text token by token: how likely each was, how unsure the model was, and what else was likely."""
        served, ids = await find.text(body)
        assert served.writer is not None
        return await unless_gone(request, served.lane.run(lambda: insides.read(served, ids)))

    @routes.post("/scores")
    async def scores(body: TextRequest, request: Request) -> Response:
        """The logits of the whole vocabulary after a text: what sliders need to draw again by themselves."""
        served, ids = await find.text(body)
        assert served.writer is not None
        numbers = await unless_gone(request, served.lane.run(lambda: insides.scores(served, ids)))
        return Response(numbers, media_type="application/octet-stream")

    @routes.post("/patterns")
    async def patterns(body: PatternsRequest, request: Request) -> Response:
        """Attention weights as little-endian float16, pooled to at most `most` rows and columns a head."""
        served, ids = await find.text(body)
        how = {name: value for name, value in (("stack", body.stack), ("part", body.part)) if value}

        def work() -> Any:
            answer: Any = answers.find(served, "heads", ids=ids, prompt=len(ids), options=how)
            return insides.pooled(_of_head(answer.patterns, body), body.most)

        weights = await unless_gone(request, served.lane.run(work))
        headers = {"x-shape": ",".join(map(str, weights.shape))}
        content = np.ascontiguousarray(weights, dtype="<f2").tobytes()
        return Response(content, media_type="application/octet-stream", headers=headers)


def _add_views(routes: APIRouter, find: Finder, answers: insides.Answers) -> None:
    @routes.post("/view")
    async def view(body: ViewRequest, request: Request) -> Response:
        """The picture of an answer, laid out for a width, and the code that makes the same."""
        served, ids = await find.text(body)
        prompt = min(body.prompt, len(ids)) or len(ids)

        def work() -> dict[str, Any]:
            how: dict[str, Any] = {"ids": ids, "prompt": prompt, "options": body.options}
            answer = answers.find(served, body.question, **how)
            code = snippets.code(served, body.question, **how)
            return _picture(answer, code, drawing=body.drawing, width=body.width)

        return JSONResponse(await unless_gone(request, served.lane.run(work)))


def _add_translations(routes: APIRouter, find: Finder) -> None:
    made = Translations()

    @routes.post("/translation")
    async def translation(body: TranslationRequest, request: Request) -> dict[str, Any]:
        """A translation, and what can be asked about it."""
        served = find.model(body.model)
        work = served.lane.run(lambda: made.details(served, body.text, to=body.to))
        return await unless_gone(request, work)

    @routes.post("/translation/view")
    async def translation_view(body: TranslationViewRequest, request: Request) -> Response:
        """The picture of an answer about a translation."""
        served = find.model(body.model)

        def work() -> dict[str, Any]:
            how: dict[str, Any] = {"to": body.to, "question": body.question, "options": body.options}
            answer = made.answer(served, body.text, **how)
            code = snippets.of_translation(served, body.text, **how)
            return _picture(answer, code, drawing=body.drawing, width=body.width)

        return JSONResponse(await unless_gone(request, served.lane.run(work)))


def _add_compositions(routes: APIRouter, find: Finder) -> None:
    made = compositions.Compositions()

    @routes.post("/compose")
    async def compose(body: compositions.ComposeRequest, request: Request) -> dict[str, Any]:
        """New music, more of a piece or of a file, or the voices to a melody."""
        served = find.model(body.model)
        gone = threading.Event()  # who leaves, leaves the lane to others
        try:
            work = served.lane.run(lambda: made.compose(served, body, cancelled=gone.is_set))
            return await unless_gone(request, work)
        finally:
            gone.set()

    @routes.post("/piece")
    async def piece(body: compositions.PieceRequest, request: Request) -> dict[str, Any]:
        """The notes of a piece."""
        served = find.model(body.model)
        return await unless_gone(request, served.lane.run(lambda: made.details(served, body)))

    @routes.post("/piece/view")
    async def piece_view(body: compositions.PieceViewRequest, request: Request) -> Response:
        """The picture of an answer about a piece."""
        served = find.model(body.model)

        def work() -> dict[str, Any]:
            answer = made.answer(served, body)
            code = snippets.of_piece(served, made.piece(served, body), body.question, options=body.options)
            return _picture(answer, code, drawing=body.drawing, width=body.width)

        return JSONResponse(await unless_gone(request, served.lane.run(work)))

    @routes.post("/piece/file")
    async def piece_file(body: compositions.PieceFileRequest, request: Request) -> Response:
        """A piece as a file."""
        served = find.model(body.model)
        content, kind = await unless_gone(request, served.lane.run(lambda: made.file(served, body)))
        return Response(content, media_type=kind)


def _picture(answer: "Answer", code: dict[str, str], *, drawing: str | None, width: int) -> dict[str, Any]:
    """A view, its layout for a width, the drawings and texts of the answer, and the code that makes it."""
    drawn = answer.view(drawing)
    layouts = [drawn.to_marks(width=width)]
    texts = {name: value for name, value in answer.data().items() if isinstance(value, str)}
    picture = {"view": drawn.spec, "layouts": layouts, "drawings": list(answer.views)}
    return picture | {"code": code, "texts": texts}


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
            code = snippets.of_model(body.name)
            return _picture(shelf.parameters(body.name), code, drawing=None, width=body.width)

        return await asyncio.to_thread(work)
