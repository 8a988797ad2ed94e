"""What every explanation needs of a decoder, whatever its file: its blocks, and how the last of them becomes logits."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.trace import Edits, Tracer, trace

Array = np.ndarray[Any, Any]


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
        raise InputError(
            f"{len(ids)} tokens are {len(ids) - model.context} more than the model's context of {model.context}"
        )
    strange = next((id for id in ids if not 0 <= id < model.vocab), None)
    if strange is not None:
        raise InputError(f"{strange} is not a token id of this model (0 to {model.vocab - 1})")
    return torch.tensor([list(ids)], device=model.tokens.weight.device)


def numbers(value: Tensor) -> Array:
    """As NumPy has them: float64 where the model is, float32 otherwise."""
    value = value.detach()
    return np.asarray(
        (value if value.dtype == torch.float64 or not value.is_floating_point() else value.float())
        .cpu()
        .numpy()
    )


def check_layer(model: Decoder, layer: int) -> None:
    """A block that is there, counted from 0."""
    if not isinstance(layer, int) or not 0 <= layer < len(model.blocks):
        raise InputError(f"layer {layer!r} is not there; the model has layers 0 to {len(model.blocks) - 1}")


def check_head(model: Decoder, head: int) -> None:
    """A head that is there, counted from 0."""
    if not isinstance(head, int) or not 0 <= head < model.config.heads:
        raise InputError(
            f"head {head!r} is not there; a layer of this model has heads 0 to {model.config.heads - 1}"
        )


def look(
    model: Decoder, *sites: str, edits: Edits | None = None, grad: bool = False
) -> AbstractContextManager[Tracer]:
    """`trace`, for whatever is known to be a decoder."""
    return trace(cast(nn.Module, model), *sites, edits=edits, grad=grad)
