"""The application: all routes of a server behind its safety."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glassformer import machine
from glassformer.server import (
    chat,
    completions,
    embeddings,
    files,
    fine_tuning,
    models,
    responses,
    tasks,
    tokens,
    tracing,
)
from glassformer.server.errors import ApiError, api_error, response
from glassformer.server.files import FileStore
from glassformer.server.jobs import Job, Jobs
from glassformer.server.objects import describe
from glassformer.server.safety import Safety
from glassformer.server.served import Library
from glassformer.server.settings import Settings
from glassformer.server.state import ClientGone, State, in_thread
from glassformer.tasks.load import load
from glassformer.tasks.model import Model

if TYPE_CHECKING:
    from glassformer.server.studio import Mounted, Studio

ROUTERS = (models, tokens, completions, chat, responses, embeddings, tracing, tasks, files, fine_tuning)
# What every route may answer beside its result.
STATUSES = {
    400: "a field is wrong; `param` names it",
    401: "the API key is missing or wrong",
    403: "a Host or Origin that may not ask, or jobs are off",
    404: "no such model, file, job, trace or path",
    405: "the path has other methods",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not JSON, or not a form with a file where one is expected",
    429: "too many requests are waiting",
    431: "the headers are too large",
    500: "the server failed",
    503: "the server is loading its models, or stopping, or the request took too long",
}
REJECTED = {401: "key", 403: "forbidden", 413: "too_large", 429: "queue_full", 503: "unavailable"}
Log = Callable[[dict[str, Any]], None]
Load = Callable[[str], Model]
Ready = Callable[[Mapping[str, Model]], None]
Models = Mapping[str, Model] | Callable[[], Mapping[str, Model]]
LOAD: Load = partial(load, offline=True)


def make_app(
    settings: Settings,
    models: Models,
    *,
    log: Log = lambda about: None,
    load: Load = LOAD,
    ready: Ready = lambda models: None,
    studio: "Studio | None" = None,
) -> FastAPI:
    """An application that serves models by their names; `load` loads what jobs make; a studio has pages.

    Models that must be loaded first are a function: while it runs, every request is refused with a 503.
    `ready` is called with the models once they answer.
    """
    given = {} if callable(models) else dict(models)
    state = State(settings, Library(given, settings), loading=callable(models))
    mounted = None if studio is None else studio.mount(state)

    app = FastAPI(
        title="Glassformer",
        version=machine.installed("glassformer") or "",
        lifespan=_lifespan(state, models, load=load, ready=ready, mounted=mounted),
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.server = state
    if mounted is not None:
        app.include_router(mounted.routes)  # first: its page is at `/`
    for module in ROUTERS:
        app.include_router(module.router(state))
    app.add_exception_handler(ApiError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientGone, _gone)

    def done(about: dict[str, Any]) -> None:
        route = about.pop("route")
        state.metrics.count("requests_total", endpoint=route, status=str(about["status"]))
        if about["status"] in REJECTED:
            state.metrics.count("rejected_total", reason=REJECTED[about["status"]])
        log(about)

    app.add_middleware(Safety, settings=settings, done=done, check_open=state.check_open)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _lifespan(
    state: State, models: Models, *, load: Load, ready: Ready, mounted: "Mounted | None"
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """From the start of a server to its end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await state.library.start()
        if callable(models):
            app.state.loading = asyncio.create_task(_load_all(state, models, load=load, ready=ready))
        else:
            await _start_jobs(state, load)
            ready(models)
        if mounted is not None:
            mounted.start()
        yield
        await _close(state, mounted)

    return lifespan


async def _load_all(
    state: State, models: Callable[[], Mapping[str, Model]], *, load: Load, ready: Ready
) -> None:
    """Load the models beside the event loop, which tells every client meanwhile to come again."""
    try:
        found = await in_thread(models)
        for id, model in found.items():
            await state.library.add(id, model)
        await _start_jobs(state, load)
        ready(found)
        state.loading = False
    except Exception as error:  # the server ends with it: see listen.py
        state.failure = error


async def _start_jobs(state: State, load: Load) -> None:
    """Go on with jobs, and serve what they made; inside the event loop that serves."""
    home, loop = state.settings.home, asyncio.get_running_loop()
    if home is None:
        return

    def serve(job: Job, folder: Path) -> None:
        """In the thread of the jobs: returns when the model answers."""
        id = str(job.about["result"])
        if id in state.library.served:  # a model that was pulled, and is served already
            return
        model = load(str(folder))
        model.name = id
        asyncio.run_coroutine_threadsafe(state.library.add(id, model), loop).result()

    state.files = FileStore(home / "files", most=state.settings.most_files)
    state.jobs = Jobs(home, serve=serve, device=state.settings.device)
    await in_thread(state.jobs.start)


async def _close(state: State, mounted: "Mounted | None") -> None:
    """End what runs beside requests, then the models."""
    grace = state.settings.grace
    if mounted is not None:
        await asyncio.to_thread(mounted.close)
    if state.jobs is not None:
        await asyncio.to_thread(state.jobs.close, grace)
    await state.library.close(grace)


async def _failed(request: Request, error: Exception) -> Response:
    return response(api_error(error))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _http(request: Request, error: Exception) -> Response:
    """A path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:100]
    words = {404: f"there is no {path}", 405: f"{path} does not take {request.method}"}
    message = words.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    return response(ApiError(error.status_code, message, headers=headers))


async def _invalid(request: Request, error: Exception) -> Response:
    """The first field that is wrong, in one sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = _fields(first, error.body)
    same = [one for one in error.errors() if _fields(one, error.body) == where]
    reasons = dict.fromkeys(one["msg"].removeprefix("Value error, ") for one in same)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    message = f"{place.removeprefix('.') or 'the body'}: {'; or '.join(list(reasons)[:4])}"
    return response(ApiError(400, message, param=str(where[0]) if where else None))


def _fields(error: dict[str, Any], body: Any) -> list[Any]:
    """Where in the body, or which parameter; without the names of types that were tried."""
    place, *inside = error["loc"]
    if place != "body":
        return [part for part in inside if part not in ("query", "path")]
    found, here = [], body
    for number, part in enumerate(inside):
        missing = error["type"] == "missing" and number == len(inside) - 1
        is_key = isinstance(here, dict) and isinstance(part, str) and part in here
        is_item = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if is_key or is_item:
            here = here[part]
        elif not missing and number:
            continue
        found.append(part)
    return found


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document; every error is one object, and 422 is not among them."""
    if app.openapi_schema:
        return app.openapi_schema
    whole = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = whole.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    texts = {"type": ["string", "null"]}
    inner = {"message": {"type": "string"}, "type": {"type": "string"}, "param": texts, "code": texts}
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "required": ["message", "type"], "properties": inner}},
    }
    describe(whole)
    whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    whole["security"] = [{}, {"key": []}]  # where the server was started with a key
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path in whole["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            for status, why in STATUSES.items():
                operation["responses"][str(status)] = {"description": why, "content": reference}
    app.openapi_schema = whole
    return whole
