"""`explain` in a request: any question of `answers/` about the text that was generated, by its one name.

The engine chooses the tokens; a question replays the chosen ids through the torch model, in a lane of its
own. So a text is the same with and without `explain`, and the answer says how near the two are.
"""

import asyncio
import base64
import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from glassformer import machine
from glassformer.answers import QUESTIONS, ask, check
from glassformer.answers.answer import Answer, Text, plain
from glassformer.errors import InputError, counted
from glassformer.generation.batching import generate_alone
from glassformer.generation.options import Options
from glassformer.generation.sampling import log_softmax
from glassformer.server.errors import QueueFull, invalid
from glassformer.server.lane import Inside
from glassformer.server.logprobs import finite
from glassformer.server.runner import for_model, tokens_of
from glassformer.server.served import parameters_of, sizes_of
from glassformer.server.sse import pieces
from glassformer.tasks.backends import fingerprint
from glassformer.tasks.completion import Completion

if TYPE_CHECKING:
    from glassformer.answers.lens import LiveLens
    from glassformer.server.metrics import Metrics
    from glassformer.server.served import Served
    from glassformer.server.traces import Traces
    from glassformer.server.writing import Choice
    from glassformer.tasks.model import Model

MOST_BYTES = 4 << 20  # of an answer inside a response; larger ones are fetched
# Questions whose subject is something else than the text; what they begin with.
OF_TOKENIZER = ("tokens", "merges", "training_rows")
OF_MODEL = ("promotes", "examples")
OF_NOTHING = ("positions", "robot")
# Questions that a request cannot ask: they read files, are about several models or many texts, or about a
# source and what was written from it, which a completion does not have.
NOT_HERE = ("curve", "parameters", "diff", "shapes", "head_ablation", "alignment", "edited", "pair_rows")
# Options that a question takes beside those that it names.
MORE: dict[str, dict[str, Any]] = {
    "lens": {"live": Literal[True]},
    "saliency": {"steps": int, "by_word": bool, "tested": bool},
    "beams": {"length_penalty": float, "early_stopping": bool, "max_new_tokens": int},
    "examples": {"texts": list[str]},
    **{name: {"stack": str, "part": str} for name in ("attention", "heads", "find_heads", "steps")},
}
NEVER = (
    "self",
    "progress",
    "options",
    "ends",
    "forbidden",
    "model",
    "text",
    "lm",
    "tokenizer",
    "documents",
    "clean",
)
MOST = {  # the largest values of options whose work grows with them
    "k": 1000,
    "steps": 256,
    "count": 256,
    "num_beams": 16,
    "max_new_tokens": 256,
    "window": 1024,
    "first": 4096,
}
JSON_BYTES = 4  # that a number and its separator take in JSON, at least
FLOAT = 4  # bytes of a float32
# Numbers that answering a question holds at once, by measuring:
PATTERNS = 4  # for each head and pair of tokens
GRADIENT = 10  # the same, if gradients are computed
ACTIVATIONS = 24  # for each layer, token and unit of the width
LOGITS = 4  # for each token and entry of the vocabulary
MOST_CHARACTERS = 100_000  # of texts that a question searches
RETRY = 0.05  # seconds until a live explanation asks for its turn again
TORCH = "torch float32"


@dataclass(frozen=True)
class Asked:
    """What a request wants to know: questions with their options, and how the answers are sent."""

    questions: dict[str, dict[str, Any]]
    encoding: str = "json"
    max_bytes: int = MOST_BYTES
    recipe: bool = False
    timings: bool = False
    plain: bool = False  # also the text without the edits

    @property
    def live(self) -> int:
        """How many of the likeliest tokens are asked for; a stream has them with each token."""
        return int(self.questions["top"].get("k", 10)) if "top" in self.questions else 0

    @property
    def live_lens(self) -> int:
        """How many of each layer's likeliest tokens a stream shall have with each token."""
        options = self.questions.get("lens", {})
        return int(options.get("k", 5)) if options.get("live") else 0

    def without(self, name: str) -> "Asked":
        """The same without one question."""
        rest = {one: how for one, how in self.questions.items() if one != name}
        return replace(self, questions=rest)


def known(served: "Served") -> list[str]:
    """The questions that a model can be asked over HTTP: about texts that it continues."""
    if "generate" not in served.model.verbs:
        return []
    capabilities = served.model.capabilities
    names = [name for name in QUESTIONS if name not in NOT_HERE and "source" not in QUESTIONS[name].needs]
    return [name for name in names if QUESTIONS[name].needs <= capabilities]


def parse(served: "Served", given: dict[str, Any]) -> Asked:
    """The object `explain` of a request, checked completely before anything runs."""
    given = dict(given)
    encoding = given.pop("encoding", "json")
    if encoding not in ("json", "base64"):
        raise invalid("explain.encoding", "must be json or base64")
    most = given.pop("max_bytes", MOST_BYTES)
    if type(most) is not int or not 0 <= most <= MOST_BYTES:
        raise invalid("explain.max_bytes", f"must be a whole number from 0 to {MOST_BYTES:,}")
    extras = {name: given.pop(name, False) for name in ("recipe", "timings", "plain")}
    for name, value in extras.items():
        if type(value) is not bool:
            raise invalid(f"explain.{name}", "must be true or false")
    questions = {}
    for name, value in given.items():
        if value is False or value is None:
            continue
        questions[name] = _options(served, name, value)
    return Asked(questions, encoding, most, **extras)


def _options(served: "Served", name: str, value: Any) -> dict[str, Any]:
    """The options of one question: an object, `true` for its defaults, or a value of its first option."""
    if name not in QUESTIONS or name in NOT_HERE:
        listed = ", ".join(known(served))
        raise invalid("explain", f"{name[:40]!r} is not a question here; there is {listed}")
    try:
        check(name, served.model)
    except InputError as error:
        raise invalid("explain", str(error)) from None
    takes = _takes(name)
    if value is True:
        given = {}
    elif isinstance(value, dict):
        given = value
    elif takes:
        given = {next(iter(takes)): value}
    else:
        raise invalid(f"explain.{name}", "takes no options; ask with true")
    for option, one in given.items():
        _check_option(name, option, one, takes=takes)
    missing = [option for option, (_, needed) in takes.items() if needed and option not in given]
    if missing:
        raise invalid(f"explain.{name}", f"needs {', '.join(missing)}")
    return given


def _takes(name: str) -> dict[str, tuple[Any, bool]]:
    """The options of a question: their types, and whether one must be given."""
    found: dict[str, tuple[Any, bool]] = {}
    for parameter in inspect.signature(_function(name)).parameters.values():
        if parameter.name in NEVER or parameter.kind is parameter.VAR_KEYWORD:
            continue
        kind: Any = parameter.annotation
        if isinstance(kind, str) or "Edits" in str(kind) or "Path" in str(kind):
            kind = list[dict[str, Any]]  # edits as a list: no request names a file
        found[parameter.name] = (kind, parameter.default is parameter.empty)
    return found | {option: (kind, option == "texts") for option, kind in MORE.get(name, {}).items()}


def _function(name: str) -> Callable[..., Any]:
    """What answers a question: the method of a completion, or the function of `answers/`."""
    method: Callable[..., Any] | None = getattr(Completion, name, None)
    if method is not None:
        return method
    found: Callable[..., Any] = getattr(import_module(f"glassformer.answers.{QUESTIONS[name].module}"), name)
    return found


def _check_option(name: str, option: str, value: Any, *, takes: dict[str, tuple[Any, bool]]) -> None:
    where = f"explain.{name}.{option[:40]}"
    if option not in takes:
        listed = ", ".join(takes) or "none"
        raise invalid(where, f"is not an option of {name}; it takes {listed}")
    kind, _ = takes[option]
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise invalid(where, error.errors(include_url=False)[0]["msg"]) from None
    if option == "texts" and sum(map(len, value)) > MOST_CHARACTERS:
        raise invalid(where, f"may have at most {MOST_CHARACTERS:,} characters together")
    numbers = value if isinstance(value, list) else [value]
    for number in numbers:
        bounded = isinstance(number, int) and not isinstance(number, bool)
        if bounded and not -(1 << 31) <= number <= MOST.get(option, 1 << 31):
            raise invalid(where, f"must be at most {MOST.get(option, 1 << 31):,}")


# Answering, in the lane's thread


def memory_of(model: "Model", *, tokens: int, question: str | None = None) -> int:
    """The most bytes that a question about a text takes, beside the weights; without its name, that any does.

    Measured for all but those that need a vocabulary. A gradient keeps the attention of all heads several
    times; a training step takes a copy of the weights, their gradients and two averages of these.
    """
    sizes = sizes_of(model)
    patterns = GRADIENT if question in (None, "saliency") else PATTERNS
    step = 4 * FLOAT * parameters_of(model) if question in (None, "update") else 0
    layer = patterns * sizes["heads"] * tokens + ACTIVATIONS * sizes["width"]  # numbers of a token
    return int(FLOAT * tokens * (sizes["layers"] * layer + LOGITS * sizes["vocab"]) + step)


def completion_of(choice: "Choice", engine: str) -> Completion:
    """A continuation as the house knows it: a result that can be asked."""
    request = choice.request
    prompt = choice.model.text_of(request.prompt)
    return Completion(
        prompt,
        list(request.prompt),
        request.choice,
        request.options.seed,
        tokens=choice.tokens,
        text=choice.text.removeprefix(prompt) if choice.form.echo else choice.text,
        logprobs=choice.logprobs,
        finish_reason=choice.finish,
        model=choice.model,
        settings=request.options.summary(),
        engine=engine,
    )


def answered(completion: Completion, name: str, *, options: dict[str, Any]) -> Any:
    """The answer to one question about a completion."""
    lm = completion.lm
    size = len(completion.ids)
    machine.check_memory(
        memory_of(lm, tokens=size, question=name), what=f"{name} of {counted(size, 'token')}"
    )
    if name in OF_NOTHING:
        return ask(name, **options)
    if name in OF_TOKENIZER:
        return getattr(lm, name)(str(completion), **options)
    if name == "examples":
        texts = options["texts"]
        rest = {option: value for option, value in options.items() if option != "texts"}
        return lm.examples(texts, **rest)
    if name in OF_MODEL:
        return ask(name, lm, **options)
    if name == "sweep":
        return ask(name, lm, completion.prompt_tokens, **options)
    if hasattr(completion, name):
        return getattr(completion, name)(**options)
    return ask(name, Text(lm, completion.ids, len(completion.prompt_tokens), completion.logprobs), **options)


def difference(completion: Completion) -> float | None:
    """The largest distance between the log-probabilities of the generated tokens and those of the replay."""
    if not completion.tokens:
        return None
    first = len(completion.prompt_tokens) - 1
    rows = completion.lm.logits(completion.ids[:-1])[first:]
    replayed = [log_softmax(row)[token] for row, token in zip(rows, completion.tokens, strict=True)]
    return float(np.abs(np.array(replayed) - np.array(completion.logprobs)).max())


def recipe(choice: "Choice", engine: str, *, edits: Sequence[Any]) -> dict[str, Any]:
    """All that is needed to make the same text again."""
    # By a reading: a model whose `net` was asked for is checked for changes at every later use.
    net: Any = choice.model.reading(choice.request.prompt).net
    usual = Options()
    options = choice.request.options
    changed = {
        one.name: getattr(options, one.name)
        for one in fields(Options)
        if getattr(options, one.name) != getattr(usual, one.name)
    }
    return {
        "model": choice.served.id,
        "weights": fingerprint(net),
        "engine": engine,
        "prompt_ids": list(choice.request.prompt),
        "token_ids": choice.ids,
        "logprobs": choice.logprobs,  # of those that are part of the text
        "choice": choice.request.choice,
        "options": plain(changed),
        "stop": list(choice.form.stops),
        "stop_token_ids": sorted(choice.form.stop_ids),
        "edits": list(edits),
    }


def unedited(choice: "Choice") -> dict[str, Any]:
    """What the same request writes without its edits, by the same backend: all that differs is their work."""
    lm = choice.model
    twin = choice.begun_again()
    with lm.in_torch():
        outputs = generate_alone(lm.backend, for_model(twin.request, lm))
        for token in (token for output in outputs for token in tokens_of(output)):
            twin.push(token)
            if twin.finish:
                break
    return {
        "text": twin.text,
        "token_ids": twin.ids,
        "logprobs": twin.logprobs,
        "finish_reason": twin.finish,
    }


def encoded(found: Any, encoding: str) -> Any:
    """An answer as JSON has it; with base64, arrays of numbers as little-endian float32 with their shape."""
    if not isinstance(found, Answer):
        return plain(found)
    whole = found.to_dict()
    if encoding == "base64":
        for name, value in found.to_numpy().items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                raw = np.ascontiguousarray(value, dtype="<f4").tobytes()
                text = base64.b64encode(raw).decode()
                whole["values"][name] = {"dtype": "float32", "shape": list(value.shape), "base64": text}
    return whole


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """Answers a request's questions about each of its continuations."""

    metrics: "Metrics"
    traces: "Traces"
    served: "Served"
    asked: Asked
    inside: Inside | None = None  # what a generation by torch ran inside of
    edits: Sequence[Any] = ()

    @property
    def engine(self) -> str:
        """What chose the tokens."""
        return self.served.writing.name if self.inside is None else TORCH

    async def __call__(self, choice: "Choice") -> dict[str, Any]:
        """The object `explain` of a choice."""
        about, found, seconds, size = await self.served.lane.run(lambda: self._work(choice))
        for name, time_taken in seconds.items():
            self.metrics.count("insides_total", kind=name)
            self.metrics.observe("insides_seconds", time_taken, kind=name)
        if self.asked.timings and choice.running is not None:
            phases = ("queue", "prefill", "decode")
            about["timings"] = {one: getattr(choice.running.timings, one, None) for one in phases}
        self.metrics.count("insides_bytes_total", size)
        if size <= self.asked.max_bytes:
            return about | found
        id = self.traces.keep(found, size)
        self.metrics.trace_bytes = self.traces.size
        if id is None:
            words = f"the answers have {size:,} bytes, more than a trace may have; ask for less"
            raise invalid("explain", words)
        return about | {"trace_id": id, "bytes": size, "questions": list(found)}

    def _work(self, choice: "Choice") -> tuple[dict[str, Any], dict[str, Any], dict[str, float], int]:
        """What the lane's thread does: who answered, the answers, the seconds of each, and their bytes."""
        completion = completion_of(choice, self.engine)
        with nullcontext() if self.inside is None else self.inside():
            about, found, seconds = self._answers(completion)
        if self.asked.plain:
            about["plain"] = unedited(choice)
        if self.asked.recipe:
            about["recipe"] = recipe(choice, self.engine, edits=self.edits)
        return about, found, seconds, sum(len(piece.encode()) for piece in pieces(found))

    def _answers(self, completion: Completion) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
        """Who answered, the answers, and the seconds of each."""
        about: dict[str, Any] = {
            "engine": self.engine,
            "replayed_by": TORCH,
            "largest_logprob_difference": difference(completion),
        }
        found, seconds = {}, {}
        for name, options in self.asked.questions.items():
            begun = time.monotonic()
            try:
                answer = answered(completion, name, options=options)
            except InputError as error:
                raise invalid(f"explain.{name}", str(error)) from None
            self._check_size(name, answer)
            found[name] = encoded(answer, self.asked.encoding)
            seconds[name] = time.monotonic() - begun
        return about, found, seconds

    def _check_size(self, name: str, answer: Any) -> None:
        """Refuse what could not be kept, before it is written as JSON, which takes many times its memory."""
        values = answer.to_numpy().values() if isinstance(answer, Answer) else ()
        numbers = sum(value.size for value in values if isinstance(value, np.ndarray))
        if numbers * JSON_BYTES > self.traces.most:
            words = f"the answer has {numbers:,} numbers, more than a trace may have; ask for less"
            raise invalid(f"explain.{name}", words)


class LayersOfTokens:
    """What every layer would have said at each token of a stream, while it is written.

    The token that the engine chose is read by the torch model, in the lane, behind a cache of its own.
    """

    def __init__(self, served: "Served", *, k: int, inside: Inside | None) -> None:
        self.served, self.k, self.inside = served, k, inside
        self._lenses: dict[int, LiveLens] = {}  # by the number of the choice

    async def __call__(self, choice: "Choice", token: int) -> dict[str, Any]:
        """The layers where a choice goes on with a token."""
        while True:
            try:
                return await self.served.lane.run(lambda: self._work(choice, token))
            except QueueFull:  # the text was begun: it waits for its turn
                await asyncio.sleep(RETRY)

    def _work(self, choice: "Choice", token: int) -> dict[str, Any]:
        lm, prompt = choice.model, choice.request.prompt
        text = Text(lm, [*prompt, *choice.ids], len(prompt))
        lens = self._lenses.get(choice.index)
        if lens is None:
            from glassformer.answers.lens import LiveLens

            most = len(prompt) + choice.request.options.max_new_tokens
            lens = LiveLens(text, capacity=min(most, lm.backend.context or most), k=self.k)
            self._lenses[choice.index] = lens
        with nullcontext() if self.inside is None else self.inside():
            found = lens.step(text, token)
        stages = [
            {
                "stage": stage,
                "rank": int(found.ranks[at, 0]),
                "logprob": finite(float(found.logprobs[at, 0])),
                "top": choice.candidates(zip(found.top[at, 0], found.top_logprobs[at, 0], strict=True)),
            }
            for at, stage in enumerate(found.stages)
        ]
        return {"token": token, "stages": stages}
