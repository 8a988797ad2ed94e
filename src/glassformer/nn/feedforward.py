"""The feed-forward layer: widen, bend, narrow again."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.trace import Tapped

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's own form
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "swish": F.silu,
}


class FeedForward(Tapped):
    """neurons = activation(x·W + b); out = neurons·W' + b'."""

    def __init__(self, width: int, neurons: int, *, activation: str, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, neurons, bias=bias)
        self.down = nn.Linear(neurons, width, bias=bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        neurons = self.tap("neurons", self.activation(self.up(x)))  # (B, T, N)
        return self.tap("out", self.down(neurons))  # (B, T, D)
