"""Recurrent cells: a state goes in with every token, and a new state comes out.

A state is a tuple of tensors (B, D), of which the first is the hidden state that others see: one tensor in a
GRU, two in an LSTM. Weights are laid out as in `torch.nn.GRU` and `torch.nn.LSTM`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.trace import Tapped

State = tuple[Tensor, ...]


class Cell(Tapped):
    """One step of a recurrent layer."""

    gates: int  # how many gates of the cell's width there are
    tensors: int  # of a state

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = nn.Linear(inputs, self.gates * width)
        self.hidden = nn.Linear(width, self.gates * width)

    def forward(self, x: Tensor, state: State) -> State:
        """One step. x (B, gates × D) is the input's share of all gates: `self.input` of the input vector.

        It does not depend on the state, so that a whole sequence can be multiplied at once, before its steps.
        """
        raise NotImplementedError

    def start(self, rows: int) -> State:
        """The state before the first token: zeros."""
        zeros = self.input.weight.new_zeros(rows, self.width)
        return (zeros,) * self.tensors


class GRU(Cell):
    """Gated recurrent unit (Cho et al., 2014), in the form of cuDNN and torch: the reset gate comes after the
    product with the state.
    """

    gates, tensors = 3, 1

    def forward(self, x: Tensor, state: State) -> State:
        """x (B, 3D), h (B, D) -> h (B, D)."""
        (h,) = state
        reset, update, new = x.chunk(3, -1)
        from_reset, from_update, from_new = self.hidden(h).chunk(3, -1)
        reset = self.tap("reset", torch.sigmoid(reset + from_reset))
        update = self.tap("update", torch.sigmoid(update + from_update))
        new = self.tap("new", torch.tanh(new + reset * from_new))
        return (torch.lerp(new, h, update),)


class LSTM(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with a forget gate."""

    gates, tensors = 4, 2

    def forward(self, x: Tensor, state: State) -> State:
        """x (B, 4D), h and c (B, D) -> h and c (B, D)."""
        h, c = state
        let_in, forget, new, let_out = (x + self.hidden(h)).chunk(4, -1)
        let_in = self.tap("input", torch.sigmoid(let_in))
        forget = self.tap("forget", torch.sigmoid(forget))
        new = self.tap("new", torch.tanh(new))
        let_out = self.tap("output", torch.sigmoid(let_out))
        c = self.tap("cell", forget * c + let_in * new)
        return let_out * torch.tanh(c), c


CELLS: dict[str, type[Cell]] = {"gru": GRU, "lstm": LSTM}


def read(
    cell: Cell,
    x: Tensor,
    *,
    mask: Tensor,
    backward: bool = False,
    see: Callable[[Tensor], Tensor] = lambda hidden: hidden,
) -> tuple[Tensor, State]:
    """A whole sequence x (B, S, I), forwards or backwards: all hidden states (B, S, D), and the last state.

    `mask` (B, S) is True at tokens: padding leaves the state as it is, and its hidden state is 0. `see` is
    given every hidden state, and gives back the one to go on with.
    """
    inputs = cell.input(x)  # (B, S, gates × D)
    state = cell.start(x.shape[0])
    places = range(x.shape[1])
    hidden: list[Tensor] = []
    for place in reversed(places) if backward else places:
        real = mask[:, place, None]  # (B, 1)
        h, *rest = cell(inputs[:, place], state)
        new = (see(h), *rest)
        state = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
        hidden.append(state[0] * real)
    return torch.stack(hidden[::-1] if backward else hidden, 1), state


def additive(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """Bahdanau's score, v·tanh(q + k): query (B, A), keys (B, S, A), weight (A,) -> (B, S)."""
    return F.linear(torch.tanh(query[:, None] + keys), weight[None])[..., 0]
