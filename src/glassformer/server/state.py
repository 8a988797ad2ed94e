"""What the routes of one server share."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from starlette.requests import Request

from glassformer import machine
from glassformer.server.errors import jobs_off, still_loading, stopping
from glassformer.server.metrics import Metrics
from glassformer.server.served import Library, Served
from glassformer.server.settings import Settings
from glassformer.server.sse import gone
from glassformer.server.traces import Traces

if TYPE_CHECKING:
    from glassformer.server.files import FileStore
    from glassformer.server.jobs import Jobs

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client left before its answer was complete; no one reads what would be sent."""


@dataclass(eq=False)
class State:
    """Models, metrics and traces of one server."""

    settings: Settings
    library: Library
    metrics: Metrics = field(default_factory=Metrics)
    traces: Traces = field(default_factory=Traces)
    stopping: bool = False
    loading: bool = False  # the models that it was started with are not all there yet
    failure: BaseException | None = None  # why they never will be
    begun: float = field(default_factory=time.time)
    files: "FileStore | None" = None  # None: neither files nor jobs are offered
    jobs: "Jobs | None" = None

    def check_open(self) -> None:
        """Refuse a request before the server is ready, and from the signal to stop on."""
        if self.stopping:
            raise stopping()
        if self.loading:
            raise still_loading()

    def files_or_refuse(self) -> "FileStore":
        """The uploaded files."""
        if self.files is None:
            raise jobs_off()
        return self.files

    def jobs_or_refuse(self) -> "Jobs":
        """The jobs."""
        if self.jobs is None:
            raise jobs_off()
        return self.jobs


def fingerprint(served: Served, *, by_torch: bool = False) -> str:
    """Which build and which backend answered."""
    backend = "torch" if by_torch or served.runner is None else served.runner.name
    return f"glassformer {machine.installed('glassformer')}, {backend}"


async def in_thread(work: Callable[[], Result]) -> Result:
    """The result of some work in a thread of its own, for which the end of the process does not wait."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if found.cancelled():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(cast(Result, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the event loop has ended: nothing waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return await found


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of some work; if the client leaves before, the work is cancelled."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
