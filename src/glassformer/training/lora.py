"""LoRA: leave a matrix as it is and learn two of low rank beside it. W·x becomes W·x + scale · B·A·x.

Paper  LoRA: Low-Rank Adaptation of Large Language Models (Hu et al., 2021)

An adapted layer is still a `Linear` with its `weight` and `bias`; its LoRA weights are `lora_a` (R, in) and
`lora_b` (out, R). B begins at zero, so that an adapted model begins as the model it adapts.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import InputError


class LoraLinear(nn.Linear):
    """A linear layer that stays as it is, and LoRA weights that learn."""

    def __init__(self, base: nn.Linear, *, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.rank, self.scale = rank, scale
        self.dropout = nn.Dropout(dropout)
        self.lora_a = nn.Parameter(base.weight.new_zeros(rank, base.in_features))
        self.lora_b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        self.before: Tensor | None = None  # the weight alone, while the LoRA weights are merged into it

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) -> (…, out)."""
        y = F.linear(x, self.weight, self.bias)
        if self.before is not None:
            return y
        return y + F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b) * self.scale

    def delta(self) -> Tensor:
        """What the LoRA weights add to the weight: (out, in)."""
        return self.lora_b.detach() @ self.lora_a.detach() * self.scale


def attach(
    model: nn.Module, targets: Iterable[str], *, rank: int, scale: float, dropout: float = 0.0, seed: int = 0
) -> list[str]:
    """Give every linear layer whose name fits a target LoRA weights, and freeze the rest; returns the names.

    A target is a glob of whole names, as `blocks.*.attn.qkv`, or how a name ends. A is drawn as PEFT draws
    it, B is zero.
    """
    if rank < 1:
        raise InputError(f"rank must be at least 1, not {rank}")
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and less than 1, not {dropout}")
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    found = {name for target in targets for name in _fitting(target, layers)}
    if any(isinstance(layer, LoraLinear) for layer in layers.values()):
        raise InputError("the model is adapted already; fold it first")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name in sorted(found):
        adapted = LoraLinear(layers[name], rank=rank, scale=scale, dropout=dropout).train(model.training)
        bound = 1 / math.sqrt(adapted.in_features)
        with torch.no_grad():
            adapted.lora_a.copy_(
                torch.empty(rank, adapted.in_features).uniform_(-bound, bound, generator=generator)
            )
        _replace_layer(model, name, adapted)
    return sorted(found)


def insert(model: nn.Module, weights: Mapping[str, tuple[Tensor, Tensor, float]]) -> None:
    """Give layers LoRA weights that were learned before: by name, A (R, in), B (out, R) and their scale."""
    for name, (a, b, scale) in weights.items():
        try:
            layer = model.get_submodule(name)
        except AttributeError:
            layer = None
        if (
            not isinstance(layer, nn.Linear)
            or isinstance(layer, LoraLinear)
            or (b.shape[0], a.shape[1]) != tuple(layer.weight.shape)
        ):
            raise InputError(f"{name}: LoRA weights of {b.shape[0]} × {a.shape[1]} fit no layer of the model")
        adapted = LoraLinear(layer, rank=len(a), scale=scale).train(layer.training)
        adapted.lora_a.data.copy_(a)
        adapted.lora_b.data.copy_(b)
        _replace_layer(model, name, adapted)


def adapted_layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    """The adapted layers of a model, by name."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLinear))


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Add LoRA weights to their layers: the same outputs, to rounding, at the speed of the plain model."""
    for _, layer in adapted_layers(model):
        if layer.before is None:
            layer.before = layer.weight.detach().clone()
            layer.weight += layer.delta()


@torch.no_grad()
def unmerge(model: nn.Module) -> None:
    """Take the LoRA weights out again; every weight has the very bits it had before."""
    for _, layer in adapted_layers(model):
        if layer.before is not None:
            layer.weight.copy_(layer.before)
            layer.before = None


@torch.no_grad()
def fold(model: nn.Module) -> None:
    """Merge for good: a plain model without LoRA weights."""
    for name, layer in list(adapted_layers(model)):
        if layer.before is None:
            layer.weight += layer.delta()
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = layer.weight, layer.bias
        _replace_layer(model, name, plain.train(layer.training))
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def _replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Put a layer in the place of another."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, layer)


def _fitting(target: str, layers: dict[str, nn.Linear]) -> list[str]:
    found = [
        name for name in layers if fnmatchcase(name, target) or name == target or name.endswith(f".{target}")
    ]
    if not found:
        last = sorted({re.sub(r".*\.\d+\.", "", name) for name in layers})  # without the path of a block
        raise InputError(f"targets: {target!r} fits no linear layer; there are {', '.join(last)}")
    if "head" in found:
        raise InputError(
            f"targets: {target!r} fits the output matrix, which is the token matrix and cannot be adapted"
        )
    return found
