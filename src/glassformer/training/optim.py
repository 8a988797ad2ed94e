"""The optimizer, and which parameters it moves."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from glassformer.errors import InputError
from glassformer.training.plan import Plan

MOMENTUM = 0.95  # share of the average in which a gradient is still felt a step later


def optimizer_of(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """The optimizer that the plan names. Matrices decay, biases and gains do not; frozen parameters are left out."""
    moving = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not moving:
        raise InputError("freeze leaves no parameter to train")
    stacked = {
        p for blocks in model.modules() if isinstance(blocks, nn.ModuleList) for p in blocks.parameters()
    }
    parts = {
        name: 0
        if plan.optimizer == "adamw" or p.dim() != 2 or p not in stacked
        else 3
        if name.endswith("qkv.weight")
        else 1
        for name, p in moving.items()
    }
    groups = [
        {
            "params": [p for name, p in moving.items() if (parts[name], p.dim() >= 2) == (count, matrix)],
            "weight_decay": plan.weight_decay if matrix else 0.0,
            "parts": count,
        }
        for count, matrix in ((0, True), (0, False), (1, True), (3, True))
    ]
    kind = torch.optim.AdamW if plan.optimizer == "adamw" else Muon
    return kind(
        [group for group in groups if group["params"]], lr=plan.lr, betas=(plan.beta1, plan.beta2), fused=True
    )


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al., 2024) for the matrices inside the blocks, AdamW for everything else.

    A matrix moves by its averaged gradient with all singular values made about 1, so that no direction is louder than
    another. Scaled as in Moonlight (Liu et al., 2025), the step is as long as AdamW's, and one learning rate serves both.
    `parts` of a group is how many matrices lie in each of its parameters, one below the other; 0 leaves them to AdamW.

    torch.optim.Muon is the same in bf16, which takes 30 times as long on a CPU that only emulates bf16.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter once, by the one or by the other."""
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group["parts"]]
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            if group["parts"]:
                for parameter in group["params"]:
                    self._turn(parameter, group)

    def _turn(self, parameter: Tensor, group: dict[str, Any]) -> None:
        if parameter.grad is None:
            return
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        ahead = parameter.grad.lerp(momentum, MOMENTUM)  # where the momentum will be: Nesterov's
        whole = ahead.full_tensor() if isinstance(ahead, DTensor) else ahead
        update = torch.cat(
            [orthogonal(part) * (0.2 * max(part.shape) ** 0.5) for part in whole.chunk(group["parts"])]
        )
        if isinstance(parameter, DTensor):
            update = distribute_tensor(update, parameter.device_mesh, parameter.placements)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix whose singular values are all the same, 1: five steps of Newton and Schulz, as Muon takes them."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x: Tensor = wide / wide.norm().clamp(min=1e-7)
    a, b, c = (
        3.4445,
        -4.7750,
        2.0315,
    )  # x -> a x + b x³ + c x⁵ on every singular value; steep at 0, near 1 ever after
    for _ in range(5):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.T


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep parameters as they are: those whose names, or whose modules' names, fit one of the patterns. Returns their names."""
    frozen: list[str] = []
    for pattern in patterns:
        found = [
            name
            for name, _ in model.named_parameters()
            if any(fnmatchcase(start, pattern) for start in _starts(name))
        ]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise InputError(
                f"freeze: {pattern!r} fits no parameter; the names begin with {', '.join(names)}"
            )
        frozen += found
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    return sorted(set(frozen))


def _starts(name: str) -> list[str]:
    """`blocks.0.attn.qkv.weight` and the modules it lies in: `blocks`, `blocks.0`, …"""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]
