"""GPT: a stack of decoder blocks that reads tokens and scores every possible next one.

GPT-1   paper        Improving Language Understanding by Generative Pre-Training (Radford et al., 2018)
        checkpoint   openai-community/openai-gpt
GPT-2   article      The Illustrated GPT-2 (Jay Alammar, 2019)
        paper        Language Models are Unsupervised Multitask Learners (Radford et al., 2019)
        checkpoints  openai-community/gpt2, gpt2-medium, gpt2-large, gpt2-xl and all that share their form
GPT-3   article      How GPT3 Works (Jay Alammar, 2020)
        paper        Language Models are Few-Shot Learners (Brown et al., 2020)
        checkpoints  never published

They differ by their blocks, not by flags: each model makes its own in `make_block`. GPT-2 comes first; GPT-1
(norms after the additions) and GPT-3 (attention in a band in some layers) state what is different.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, check_at_least, check_choice, check_dropout
from glassformer.nn.attention import attend, attend_banded, cache_mask
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.net import Net
from glassformer.nn.positions import places
from glassformer.nn.stack import Stack
from glassformer.trace import Tapped

MOST_LAYERS = 10_000  # a million layers, however small, take hours to build


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a GPT-2, and the few choices that its checkpoints differ in."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocab: int = 50257
    context: int = 1024
    neurons: int = 0  # 0 means 4 × width
    activation: str = "gelu_tanh"
    norm_eps: float = 1e-5
    tied: bool = True  # the output matrix is the token matrix
    bias: bool = True
    dropout: float = 0.0  # dropout probability, in training alone
    # The fused kernel of a CPU drops nothing: the whole pattern is made, which takes long and much memory.
    attention_dropout: bool = field(
        default=True,
        metadata={"help": "Dropout of attention weights too; without it a CPU is faster, with less memory."},
    )

    def __post_init__(self) -> None:
        check_at_least(1, layers=self.layers, heads=self.heads, width=self.width)
        check_at_least(1, vocab=self.vocab, context=self.context)
        if self.layers > MOST_LAYERS:
            raise InputError(f"layers must be at most {MOST_LAYERS:,}, not {self.layers:,}")
        self._check_heads()
        check_dropout(self.dropout)
        check_choice(ACTIVATIONS, activation=self.activation)
        object.__setattr__(self, "neurons", self.neurons or 4 * self.width)

    def _check_heads(self) -> None:
        if self.width % self.heads:
            raise InputError(f"width {self.width} cannot be split into {self.heads} heads of equal width")

    @property
    def head_width(self) -> int:
        """The width of one head's queries, keys and values."""
        return self.width // self.heads

    @property
    def pattern_dropout(self) -> float:
        """The probability that an entry of an attention pattern is dropped."""
        return self.dropout if self.attention_dropout else 0.0

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        width, neurons, bias = self.width, self.neurons, int(self.bias)
        inner = self.heads * self.head_width
        norm = width + bias * width
        attention = (width + bias) * 3 * inner + (inner + bias) * width
        feedforward = (width + bias) * neurons + (neurons + bias) * width
        embeddings = (self.vocab + self.context) * width
        head = 0 if self.tied else self.vocab * width
        return embeddings + self.layers * (2 * norm + attention + feedforward) + norm + head


class Attention(Tapped):
    """Masked self-attention: every position looks at itself and at those before it."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.dropout = layer, config.heads, config.pattern_dropout
        inner = config.heads * config.head_width  # the width of all heads together
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.bias)
        self.proj = nn.Linear(inner, config.width, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        # 1 make q, k, v; 1.5 split into heads
        B, T, _ = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        q, k, v = self.tap("q", q), self.tap("k", k), self.tap("v", v)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)  # (B, H, S, K)

        # 2 score; 3 sum
        mix = self.tap("mix", self._mix(q, k, v, mask, cache))  # (B, H, T, K)

        # 3.5 merge the heads; 4 project
        merged = mix.transpose(1, 2).reshape(B, T, -1)
        return self.tap("out", self.proj(merged))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """The values of all sources that a position may see, weighted: (B, H, T, K)."""
        T, S = q.shape[2], k.shape[2]
        causal = T == S and T > 1
        return attend(self, q, k, v, mask=mask, causal=causal, dropout=self.dropout)


class Block(Tapped):
    """GPT-2's block: norm → attention → add → norm → feed-forward → add."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.attn = self.make_attention(config, layer)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.mlp = FeedForward(config.width, config.neurons, activation=config.activation, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)

    def make_attention(self, config: Config, layer: int) -> Attention:
        """The attention of this block."""
        return Attention(config, layer)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("in", x)
        x = self.tap("mid", x + self.drop(self.attn(self.norm1(x), mask, cache)))
        return self.tap("out", x + self.drop(self.mlp(self.norm2(x))))


class GPT(Net):
    """Token ids in, a score for every token of the vocabulary out."""

    kind = "gpt2"
    capabilities = frozenset({"writes", "causal", "attends"})
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = self.make_positions(config)
        self.blocks = nn.ModuleList(self.make_block(config, layer) for layer in range(config.layers))
        self.norm = self.make_norm(config)
        self.head = self.make_head(config)
        self.drop = nn.Dropout(config.dropout)
        self.tie()

    def make_positions(self, config: Config) -> nn.Module:
        """What gives a position its vector."""
        return nn.Embedding(config.context, config.width)

    def make_block(self, config: Config, layer: int) -> nn.Module:
        """The block of one layer."""
        return Block(config, layer)

    def make_norm(self, config: Config) -> nn.Module:
        """The norm between the last block and the output matrix."""
        return nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)

    def make_head(self, config: Config) -> nn.Linear:
        """The output matrix."""
        return nn.Linear(config.width, config.vocab, bias=False)

    def tie(self) -> None:
        """Make the output matrix the token matrix, where the configuration says so."""
        if self.config.tied:
            self.head.weight = self.tokens.weight

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, *, last: bool = False, only: Tensor | None = None
    ) -> Tensor:
        """ids (B, T) -> logits (B, T, V), or (B, 1, V) for the `last` position alone.

        `only` (N,) are places in the flattened batch whose logits (N, V) are wanted, and no others computed.
        """
        return self.tap("logits", self.head(self.read(ids, cache, last=last, only=only)))  # (B, T, V)

    def read(
        self, ids: Tensor, cache: KVCache | None = None, *, last: bool = False, only: Tensor | None = None
    ) -> Tensor:
        """What the output matrix reads: ids (B, T) -> (B, T, D); (B, 1, D) or (N, D), as in `forward`."""
        mask = cache_mask(ids.shape[1], cache, device=ids.device)
        x = self.tokens(ids) + self.positions(places(ids, cache, context=self.config.context))
        x = self.tap("embed", self.drop(x))  # (B, T, D)
        for block in self.blocks:
            x = block(x, mask, cache)
        if cache is not None:
            cache.length += ids.shape[1]
        if only is not None:
            x = x.flatten(0, 1)[only]  # (N, D)
        return self.tap("final", self.norm(x[:, -1:] if last else x))

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """The paper's initialization: N(0, 0.02), residual projections narrower, biases 0, gains 1."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            residual = name.endswith(("attn.proj.weight", "mlp.down.weight"))
            std = self.residual_std() if residual else 0.02
            parameter.normal_(0.0, std, generator=generator)
        return self

    def residual_std(self) -> float:
        """Each of the 2L projections adds to the stream; scaled by 1/√(2L), all add as much as one would."""
        return 0.02 / math.sqrt(2 * self.config.layers)

    # What other rooms ask of a model without knowing which model it is.

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of blocks: one, whose positions see themselves and earlier ones."""
        config = self.config
        return (Stack(layers=config.layers, heads=config.heads, causal=True, neurons=config.neurons),)

    @property
    def context(self) -> int:
        """How many positions the model can read at once."""
        return self.config.context

    def cache_shape(self, rows: int, capacity: int) -> tuple[int, ...]:
        """The shape (L, B, H, S, K) of the keys, or of the values, that are kept for `rows` sequences."""
        config = self.config
        return config.layers, rows, config.heads, capacity, config.head_width


@dataclass(frozen=True, kw_only=True)
class GPT1Config(Config):
    """The sizes of a GPT-1."""

    vocab: int = 40478
    context: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neurons != 4 * self.width:
            raise InputError(f"neurons must be 4 × width in GPT-1, {4 * self.width}, not {self.neurons}")
        if self.activation == "gelu_erf":
            raise InputError("activation must be gelu_tanh or relu in GPT-1, not gelu_erf")

    @property
    def parameters(self) -> int:
        """How many numbers are learned: as in GPT-2, without the norm at the end."""
        return super().parameters - self.width - int(self.bias) * self.width


class PostNormBlock(Block):
    """GPT-1's block: attention → add → norm → feed-forward → add → norm."""

    def forward(self, x: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("in", x)
        x = self.tap("mid", self.norm1(x + self.drop(self.attn(x, mask, cache))))
        return self.tap("out", self.norm2(x + self.drop(self.mlp(x))))


class GPT1(GPT):
    """GPT-1: a block ends with a norm, so that none is left to do at the end."""

    kind = "gpt1"

    def make_block(self, config: Config, layer: int) -> nn.Module:
        """The block of one layer."""
        return PostNormBlock(config, layer)

    def make_norm(self, config: Config) -> nn.Module:
        """The output matrix reads the last block as it is."""
        return nn.Identity()

    def residual_std(self) -> float:
        """A norm follows every addition: no projection needs another scale."""
        return 0.02

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        """The norm that made the value at a site: `norm1` at `blocks.i.mid`, `norm2` at `blocks.i.out`."""
        match = re.fullmatch(r"blocks\.(\d+)\.(mid|out)", site)
        if match is None:
            return None
        name = "norm1" if match[2] == "mid" else "norm2"
        norm = getattr(self.blocks[int(match[1])], name)
        assert isinstance(norm, nn.LayerNorm)
        return norm


@dataclass(frozen=True, kw_only=True)
class GPT3Config(Config):
    """The sizes of a GPT-3, and which of its layers attend in a band.

    Brown et al. (2020) alternate "dense and locally banded sparse attention patterns, similar to the Sparse
    Transformer" (Child et al., 2019) and leave both numbers open:
    `window`: in a banded layer a position attends to the last `window` positions, itself included.
    `stride`: every `stride`-th layer is dense, beginning with the first; the layers between are banded.
    A stride of 2 alternates as the paper does, a stride of 1 makes every layer dense.
    """

    context: int = 2048
    head_width: int = 0  # 0 means width / heads; heads × head_width need not be the width
    # The paper does not say; GPT-Neo's choice for the same alternation.
    window: int = field(
        default=256, metadata={"help": "How many positions a banded layer looks back on, itself included."}
    )
    stride: int = field(
        default=2,
        metadata={"help": "Every STRIDE-th layer is dense, beginning with the first; the others are banded."},
    )

    def __post_init__(self) -> None:
        check_at_least(1, window=self.window, stride=self.stride)
        check_at_least(0, head_width=self.head_width)
        super().__post_init__()
        object.__setattr__(self, "head_width", self.head_width or self.width // self.heads)

    def _check_heads(self) -> None:
        if not self.head_width:
            super()._check_heads()

    def is_dense(self, layer: int) -> bool:
        """Whether a layer attends to all earlier positions."""
        return layer % self.stride == 0


class BandedAttention(Attention):
    """Self-attention to the nearest positions alone."""

    def __init__(self, config: GPT3Config, layer: int) -> None:
        super().__init__(config, layer)
        self.window = config.window

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """The values of the last `window` sources, weighted: (B, H, T, K)."""
        if k.shape[2] <= self.window:  # all sources are within the band
            return super()._mix(q, k, v, mask, cache)
        padding = None if cache is None else cache.padding
        return attend_banded(self, q, k, v, window=self.window, padding=padding, dropout=self.dropout)


class BandedBlock(Block):
    """GPT-2's block with attention in a band."""

    def make_attention(self, config: Config, layer: int) -> Attention:
        """The attention of this block."""
        assert isinstance(config, GPT3Config)
        return BandedAttention(config, layer)


class GPT3(GPT):
    """GPT-3: GPT-2's blocks, of which some attend in a band."""

    kind = "gpt3"

    def make_block(self, config: Config, layer: int) -> nn.Module:
        """The block of one layer: dense or banded."""
        assert isinstance(config, GPT3Config)
        block = Block if config.is_dense(layer) else BandedBlock
        return block(config, layer)


# The published sizes, with their parameters.
PRESETS: dict[str, Config] = {
    "gpt1": GPT1Config(),  # 116,534,784
    "gpt2": Config(layers=12, heads=12, width=768),  # 124,439,808
    "gpt2-medium": Config(layers=24, heads=16, width=1024),  # 354,823,168
    "gpt2-large": Config(layers=36, heads=20, width=1280),  # 774,030,080
    "gpt2-xl": Config(layers=48, heads=25, width=1600),  # 1,557,611,200
    "gpt3-small": GPT3Config(layers=12, heads=12, width=768),  # 125,226,240
    "gpt3-medium": GPT3Config(layers=24, heads=16, width=1024),  # 355,871,744
    "gpt3-large": GPT3Config(layers=24, heads=16, width=1536),  # 760,300,032
    "gpt3-xl": GPT3Config(
        layers=24, heads=24, width=2048, head_width=128
    ),  # 1,517,123,584; the paper says 1.3 billion
    "gpt3-2.7b": GPT3Config(layers=32, heads=32, width=2560),  # 2,651,553,280
    "gpt3-6.7b": GPT3Config(layers=32, heads=32, width=4096),  # 6,658,404,352
    "gpt3-13b": GPT3Config(layers=40, heads=40, width=5140, head_width=128),  # 12,936,488,380
    "gpt3-175b": GPT3Config(layers=96, heads=96, width=12288),  # 174,604,259,328
}
