"""Small models of several kinds, for the tests of explanations: the family, and toys of one stack and of two."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from small import shake, small_model
from torch import Tensor, nn
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from glassformer.explain.reading import Reading
from glassformer.models.gpt import GPT1, GPT3, GPT1Config, GPT3Config
from glassformer.nn.attention import attend
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.stack import ATTENTION, CROSS_ATTENTION, FEED_FORWARD, Stack
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
    """Attention to the text itself or to a memory of another length, behind a causal mask or none."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, cached: Callable[..., Any] | None = None) -> Tensor:
        q, k, v = (
            self.tap(name, getattr(self, name)(given).unflatten(-1, (self.heads, -1)).transpose(1, 2))
            for name, given in (("q", x), ("k", memory), ("v", memory))
        )
        if cached is not None:
            k, v = cached(k, v)
        causal = self.causal and q.shape[2] == k.shape[2]
        mix = self.tap("mix", attend(self, q, k, v, mask=None, causal=causal))  # (B, H, T, K)
        return self.tap("out", self.proj(mix.transpose(1, 2).flatten(2)))


class ToyBlock(Tapped):
    """The parts of its stack, with a norm behind each addition or before each part."""

    def __init__(self, width: int, stack: Stack, *, post_norm: bool) -> None:
        super().__init__()
        self.stack, self.post_norm = stack, post_norm
        for number, part in enumerate(stack.parts, 1):
            module: nn.Module = FeedForward(width, stack.neurons, activation="gelu_tanh", bias=True)
            if part.values == "mix":
                module = ToyAttention(width, stack.heads, causal=stack.causal and not part.source)
            self.add_module(part.name, module)
            self.add_module(f"norm{number}", nn.LayerNorm(width))

    def forward(self, x: Tensor, memory: Tensor | None, cached: Callable[..., Any] | None) -> Tensor:
        x = self.tap("in", x)
        for number, part in enumerate(self.stack.parts, 1):
            module, norm = getattr(self, part.name), getattr(self, f"norm{number}")
            read = x if self.post_norm else norm(x)
            if part.values == "neurons":
                added = module(read)
            elif part.source:
                added = module(read, memory)
            else:
                added = module(read, read, cached)
            x = self.tap(part.after, norm(x + added) if self.post_norm else x + added)
        return x


class ToyStack(Tapped):
    """A stack, whose sites begin with its prefix."""

    def __init__(self, width: int, stack: Stack, *, post_norm: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ToyBlock(width, stack, post_norm=post_norm) for _ in range(stack.layers))

    def forward(self, x: Tensor, memory: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        start = 0 if cache is None else cache.length
        places = torch.arange(start, start + x.shape[1])[:, None] / torch.arange(1, x.shape[2] + 1)
        length = x.shape[1]
        x = self.tap("embed", x + places.sin().to(x.dtype))
        for layer, block in enumerate(self.blocks):
            x = block(x, memory, None if cache is None else partial(cache.extend, layer))
        if cache is not None:
            cache.length += length
        return x


class Toy(Tapped):
    """A two-sided model with a prefix, a scaled embedding, no limit of positions and a bias in its output."""

    capabilities = frozenset({"attends"})
    context, width, post_norm = None, 24, True
    stacks: tuple[Stack, ...] = (Stack(prefix="encoder.", layers=2, heads=3, causal=False, neurons=96),)

    def __init__(self, vocab: int = 97) -> None:
        super().__init__()
        self.config, self.vocab = None, vocab
        self.tokens, self.head = nn.Embedding(vocab, self.width), nn.Linear(self.width, vocab)
        for stack in self.stacks:
            self.add_module(stack.name, ToyStack(self.width, stack, post_norm=self.post_norm))
        self.norm = nn.Identity() if self.post_norm else nn.LayerNorm(self.width)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) / self.width**0.5  # type: ignore[no-any-return]

    def embed_source(self, ids: Tensor) -> Tensor:
        return self.embed(ids)

    def unembed(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def stream_norm(self, site: str) -> nn.LayerNorm | None:
        *path, after = site.split(".")
        if not self.post_norm or after not in ("mid", "mid2", "out"):
            return None
        block: Any = self.get_submodule(".".join(path))
        afters = [part.after for part in block.stack.parts]
        return getattr(block, f"norm{1 + afters.index(after)}")  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, *, last: bool = False) -> Tensor:
        return self.read_out(self.encoder(self.embed(ids)), last=last)

    def read_out(self, x: Tensor, *, last: bool) -> Tensor:
        x = self.tap("final", self.norm(x[:, -1:] if last else x))
        return self.tap("logits", self.head(x))


class ToyTranslator(Toy):
    """An encoder-decoder: the encoder reads a source, the decoder a text, and attends to what was encoded."""

    capabilities = frozenset({"attends", "causal", "source", "writes"})
    stacks = (
        Stack(prefix="encoder.", layers=1, heads=3, causal=False, neurons=48, source=True),
        Stack(
            prefix="decoder.",
            layers=2,
            heads=3,
            causal=True,
            neurons=96,
            parts=(ATTENTION, CROSS_ATTENTION, FEED_FORWARD),
        ),
    )

    def forward(self, source: Tensor, ids: Tensor, *, last: bool = False) -> Tensor:
        return self.read_out(self.decoder(self.embed(ids), self.encoder(self.embed(source))), last=last)

    def given(self, sources: list[list[int]]) -> "Bound":
        return Bound(self, self.encoder(self.embed(torch.tensor(sources))))


class PreNormTranslator(ToyTranslator):
    """The same with norms before its parts, and one at the end."""

    post_norm = False


class Bound:
    """A translator that has read its source: it steps through the text behind a cache."""

    def __init__(self, net: ToyTranslator, memory: Tensor) -> None:
        self.net, self.memory = net, memory

    def new_cache(self, rows: int, capacity: int) -> KVCache:
        return KVCache.empty((2, rows, 3, capacity, 8), dtype=self.memory.dtype, device=self.memory.device)

    @torch.no_grad()
    def step(self, ids: Any, cache: KVCache) -> Any:
        x = self.net.decoder(self.net.embed(torch.as_tensor(ids)), self.memory, cache)
        return self.net.read_out(x, last=True)[:, 0].numpy()


class ToyFeedForward(Toy):
    """A block that adds its feed-forward layer and nothing else."""

    stacks = (Stack(prefix="encoder.", layers=2, heads=0, causal=True, neurons=96, parts=(FEED_FORWARD,)),)


def toy(seed: int = 0, kind: type[Toy] = Toy, vocab: int = 97) -> Any:
    """A toy whose every number is random."""
    torch.manual_seed(seed)
    net = kind(vocab)
    shake(net, seed)
    return net.double().eval()


SOURCE = [8, 90, 33, 2, 61]  # what an encoder-decoder reads beside the text
KINDS: dict[str, Callable[[int], Any]] = {
    "gpt2": lambda seed: small_model(seed, torch.float64, layers=3),
    "gpt1": gpt1,
    "gpt3": gpt3,
    "toy": toy,
    "translator": lambda seed: toy(seed, ToyTranslator),
    "pre-norm translator": lambda seed: toy(seed, PreNormTranslator),
}


def read(kind: str, seed: int, ids: Sequence[int]) -> Reading:
    """A model of a kind, and a text; an encoder-decoder has a source, too."""
    return Reading(KINDS[kind](seed), list(ids), source=SOURCE if "translator" in kind else None)
