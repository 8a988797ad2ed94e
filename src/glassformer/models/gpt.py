"""GPT-2: a stack of decoder blocks that reads tokens and scores every possible next one.

Article      The Illustrated GPT-2 (Jay Alammar, 2019)
Paper        Language Models are Unsupervised Multitask Learners (Radford et al., 2019)
Checkpoints  openai-community/gpt2, gpt2-medium, gpt2-large, gpt2-xl and all that share their form

Relatives differ by their block, not by a flag: a `GPT` takes its blocks from the class attribute `block`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.nn.attention import attend, cache_mask
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import ACTIVATIONS, FeedForward
from glassformer.nn.stack import Stack
from glassformer.nn.stepping import Stepping
from glassformer.trace import Tapped


@dataclass(frozen=True, kw_only=True)
class Config:
    """The numbers that make one GPT-2 differ from another."""

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
    dropout: float = 0.0  # share of the values that training forgets at random; elsewhere it does nothing

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "vocab", "context"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.width % self.heads:
            raise InputError(f"width {self.width} cannot be split into {self.heads} heads of equal width")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and less than 1, not {self.dropout}")
        if self.activation not in ACTIVATIONS:
            raise InputError(f"activation {self.activation!r} is none of {', '.join(ACTIVATIONS)}")
        object.__setattr__(self, "neurons", self.neurons or 4 * self.width)

    @property
    def parameters(self) -> int:
        """How many numbers are learned, counted without making any of them."""
        width, neurons, bias = self.width, self.neurons, int(self.bias)
        norm = width + bias * width
        attention = (width + bias) * 3 * width + (width + bias) * width
        feedforward = (width + bias) * neurons + (neurons + bias) * width
        embeddings = (self.vocab + self.context) * width
        head = 0 if self.tied else self.vocab * width
        return embeddings + self.layers * (2 * norm + attention + feedforward) + norm + head


PRESETS = {
    "gpt2": Config(layers=12, heads=12, width=768),  # 124,439,808 parameters
    "gpt2-medium": Config(layers=24, heads=16, width=1024),  # 354,823,168
    "gpt2-large": Config(layers=36, heads=20, width=1280),  # 774,030,080
    "gpt2-xl": Config(layers=48, heads=25, width=1600),  # 1,557,611,200
}


class Attention(Tapped):
    """Masked self-attention: every position looks at itself and at those before it."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.dropout = layer, config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.proj = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        B, T, D = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.heads, D // self.heads)  # 1 make q, k, v; 1.5 split into heads
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        q, k, v = self.tap("q", q), self.tap("k", k), self.tap("v", v)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)  # (B, H, S, K)
        causal = k.shape[2] == T and T > 1
        mix = attend(
            self, q, k, v, mask=mask, causal=causal, dropout=self.dropout
        )  # 2 score; 3 sum: (B, H, T, K)
        mix = self.tap("mix", mix)
        merged = mix.transpose(1, 2).reshape(B, T, D)  # 3.5 merge the heads
        return self.tap("out", self.proj(merged))  # 4 project


class Block(Tapped):
    """GPT-2's block: norm → attention → add → norm → feed-forward → add."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.attn = Attention(config, layer)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.mlp = FeedForward(config.width, config.neurons, activation=config.activation, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.tap("in", x)
        x = self.tap("mid", x + self.drop(self.attn(self.norm1(x), mask, cache)))
        return self.tap("out", x + self.drop(self.mlp(self.norm2(x))))


class GPT(Stepping, Tapped):
    """Token ids in, a score for every token of the vocabulary out."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"writes", "causal", "attends"})
    block = Block

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(self.block(config, layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps, bias=config.bias)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.drop = nn.Dropout(config.dropout)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the token matrix, where the configuration says so."""
        if self.config.tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, cache: KVCache | None = None, *, last: bool = False) -> Tensor:
        """ids (B, T) -> logits (B, T, V), or (B, 1, V) for the `last` position alone."""
        mask = cache_mask(ids.shape[1], cache, device=ids.device)
        x = self.tap(
            "embed", self.drop(self.tokens(ids) + self.positions(self.where(ids, cache)))
        )  # (B, T, D)
        for block in self.blocks:
            x = block(x, mask, cache)
        if cache is not None:
            cache.length += ids.shape[1]
        x = self.tap("final", self.norm(x[:, -1:] if last else x))
        return self.tap("logits", self.head(x))  # (B, T, V)

    def where(self, ids: Tensor, cache: KVCache | None) -> Tensor:
        """The position of every token: (T,), or (B, T) where rows are padded on the left."""
        start = cache.length if cache is not None else 0
        end = start + ids.shape[1]
        limit = self.config.context + (
            0 if cache is None or cache.padding is None else int(cache.padding.min())
        )
        if end > limit:
            raise InputError(
                f"{end} tokens are {end - limit} more than the model's context of {self.config.context}"
            )
        positions = torch.arange(start, end, device=ids.device)
        if cache is None or cache.padding is None:
            return positions
        return (positions - cache.padding[:, None]).clamp(min=0)

    @torch.no_grad()
    def initialise(self, seed: int) -> "GPT":
        """The paper's initialisation: N(0, 0.02), residual projections scaled by 1/√(2L), biases 0, gains 1."""
        generator = torch.Generator(self.tokens.weight.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            residual = name.endswith(("attn.proj.weight", "mlp.down.weight"))
            std = 0.02 / (2 * self.config.layers) ** 0.5 if residual else 0.02
            parameter.normal_(0.0, std, generator=generator)
        return self

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
        return config.layers, rows, config.heads, capacity, config.width // config.heads

    def embed(self, ids: Tensor) -> Tensor:
        """The token vectors alone, without positions: ids (B, T) -> (B, T, D)."""
        return self.tokens(ids)  # type: ignore[no-any-return]

    def unembed(self, x: Tensor) -> Tensor:
        """What a vector of the residual stream scores as an output: (…, D) -> logits (…, V)."""
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        """The norm that the residual stream passes at a site: none, parts are added and stay as they are."""
        return None
