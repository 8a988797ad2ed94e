"""A recurrent network that labels a text: one label for all of it, or one for every token.

lecture      the shapes of tasks: many-to-one (classify a text) and many-to-many (tag its words)
papers       Long Short-Term Memory (Hochreiter and Schmidhuber, 1997)
             Bidirectional LSTM-CRF Models for Sequence Tagging (Huang et al., 2015), without its CRF

`shape`   "classify": the last state of the top layer, of both directions if there are two, makes the label.
          "tag": each state makes the label of its token.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_at_least, check_choice, check_dropout
from glassformer.nn.net import Net
from glassformer.nn.recurrent import CELLS, Encoder
from glassformer.nn.stack import Stack

SHAPES = ("classify", "tag")


def key(default: Any, help: str) -> Any:
    """A field that recipes may set."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The network's sizes, and what it labels by what."""

    shape: str = key("classify", "What gets a label: the text (classify), or each of its words (tag).")
    cell: str = key("gru", f"The recurrent cell: {', '.join(CELLS)}.")
    layers: int = key(1, "Layers of cells.")
    bidirectional: bool = key(True, "It also reads backwards.")
    width: int = key(128, "Width of the states, in one direction.")
    token_width: int = key(0, "Width of token vectors; 0: as wide as the states in one direction.")
    dropout: float = key(0.0, "Dropout probability.")
    vocab: int = 4000
    pad: int = 0  # the token id that fills short rows of a batch
    labels: tuple[str, ...] = ("0", "1")

    def __post_init__(self) -> None:
        check_at_least(1, layers=self.layers, width=self.width, vocab=self.vocab)
        check_at_least(0, token_width=self.token_width)
        check_choice(SHAPES, shape=self.shape)
        check_choice(CELLS, cell=self.cell)
        check_dropout(self.dropout)
        if not 0 <= self.pad < self.vocab:
            raise InputError(f"pad {self.pad} is not a token id of the vocabulary")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise InputError(f"labels must be at least two different ones, not {', '.join(self.labels)}")
        object.__setattr__(self, "token_width", self.token_width or self.width)

    @property
    def state_width(self) -> int:
        """The width of the states, both directions together."""
        return self.width * (2 if self.bidirectional else 1)

    @property
    def inputs(self) -> list[int]:
        """The width of what each layer reads."""
        return [self.token_width, *[self.state_width] * (self.layers - 1)]

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        gates, directions = CELLS[self.cell].gates, self.state_width // self.width
        layers = sum(gates * self.width * (size + self.width + 2) for size in self.inputs)
        head = (self.state_width + 1) * len(self.labels)
        return self.vocab * self.token_width + directions * layers + head


class RNN(Net):
    """Token ids in, a score for every label out."""

    kind = "rnn"
    capabilities = frozenset({"labels", "recurrent"})
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.token_width)
        self.encoder = Encoder(
            config.cell,
            config.inputs,
            width=config.width,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.norm = nn.Identity()
        self.head = nn.Linear(config.state_width, len(config.labels))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T), filled up by `pad` -> scores of labels: (B, 1, V) of the text, (B, T, V) of tokens."""
        x = self.drop(self.tokens(ids))  # (B, T, I)
        states, last = self.encoder(x, ids != self.config.pad)
        final = states if self.config.shape == "tag" else last[-1][0][:, None]  # (B, 1, D)
        final = self.tap("final", self.drop(final))
        return self.tap("logits", self.head(final))

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """As torch initializes recurrent networks: uniform within 1/√width; token vectors normal."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        bound = 1 / math.sqrt(self.config.width)
        for name, parameter in self.named_parameters():
            if name.startswith("tokens"):
                parameter.normal_(0.0, 0.1, generator=generator)
            else:
                parameter.uniform_(-bound, bound, generator=generator)
        return self

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """None: a recurrent network has steps, not a stack of blocks with a residual stream."""
        return ()
