"""`POST /v1/tasks/{verb}`: what a model can do beside continuing texts, as the command line does it.

A verb is offered by every model whose handle has it, so a new kind of model appears here by itself. The
answer is the JSON that `glass VERB --json` prints; the fields beside `text` are the options of the verb.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from glassformer.answers.answer import Answer, plain
from glassformer.generation.options import Options
from glassformer.server.compositions import compose_task
from glassformer.server.errors import ApiError, invalid
from glassformer.server.schemas import TaskRequest
from glassformer.server.served import Served
from glassformer.server.state import State, unless_gone
from glassformer.tasks.model import Model
from glassformer.waiting import is_cancelled

# Verb -> the method of a handle that does it, and whether it takes the options of a generation.
VERBS: dict[str, tuple[str, bool]] = {
    "generate": ("generate", True),
    "translate": ("translate", True),
    "summarize": ("summarize", True),
    "classify": ("classify", False),
    "tag": ("tag", False),
    "top": ("top", True),
    "tokenize": ("tokens", False),
    "merges": ("merges", False),
    "compose": ("compose", True),
}
# Verbs whose options are files, which a request holds: what does them in place of the method.
ADAPTERS: dict[str, Callable[..., Any]] = {"compose": compose_task}
MOST_TOKENS = 1024
NEVER = ("cancelled", "edits", "progress", "num_return_sequences")
OPTIONS = frozenset(Options.__dataclass_fields__) | {"stop"}


def verbs_of(model: Model | type[Model]) -> list[str]:
    """What a model offers, or every model of a class."""
    return [verb for verb, (method, _) in VERBS.items() if hasattr(model, method)]


def router(state: State) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["tasks"])

    @routes.post("/v1/tasks/{verb}")
    async def task(verb: str, body: TaskRequest, request: Request) -> dict[str, Any]:
        """Do what a verb of the command line does."""
        served = state.library.find(body.model)
        found = await unless_gone(request, served.lane.run(_work(served, verb, body)))
        return {"object": "task", "verb": verb, "model": served.id, "result": found}

    return routes


def _work(served: Served, verb: str, body: TaskRequest) -> Callable[[], Any]:
    offered = verbs_of(served.model)
    if verb not in offered:
        message = f"{served.id} offers no {verb[:40]!r}; it offers {', '.join(offered)}"
        raise ApiError(404, message, param="verb", code="unknown_task")
    name, generates = VERBS[verb]
    method: Callable[..., Any] = getattr(served.model, name)
    if verb in ADAPTERS:
        method = partial(ADAPTERS[verb], served.model)
    options = dict(body.model_extra or {})
    own = {
        one for one in inspect.signature(method).parameters if one not in ("text", "prompt", "options", "how")
    }
    known = (own | (OPTIONS if generates else set())) - set(NEVER)
    for option in options:
        if option not in known:
            raise invalid(
                option[:40], f"is not an option of {verb}; it takes {', '.join(sorted(known)) or 'none'}"
            )
    _check_types(options)
    if "cancelled" in own:
        options["cancelled"] = is_cancelled  # who leaves, leaves the lane to others
    if generates and verb not in ("top", *ADAPTERS):
        most = min(MOST_TOKENS, served.context or MOST_TOKENS)
        options.setdefault("max_new_tokens", min(Options().max_new_tokens, most))
        if type(options["max_new_tokens"]) is not int or options["max_new_tokens"] > most:
            raise invalid("max_new_tokens", f"must be a whole number of at most {most:,}")

    def work() -> Any:
        return _plain(method(body.text, **options))

    return work


def _check_types(options: dict[str, Any]) -> None:
    """Options are texts, numbers, or lists of texts; what a number may be is checked where it is used."""
    for name, value in options.items():
        each = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str | int | float) for one in each):
            raise invalid(name[:40], "must be a text, a number, or a list of them")
        if name == "k" and (type(value) is not int or not 1 <= value <= 1000):
            raise invalid("k", "must be a whole number from 1 to 1,000")


def _plain(found: Any) -> Any:
    if isinstance(found, Answer):
        return found.to_dict()
    if isinstance(found, list):
        return [_plain(one) for one in found]
    return plain(found.to_dict() if hasattr(found, "to_dict") else found)
