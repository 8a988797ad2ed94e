"""GPT-2 twice: an encoder that reads the source, and a decoder that writes the target and looks at both.

papers  Sample Efficient Text Summarization Using a Single Pre-Trained Transformer (Khandelwal et al., 2019)
        Leveraging Pre-trained Checkpoints for Sequence Generation Tasks (Rothe et al., 2020)

Both halves can begin with the weights of one language model; only the attention to the source is new then.
The Illustrated GPT-2 compares a single decoder with it, for when there are few summaries to learn from.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_at_least, counted
from glassformer.models import gpt, transformer
from glassformer.models.transformer import Attention, Cache, Memory
from glassformer.nn.attention import cache_mask
from glassformer.nn.net import Net
from glassformer.nn.positions import places
from glassformer.nn.stack import ATTENTION, CROSS_ATTENTION, FEED_FORWARD, Stack
from glassformer.nn.stepping import Given
from glassformer.trace import Tapped


@dataclass(frozen=True, kw_only=True)
class Config(gpt.Config):
    """The sizes of both halves: those of a GPT-2, whose `layers` are the encoder's."""

    decoder_layers: int = field(
        default=0, metadata={"help": "Blocks of the decoder; 0: as many as the encoder has."}
    )
    pad: int = 0  # the token id that fills short rows of a batch
    start: int = 1  # the token id that a target begins with

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(0, decoder_layers=self.decoder_layers)
        for name in ("pad", "start"):
            if not 0 <= getattr(self, name) < self.vocab:
                raise InputError(f"{name} {getattr(self, name)} is not a token id of the vocabulary")
        object.__setattr__(self, "decoder_layers", self.decoder_layers or self.layers)

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        width, neurons, bias = self.width, self.neurons, int(self.bias)
        norm = width + bias * width
        attention = 4 * (width + bias) * width
        feedforward = (width + bias) * neurons + (neurons + bias) * width
        cross = norm + attention
        decoder = self.decoder_layers * (2 * norm + attention + feedforward + cross) + norm
        return super().parameters + decoder


class Encoder(Tapped):
    """The blocks that read the source: those of a GPT-2."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(gpt.Block(config, layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = self.tap("embed", x)
        for block in self.blocks:
            x = block(x, None, None)
        return self.tap("final", self.norm(x))


class DecoderBlock(gpt.Block):
    """GPT-2's block with one more step: norm → attention to the source → add."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.layer = layer
        self.norm_cross = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        # It needs width, heads and dropout of a configuration.
        self.cross = Attention(config, bias=config.bias)  # type: ignore[arg-type]
        self.cross.dropout = config.pattern_dropout

    def forward(  # type: ignore[override] # it reads a source too
        self, x: Tensor, memory: Memory, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("in", x)
        x = self.tap("mid", x + self.drop(self.attn(self.norm1(x), mask, cache)))
        k, v = memory.keys_and_values(self.layer, self.cross)  # (B, H, S, K)
        x = self.tap("mid2", x + self.drop(self.cross(self.norm_cross(x), k, v, memory.mask)))
        return self.tap("out", x + self.drop(self.mlp(self.norm2(x))))


class Decoder(transformer.Decoder):
    """The blocks that write the target."""

    def make_block(self, config: Config, layer: int) -> nn.Module:
        """The block of one layer."""
        return DecoderBlock(config, layer)


class EncoderDecoder(Net):
    """Source ids and target ids in, a score for every token that may come next in the target out."""

    kind = "gpt2-encoder-decoder"
    capabilities = frozenset({"writes", "causal", "attends", "source"})
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.drop = nn.Dropout(config.dropout)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the token matrix, where the configuration says so."""
        if self.config.tied:
            self.head.weight = self.tokens.weight

    def forward(
        self, source: Tensor, target: Tensor, cache: Cache | None = None, *, last: bool = False
    ) -> Tensor:
        """source (B, S), target (B, T) -> logits (B, T, V), or (B, 1, V) for the `last` position alone."""
        memory = self.encode(source) if cache is None or cache.memory is None else cache.memory
        mask = cache_mask(target.shape[1], cache, device=target.device)
        x = self.decoder(self.vectors(target, cache), memory, mask, cache)
        if cache is not None:
            cache.memory = memory
            cache.length += target.shape[1]
        x = self.tap("final", self.norm(x[:, -1:] if last else x))
        return self.tap("logits", self.head(x))  # (B, T, V)

    def given(self, sources: Sequence[Sequence[int]]) -> Given:
        """The model bound to sources, each a list of token ids: what token generation steps through."""
        return Given(self, sources)

    def encode(self, source: Tensor) -> Memory:
        """The source as the decoder sees it. It is padded at its end, which no earlier position sees."""
        real = source != self.config.pad  # (B, S)
        mask = None if bool(real.all()) else real[:, None, None]
        return Memory(self.encoder(self.vectors(source)), mask)

    def vectors(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """Token vectors plus position vectors: ids (B, T) -> (B, T, D)."""
        x = self.tokens(ids) + self.positions(places(ids, cache, context=self.config.context))
        return self.drop(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """As in GPT-2: N(0, 0.02), projections to the residual stream narrower, biases 0, gains 1."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        additions = {"encoder": 2 * self.config.layers, "decoder": 3 * self.config.decoder_layers}
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            residual = name.endswith(("proj.weight", "down.weight"))
            count = additions[name.partition(".")[0]] if residual else 1
            parameter.normal_(0.0, 0.02 / math.sqrt(count), generator=generator)
        return self

    @torch.no_grad()
    def adopt(self, model: gpt.GPT) -> Self:
        """Take the weights of a language model in both halves, of its first blocks; what it lacks stays."""
        for name in ("layers", "decoder_layers"):
            if getattr(self.config, name) > model.config.layers:
                blocks = counted(model.config.layers, "block")
                count = getattr(self.config, name)
                raise InputError(f"{name} is {count}, and the model to begin with has {blocks}")
        given = dict(model.named_parameters())
        for name, parameter in self.named_parameters():
            value = given.get(re.sub("^(encoder|decoder)[.]", "", name))
            if value is not None:
                parameter[: len(value)] = value  # there may be more tokens than the model has
        return self

    # What other rooms ask of a model without knowing which model it is.

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The encoder and the decoder; a position of either sees itself and earlier ones of its text."""
        config = self.config
        encoder = Stack(
            prefix="encoder.",
            layers=config.layers,
            heads=config.heads,
            neurons=config.neurons,
            causal=True,
            source=True,
        )
        parts = (ATTENTION, CROSS_ATTENTION, FEED_FORWARD)
        decoder = replace(encoder, prefix="decoder.", layers=config.decoder_layers, source=False, parts=parts)
        return encoder, decoder

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
