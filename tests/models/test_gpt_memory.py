"""Memory of a training step with banded attention: it grows with the length of a row, not with its square."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.models.gpt import GPT3, GPT3Config
from glassformer.training.objectives import next_token

LENGTHS = (256, 512, 1024)


class Largest(TorchDispatchMode):
    """The most numbers that one tensor has, of all that are computed inside, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, list | tuple) else [out]:
            if isinstance(one, torch.Tensor) and not one._is_view():
                self.numbers = max(self.numbers, one.untyped_storage().size() // one.itemsize)
        return out


def step(length: int, *, stride: int, dropout: float, attention_dropout: bool = True) -> tuple[int, int]:
    """One training step on a row: numbers kept for the backward pass, and of the largest tensor."""
    sizes = {"layers": 3, "heads": 2, "width": 8, "vocab": 16, "window": 32, "context": max(LENGTHS)}
    how: dict[str, Any] = {"stride": stride, "dropout": dropout, "attention_dropout": attention_dropout}
    net = GPT3(GPT3Config(**sizes, **how)).initialize(0).train()
    ids = torch.randint(0, 16, (1, length + 1), generator=torch.Generator().manual_seed(0))
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().size() // tensor.itemsize
        return tensor

    held: list[torch.Tensor] = []  # so that no storage is freed and its address used again
    with (
        Largest() as largest,
        torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: held.append(tensor) or keep(tensor), lambda tensor: tensor
        ),
    ):
        next_token(net, {"ids": ids}).backward()
    return sum(kept.values()), largest.numbers


def test_a_band_needs_memory_in_proportion() -> None:
    """Twice the tokens, twice the numbers: those that are kept, and those of the largest tensor."""
    # The first layer is dense, but without dropout its kernel keeps no pattern.
    first, second, third = (step(length, stride=3, dropout=0.0) for length in LENGTHS)
    for kind in (0, 1):
        assert second[kind] < 2.1 * first[kind]
        assert third[kind] < 2.1 * second[kind]


def test_the_check_sees_whole_patterns() -> None:
    """Dense layers with dropout keep theirs, which grow with the square: what a band spares."""
    dense = [step(length, stride=1, dropout=0.1) for length in LENGTHS]
    for kind in (0, 1):
        assert dense[2][kind] > 3 * dense[1][kind]


def test_dropout_elsewhere_keeps_no_pattern() -> None:
    """Without dropout of attention weights the fused kernel is taken, whatever else is dropped."""
    first, second, third = (
        step(length, stride=1, dropout=0.1, attention_dropout=False) for length in LENGTHS
    )
    for kind in (0, 1):
        assert second[kind] < 2.1 * first[kind]
        assert third[kind] < 2.1 * second[kind]
