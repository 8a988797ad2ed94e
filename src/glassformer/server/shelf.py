"""The models that the studio may load: those on this machine, by name, one after the other."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from glassformer.answers.model import Parameters, parameters
from glassformer.errors import GlassError
from glassformer.server.errors import ApiError, invalid
from glassformer.tasks import library
from glassformer.tasks.load import handle_of

if TYPE_CHECKING:
    from glassformer.server.served import Library
    from glassformer.tasks.model import Model

Load = Callable[[str], "Model"]
Stage = Literal["waiting", "loading", "preparing", "ready", "failed"]


def unknown(name: str) -> ApiError:
    """A model that is not on this machine, as a link from elsewhere may name one."""
    message = f"there is no model {name[:100]!r} on this machine; the page Models lists those that are"
    return ApiError(404, message, param="name", code="model_not_found")


@dataclass
class Status:
    """How far a model is: `preparing` reads what its insides need, while it already answers."""

    name: str
    stage: Stage = "waiting"
    error: str = ""
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    can: list[str] = field(default_factory=list)  # what its handle offers: generate, translate, classify …
    sizes: dict[str, int] = field(default_factory=dict)  # layers and heads, where it has one stack of them

    def to_dict(self) -> dict[str, Any]:
        """As the page has it."""
        busy = self.stage in ("waiting", "loading", "preparing")
        seconds = time.monotonic() - self.begun if busy else self.seconds
        about = {"name": self.name, "stage": self.stage, "error": self.error, "can": self.can}
        return about | {"seconds": round(seconds, 1), "sizes": self.sizes}


class Shelf:
    """Which models there are, and what becomes of those that were asked for."""

    def __init__(self, load: Load, *, first: tuple[str, ...], names: Mapping[str, str]) -> None:
        """`first` are loaded at the start, whatever they are: the person at the command line named them.

        `names` has what was typed for those whose name here is another, as that of a folder.
        """
        self.load, self.first, self.names = load, first, names
        self.statuses: dict[str, Status] = {name: Status(name) for name in first}
        self._offers: dict[str, list[str]] = {}
        self._work = asyncio.Lock()  # one at a time: two would need the memory of both at once
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, models: "Library") -> None:
        """Begin with those that were named."""
        for name in self.first:
            self._begin(name, models)

    def listed(self) -> list[dict[str, Any]]:
        """Every model that can be looked at here: on this machine, or named at the start."""
        found = [
            {"name": one.name, "where": one.where, "size": one.size, "revision": one.revision}
            for one in library.kept()
        ]
        names = {one["name"] for one in found}
        given = [name for name in self.first if name not in names]
        listed = [{"name": name, "where": "given", "size": 0, "revision": ""} for name in given] + found
        return [one | {"can": self.can(str(one["name"]))} for one in listed]

    def can(self, name: str) -> list[str]:
        """What a model offers: known once it is loaded, else by its configuration; nothing if that fails."""
        status = self.statuses.get(name)
        if status is not None and status.can:
            return status.can
        if name not in self._offers:
            try:
                self._offers[name] = list(handle_of(self.names.get(name, name)).verbs)
            except GlassError:
                self._offers[name] = []
        return self._offers[name]

    def typed(self, name: str) -> str:
        """What was typed for a model that is listed; no other name is ever looked for."""
        if name not in self.here():
            raise unknown(name)
        return self.names.get(name, name)

    def here(self) -> set[str]:
        """The names of the models on this machine."""
        return {one.name for one in library.kept()} | set(self.first)

    def pullable(self) -> list[dict[str, Any]]:
        """Models that are not here, but could be fetched by name."""
        here = self.here()
        return [{"name": name, "size": size} for name, size in library.known().items() if name not in here]

    def want(self, name: str, models: "Library") -> Status:
        """Load a model that is listed; no other name is ever looked for."""
        status = self.statuses.get(name)
        if status is not None and status.stage != "failed":
            return status
        if name not in self.here():
            raise unknown(name)
        return self._begin(name, models)

    def parameters(self, name: str) -> "Parameters":
        """Where a model's parameters are, counted from its file or, of a published size, without one."""
        if name not in self.here() | set(library.known()):
            raise unknown(name)
        try:
            return parameters(library.describe(self.names.get(name, name), offline=True))
        except GlassError as error:
            raise invalid("model", str(error)) from None

    def check(self, name: str) -> None:
        """Say why a model that is listed cannot be asked yet."""
        status = self.statuses.get(name)
        if status is not None and status.stage == "failed":
            raise invalid("model", f"{name} could not be loaded: {status.error}")
        if status is not None and status.stage in ("waiting", "loading"):
            message = f"{name} is being loaded; ask again in a moment"
            raise ApiError(503, message, code="model_loading", headers={"Retry-After": "1"})

    def _begin(self, name: str, models: "Library") -> Status:
        status = self.statuses[name] = Status(name)
        task = asyncio.create_task(self._run(status, models))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return status

    async def _run(self, status: Status, models: "Library") -> None:
        async with self._work:
            try:
                status.stage = "loading"
                model = await asyncio.to_thread(self.load, self.names.get(status.name, status.name))
                status.can = list(model.verbs)
                await models.add(status.name, model)
                status.stage = "preparing"
                net = await models.find(status.name).lane.run(lambda: model.net)
                found = {name: getattr(net.config, name, None) for name in ("layers", "heads")}
                status.sizes = {name: size for name, size in found.items() if isinstance(size, int)}
                status.stage = "ready"
            except GlassError as error:
                status.stage, status.error = "failed", str(error)
            except MemoryError:
                status.stage, status.error = "failed", "there is not enough memory for it"
            finally:
                if status.stage not in ("ready", "failed"):
                    status.stage, status.error = "failed", "something went wrong; the log has the reason"
                status.seconds = time.monotonic() - status.begun
