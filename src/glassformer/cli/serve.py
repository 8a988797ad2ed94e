"""glass serve"""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from glassformer import machine
from glassformer.cli import flags
from glassformer.cli.flags import DEFAULT_MODEL, MODEL, Loading, option, switch
from glassformer.cli.printing import log, out
from glassformer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glassformer.server.settings import Settings
    from glassformer.tasks.model import Model

LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEY = "GLASSFORMER_API_KEY"
SPARE = 300 << 20  # bytes beside weights and caches: what requests hold, and Python itself
MODELS = f"{MODEL} May be given several times; ID=NAME serves it under another id. [{DEFAULT_MODEL}]"


@dataclass(frozen=True)
class Place:
    """Where the server listens, and who may ask."""

    host: str
    port: int
    api_key: str | None
    allow_host: tuple[str, ...]
    expose: bool
    no_jobs: bool

    @property
    def key(self) -> str | None:
        """The key: of the flag, or of the environment, where other users do not see it."""
        return self.api_key or os.environ.get(KEY) or None

    @property
    def offers_jobs(self) -> bool:
        """Whether files can be uploaded and models fine-tuned: by those on this machine, or with the key."""
        return not self.no_jobs and (self.key is not None or not self.allow_host)

    def check(self) -> None:
        """Refuse to be reached from elsewhere by accident, before anything is loaded."""
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port must be from 0 to 65535, not {self.port}")
        if self.api_key == "":
            raise InputError("--api-key is empty: give a key, or leave the flag out")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise InputError("--api-key must be printable ASCII: it is sent in a header")
        if self.host in LOOPBACK:
            return
        if not self.expose:
            raise InputError(
                f"--host {self.host} can be reached from other machines; if that is meant, add --expose"
                " and a key (--api-key)"
            )
        if self.key is None:
            raise InputError(f"--host {self.host} needs a key: --api-key KEY, or {KEY} in the environment")


@dataclass(frozen=True)
class Room:
    """How many texts are written at a time, and how much may wait for that."""

    slots: int
    queue: int
    queue_tokens: int

    def check(self) -> None:
        """Refuse what no machine has room for."""
        flags.at_least("--slots", self.slots, least=1)
        flags.at_most("--slots", self.slots, most=256)
        flags.at_least("--queue", self.queue, least=0)
        flags.at_most("--queue", self.queue, most=10_000)
        flags.at_least("--queue-tokens", self.queue_tokens, least=1)


@dataclass(frozen=True)
class Logs:
    """What is printed about requests."""

    log_text: bool
    as_json: bool


@flags.verb
@option("-m", "--model", "models", multiple=True, help=MODELS)
@option("--host", default="127.0.0.1", help="The address to listen on; any but loopback needs --expose.")
@option("--port", default=8000, help="The port to listen on; 0 takes a free one.")
@option("--api-key", help=f"Requests must send this key; or set {KEY}.")
@option("--allow-host", multiple=True, help="Also answer to this name (NAME or NAME:PORT), as of a proxy.")
@switch("--expose", help="Allow an address that other machines can reach; needs a key.")
@switch("--no-jobs", help="Offer no file uploads and no fine-tuning.")
@option("--slots", default=8, help="Texts that are written at the same time.")
@option("--queue", default=64, help="Requests that may wait; more are refused (429).")
@option("--queue-tokens", default=65_536, help="Tokens, read and written, that may wait; the same.")
@switch("--log-text", help="Log prompts and answers, too.")
@switch("--json", "as_json", help="Print the address and the log as JSON, a line each.")
@flags.loading(flags.engine, flags.quantize, flags.device, flags.dtype, flags.revision, flags.offline)
@flags.collect(Place, "place")
@flags.collect(Room, "room")
@flags.collect(Logs, "logs")
def serve(loading: Loading, place: Place, room: Room, logs: Logs, *, models: tuple[str, ...]) -> None:
    """Serve models over HTTP, by the API that OpenAI's clients know.

    \b
    glass serve                                   the storyteller, at http://127.0.0.1:8000/v1
    glass serve -m gpt2 -m storyteller            two models
    glass serve -m mine=runs/mine/model --port 0  a model of your own, on a free port
    GLASSFORMER_API_KEY=… glass serve             only for those who send the key

    It answers on this machine alone, and only to its own name. Ctrl-C, or SIGTERM, lets running requests
    finish; a second one ends at once. docs/serving.md lists the endpoints.
    """
    place.check()
    room.check()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while it starts; from then on requests finish
    try:
        from glassformer.server.listen import bind, run
        from glassformer.server.settings import Settings
    except ModuleNotFoundError as error:
        raise InputError(f'{error.name} is missing: pip install "glassformer[serve]"') from None

    named = _named(models or (DEFAULT_MODEL,))
    with bind(place.host, place.port) as listening:  # before models are loaded: a port may be in use
        settings = Settings(
            host=place.host,
            port=listening.getsockname()[1],
            key=place.key,
            allow_hosts=place.allow_host,
            slots=room.slots,
            queue=room.queue,
            queue_tokens=room.queue_tokens,
            log_text=logs.log_text,
            json_logs=logs.as_json,
            home=machine.home() if place.offers_jobs else None,
            device=loading.device,
            revision=loading.revision,
        )
        run(
            settings,
            lambda: _load(loading, named),
            listening=listening,
            log=_logger(logs),
            load=replace(loading, revision=None, offline=True).load,  # what jobs make is on this machine
            ready=lambda loaded: _announce(settings, loaded),
        )


def _named(models: tuple[str, ...]) -> dict[str, str]:
    """What to load, by the ids that requests use."""
    found: dict[str, str] = {}
    for typed in models:
        id, _, name = typed.rpartition("=")
        id = id or name
        if id in found:
            raise InputError(f"--model: the id {id!r} is given twice")
        found[id] = name
    return found


def _load(loading: Loading, named: dict[str, str]) -> "dict[str, Model]":
    """The models by their ids; the server refuses requests meanwhile."""
    return {id: loading.load(name) for id, name in named.items()}


def _announce(settings: "Settings", models: "Mapping[str, Model]") -> None:
    """Say where the server is, what it serves, how much memory it may take, and how to try it."""
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{shown}:{settings.port}/v1"
    caches = sum(_cache(model, settings.slots) for model in models.values())
    bound = machine.resident() + caches + SPARE
    insides = sum(map(_insides, models.values()))
    engines = {id: model.backend.name for id, model in models.items()}
    if settings.json_logs:
        memory = {"memory_bound": bound, "memory_bound_with_insides": bound + insides}
        out(json.dumps({"url": url, "models": engines, **memory, "slots": settings.slots}))
    else:
        out(f"Serving {', '.join(f'{id} ({engine})' for id, engine in engines.items())} at {url}")
        out(
            f"Memory: at most {bound >> 20:,} MB ({caches >> 20:,} MB of it for {settings.slots} texts at a"
            f" time), and {bound + insides >> 20:,} MB when requests use `explain` or edits"
        )
        known = settings.key in (None, os.environ.get(KEY))
        key = "" if known else f", after `export {KEY}=` and the key"  # which is never printed
        out(f"Try it{key}:\n  {_example(url, settings, models)}")
    sys.stdout.flush()


def _cache(model: "Model", slots: int) -> int:
    backend = model.backend
    return 0 if backend.context is None else backend.cache_size(slots, backend.context)


def _insides(model: "Model") -> int:
    """What the largest question takes, and torch's weights, if the engine has its own."""
    from glassformer.server.explain import FLOAT, memory_of
    from glassformer.server.served import parameters_of
    from glassformer.tasks.complete import LanguageModel

    if not isinstance(model, LanguageModel) or model.backend.context is None:
        return 0
    weights = 0 if model.engine is None else FLOAT * parameters_of(model)
    return weights + memory_of(model, tokens=model.backend.context)


def _example(url: str, settings: "Settings", models: "Mapping[str, Model]") -> str:
    """A command that works as it is, by what the first model is for."""
    key = "" if settings.key is None else f' -H "Authorization: Bearer ${KEY}"'
    id, model = next(iter(models.items()))
    verb = model.verbs[-1]
    path, body = f"tasks/{verb}", dict[str, Any](model=id, text="I am a student.")
    if verb == "compose":
        body = {"model": id, "format": "mid"}
    elif "generate" in model.verbs:
        path, body = "completions", {"model": id, "prompt": "Once upon a time", "max_tokens": 40}
    return f"curl {url}/{path}{key} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"


def _logger(logs: Logs) -> Any:
    """What prints a line for every request."""

    def line(about: dict[str, Any]) -> None:
        if logs.as_json:
            out(json.dumps({"time": round(time.time(), 3), **about}, ensure_ascii=False))
            sys.stdout.flush()
            return
        names = ("model", "prompt_tokens", "completion_tokens", "unknown", "code", "error", "prompt", "text")
        more = [f"{name}={about[name]!r}" for name in names if name in about]
        head = f"{about['method']} {about['path']!r} {about['status']} {about['seconds']:.3f}s"
        log(" ".join([time.strftime("%H:%M:%S"), head, *more, about["id"]]))

    return line
