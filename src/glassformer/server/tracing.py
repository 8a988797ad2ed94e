"""`/v1/traces/{id}`: the pieces of an answer about insides that was too large for its response."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from glassformer.server.errors import ApiError, invalid
from glassformer.server.sse import PiecewiseJSON
from glassformer.server.state import State
from glassformer.server.traces import Trace

Place = Annotated[int, Query(ge=0, lt=1 << 31)]


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1/traces", tags=["insides"])

    def find(id: str) -> Trace:
        found = state.traces.find(id)
        if found is None:
            raise ApiError(404, "there is no such trace; it may have expired", code="trace_not_found")
        return found

    @routes.get("/{id}")
    async def trace(id: str) -> dict[str, Any]:
        """Which answers a trace has, and the values of each."""
        kept = find(id)
        answers = {
            name: {"values": _values(one), "kind": one.get("kind") if isinstance(one, dict) else None}
            for name, one in kept.answers.items()
        }
        return {"id": id, "object": "trace", "bytes": kept.size, "answers": answers}

    @routes.get("/{id}/{question}")
    async def answer(id: str, question: str) -> Response:
        """A whole answer."""
        return PiecewiseJSON({"id": id, question: _part(find(id).answers, question)})

    @routes.get("/{id}/{question}/{value}")
    async def value(
        id: str, question: str, value: str, start: Place = 0, stop: Place | None = None
    ) -> Response:
        """One value of an answer; of a list, the entries from `start` to before `stop`."""
        whole = _part(find(id).answers, question)
        found = _part(whole.get("values", {}) if isinstance(whole, dict) else {}, value)
        if isinstance(found, list):
            return PiecewiseJSON({"id": id, "value": found[start:stop], "start": start, "total": len(found)})
        if start or stop is not None:
            raise invalid("start", f"{value} of {question} is not a list")
        return PiecewiseJSON({"id": id, "value": found})

    @routes.delete("/{id}", status_code=204)
    async def drop(id: str) -> Response:
        """Forget a trace."""
        find(id)
        state.traces.drop(id)
        state.metrics.trace_bytes = state.traces.size
        return Response(status_code=204)

    return routes


def _part(whole: dict[str, Any], name: str) -> Any:
    if name not in whole:
        listed = ", ".join(whole) or "nothing"
        raise ApiError(404, f"the trace has no {name[:40]!r}; it has {listed}", code="trace_not_found")
    return whole[name]


def _values(answer: Any) -> list[str]:
    return list(answer.get("values", {})) if isinstance(answer, dict) else []
