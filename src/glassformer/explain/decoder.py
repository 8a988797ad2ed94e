"""What every explanation needs of a decoder, whatever its file: its blocks, and how the last of them becomes logits."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.trace import Edit, Tracer, trace


class Decoder(Protocol):
    """A stack of blocks on a residual stream, read out by a norm and a matrix."""

    @property
    def context(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def config(self) -> Any: ...
    @property
    def tokens(self) -> nn.Embedding: ...
    @property
    def blocks(self) -> nn.ModuleList: ...
    @property
    def norm(self) -> nn.LayerNorm: ...
    @property
    def head(self) -> nn.Linear: ...

    def __call__(self, ids: Tensor, *, last: bool = False) -> Tensor: ...
    def new_cache(self, rows: int, capacity: int) -> Any: ...
    def step(self, ids: Any, cache: Any) -> Any: ...


def as_row(model: Decoder, ids: Sequence[int]) -> Tensor:
    """(1, T) on the model's device; a text that is empty or too long is refused."""
    if not len(ids):
        raise InputError("there is no token to explain: the text is empty")
    if len(ids) > model.context:
        raise InputError(f"{len(ids)} tokens are {len(ids) - model.context} more than the model's context of {model.context}")
    return torch.tensor([list(ids)], device=model.tokens.weight.device)


def check_layer(model: Decoder, layer: int) -> None:
    """A block that is there, counted from 0."""
    if not 0 <= layer < len(model.blocks):
        raise InputError(f"layer {layer} is not there; the model has layers 0 to {len(model.blocks) - 1}")


def check_head(model: Decoder, head: int) -> None:
    """A head that is there, counted from 0."""
    if not 0 <= head < model.config.heads:
        raise InputError(f"head {head} is not there; a layer of this model has heads 0 to {model.config.heads - 1}")


def look(
    model: Decoder, *sites: str, edits: Mapping[str, Edit] | None = None, grad: bool = False
) -> AbstractContextManager[Tracer]:
    """`trace`, for whatever is known to be a decoder."""
    return trace(cast(nn.Module, model), *sites, edits=edits, grad=grad)
