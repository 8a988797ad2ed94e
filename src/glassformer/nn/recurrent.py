"""Recurrent cells: a state goes in with every token, and a new state comes out.

A state is a tuple of tensors (B, D), of which the first is the hidden state that others see: one tensor in a
GRU, two in an LSTM. Weights are laid out as in `torch.nn.GRU` and `torch.nn.LSTM`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

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
        return (new + update * (h - new),)


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
    # Taken apart at once: a slice for every step would add a whole gradient (B, S, …) back for each of them.
    inputs, tokens = cell.input(x).unbind(1), mask[..., None].unbind(1)  # S times (B, gates × D) and (B, 1)
    steps = list(zip(inputs, tokens, strict=True))
    state = cell.start(x.shape[0])
    hidden: list[Tensor] = []
    for step, real in reversed(steps) if backward else steps:
        h, *rest = cell(step, state)
        new = (see(h), *rest)
        state = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
        hidden.append(state[0] * real)
    return torch.stack(hidden[::-1] if backward else hidden, 1), state


class Encoder(Tapped):
    """Layers of cells that read a text into one state a token: (B, S, D), and the last state of each layer.

    `bidirectional`: every layer also reads backwards, and D is twice the width of one direction.
    """

    def __init__(
        self, cell: str, inputs: Sequence[int], *, width: int, bidirectional: bool, dropout: float
    ) -> None:
        """`inputs` is the width of what each layer reads."""
        super().__init__()
        make = CELLS[cell]
        self.forwards = nn.ModuleList(make(size, width) for size in inputs)
        self.backwards = nn.ModuleList(make(size, width) for size in inputs if bidirectional)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, list[State]]:
        """x (B, S, I), mask (B, S): states (B, S, D), and the last state of every layer (B, D)."""
        x = self.tap("embed", x)
        last: list[State] = []
        backwards = cells(self.backwards)
        for layer, cell in enumerate(cells(self.forwards)):
            x = self.drop(x) if layer else x
            name = "hidden" if layer == len(self.forwards) - 1 else f"hidden{layer}"
            states, end = read(cell, x, mask=mask, see=partial(self.tap, name))
            if backwards:
                cell, see = backwards[layer], partial(self.tap, f"{name}_back")
                back, back_end = read(cell, x, mask=mask, backward=True, see=see)
                states = torch.cat([states, back], -1)
                end = tuple(torch.cat(pair, -1) for pair in zip(end, back_end, strict=True))
            last.append(end)
            x = states
        return self.tap("states", x), last


def cells(modules: nn.ModuleList) -> list[Cell]:
    """The cells of a list of modules, as what they are."""
    return cast("list[Cell]", list(modules))


def is_backward(site: str) -> bool:
    """Whether a site of a recurrent network is met from the last token to the first."""
    return site.endswith("_back") or ".backwards." in f".{site}"


def additive(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """Bahdanau's score, v·tanh(q + k): query (B, A), keys (B, S, A), weight (A,) -> (B, S)."""
    return F.linear(torch.tanh(query[:, None] + keys), weight[None])[..., 0]
