"""The models that a server has: each with its runner, its lane, and what requests must know of it."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from glassformer.errors import InputError
from glassformer.server.errors import context_exceeded, invalid, still_loading, unknown_model
from glassformer.server.lane import Lane
from glassformer.server.runner import Runner
from glassformer.server.settings import Settings
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.model import Model
from glassformer.tokenizers import Tokenizer

if TYPE_CHECKING:
    from glassformer.server.schemas import Prompt

SHORT = 2000  # characters that are tokenized at once; a longer text goes to a thread
LANE = 16  # jobs of torch that may wait
TURNS = re.compile("dialogpt", re.IGNORECASE)  # models whose turns are joined by <|endoftext|>


def sizes_of(model: Model) -> Mapping[str, Any]:
    """The sizes of a model: layers, heads, width …; an engine knows them without loading torch."""
    return asdict(model.net.config) if model.engine is None else model.engine.config


def parameters_of(model: Model) -> int:
    """How many numbers a model has learned; of an engine's GPT-2 they are counted without loading torch."""
    if model.engine is None:
        return int(model.net.config.parameters)
    sizes = sizes_of(model)
    width, neurons, bias = sizes["width"], sizes["neurons"], int(sizes["bias"])
    norm = (1 + bias) * width
    attention = (width + bias) * 3 * width + (width + bias) * width
    feedforward = (width + bias) * neurons + (neurons + bias) * width
    embeddings = (sizes["vocab"] + sizes["context"]) * width
    head = 0 if sizes["tied"] else sizes["vocab"] * width
    return int(embeddings + sizes["layers"] * (2 * norm + attention + feedforward) + norm + head)


@dataclass(eq=False)
class Served:
    """A model under the name that requests call it by."""

    id: str
    model: Model
    settings: Settings
    created: int = field(default_factory=lambda: int(time.time()))
    runner: Runner | None = None  # of a model that continues texts
    lane: Lane = field(default_factory=lambda: Lane(most=LANE))

    async def start(self) -> None:
        """Begin to answer."""
        if isinstance(self.model, LanguageModel):
            how = self.settings
            self.runner = Runner(
                self.model,
                slots=how.slots,
                queue=how.queue,
                queue_tokens=how.queue_tokens,
                budget=how.budget,
            )
            await self.runner.start()
            if self.model.tokenizer is not None:
                assert self.most_bytes != 0  # looked up once, before a request waits for it

    async def close(self, grace: float) -> None:
        """Finish what is running, within a time."""
        if self.runner is not None:
            await self.runner.close(grace)
        self.lane.close()

    @property
    def writer(self) -> LanguageModel:
        """The model, if it continues texts."""
        if not isinstance(self.model, LanguageModel):
            can = ", ".join(sorted(self.model.capabilities))
            raise invalid("model", f"{self.id} does not continue texts; its capabilities are: {can}")
        return self.model

    @property
    def writing(self) -> Runner:
        """What runs the model, if it continues texts."""
        assert self.writer is not None
        assert self.runner is not None, "a server answers after it has started"
        return self.runner

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        if self.model.tokenizer is None:
            raise invalid("model", f"{self.id} has no vocabulary; send token ids")
        return self.model.tokenizer

    @cached_property
    def context(self) -> int | None:
        """The number of tokens that the model attends to."""
        return self.model.backend.context

    @cached_property
    def vocab(self) -> int:
        """The number of tokens that have a name; ids beyond it are refused."""
        size = self.model.backend.vocab
        return size if self.model.tokenizer is None else min(size, len(self.model.tokenizer))

    @cached_property
    def most_bytes(self) -> int | None:
        """The most bytes of a text that fits the context: longer ones are not even tokenized."""
        if self.context is None:
            return None
        longest = max(len(self.tokenizer.bytes_of(id)) for id in range(len(self.tokenizer)))
        return self.context * longest

    @cached_property
    def turns(self) -> bool:
        """Whether the turns of a conversation are joined by the end token, as DialoGPT has learned them."""
        return TURNS.search(self.id) is not None

    def details(self) -> dict[str, Any]:
        """The model as `/v1/models` lists it."""
        about = {"id": self.id, "object": "model", "created": self.created, "owned_by": "glassformer"}
        return about | {"max_model_len": self.context}

    # Texts to ids

    async def encode(self, text: str, *, param: str = "prompt") -> tuple[int, ...]:
        """The ids of a text, which must fit the context; a special token in it is plain text."""
        size = len(text.encode())
        if self.most_bytes is not None and size > self.most_bytes:
            least = -(-size * (self.context or 0) // self.most_bytes)
            raise context_exceeded(least, self.context or 0, counted=False)
        try:
            if len(text) <= SHORT:
                ids = self.model.encode(text)
            else:
                ids = await asyncio.to_thread(self.model.encode, text)
        except InputError as error:
            raise invalid(param, str(error)) from None
        return self.fitting(ids)

    def ids(self, given: Sequence[int], *, param: str = "prompt") -> tuple[int, ...]:
        """Token ids that were sent: all in the vocabulary, and not too many."""
        self.check_ids(given, param=param)
        return self.fitting(given or self.model.encode(""))

    def fitting(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The same ids, if the context holds them."""
        if self.context is not None and len(ids) > self.context:
            raise context_exceeded(len(ids), self.context)
        return tuple(ids)

    def check_ids(self, given: Sequence[int], *, param: str) -> None:
        """Refuse ids that the model has no token for."""
        unknown = next((id for id in given if not 0 <= id < self.vocab), None)
        if unknown is not None:
            raise invalid(
                param,
                f"{unknown} is not a token id of {self.id} (0 to {self.vocab - 1}); a client that tokenizes"
                " by itself must use this model's vocabulary, or send text"
                " (LangChain's embeddings: check_embedding_ctx_length=False)",
            )

    async def prompts(self, given: "Prompt | None", *, param: str = "prompt") -> list[tuple[int, ...]]:
        """The four forms of a prompt; none is the beginning of a document."""
        if given is None:
            return [self.ids([], param=param)]
        if isinstance(given, str):
            return [await self.encode(given, param=param)]
        if not given:
            return [self.ids([], param=param)]
        if isinstance(given[0], int):
            return [self.ids(given, param=param)]
        found = []
        for one in given:
            if isinstance(one, str):
                found.append(await self.encode(one, param=param))
            else:
                found.append(self.ids(one, param=param))
        return found


class Library:
    """All models of a server, by the names that requests may use. A request never loads one; what a job made
    is added when it is done.
    """

    def __init__(self, models: dict[str, Model], settings: Settings) -> None:
        self.settings = settings
        self.served = {id: Served(id, model, settings) for id, model in models.items()}

    def find(self, id: str | None) -> Served:
        """A model by its id; without one, the first."""
        if id is None and self.served:
            return next(iter(self.served.values()))
        if id is None:
            raise still_loading()
        found = self.served.get(id)
        if found is None:
            raise unknown_model(id, self.served)
        return found

    async def start(self) -> None:
        """Begin to answer."""
        for one in self.served.values():
            await one.start()

    async def add(self, id: str, model: Model) -> None:
        """Serve one more model, from now on."""
        served = Served(id, model, self.settings)
        await served.start()
        self.served[id] = served

    async def remove(self, id: str, grace: float) -> None:
        """Serve a model no longer; texts that it writes are finished, within a time."""
        await self.served.pop(id).close(grace)

    @property
    def working(self) -> bool:
        """Whether a lane still computes, which nothing can end but the end of the process."""
        return any(one.lane.working for one in self.served.values())

    async def close(self, grace: float) -> None:
        """Finish what is running, within a time."""
        await asyncio.gather(*(one.close(grace) for one in self.served.values()))
