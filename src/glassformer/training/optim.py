"""Optimizer and learning rate."""

import math

import torch
from torch import nn


def adamw(model: nn.Module, *, lr: float, weight_decay: float = 0.1) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves biases and gains alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def warmup_cosine(step: int, *, steps: int, warmup: int, peak: float, floor: float) -> float:
    """The learning rate of a step: up in a line, down along a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2
