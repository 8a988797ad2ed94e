"""The optimizer, and which parameters it moves."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from glassformer.errors import InputError
from glassformer.training.plan import Plan


def adamw(model: nn.Module, plan: Plan) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves biases and gains alone; frozen parameters are left out."""
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not moving:
        raise InputError("freeze leaves no parameter to train")
    groups = [
        {"params": [p for p in moving if p.dim() >= 2], "weight_decay": plan.weight_decay},
        {"params": [p for p in moving if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=plan.lr, betas=(plan.beta1, plan.beta2), fused=True
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep parameters as they are: those whose names, or whose modules' names, fit one of the patterns. Returns their names."""
    frozen: list[str] = []
    for pattern in patterns:
        found = [name for name, _ in model.named_parameters() if any(fnmatchcase(start, pattern) for start in _starts(name))]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise InputError(f"freeze: {pattern!r} fits no parameter; the names begin with {', '.join(names)}")
        frozen += found
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    return sorted(set(frozen))


def _starts(name: str) -> list[str]:
    """`blocks.0.attn.qkv.weight` and the modules it lies in: `blocks`, `blocks.0`, …"""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]
