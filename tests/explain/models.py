"""Small models of several kinds, for the tests of explanations: the family, and a two-sided toy."""

from collections.abc import Callable
from typing import Any

import torch
from small import shake, small_model
from torch import Tensor, nn
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from glassformer.models.gpt import GPT1, GPT3, GPT1Config, GPT3Config
from glassformer.nn.attention import attend
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.stack import Stack
from glassformer.trace import Tapped

SIZES: dict[str, Any] = {"layers": 3, "heads": 3, "width": 24, "vocab": 97, "context": 40}


def gpt1(seed: int = 0, **changes: Any) -> GPT1:
    """A post-norm model whose every number is random."""
    net = GPT1(GPT1Config(**SIZES | changes)).initialize(seed)
    shake(net, seed)
    return net.double().eval()


def gpt3(seed: int = 0, **changes: Any) -> GPT3:
    """Dense and banded layers in turn; heads × head width is not the width."""
    net = GPT3(GPT3Config(**SIZES | {"window": 4, "head_width": 10} | changes)).initialize(seed)
    shake(net, seed)
    return net.double().eval()


def their_gpt1(seed: int = 3) -> OpenAIGPTLMHeadModel:
    """A small random GPT-1 of the `transformers` library."""
    config = OpenAIGPTConfig(
        n_layer=2, n_head=3, n_embd=24, vocab_size=97, n_positions=40, attn_implementation="eager"
    )
    torch.manual_seed(seed)
    model = OpenAIGPTLMHeadModel(config)
    shake(model, seed, 0.2)
    model.tie_weights()
    return model.double().eval()


@torch.no_grad()
def our_gpt1(theirs: OpenAIGPTLMHeadModel) -> GPT1:
    """The same weights in our model, carried over name by name."""
    net = GPT1(GPT1Config(**SIZES | {"layers": 2})).double().eval()
    body = theirs.transformer
    net.tokens.weight.copy_(body.tokens_embed.weight)
    net.positions.weight.copy_(body.positions_embed.weight)
    for block, other in zip(net.blocks, body.h, strict=True):
        linear = [("attn.qkv", other.attn.c_attn), ("attn.proj", other.attn.c_proj)]
        linear += [("mlp.up", other.mlp.c_fc), ("mlp.down", other.mlp.c_proj)]
        for name, module in linear:
            block.get_submodule(name).weight.copy_(module.weight.T)  # theirs is (in, out)
            block.get_submodule(name).bias.copy_(module.bias)
        for name, module in (("norm1", other.ln_1), ("norm2", other.ln_2)):
            block.get_submodule(name).load_state_dict(module.state_dict())
    return net


class ToyAttention(Tapped):
    """Attention without a mask, to the text itself or to a memory of another length."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            self.tap(name, getattr(self, name)(given).unflatten(-1, (self.heads, -1)).transpose(1, 2))
            for name, given in (("q", x), ("k", memory), ("v", memory))
        )
        mix = self.tap("mix", attend(self, q, k, v, mask=None))  # (B, H, T, K)
        return self.tap("out", self.proj(mix.transpose(1, 2).flatten(2)))


class ToyBlock(Tapped):
    """Post-norm, two-sided, and, if there is a memory, with cross-attention to it."""

    def __init__(self, width: int, heads: int, cross: bool) -> None:
        super().__init__()
        self.attn = ToyAttention(width, heads)
        self.cross = ToyAttention(width, heads) if cross else None
        self.mlp = FeedForward(width, 4 * width, activation="gelu_tanh", bias=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.tap("mid", self.norm1(self.tap("in", x) + self.attn(x, x)))
        if self.cross is not None:
            x = x + self.cross(x, memory)
        return self.tap("out", self.norm2(x + self.mlp(x)))


class ToyEncoder(Tapped):
    """The stack, whose sites begin with `encoder.`"""

    def __init__(self, width: int, heads: int, layers: int, cross: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ToyBlock(width, heads, cross) for _ in range(layers))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.tap("embed", x)
        for block in self.blocks:
            x = block(x, memory)
        return x


class Toy(Tapped):
    """A two-sided model with a prefix, a scaled embedding, no limit of positions and a bias in its output."""

    vocab, context = 97, None
    stacks = (Stack(prefix="encoder.", layers=2, heads=3, causal=False, neurons=96),)

    def __init__(self, cross: bool = False) -> None:
        super().__init__()
        self.config = None
        self.tokens, self.head = nn.Embedding(97, 24), nn.Linear(24, 97)
        self.encoder = ToyEncoder(24, 3, 2, cross)
        self.norm = nn.Identity()
        self.memory = nn.Parameter(torch.zeros(1, 5, 24))

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) / 24**0.5  # type: ignore[no-any-return]

    def unembed(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        *path, half = site.split(".")
        if half not in ("mid", "out"):
            return None
        norm: Any = self.get_submodule(".".join([*path, "norm1" if half == "mid" else "norm2"]))
        return norm  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, *, last: bool = False) -> Tensor:
        positions = torch.arange(ids.shape[1])[:, None] / torch.arange(1, 25)
        x = self.encoder(self.embed(ids) + positions.sin().to(self.head.weight.dtype), self.memory)
        x = self.tap("final", self.norm(x[:, -1:] if last else x))
        return self.tap("logits", self.head(x))


def toy(seed: int = 0, cross: bool = False) -> Any:
    """A toy whose every number is random."""
    net = Toy(cross)
    shake(net, seed)
    return net.double().eval()


KINDS: dict[str, Callable[[int], Any]] = {
    "gpt2": lambda seed: small_model(seed, torch.float64, layers=3),
    "gpt1": gpt1,
    "gpt3": gpt3,
    "toy": toy,
}
