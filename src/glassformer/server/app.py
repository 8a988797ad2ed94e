"""The application: all routes of a server behind its safety."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glassformer import machine
from glassformer.server import chat, completions, embeddings, models, responses, tasks, tokens, tracing
from glassformer.server.errors import ApiError, api_error, response
from glassformer.server.safety import Safety
from glassformer.server.served import Library
from glassformer.server.settings import Settings
from glassformer.server.state import ClientGone, State
from glassformer.tasks.model import Model

if TYPE_CHECKING:
    from glassformer.server.studio import Studio

ROUTERS = (models, tokens, completions, chat, responses, embeddings, tracing, tasks)
# What every route may answer beside its result.
STATUSES = {
    400: "a field is wrong; `param` names it",
    401: "the API key is missing or wrong",
    403: "a Host or Origin that may not ask",
    404: "no such model, trace or path",
    405: "the path has other methods",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not JSON",
    429: "too many requests are waiting",
    500: "the server failed",
    503: "the server is stopping, or the request took too long",
}
Log = Callable[[dict[str, Any]], None]


def make_app(
    settings: Settings,
    models: Mapping[str, Model],
    *,
    log: Log = lambda about: None,
    studio: "Studio | None" = None,
) -> FastAPI:
    """An application that serves models by their names; with a studio, its pages too."""
    state = State(settings, Library(dict(models), settings))
    mounted = None if studio is None else studio.mount(state)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await state.library.start()
        if mounted is not None:
            mounted.start()
        yield
        await state.library.close(settings.grace)

    app = FastAPI(
        title="Glassformer",
        version=machine.installed("glassformer") or "",
        lifespan=lifespan,
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
        log(about)

    app.add_middleware(Safety, settings=settings, done=done, is_stopping=lambda: state.stopping)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


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
    where = [part for part in first["loc"] if part not in ("body", "query", "path")]
    param = str(where[0]) if where else None
    same = [
        one
        for one in error.errors()
        if one["loc"][: 1 + len(where[:1])] == first["loc"][: 1 + len(where[:1])]
    ]
    reasons = dict.fromkeys(one["msg"].removeprefix("Value error, ") for one in same)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _places(where))
    message = f"{place.removeprefix('.') or 'the body'}: {'; or '.join(list(reasons)[:4])}"
    return response(ApiError(400, message, param=param))


def _places(where: list[Any]) -> list[Any]:
    """Where in the body, without the names of types that were tried."""
    return [part for at, part in enumerate(where) if at == 0 or isinstance(part, int)]


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
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path in whole["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            for status, why in STATUSES.items():
                operation["responses"][str(status)] = {"description": why, "content": reference}
    app.openapi_schema = whole
    return whole
