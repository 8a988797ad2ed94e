"""One model reading one text: what every explanation starts from.

A `Reading` is the only place that runs a model under a trace for an explanation. It checks the token ids,
holds the model's lock while the model runs, and says to position-dependent edits where the prompt ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_position
from glassformer.nn.stack import Stack
from glassformer.trace import Edits, Tracer, muted, trace

Array = np.ndarray[Any, Any]

# The length of the prompt while a reading runs; 0 outside of one. Edits need it: they count positions below 0
# from the end of the prompt, and a text that is read at once does not show where its prompt ended.
_prompt: ContextVar[int] = ContextVar("prompt", default=0)


class Net(Protocol):
    """What explanations need of a model: its stacks of blocks, and both ends of their residual stream."""

    @property
    def config(self) -> Any: ...
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

    def __call__(self, ids: Tensor, *, last: bool = False) -> Tensor: ...
    def embed(self, ids: Tensor) -> Tensor: ...
    def unembed(self, x: Tensor) -> Tensor: ...
    def stream_norm(self, site: str) -> nn.LayerNorm | None: ...
    def new_cache(self, rows: int, capacity: int) -> Any: ...
    def step(self, ids: Array, cache: Any) -> Array: ...


@dataclass(frozen=True)
class Reading:
    """A model, the token ids of a text, and how many of them were the prompt (0: all of them)."""

    net: Net = field(repr=False)
    ids: list[int]
    prompt: int = 0
    # The lock of the handle that shares the model between threads; it must be reentrant.
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext, repr=False, compare=False)

    def run(
        self, *sites: str, last: bool = True, edits: Edits | None = None, grad: bool = False, rows: int = 1
    ) -> Tracer:
        """One forward pass of the text under a trace; what the trace saw.

        `last` computes the logits of the last position alone, `rows` repeats the text in a batch.
        """
        with self.tracing(*sites, edits=edits, grad=grad) as seen:
            self.net(self.batch(rows), last=last)
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

    def run_unedited(self, *sites: str) -> Tracer:
        """One forward pass that no edit around it changes and no trace around it sees."""
        self.check_ids()
        with self.lock, torch.inference_mode(), muted(module_of(self.net), *sites) as seen:
            self.net(self.batch(), last=True)
        return seen

    def batch(self, rows: int = 1) -> Tensor:
        """The ids as a tensor (rows, T) on the model's device."""
        row = torch.tensor([list(self.ids)], device=self.net.device)  # (1, T)
        return row.expand(rows, -1)

    def until(self, position: int) -> "Reading":
        """The text up to and including a position, which is all that a causal model sees there.

        The prompt keeps its length, also where it is cut: edits still count from where it ended.
        """
        return replace(self, ids=self.ids[: position + 1], prompt=self.prompt or len(self.ids))

    def stack(self, prefix: str = "") -> Stack:
        """The stack of a prefix; without a prefix, the one that the output reads: the last."""
        return stack_of(self.net, prefix)

    def check_ids(self) -> None:
        """Refuse a text that is empty, longer than the context, or has ids outside of the vocabulary."""
        size, context = len(self.ids), self.net.context
        if not size:
            raise InputError("there is no token to explain: the text is empty")
        if context is not None and size > context:
            raise InputError(f"{size} tokens are {size - context} more than the model's context of {context}")
        for token in self.ids:
            check_token(self.net, token)

    def check_layer(self, layer: int, *, stack: str = "") -> int:
        """A layer of a stack, counted from 0."""
        return check_layer(self.stack(stack), layer)

    def check_layers(self, layers: Sequence[int] | None, *, stack: str = "") -> list[int]:
        """Some layers of a stack; all of them for None."""
        return check_layers(self.stack(stack), layers)

    def check_head(self, head: int, *, stack: str = "") -> int:
        """A head of a layer, counted from 0."""
        return check_head(self.stack(stack), head)

    def check_position(self, position: int) -> int:
        """A position of the text, counted from 0; a negative one counts from the end."""
        return check_position(len(self.ids), position)

    def check_token(self, token: int) -> int:
        """A token id of the vocabulary."""
        return check_token(self.net, token)


def prompt_length() -> int:
    """How many tokens the prompt has that a reading is running now; 0 outside of readings."""
    return _prompt.get()


def module_of(net: Net) -> nn.Module:
    """The same net: every `Net` is a torch module, which a protocol cannot say."""
    return cast(nn.Module, net)


def part_of(net: Net, site: str) -> Any:
    """The module at a site: `blocks.3.attn`."""
    return module_of(net).get_submodule(site)


def stack_of(net: Net, prefix: str = "") -> Stack:
    """The stack of a prefix; without a prefix, the one that the output reads: the last."""
    found = [stack for stack in net.stacks if stack.prefix == prefix]
    if found:
        return found[0]
    if prefix == "" and net.stacks:
        return net.stacks[-1]
    if not net.stacks:
        raise InputError("this model has no stack of layers with a residual stream")

    known = ", ".join(repr(stack.prefix) for stack in net.stacks)
    raise InputError(f"stack {prefix!r} does not exist; this model has {known}")


def layer_sites(stack: Stack, name: str, *, layers: Iterable[int] | None = None) -> list[str]:
    """One site in every layer of a stack, or in some."""
    chosen = range(stack.layers) if layers is None else layers
    return [stack.site(layer, name) for layer in chosen]


def check_layer(stack: Stack, layer: int) -> int:
    """A layer of a stack, counted from 0."""
    return _in_range("layer", layer, stack.layers)


def check_layers(stack: Stack, layers: Sequence[int] | None) -> list[int]:
    """Some layers of a stack, at least one; all of them for None."""
    if layers is None:
        return list(range(stack.layers))
    if not layers:
        raise InputError("layers is empty; name at least one layer")
    return [check_layer(stack, layer) for layer in layers]


def check_head(stack: Stack, head: int) -> int:
    """A head of a layer, counted from 0."""
    return _in_range("head", head, stack.heads)


def check_neuron(stack: Stack, neuron: int) -> int:
    """A neuron of a layer, counted from 0."""
    return _in_range("neuron", neuron, stack.neurons)


def check_token(net: Net, token: int) -> int:
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
