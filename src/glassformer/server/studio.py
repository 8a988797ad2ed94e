"""`/studio/…`: what the pages of `glass studio` ask beside the API that every client has."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.server import compositions, insides, pages, snippets
from glassformer.server.classes import Classes, summary_rows
from glassformer.server.errors import invalid
from glassformer.server.pictures import Drawing, Width, found_in_lane, picture
from glassformer.server.pulls import Pulls
from glassformer.server.schemas import Ids, Whole
from glassformer.server.schemas import Request as Body
from glassformer.server.settings import Settings
from glassformer.server.shelf import Load, Shelf
from glassformer.server.state import State, unless_gone
from glassformer.server.translations import Translations
from glassformer.server.vocabularies import Vocabularies

if TYPE_CHECKING:
    from glassformer.server.served import Served

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
    drawing: Drawing | None = None
    width: Width = 960


class Pattern(Body):
    """Which attention is asked for, of all heads or of one, and in how many rows and columns at most."""

    stack: Annotated[str, Field(max_length=40)] = ""
    part: Annotated[str, Field(max_length=10)] = "attn"
    layer: Annotated[Whole, Field(ge=0)] | None = None
    head: Annotated[Whole, Field(ge=0)] | None = None
    most: Annotated[Whole, Field(ge=4, le=1024)] = 48  # rows and columns of a head


class PatternsRequest(TextRequest, Pattern):
    """`POST /studio/patterns`"""


class TranslationRequest(Body):
    """`POST /studio/translation`"""

    model: Name
    text: Annotated[str, Field(max_length=LONGEST)]
    to: Annotated[str, Field(max_length=40)] | None = None


class TranslationPatternsRequest(TranslationRequest, Pattern):
    """`POST /studio/translation/patterns`"""


class TranslationViewRequest(TranslationRequest):
    """`POST /studio/translation/view`"""

    question: Annotated[str, Field(max_length=40)]
    options: dict[str, Any] = Field(default_factory=dict)
    drawing: Drawing | None = None
    width: Width = 960


class ModelRequest(Body):
    """`POST /studio/models/load`, `/studio/models/parameters`"""

    name: Name
    width: Width = 960


class PullRequest(Body):
    """`POST /studio/pulls`: a model of the hub, by its id."""

    name: Name


class CancelRequest(Body):
    """`POST /studio/pulls/cancel`"""

    id: Annotated[str, Field(max_length=40)]


class TokensRequest(Body):
    """`POST /studio/tokens`: a text in the tokens of a model that need not be loaded."""

    name: Name
    text: Annotated[str, Field(max_length=LONGEST)]
    width: Width = 960


class ClassRequest(Body):
    """`POST /studio/classes`: which tokens speak for a class."""

    model: Name
    text: Annotated[str, Field(max_length=LONGEST)]
    label: Annotated[str, Field(max_length=200)] | None = None
    method: Annotated[str, Field(max_length=40)] = "grad_x_input"
    width: Width = 960


class RowsRequest(Body):
    """`POST /studio/summary_rows`: a text and its summary as the row that a decoder learns from."""

    model: Name
    text: Annotated[str, Field(max_length=LONGEST)]
    target: Annotated[str, Field(max_length=LONGEST)]
    width: Width = 960


@dataclass(eq=False)
class Studio:
    """What `glass studio` adds to a server: its page, its door and its models."""

    load: Load
    first: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)  # what was typed, by what the page calls it
    door: pages.Door = field(default_factory=pages.Door)
    files: dict[str, pages.File] = field(default_factory=pages.built_files)
    home: Path | None = None  # where downloads are noted; without it there are none
    offline: bool = False

    def settings(self, **given: Any) -> Settings:
        """Settings of its server: everything but the page needs the cookie, or the token as a key."""
        public = pages.public_paths(self.files)
        return Settings(**given, key=self.door.token, session=self.door.session, public=public)

    def mount(self, state: State) -> "Mounted":
        """Its part of a server."""
        shelf = Shelf(self.load, first=self.first, names=self.names)
        routes = pages.router(state.settings, self.door, files=self.files)
        pulls = Pulls(self.home, offline=self.offline)
        routes.include_router(router(state, shelf, pulls=pulls))

        def start() -> None:
            shelf.start(state.library)
            pulls.start()

        return Mounted(routes, start, pulls.close)


class Mounted(NamedTuple):
    """The studio's routes, what begins its work when the server has started, and what ends it."""

    routes: APIRouter
    start: Callable[[], None]
    close: Callable[[], None]


def router(state: State, shelf: Shelf, *, pulls: Pulls) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/studio", include_in_schema=False)
    _add_models(routes, state, shelf, pulls)
    _add_slots(routes, state)
    _add_pulls(routes, pulls)
    _add_tokens(routes, Vocabularies(shelf, port=state.settings.port))
    find = Finder(state, shelf)
    answers = insides.Answers()
    _add_numbers(routes, find, answers)
    _add_views(routes, find, answers)
    _add_translations(routes, find)
    _add_tasks(routes, find)
    compositions.add_routes(routes, find.model)
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


def _add_slots(routes: APIRouter, state: State) -> None:
    @routes.get("/slots")
    async def slots() -> dict[str, Any]:
        """The batch of every model as it is now: who waits, who is read, who is written, and how far."""
        found = []
        for id, served in state.library.served.items():
            runner = served.runner
            if runner is not None:
                about = {"model": id, "slots": runner.slots, "steps": runner.step_times.count}
                found.append(about | {"texts": runner.texts()})
        return {"models": found}


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

        def work() -> Any:
            how: dict[str, Any] = {"ids": ids, "prompt": len(ids), "options": _where(body)}
            answer: Any = answers.find(served, "heads", **how)
            return insides.pooled(_of_head(answer.patterns, body), body.most)

        return _halves(await unless_gone(request, served.lane.run(work)))


def _halves(weights: Any) -> Response:
    """Numbers as little-endian float16, with their shape in a header."""
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
            code = snippets.code(snippets.Asked(served, body.question, **how, drawing=body.drawing))
            return picture(answer, code, drawing=body.drawing, width=body.width)

        return await found_in_lane(request, served, work)


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
            return picture(answer, code, drawing=body.drawing, width=body.width)

        return await found_in_lane(request, served, work)

    @routes.post("/translation/patterns")
    async def translation_patterns(body: TranslationPatternsRequest, request: Request) -> Response:
        """Attention weights of a stack, or from the decoder to the source, as `/studio/patterns` has them."""
        served = find.model(body.model)

        def work() -> Any:
            how: dict[str, Any] = {"to": body.to, "question": "heads", "options": _where(body)}
            answer: Any = made.answer(served, body.text, **how)
            return insides.pooled(_of_head(answer.patterns, body), body.most)

        return _halves(await unless_gone(request, served.lane.run(work)))


def _where(body: Pattern) -> dict[str, Any]:
    """The stack and the part of it, where they are named."""
    return {name: value for name, value in (("stack", body.stack), ("part", body.part)) if value}


def _add_tasks(routes: APIRouter, find: Finder) -> None:
    classes = Classes()

    @routes.post("/classes")
    async def class_view(body: ClassRequest, request: Request) -> Response:
        """Which tokens of a text speak for a class."""
        served = find.model(body.model)

        def work() -> dict[str, Any]:
            how: dict[str, Any] = {"label": body.label, "method": body.method}
            return picture(*classes.saliency(served, body.text, **how), width=body.width)

        return await found_in_lane(request, served, work)

    @routes.post("/summary_rows")
    async def rows(body: RowsRequest, request: Request) -> Response:
        """What a decoder learns from a text and its summary."""
        served = find.model(body.model)

        def work() -> dict[str, Any]:
            return picture(*summary_rows(served, body.text, target=body.target), width=body.width)

        return await found_in_lane(request, served, work)


def _add_tokens(routes: APIRouter, vocabularies: Vocabularies) -> None:
    @routes.post("/tokens")
    async def tokens(body: TokensRequest) -> Response:
        """A text in the tokens of any model on this machine."""

        def work() -> dict[str, Any]:
            found, code = vocabularies.tokens(body.name, body.text)
            return picture(found, code, width=body.width) | {"count": len(found.tokens)}

        return JSONResponse(await asyncio.to_thread(work))


def _add_pulls(routes: APIRouter, pulls: Pulls) -> None:
    @routes.post("/pulls")
    async def pull(body: PullRequest) -> dict[str, Any]:
        """Begin to fetch a model from the hub."""
        return await asyncio.to_thread(pulls.begin, body.name)

    @routes.post("/pulls/cancel")
    async def cancel(body: CancelRequest) -> dict[str, Any]:
        """End a download."""
        return await asyncio.to_thread(pulls.cancel, body.id)


def _of_head(patterns: Any, body: Pattern) -> Any:
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


def _add_models(routes: APIRouter, state: State, shelf: Shelf, pulls: Pulls) -> None:
    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """Which models there are, and how far those are that were asked for."""
        listed, pullable = await asyncio.to_thread(lambda: (shelf.listed(), shelf.pullable()))
        statuses = [one.to_dict() for one in shelf.statuses.values()]
        found = {"models": listed, "pullable": pullable, "statuses": statuses, "first": shelf.first}
        return found | {"pulls": pulls.listed(), "pulls_offered": pulls.jobs is not None}

    @routes.get("/status")
    async def status() -> dict[str, Any]:
        """How far the models are; asked often while one is loading."""
        statuses = [one.to_dict() for one in shelf.statuses.values()]
        return {"statuses": statuses, "pulls": await asyncio.to_thread(pulls.listed)}

    @routes.post("/models/load")
    async def load(body: ModelRequest) -> dict[str, Any]:
        """Begin to load a model of the list."""
        return shelf.want(body.name, state.library).to_dict()

    @routes.post("/models/parameters")
    async def parameters(body: ModelRequest) -> dict[str, Any]:
        """Where a model's parameters are, counted from its file; nothing is loaded."""

        def work() -> dict[str, Any]:
            code = snippets.of_model(body.name, port=state.settings.port)
            found = shelf.parameters(body.name)
            return picture(found, code, width=body.width) | {"feed_forward": found.feed_forward}

        return await asyncio.to_thread(work)
