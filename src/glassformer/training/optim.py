"""The optimizer, and which parameters it moves."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from glassformer.errors import InputError
from glassformer.training.hyperparameters import Hyperparameters

MOMENTUM = 0.95  # decay rate of Muon's mean gradient


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """The optimizer of a training. Matrices decay, biases and gains do not; frozen ones are left out."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not trained:
        raise InputError("freeze leaves no parameter to train")
    inside_blocks = _block_parameters(model)

    def parts(name: str, parameter: Tensor) -> int:
        """How many matrices Muon sees in a parameter; 0 leaves it to AdamW."""
        if hyperparameters.optimizer == "adamw" or parameter.dim() != 2 or parameter not in inside_blocks:
            return 0
        return 3 if name.endswith("qkv.weight") else 1  # q, k and v lie in one parameter

    by_depth = hyperparameters.layer_decay != 1 or hyperparameters.unfreeze > 0
    depths = depth_of(model) if by_depth else {}
    groups: dict[tuple[int, bool, int], list[Tensor]] = {
        (0, True, 0): [], (0, False, 0): [], (1, True, 0): [], (3, True, 0): []
    }  # fmt: skip
    for name, parameter in trained.items():
        key = parts(name, parameter), parameter.dim() >= 2, depths.get(parameter, 0)
        groups.setdefault(key, []).append(parameter)
    kind = torch.optim.AdamW if hyperparameters.optimizer == "adamw" else Muon
    return kind(
        [
            {
                "params": group,
                "weight_decay": hyperparameters.weight_decay if matrix else 0.0,
                "parts": count,
                "depth": depth,
                "slower": hyperparameters.layer_decay**depth,
            }
            for (count, matrix, depth), group in groups.items()
            if group
        ],
        lr=hyperparameters.lr,
        betas=(hyperparameters.beta1, hyperparameters.beta2),
        fused=True,
    )


def depth_of(model: nn.Module) -> dict[nn.Parameter, int]:
    """How far below the output each parameter is: the head and the final norm 0, the last block 1, and so on.

    Embeddings are deepest. The blocks of several stacks are counted side by side, each from its top.
    """
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    deepest = 1 + max(map(len, stacks), default=0)
    found: dict[nn.Parameter, int] = {}
    for stack in stacks:
        for number, block in enumerate(stack):
            found |= dict.fromkeys(block.parameters(), len(stack) - number)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            found |= dict.fromkeys(module.parameters(), deepest)
    return {parameter: found.get(parameter, 0) for parameter in model.parameters()}


def _block_parameters(model: nn.Module) -> set[nn.Parameter]:
    """The parameters inside the stacks of blocks: all but embeddings, final norm and head."""
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return {parameter for blocks in stacks for parameter in blocks.parameters()}


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al., 2024) for the matrices inside the blocks, AdamW for everything else.

    A matrix is updated by its mean gradient with all singular values set to about 1, so that no direction
    dominates. Scaled as in Moonlight (Liu et al., 2025), the step is as long as AdamW's, and one learning
    rate serves both. `parts` of a group is how many matrices lie in each of its parameters, one below the
    other; 0 leaves them to AdamW.

    torch.optim.Muon is the same in bf16, which takes 30 times as long on a CPU that only emulates bf16.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter once, by the one or by the other."""
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group["parts"]]
            super().step()  # AdamW must not see Muon's groups: it would update them as well
        finally:
            self.param_groups = groups
        for group in groups:
            if group["parts"]:
                for parameter in group["params"]:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        if parameter.grad is None:
            return
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        ahead = parameter.grad.lerp(momentum, MOMENTUM)  # where the momentum will be: Nesterov's
        full = ahead.full_tensor() if isinstance(ahead, DTensor) else ahead

        # Matrices that lie in one parameter are turned one by one: together they would be another matrix.
        matrices = full.chunk(group["parts"])
        update = torch.cat([orthogonal(matrix) * _moonlight_scale(matrix) for matrix in matrices])
        if isinstance(parameter, DTensor):
            update = distribute_tensor(update, parameter.device_mesh, parameter.placements)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])


def _moonlight_scale(matrix: Tensor) -> float:
    """Makes a step of Muon as long as one of AdamW, so that they share a learning rate."""
    return float(0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix whose singular values are all 1: five Newton-Schulz steps, as in Muon."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x: Tensor = wide / wide.norm().clamp(min=1e-7)
    # x -> a x + b x³ + c x⁵ on every singular value: steep at 0, near 1 ever after.
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.T


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names, or whose modules' names, match a pattern; returns their names."""
    names = [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for pattern in patterns:
        found = [name for name in names if any(fnmatchcase(path, pattern) for path in _paths(name))]
        if not found:
            starts = sorted({name.split(".")[0] for name in names})
            raise InputError(
                f"freeze: {pattern!r} fits no parameter; the names begin with {', '.join(starts)}"
            )
        frozen.update(found)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    return sorted(frozen)


def _paths(name: str) -> list[str]:
    """`blocks.0.attn.qkv.weight` and the modules that contain it: `blocks`, `blocks.0`, …"""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]
