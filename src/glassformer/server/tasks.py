"""`POST /v1/tasks/{verb}`: what a model can do beside continuing texts, as the command line does it.

A verb is offered by every model whose handle names it, so a new kind of model appears here by itself. The
answer is the JSON that `glass VERB --json` prints; the fields beside `text` are the options of the verb.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from glassformer.answers.answer import plain
from glassformer.generation.options import Options
from glassformer.server.compositions import compose_task
from glassformer.server.errors import ApiError, invalid
from glassformer.server.schemas import TaskRequest
from glassformer.server.served import Served
from glassformer.server.state import State, unless_gone
from glassformer.tasks.model import Model
from glassformer.tasks.translate import Translator
from glassformer.waiting import is_cancelled

ELSEWHERE = ("generate",)  # verbs that have a route of their own: /v1/completions
MOST_TOKENS = 1024
MOST_TRANSLATIONS = 8
NEVER = ("cancelled", "edits", "progress", "cut")
OPTIONS = frozenset(Options.__dataclass_fields__) | {"stop"}


def translate_task(
    model: Translator, text: str, *, to: str | None = None, split: bool = False, **options: Any
) -> Any:
    """`glass translate` over HTTP: a list, of the best translation or of several."""
    return model.translate_many([text], to=to, split=split, **options)[0]


# Verbs that a request does in another way than the method of that name does.
ADAPTERS: dict[str, Callable[..., Any]] = {"compose": compose_task, "translate": translate_task}


def tasks_of(model: Model) -> list[str]:
    """What a model offers here."""
    return [verb for verb in model.verbs if verb not in ELSEWHERE]


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
    offered = tasks_of(served.model)
    if verb not in offered:
        message = f"{served.id} offers no {verb[:40]!r}; it offers {', '.join(offered) or 'none'}"
        raise ApiError(404, message, param="verb", code="unknown_task")
    method: Callable[..., Any] = getattr(served.model, verb)
    if verb in ADAPTERS:
        method = partial(ADAPTERS[verb], served.model)
    options = dict(body.model_extra or {})
    _check(options, method, verb=verb, context=served.context)
    parameters = inspect.signature(method).parameters
    if "cancelled" in parameters:
        options["cancelled"] = is_cancelled  # who leaves, leaves the lane to others
    texts = body.text if isinstance(body.text, list) else [body.text]
    if len(texts) != 1 and not any(one.kind is one.VAR_POSITIONAL for one in parameters.values()):
        raise invalid("text", f"{verb} is about one text")

    def work() -> Any:
        return _plain(method(*texts, **options))

    return work


def _check(options: dict[str, Any], method: Callable[..., Any], *, verb: str, context: int | None) -> None:
    """Options that a verb takes: texts, numbers, or lists of them; their use checks the rest."""
    parameters = inspect.signature(method).parameters.values()
    known = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    known |= OPTIONS if any(one.kind is one.VAR_KEYWORD for one in parameters) else set()
    known -= set(NEVER)
    for name, value in options.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise invalid(name[:40], f"is not an option of {verb}; it takes {listed}")
        each = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str | int | float) for one in each):
            raise invalid(name, "must be a text, a number, or a list of them")
    most = {
        "max_new_tokens": min(MOST_TOKENS, context or MOST_TOKENS),
        "num_return_sequences": MOST_TRANSLATIONS,
    }
    for name, limit in most.items():
        value = options.get(name, 1)
        if type(value) is not int or not 1 <= value <= limit:
            raise invalid(name, f"must be a whole number from 1 to {limit:,}")


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(one) for one in found]
    return plain(found.to_dict() if hasattr(found, "to_dict") else found)
