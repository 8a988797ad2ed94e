"""The Transformer: an encoder reads the source, a decoder writes the target while it looks at both.

article      The Illustrated Transformer (Jay Alammar, 2018)
paper        Attention Is All You Need (Vaswani et al., 2017)
checkpoints  Helsinki-NLP/opus-mt-* and all that share Marian's form
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_at_least, check_choice, check_dropout
from glassformer.nn.attention import attend, attend_shared, cache_mask
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.head import Head
from glassformer.nn.net import Net
from glassformer.nn.positions import LAYOUTS, places, sinusoid_table
from glassformer.nn.stack import ATTENTION, CROSS_ATTENTION, FEED_FORWARD, Stack
from glassformer.nn.stepping import Given
from glassformer.trace import Tapped


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a Transformer, and the choices that its checkpoints differ in."""

    layers: int = 6  # of the encoder
    decoder_layers: int = 0  # 0 means as many as the encoder has
    heads: int = 8
    width: int = 512
    neurons: int = 0  # 0 means 4 × width
    vocab: int = 37000
    source_vocab: int = 0  # 0 means that source and target share one vocabulary and one token matrix
    context: int = 512  # of the source, and of the target
    activation: str = "relu"
    layout: str = "alternating"  # of the sinusoids: see nn/positions.py
    scaled: bool = True  # token vectors are multiplied by √width
    tied: bool = True  # the output matrix is the target's token matrix
    head_bias: bool = False
    dropout: float = 0.1
    pad: int = 0  # the token id that fills short rows of a batch: no position attends to it
    start: int = 1  # the token id that a target begins with

    def __post_init__(self) -> None:
        check_at_least(1, layers=self.layers, heads=self.heads, width=self.width)
        check_at_least(1, vocab=self.vocab, context=self.context)
        check_at_least(0, decoder_layers=self.decoder_layers, neurons=self.neurons)
        check_at_least(0, source_vocab=self.source_vocab)
        if self.width % self.heads:
            raise InputError(f"width {self.width} cannot be split into {self.heads} heads of equal width")
        if self.width % 2:
            raise InputError(f"width must be even for sinusoids, not {self.width}")
        check_dropout(self.dropout)
        check_choice(ACTIVATIONS, activation=self.activation)
        if self.layout not in LAYOUTS:
            raise InputError(f"layout {self.layout!r} is none of {', '.join(LAYOUTS)}")
        if not 0 <= self.pad < (self.source_vocab or self.vocab):
            raise InputError(f"pad {self.pad} is not a token id of the source's vocabulary")
        if not 0 <= self.start < self.vocab:
            raise InputError(f"start {self.start} is not a token id of the target's vocabulary")
        object.__setattr__(self, "decoder_layers", self.decoder_layers or self.layers)
        object.__setattr__(self, "neurons", self.neurons or 4 * self.width)

    @property
    def head_width(self) -> int:
        """The width of one head's queries, keys and values."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        width, neurons = self.width, self.neurons
        norm = 2 * width
        attention = 4 * (width + 1) * width
        feedforward = (width + 1) * neurons + (neurons + 1) * width
        encoder = self.layers * (attention + feedforward + 2 * norm)
        decoder = self.decoder_layers * (2 * attention + feedforward + 3 * norm)
        embeddings = (self.vocab + self.source_vocab) * width
        head = (0 if self.tied else self.vocab * width) + int(self.head_bias) * self.vocab
        return embeddings + encoder + decoder + head


class Attention(Tapped):
    """Queries of one sequence, keys and values of the same one (self-attention) or of another (cross)."""

    def __init__(self, config: Config, *, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.query = nn.Linear(config.width, config.width, bias=bias)
        self.key = nn.Linear(config.width, config.width, bias=bias)
        self.value = nn.Linear(config.width, config.width, bias=bias)
        self.proj = nn.Linear(config.width, config.width, bias=bias)

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What others see of a sequence (B, S, D): k and v, (B, H, S, K) each."""
        return self.tap("k", self.split(self.key(x))), self.tap("v", self.split(self.value(x)))

    def forward(
        self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """What a sequence (B, T, D) takes from keys and values (B or fewer, H, S, K): (B, T, D)."""
        q = self.tap("q", self.split(self.query(x)))  # (B, H, T, K)
        if len(k) < len(q):  # rows that share a source: see `Memory`
            mix = attend_shared(self, q, k, v, mask=mask, dropout=self.dropout)
        else:
            mix = attend(self, q, k, v, mask=mask, causal=causal, dropout=self.dropout)
        mix = self.tap("mix", mix)  # (B, H, T, K)
        merged = mix.transpose(1, 2).flatten(2)  # (B, T, D)
        return self.tap("out", self.proj(merged))

    def split(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, K)."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


@dataclass
class Memory:
    """Encoded sources, and the keys and values that each layer of the decoder has made of them so far.

    Targets of one source that follow each other, as its beams do, share its row.
    """

    vectors: Tensor  # (B, S, D)
    mask: Tensor | None  # (B, 1, 1, S), True at tokens; None where no row is padded
    shared: int = 1  # how many targets each source has
    made: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def keys_and_values(self, layer: int, attention: Attention) -> tuple[Tensor, Tensor]:
        """Of one layer: made once, however many tokens are written."""
        if layer not in self.made:
            self.made[layer] = attention.keys_and_values(self.vectors)
        return self.made[layer]

    def select(self, rows: Tensor) -> "Memory":
        """The sources of some targets, in their order."""
        sources, counts = torch.unique_consecutive(rows // self.shared, return_counts=True)
        shared = int(counts[0])
        if not bool((counts == shared).all()):
            sources, shared = rows // self.shared, 1
        if torch.equal(sources, torch.arange(len(self.vectors))):
            return replace(self, shared=shared)
        mask = None if self.mask is None else self.mask[sources]
        made = {layer: (k[sources], v[sources]) for layer, (k, v) in self.made.items()}
        return Memory(self.vectors[sources], mask, shared, made)


@dataclass
class Cache(KVCache):
    """The keys and values of the target so far, and the source that it is written from."""

    memory: Memory | None = None

    def select(self, rows: Sequence[int]) -> Self:
        """The cache of some rows, in this order; a row may be taken more than once."""
        memory = None if self.memory is None else self.memory.select(torch.as_tensor(rows))
        return replace(super().select(rows), memory=memory)

    def reorder(self, rows: Sequence[int]) -> None:
        """Make each row a copy of another one (or of itself), in place; as many rows as there are."""
        super().reorder(rows)
        if self.memory is not None:
            self.memory = self.memory.select(torch.as_tensor(rows))


class EncoderBlock(Tapped):
    """Self-attention → add → norm → feed-forward → add → norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attn = Attention(config)
        self.norm1 = nn.LayerNorm(config.width)
        self.mlp = FeedForward(config.width, config.neurons, activation=config.activation, bias=True)
        self.norm2 = nn.LayerNorm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = self.tap("in", x)
        k, v = self.attn.keys_and_values(x)
        x = self.tap("mid", self.norm1(x + self.drop(self.attn(x, k, v, mask))))
        return self.tap("out", self.norm2(x + self.drop(self.mlp(x))))


class DecoderBlock(Tapped):
    """Masked self-attention, attention to the source, feed-forward; each followed by add → norm."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.attn = Attention(config)
        self.norm1 = nn.LayerNorm(config.width)
        self.cross = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = FeedForward(config.width, config.neurons, activation=config.activation, bias=True)
        self.norm3 = nn.LayerNorm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, memory: Memory, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("in", x)
        k, v = self.attn.keys_and_values(x)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)  # (B, H, earlier and new, K)
        # Positions that follow a cache see all of it; where there is none, each must not see those behind it.
        causal = k.shape[2] == x.shape[1] > 1
        x = self.tap("mid", self.norm1(x + self.drop(self.attn(x, k, v, mask, causal=causal))))

        k, v = memory.keys_and_values(self.layer, self.cross)  # (B, H, S, K)
        x = self.tap("mid2", self.norm2(x + self.drop(self.cross(x, k, v, memory.mask))))
        return self.tap("out", self.norm3(x + self.drop(self.mlp(x))))


class Encoder(Tapped):
    """The blocks that read the source."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = self.tap("embed", x)
        for block in self.blocks:
            x = block(x, mask)
        return x


class Decoder(Tapped):
    """The blocks that write the target."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        layers = range(config.decoder_layers)
        self.blocks = nn.ModuleList(self.make_block(config, layer) for layer in layers)

    def make_block(self, config: Any, layer: int) -> nn.Module:
        """The block of one layer."""
        return DecoderBlock(config, layer)

    def forward(self, x: Tensor, memory: Memory, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("embed", x)
        for block in self.blocks:
            x = block(x, memory, mask, cache)
        return x


class Transformer(Net):
    """Source ids and target ids in, a score for every token that may come next in the target out."""

    kind = "transformer"
    capabilities = frozenset({"writes", "causal", "attends", "source"})
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        own = config.source_vocab
        self.source_tokens = nn.Embedding(own, config.width) if own else self.tokens
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.norm = nn.Identity()
        self.head = Head(config.width, config.vocab, bias=config.head_bias)
        self.drop = nn.Dropout(config.dropout)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the target's token matrix, where the configuration says so."""
        if self.config.tied:
            self.head.weight = self.tokens.weight

    def forward(
        self, source: Tensor, target: Tensor, cache: Cache | None = None, *, last: bool = False
    ) -> Tensor:
        """source (B, S), target (B, T) -> logits (B, T, V), or (B, 1, V) for the `last` position alone."""
        memory = self.encode(source) if cache is None or cache.memory is None else cache.memory
        mask = cache_mask(target.shape[1], cache, device=target.device)
        x = self.vectors(self.tokens, target, cache)
        x = self.decoder(x, memory, mask, cache)
        if cache is not None:
            cache.memory = memory
            cache.length += target.shape[1]
        x = self.tap("final", self.norm(x[:, -1:] if last else x))
        return self.tap("logits", self.head(x))  # (B, T, V)

    def given(self, sources: Sequence[Sequence[int]]) -> Given:
        """The model bound to sources, each a list of token ids: what token generation steps through."""
        return Given(self, sources)

    def encode(self, source: Tensor) -> Memory:
        """The source as the decoder sees it."""
        real = source != self.config.pad  # (B, S)
        mask = None if bool(real.all()) else real[:, None, None]
        x = self.vectors(self.source_tokens, source)
        return Memory(self.encoder(x, mask), mask)

    def vectors(self, tokens: nn.Embedding, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """Token vectors plus position vectors: ids (B, T) -> (B, T, D)."""
        x = self.scale * tokens(ids) + self.positions(ids, cache)
        return self.drop(x)  # type: ignore[no-any-return]

    @property
    def scale(self) -> float:
        """What token vectors are multiplied by: else position vectors, of length √(D / 2), outweigh them."""
        return math.sqrt(self.config.width) if self.config.scaled else 1.0

    def positions(self, ids: Tensor, cache: Cache | None) -> Tensor:
        """The vectors of the positions: (T, D), or (B, T, D) where rows are padded on the left."""
        config = self.config
        table = sinusoid_table(config.context, config.width, config.layout, ids.device)
        return table.to(self.tokens.weight.dtype)[places(ids, cache, context=config.context)]

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """Matrices by Glorot, token vectors of length 1 on average, biases 0, gains 1."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
            elif "tokens" in name or name == "head.weight":
                parameter.normal_(0.0, self.config.width**-0.5, generator=generator)
            else:
                nn.init.xavier_uniform_(parameter, generator=generator)
        return self

    # What other rooms ask of a model without knowing which model it is.

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The encoder, whose positions see all others, and the decoder, which sees the encoder too."""
        config = self.config
        encoder = Stack(
            prefix="encoder.",
            layers=config.layers,
            heads=config.heads,
            neurons=config.neurons,
            causal=False,
            source=True,
        )
        parts = (ATTENTION, CROSS_ATTENTION, FEED_FORWARD)
        decoder = replace(
            encoder, prefix="decoder.", layers=config.decoder_layers, causal=True, source=False, parts=parts
        )
        return encoder, decoder

    def embed(self, ids: Tensor) -> Tensor:
        """The token vectors of the target alone, without positions: ids (B, T) -> (B, T, D)."""
        return self.scale * self.tokens(ids)  # type: ignore[no-any-return]

    def embed_source(self, ids: Tensor) -> Tensor:
        """The same of the source: ids (B, S) -> (B, S, D)."""
        return self.scale * self.source_tokens(ids)  # type: ignore[no-any-return]

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        """The norm that made the value at a site: every addition is followed by one."""
        match = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(mid|mid2|out)", site)
        if match is None:
            return None
        last = "norm2" if match[1] == "encoder" else "norm3"
        name = {"mid": "norm1", "mid2": "norm2", "out": last}[match[3]]
        norm = getattr(self.get_submodule(f"{match[1]}.blocks.{match[2]}"), name)
        assert isinstance(norm, nn.LayerNorm)
        return norm

    @property
    def context(self) -> int:
        """How many positions a source, or a target, can have."""
        return self.config.context

    def new_cache(self, rows: int, capacity: int, *, padding: Any = None) -> Cache:
        """An empty cache; it gets its sources in the first step."""
        made = super().new_cache(rows, capacity, padding=padding)
        return Cache(made.keys, made.values, padding=made.padding)

    def cache_shape(self, rows: int, capacity: int) -> tuple[int, ...]:
        """The shape (L, B, H, S, K) of the keys, or of the values, that are kept for `rows` targets."""
        config = self.config
        return config.decoder_layers, rows, config.heads, capacity, config.head_width


PRESETS = {
    "transformer-base": Config(),
    "transformer-big": Config(heads=16, width=1024, dropout=0.3),
}
