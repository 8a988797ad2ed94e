"""Sequence to sequence with recurrent networks: an encoder reads, a decoder writes, and attention joins them.

article      Visualizing A Neural Machine Translation Model (Jay Alammar, 2018)
papers       Sequence to Sequence Learning with Neural Networks (Sutskever et al., 2014)
             Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau et al., 2014)
             Effective Approaches to Attention-based Neural Machine Translation (Luong et al., 2015)

What the decoder gets of the source is the point, and a choice of the configuration:
`reads`   "last": it begins with the encoder's last state, and gets nothing else: the bottleneck.
          "mean": also, in every step, the mean of all states. "attention": a weighted mean instead.
`score`   how attention weighs a state h for the decoder's state s: "dot" s·h, "bilinear" s·W·h,
          "additive" v·tanh(W·s + U·h).
`wiring`  "before": the state before the step asks, and what it gets goes into the step (Bahdanau).
          "after": the step comes first, its state asks, and both make the word (Luong, and the article).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_at_least, check_choice, check_dropout
from glassformer.nn.net import Net
from glassformer.nn.recurrent import CELLS, Encoder, State, additive, cells
from glassformer.nn.stack import Stack
from glassformer.nn.stepping import Given
from glassformer.trace import Tapped

READS = ("last", "mean", "attention")
SCORES = ("dot", "bilinear", "additive")
WIRINGS = ("before", "after")


def key(default: Any, help: str) -> Any:
    """A field that recipes may set."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of both networks, and what the decoder gets of the source."""

    cell: str = key("gru", f"The recurrent cell: {', '.join(CELLS)}.")
    layers: int = key(1, "Layers of the encoder, and of the decoder.")
    bidirectional: bool = key(False, "The encoder also reads backwards.")
    width: int = key(256, "Width of the encoder's states, in one direction.")
    decoder_width: int = key(0, "Width of the decoder's states; 0: as wide as the encoder's.")
    token_width: int = key(0, "Width of token vectors; 0: as wide as the encoder's states in one direction.")
    vocab: int = 8000
    source_vocab: int = 0  # 0 means that source and target share one vocabulary and one token matrix
    reads: str = key("attention", f"What the decoder gets of the source: {', '.join(READS)}.")
    score: str = key("additive", f"How attention scores a state: {', '.join(SCORES)}.")
    wiring: str = key("before", f"When the decoder attends: {' or '.join(WIRINGS)} its step.")
    dropout: float = key(0.0, "Dropout probability.")
    pad: int = 0  # the token id that fills short rows of a batch
    start: int = 1  # the token id that a target begins with: in the article it is the end token

    def __post_init__(self) -> None:
        check_at_least(1, layers=self.layers, width=self.width, vocab=self.vocab)
        check_at_least(0, decoder_width=self.decoder_width, token_width=self.token_width)
        check_at_least(0, source_vocab=self.source_vocab)
        check_choice(CELLS, cell=self.cell)
        check_choice(READS, reads=self.reads)
        check_choice(SCORES, score=self.score)
        check_choice(WIRINGS, wiring=self.wiring)
        check_dropout(self.dropout)
        if not 0 <= self.pad < (self.source_vocab or self.vocab):
            raise InputError(f"pad {self.pad} is not a token id of the source's vocabulary")
        if not 0 <= self.start < self.vocab:
            raise InputError(f"start {self.start} is not a token id of the target's vocabulary")
        object.__setattr__(self, "decoder_width", self.decoder_width or self.state_width)
        object.__setattr__(self, "token_width", self.token_width or self.width)
        if self.reads == "attention" and self.score == "dot" and self.decoder_width != self.state_width:
            raise InputError(
                f"score dot needs states of one width: the encoder's have {self.state_width},"
                f" the decoder's {self.decoder_width}; bilinear joins them"
            )

    @property
    def state_width(self) -> int:
        """The width of the encoder's states, both directions together."""
        return self.width * (2 if self.bidirectional else 1)

    @property
    def context_width(self) -> int:
        """The width of the vector that the decoder gets of the source in every step; 0 if it gets none."""
        return 0 if self.reads == "last" else self.state_width

    @property
    def encoder_inputs(self) -> list[int]:
        """The width of what each layer of the encoder reads."""
        return [self.token_width, *[self.state_width] * (self.layers - 1)]

    @property
    def decoder_inputs(self) -> list[int]:
        """The width of what each layer of the decoder reads."""
        fed = self.context_width if self.wiring == "before" else 0
        return [self.token_width + fed, *[self.decoder_width] * (self.layers - 1)]

    @property
    def join_inputs(self) -> int:
        """The width of what a word is made of: the decoder's state, the context, and the token before it."""
        also = self.token_width if self.wiring == "before" else 0
        return self.decoder_width + self.context_width + also

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        states, width, gates = self.state_width, self.decoder_width, CELLS[self.cell].gates
        directions = 2 if self.bidirectional else 1
        encoder = sum(gates * self.width * (size + self.width + 2) for size in self.encoder_inputs)
        decoder = sum(gates * width * (size + width + 2) for size in self.decoder_inputs)
        bridge = self.layers * (states + 1) * width if states != width else 0
        join = (self.join_inputs + 1) * width if self.context_width else 0
        scores = {"dot": 0, "bilinear": states * width, "additive": (states + width + 2) * width}
        attention = scores[self.score] if self.reads == "attention" else 0
        tokens = (self.vocab + self.source_vocab) * self.token_width
        return tokens + directions * encoder + bridge + decoder + attention + join + (width + 1) * self.vocab


class Attention(Tapped):
    """Weighs the encoder's states for one state of the decoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.score = config.score
        width, states = config.decoder_width, config.state_width
        if config.score == "bilinear":
            self.key = nn.Linear(states, width, bias=False)
        elif config.score == "additive":
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(states, width, bias=False)
            self.weight = nn.Parameter(torch.empty(width))

    def keys(self, states: Tensor) -> Tensor:
        """What the scores need of every state (B, S, D): made once, not in every step."""
        return states if self.score == "dot" else self.key(states)

    def forward(self, s: Tensor, memory: "Memory") -> Tensor:
        """The context vector for a decoder's state s (B, D): (B, E)."""
        if self.score == "additive":
            scores = additive(self.query(s), memory.keys, self.weight)  # (B, S)
        else:
            scores = torch.einsum("bd,bsd->bs", s, memory.keys)
        scores = self.tap("scores", scores[:, None, None])  # (B, 1, 1, S): one head, one position
        scores = scores.masked_fill(~memory.mask[:, None, None], -torch.inf)
        pattern = self.tap("pattern", scores.softmax(-1))
        return self.tap("context", torch.einsum("bhts,bse->be", pattern, memory.states))


@dataclass
class Memory:
    """What the encoder left of a source."""

    states: Tensor  # (B, S, E)
    keys: Tensor  # (B, S, D) of attention; the states themselves where it needs no others
    mask: Tensor  # (B, S), True at tokens

    def select(self, rows: Tensor) -> "Memory":
        """The sources of some rows."""
        return Memory(self.states[rows], self.keys[rows], self.mask[rows])


@dataclass
class Cache:
    """The decoder's state after the tokens that it has read: all that a recurrent network keeps of them."""

    rows: int
    length: int = 0
    memory: Memory | None = None
    states: list[State] | None = None
    padding: None = None  # targets begin together: see `new_cache`

    def select(self, rows: Sequence[int]) -> Self:
        """The cache of some rows, in this order; a row may be taken more than once."""
        if self.memory is None or self.states is None:
            return replace(self, rows=len(rows))
        index = torch.as_tensor(rows)
        states = [tuple(tensor[index] for tensor in state) for state in self.states]
        return replace(self, rows=len(rows), memory=self.memory.select(index), states=states)


class Decoder(Tapped):
    """Writes the target, one step at a time."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        make, width = CELLS[config.cell], config.decoder_width
        self.cells = nn.ModuleList(make(size, width) for size in config.decoder_inputs)
        self.attn = Attention(config) if config.reads == "attention" else None
        if config.state_width != width:  # the encoder's last state becomes the decoder's first
            self.bridge = nn.ModuleList(nn.Linear(config.state_width, width) for _ in self.cells)
        if config.context_width:
            self.join = nn.Linear(config.join_inputs, width)
        self.drop = nn.Dropout(config.dropout)

    def begin(self, last: list[State]) -> list[State]:
        """The decoder's first state, from the encoder's last."""
        if self.config.state_width == self.config.decoder_width:
            return last
        pairs = zip(self.bridge, last, strict=True)
        return [tuple(torch.tanh(bridge(tensor)) for tensor in state) for bridge, state in pairs]

    def forward(self, x: Tensor, states: list[State], memory: Memory) -> tuple[Tensor, list[State]]:
        """One step with a token's vector x (B, I): what the word is made of (B, D), and the new states."""
        before = self.config.wiring == "before"
        context = self.context(states[-1][0], memory) if before else None
        states = self.advance(x if context is None else torch.cat([x, context], -1), states)
        s = states[-1][0]
        if not before:
            context = self.context(s, memory)
        if context is None:
            return s, states
        parts = [s, context, x] if before else [s, context]
        return self.tap("out", torch.tanh(self.join(torch.cat(parts, -1)))), states

    def context(self, s: Tensor, memory: Memory) -> Tensor | None:
        """What this step gets of the source: (B, E)."""
        if self.config.reads == "last":
            return None
        if self.attn is not None:
            return self.attn(s, memory)  # type: ignore[no-any-return]
        tokens = memory.mask.sum(1, keepdim=True)  # (B, 1)
        return self.tap("context", memory.states.sum(1) / tokens)

    def advance(self, x: Tensor, states: list[State]) -> list[State]:
        """One step of all layers."""
        after: list[State] = []
        for layer, (cell, state) in enumerate(zip(cells(self.cells), states, strict=True)):
            x = self.drop(x) if layer else x
            name = "hidden" if layer == len(self.cells) - 1 else f"hidden{layer}"
            h, *rest = cell(cell.input(x), state)
            x = self.tap(name, h)
            after.append((x, *rest))
        return after


class Seq2Seq(Net):
    """Source ids and target ids in, a score for every token that may come next in the target out."""

    kind = "seq2seq"
    capabilities = frozenset({"writes", "causal", "source", "recurrent"})
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.token_width)
        own = config.source_vocab
        self.source_tokens = nn.Embedding(own, config.token_width) if own else self.tokens
        self.encoder = Encoder(
            config.cell,
            config.encoder_inputs,
            width=config.width,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.decoder = Decoder(config)
        self.norm = nn.Identity()
        self.head = nn.Linear(config.decoder_width, config.vocab)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self, source: Tensor, target: Tensor, cache: Cache | None = None, *, last: bool = False
    ) -> Tensor:
        """source (B, S), target (B, T) -> logits (B, T, V), or (B, 1, V) for the `last` position alone."""
        if cache is None or cache.memory is None or cache.states is None:
            memory, states = self.encode(source)
        else:
            memory, states = cache.memory, cache.states

        x = self.tap("embed", self.drop(self.tokens(target)))  # (B, T, I)
        outputs = []
        for token in x.unbind(1):  # (B, I)
            out, states = self.decoder(token, states, memory)
            outputs.append(out)
        if cache is not None:
            cache.memory, cache.states = memory, states
            cache.length += target.shape[1]
        final = torch.stack(outputs[-1:] if last else outputs, 1)  # (B, T, D)
        final = self.tap("final", self.drop(final))
        return self.tap("logits", self.head(final))  # (B, T, V)

    def given(self, sources: Sequence[Sequence[int]]) -> Given:
        """The model bound to sources, each a list of token ids: what token generation steps through."""
        return Given(self, sources)

    def encode(self, source: Tensor) -> tuple[Memory, list[State]]:
        """What the decoder gets: the source's states, and its own first state."""
        mask = source != self.config.pad  # (B, S)
        x = self.drop(self.source_tokens(source))
        states, last = self.encoder(x, mask)
        keys = states if self.decoder.attn is None else self.decoder.attn.keys(states)
        return Memory(states, keys, mask), self.decoder.begin(last)

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """As torch initializes recurrent networks: uniform within 1/√width; token vectors normal."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if "tokens" in name:
                parameter.normal_(0.0, 0.1, generator=generator)
                continue
            bound = 1 / math.sqrt(
                self.config.width if name.startswith("encoder") else self.config.decoder_width
            )
            parameter.uniform_(-bound, bound, generator=generator)
        return self

    # What other rooms ask of a model without knowing which model it is.

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """None: a recurrent network has steps, not a stack of blocks with a residual stream."""
        return ()

    def embed_source(self, ids: Tensor) -> Tensor:
        """The token vectors of the source: ids (B, S) -> (B, S, I)."""
        return self.source_tokens(ids)  # type: ignore[no-any-return]

    def new_cache(self, rows: int, capacity: int, *, padding: Any = None) -> Any:
        """An empty cache. Its size does not grow with the target."""
        if padding is not None and padding.any():
            raise InputError("targets of a recurrent network begin together: rows cannot be padded")
        return Cache(rows)

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of the states of all layers."""
        config = self.config
        tensors = CELLS[config.cell].tensors
        return config.layers * tensors * rows * config.decoder_width * self.tokens.weight.itemsize
