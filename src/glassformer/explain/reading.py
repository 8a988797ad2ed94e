"""One model reading its inputs: what every explanation starts from.

A `Reading` is the only place that runs a model under a trace for an explanation. It checks the token ids,
holds the model's lock while the model runs, and says to position-dependent edits where the prompt ended.

Most models read one text. An encoder-decoder reads two: its encoder the source, its decoder the text, whose
next token it predicts. A `Stack` says which of them its positions are, and a `Part` of it what it attends to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_position
from glassformer.nn.stack import Part, Stack
from glassformer.trace import Edits, Tracer, muted, parse_address, sites_of, trace
from glassformer.waiting import raise_if_cancelled

Array = np.ndarray[Any, Any]
SCORED = ("scores", "pattern")  # sites of attention with an axis of keys, the last

# The length of the prompt while a reading runs; 0 outside of one. Edits need it: they count positions below 0
# from the end of the prompt, and a text that is read at once does not show where its prompt ended.
_prompt: ContextVar[int] = ContextVar("prompt", default=0)


class Readable(Protocol):
    """What explanations need of a model: its stacks of blocks, and both ends of their residual stream."""

    @property
    def config(self) -> Any: ...
    @property
    def capabilities(self) -> frozenset[str]: ...
    @property
    def stacks(self) -> tuple[Stack, ...]: ...
    @property
    def tokens(self) -> nn.Embedding: ...
    @property
    def norm(self) -> nn.Module: ...
    @property
    def head(self) -> nn.Linear: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context(self) -> int | None: ...
    @property
    def device(self) -> torch.device: ...

    def __call__(
        self, *ids: Tensor, last: bool = False
    ) -> Tensor: ...  # the source first, if it reads two texts
    def embed(self, ids: Tensor) -> Tensor: ...
    def embed_source(self, ids: Tensor) -> Tensor: ...
    def unembed(self, x: Tensor) -> Tensor: ...
    def stream_norm(self, site: str) -> nn.LayerNorm | None: ...
    def new_cache(self, rows: int, capacity: int) -> Any: ...
    def step(self, ids: Array, cache: Any) -> Array: ...


@dataclass(frozen=True)
class Reading:
    """A model, the token ids of a text, and how many of them were the prompt (0: all of them).

    `source` is the second text of a model that reads two.
    """

    net: Readable = field(repr=False)
    ids: list[int]
    prompt: int = 0
    # The lock of the handle that shares the model between threads; it must be reentrant.
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext, repr=False, compare=False)
    source: list[int] | None = None

    def run(
        self, *sites: str, last: bool = True, edits: Edits | None = None, grad: bool = False, rows: int = 1
    ) -> Tracer:
        """One forward pass of the text under a trace; what the trace saw.

        `last` computes the logits of the last position alone, `rows` repeats the text in a batch.
        """
        with self.tracing(*sites, edits=edits, grad=grad) as seen:
            self.logits(last=last, rows=rows)
        return seen

    @contextmanager
    def tracing(self, *sites: str, edits: Edits | None = None, grad: bool = False) -> Iterator[Tracer]:
        """Hold the lock and trace the model, for explanations that run it in their own way."""
        self.check_ids()
        before = _prompt.set(self.prompt or len(self.ids))
        try:
            with self.lock, trace(module_of(self.net), *sites, edits=edits, grad=grad) as seen:
                yield seen
        finally:
            _prompt.reset(before)

    def run_unedited(self, *sites: str, keep: Callable[[Tensor], Tensor] = Tensor.detach) -> Tracer:
        """One forward pass that no edit around it changes and no trace around it sees.

        `keep` says what is kept of each value.
        """
        self.check_ids()
        with self.lock, torch.inference_mode(), muted(module_of(self.net), *sites, keep=keep) as seen:
            self.logits()
        return seen

    def logits(self, *, last: bool = True, rows: int = 1) -> Tensor:
        """What the model makes of its inputs, without a trace of its own: (rows, 1, V), or (rows, T, V)."""
        raise_if_cancelled()
        if self.source is None:
            return self.net(self.batch(rows), last=last)
        return self.net(self.source_batch(rows), self.batch(rows), last=last)

    def stepper(self) -> Any:
        """What reads the text token by token: the model, bound to the source if there is one."""
        if self.source is None:
            return self.net
        with self.lock, torch.inference_mode():
            return cast(Any, self.net).given([self.source])

    def batch(self, rows: int = 1) -> Tensor:
        """The ids as a tensor (rows, T) on the model's device."""
        return self._tensor(self.ids, rows)

    def source_batch(self, rows: int = 1) -> Tensor:
        """The ids of the source as a tensor (rows, S)."""
        return self._tensor(self.check_source(), rows)

    def _tensor(self, ids: Sequence[int], rows: int) -> Tensor:
        row = torch.tensor([list(ids)], device=self.net.device)  # (1, T)
        return row.expand(rows, -1)

    def until(self, position: int) -> "Reading":
        """The text up to and including a position, which is all that a causal model sees there.

        The prompt keeps its length, also where it is cut: edits still count from where it ended.
        """
        return replace(self, ids=self.ids[: position + 1], prompt=self.prompt or len(self.ids))

    def stack(self, name: str = "") -> Stack:
        """The stack of a name; without a name, the one that the output reads: the last."""
        return stack_of(self.net, name)

    def ids_of(self, stack: str = "") -> list[int]:
        """The tokens at the positions of a stack: those of the text, or of the source."""
        return self._ids(source=self.is_source(stack))

    def is_source(self, stack: str = "") -> bool:
        """Whether a stack reads the source; a recurrent network without stacks is asked about its text."""
        return bool(stack or self.net.stacks) and self.stack(stack).source

    def axes(self, *, stack: str = "", part: str = "attn") -> tuple[list[int], list[int]]:
        """The tokens of both axes of a pattern (T, S): the queries, and what they attend to."""
        queries = self.ids_of(stack)
        return queries, self._ids(source=True) if self.crosses(stack=stack, part=part) else queries

    def crosses(self, *, stack: str = "", part: str = "attn") -> bool:
        """Whether a pattern lies between two texts."""
        return attention_of(self.stack(stack), part).source

    def _ids(self, *, source: bool) -> list[int]:
        return self.check_source() if source else self.ids

    def check_source(self) -> list[int]:
        """The tokens of the source; a reading without one is refused."""
        if self.source is None:
            raise InputError("this model reads a source text beside the text, and none was given")
        return self.source

    def check_ids(self) -> None:
        """Refuse a text that is empty, longer than the context, or has ids outside of the vocabulary."""
        self._check_text(self.ids, "text")
        if reads_source(self.net):
            self._check_text(self.check_source(), "source text")
        elif self.source is not None:
            raise InputError("this model reads one text: it has no use for a source text")

    def _check_text(self, ids: Sequence[int], name: str) -> None:
        size, context = len(ids), self.net.context
        if not size:
            raise InputError(f"there is no token to explain: the {name} is empty")
        if context is not None and size > context:
            where = "" if name == "text" else f"the {name}: "
            more = f"{size - context} more than the model's context of {context}"
            raise InputError(f"{where}{size} tokens are {more}")
        for token in ids:
            check_token(self.net, token)

    def check_layer(self, layer: int, *, stack: str = "") -> int:
        """A layer of a stack, counted from 0."""
        return check_layer(self.stack(stack), layer)

    def check_layers(self, layers: int | Sequence[int] | None, *, stack: str = "") -> list[int]:
        """Some layers of a stack; all of them for None."""
        return check_layers(self.stack(stack), layers)

    def check_head(self, head: int, *, stack: str = "") -> int:
        """A head of a layer, counted from 0."""
        return check_head(self.stack(stack), head)

    def check_position(self, position: int, *, stack: str = "") -> int:
        """A position of a stack's text, counted from 0; a negative one counts from the end."""
        return check_position(len(self.ids_of(stack)), position)

    def check_token(self, token: int) -> int:
        """A token id of the vocabulary."""
        return check_token(self.net, token)


def prompt_length() -> int:
    """How many tokens the prompt has that a reading is running now; 0 outside of readings."""
    return _prompt.get()


def module_of(net: Readable) -> nn.Module:
    """The same net: every `Readable` is a torch module, which a protocol cannot say."""
    return cast(nn.Module, net)


def output_matrix(net: Readable, stack: Stack, *, layer: int, part: Part) -> nn.Linear:
    """The matrix by which a part of a block writes to the residual stream."""
    path = stack.site(layer, f"{part.name}.{part.output}")
    return cast(nn.Linear, module_of(net).get_submodule(path))


def stack_of(net: Readable, name: str = "") -> Stack:
    """The stack of a name (`encoder`) or prefix; without one, the one that the output reads: the last."""
    if not net.stacks:
        raise InputError("this model has no stack of layers with a residual stream")
    if not name:
        return net.stacks[-1]
    for stack in net.stacks:
        if stack.name == name.rstrip("."):
            return stack
    known = ", ".join(stack.name for stack in net.stacks)
    raise InputError(f"stack {name!r} does not exist; this model has: {known}")


def attention_of(stack: Stack, name: str) -> Part:
    """A part of a stack that attends: `attn`, or `cross` in a decoder that reads a source."""
    for part in stack.attention:
        if part.name == name:
            return part
    known = ", ".join(part.name for part in stack.attention) or "none"
    raise InputError(f"attention {name!r} does not exist in the stack {stack.name}, which has: {known}")


def reads_source(net: Readable) -> bool:
    """Whether a model reads a source text beside the text."""
    return "source" in net.capabilities


def holds_source(net: Readable, address: str) -> bool:
    """Whether the positions of a site are those of the source text."""
    site, _ = parse_address(address)
    if not net.stacks:  # a recurrent network
        return reads_source(net) and site.startswith("encoder.")
    if any(stack.source and site.startswith(stack.prefix) for stack in net.stacks):
        return True
    # A query of cross-attention is a position of the text, its keys and values are those of the source.
    return site.endswith(tuple(f".{name}.{value}" for name in _crossing(net) for value in "kv"))


def attends_to_source(net: Readable, address: str) -> bool:
    """Whether the keys of attention scores, or of a pattern, are positions of the source text."""
    if holds_source(net, address):
        return True
    if not net.stacks:  # a recurrent network attends to the states of its encoder
        return reads_source(net)
    site, _ = parse_address(address)
    return site.endswith(tuple(f".{name}.{value}" for name in _crossing(net) for value in SCORED))


def _crossing(net: Readable) -> list[str]:
    """The parts of blocks that attend to the source."""
    return [part.name for stack in net.stacks for part in stack.parts if part.source]


def stepped_sites(net: Readable) -> frozenset[str]:
    """The sites that a recurrent network meets once for every token, each time without an axis for it."""
    if "recurrent" not in net.capabilities:
        return frozenset()
    two = torch.zeros(1, 2, dtype=torch.long, device=net.device)
    seen = sites_of(module_of(net), *[two, two] if reads_source(net) else [two])
    return frozenset(site for site in seen if len(seen.each(site)) > 1)


def layer_sites(stack: Stack, name: str, *, layers: Iterable[int] | None = None) -> list[str]:
    """One site in every layer of a stack, or in some."""
    chosen = range(stack.layers) if layers is None else layers
    return [stack.site(layer, name) for layer in chosen]


def check_layer(stack: Stack, layer: int) -> int:
    """A layer of a stack, counted from 0."""
    return _in_range("layer", layer, stack.layers)


def check_layers(stack: Stack, layers: int | Sequence[int] | None) -> list[int]:
    """Some layers of a stack, or one; all of them for None."""
    if layers is None:
        return list(range(stack.layers))
    if isinstance(layers, int):
        return [check_layer(stack, layers)]
    if not layers:
        raise InputError("layers is empty; name at least one layer")
    return [check_layer(stack, layer) for layer in layers]


def check_head(stack: Stack, head: int) -> int:
    """A head of a layer, counted from 0."""
    return _in_range("head", head, stack.heads)


def check_neuron(stack: Stack, neuron: int) -> int:
    """A neuron of a layer, counted from 0."""
    return _in_range("neuron", neuron, stack.neurons)


def check_token(net: Readable, token: int) -> int:
    """A token id of the vocabulary."""
    return _in_range("token", token, net.vocab)


def _in_range(name: str, value: int, count: int) -> int:
    if not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise InputError(f"{name} {value!r} is out of range (0 to {count - 1})")
    return int(value)


def numbers(value: Tensor) -> Array:
    """A tensor as NumPy has it: float64 where the model is, float32 for fewer bits."""
    value = value.detach()
    if value.is_floating_point() and value.dtype != torch.float64:
        value = value.float()
    return np.asarray(value.cpu().numpy())
