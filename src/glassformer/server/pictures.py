"""Pictures for the studio's pages: an answer laid out for a width, with progress events if it takes long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.server.errors import late_error
from glassformer.server.schemas import Whole
from glassformer.server.sse import DONE, EventStream, event
from glassformer.server.state import unless_gone
from glassformer.waiting import Waiting

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.served import Served

NARROWEST, WIDEST = 240, 4000
Width = Annotated[Whole, Field(ge=NARROWEST, le=WIDEST)]
Drawing = Annotated[str, Field(max_length=40)]
Found = dict[str, Any]
EVENTS = "text/event-stream"
STREAM_AFTER = 0.7  # seconds; an answer that takes longer is streamed as progress events
POLL = 0.2  # seconds between two checks of the progress


def picture(answer: "Answer", code: dict[str, str], *, width: int, drawing: str | None = None) -> Found:
    """A view, its layout for a width, the drawings and texts of the answer, and the code that makes it."""
    drawn = answer.view(drawing)
    layouts = [drawn.to_marks(width=width)]
    texts = {name: value for name, value in answer.data().items() if isinstance(value, str)}
    found = {"view": drawn.spec, "layouts": layouts, "drawings": list(answer.views)}
    return found | {"code": code, "texts": texts}


async def found_in_lane(request: Request, served: "Served", work: Callable[[], Found]) -> Response:
    """What some work in the model's lane finds. A client that leaves ends it, before the model runs again.

    A client that accepts events gets progress events if the work takes longer than `STREAM_AFTER`; the last
    one has the answer. An error before that has a status of its own, a later one is an event.
    """
    waits = Waiting()
    task = asyncio.create_task(served.lane.run(work, waits))
    try:
        follows = EVENTS in request.headers.get("accept", "")
        await unless_gone(request, _settled(task, STREAM_AFTER if follows else None))
    except BaseException:
        task.cancel()
        raise
    if task.done():
        return JSONResponse(task.result())
    return EventStream(_progress(task, waits), ping=served.settings.ping, close=task.cancel)


async def _settled(task: "asyncio.Task[Found]", seconds: float | None) -> None:
    """Wait for the end of a task, or for some seconds."""
    await asyncio.wait({task}, timeout=seconds)


async def _progress(task: "asyncio.Task[Found]", waits: Waiting) -> AsyncIterator[bytes]:
    """How far a task is whenever that has changed, and what it found."""
    sent: Found = {}
    try:
        while not task.done():
            now = {"begun": waits.begun, "done": waits.done, "total": waits.total}
            if now != sent:
                sent = now
                yield event({"progress": now})
            await _settled(task, POLL)
        yield event({"answer": task.result()})
    except Exception as error:
        yield event(late_error(error).body)
    yield DONE
