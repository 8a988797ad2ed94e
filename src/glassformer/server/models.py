"""`/v1/models`, `/health`, `/version`, `/metrics`: what is served, and how it is."""

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from glassformer import machine
from glassformer.server.explain import known
from glassformer.server.fine_tuning import delete_model
from glassformer.server.served import Served, parameters_of, sizes_of
from glassformer.server.state import State
from glassformer.tasks.library import forget_quantized


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["server"])

    @routes.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [one.details() for one in state.library.served.values()]}

    @routes.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        """One model, and what can be asked about its insides."""
        served = state.library.find(model)
        return served.details() | {"meta": _meta(served), "explain": {"questions": known(served)}}

    @routes.delete("/v1/models/{model:path}")
    async def delete(model: str) -> dict[str, Any]:
        """Remove a model that a job made; texts that it writes are finished."""
        folder = await asyncio.to_thread(delete_model, state, model)
        if model in state.library.served:
            await state.library.remove(model, state.settings.grace)
        await asyncio.to_thread(forget_quantized, folder)
        return {"id": model, "object": "model", "deleted": True}

    @routes.get("/health")
    @routes.head("/health", include_in_schema=False)
    @routes.api_route("/v1/health", methods=["GET", "HEAD"], include_in_schema=False)
    async def health() -> Response:
        """That the server takes requests; needs no key and names no model. While it loads or stops, a 503."""
        return JSONResponse({"status": "ok"})

    @routes.get("/version")
    async def version() -> dict[str, Any]:
        """The version of the server."""
        return {"version": machine.installed("glassformer"), "name": "glassformer"}

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters and times, for Prometheus."""
        text = state.metrics.text(state)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def root() -> dict[str, Any]:
        """That a server is here."""
        return {"name": "glassformer", "version": machine.installed("glassformer")}

    return routes


def _meta(served: Served) -> dict[str, Any]:
    model = served.model
    sizes = sizes_of(model)
    names = {"n_layer": "layers", "n_head": "heads", "n_embd": "width"}
    about = {key: sizes[name] for key, name in names.items() if name in sizes}
    return about | {
        "task": model.task,
        "engine": model.backend.name if served.runner is None else served.runner.name,
        "n_vocab": served.vocab,
        "n_params": parameters_of(model),
        "capabilities": sorted(model.capabilities),
        "chat_form": "turns" if served.turns else "transcript",
    }
