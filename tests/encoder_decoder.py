"""A toy family of two stacks, in Marian's files: one matrix under four names, a buffer, computed positions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from small import shake
from torch import nn
from transformers import MarianConfig, MarianMTModel

from glassformer.hub import families
from glassformer.hub.families import Entry, Family
from glassformer.hub.fields import make_config, read_count, read_switch
from glassformer.hub.mapping import Names
from glassformer.nn.net import Net
from glassformer.nn.stack import Stack
from glassformer.tokenizers import Tokenizer, train_tokenizer


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    """Its sizes, odd and different: what is equal by accident elsewhere is not equal here."""

    encoder_layers: int = 2
    decoder_layers: int = 3
    width: int = 12
    neurons: int = 20
    vocab: int = 50
    tied: bool = True
    one_mlp: bool = False  # all blocks of the decoder share their feed-forward layer

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        attention, norm = 4 * (self.width + 1) * self.width, 2 * self.width
        mlp = (self.width + 1) * self.neurons + (self.neurons + 1) * self.width
        encoder = self.encoder_layers * (attention + mlp + 2 * norm)
        decoder = self.decoder_layers * (2 * attention + 3 * norm)
        decoder += mlp if self.one_mlp else self.decoder_layers * mlp
        return encoder + decoder + self.vocab * self.width * (1 if self.tied else 2)


class ToyAttention(nn.Module):
    """Four projections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))


class ToyBlock(nn.Module):
    """Attention, in the decoder also to the encoder, and a feed-forward layer."""

    def __init__(self, config: ToyConfig, *, cross: bool) -> None:
        super().__init__()
        self.attn, self.norm1 = ToyAttention(config.width), nn.LayerNorm(config.width)
        if cross:
            self.cross, self.norm2 = ToyAttention(config.width), nn.LayerNorm(config.width)
        self.mlp = nn.ModuleDict(
            {"up": nn.Linear(config.width, config.neurons), "down": nn.Linear(config.neurons, config.width)}
        )
        self.norm3 = nn.LayerNorm(config.width)


class ToyStack(nn.Module):
    """The blocks of one side."""

    def __init__(self, config: ToyConfig, layers: int, *, cross: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ToyBlock(config, cross=cross) for _ in range(layers))


class Toy(Net):
    """The parameters of an encoder-decoder, without its equations."""

    kind = "toy"
    capabilities = frozenset({"writes", "source", "attends"})
    config: ToyConfig

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.encoder = ToyStack(config, config.encoder_layers, cross=False)
        self.decoder = ToyStack(config, config.decoder_layers, cross=True)
        self.decoder.tokens = nn.Embedding(config.vocab, config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.register_buffer("logits_bias", torch.zeros(1, config.vocab))
        self.tie()

    def tie(self) -> None:
        """One matrix of tokens; one feed-forward layer in the decoder, if the configuration has it."""
        self.decoder.tokens.weight = self.tokens.weight
        if self.config.tied:
            self.head.weight = self.tokens.weight
        if self.config.one_mlp:
            for block in self.decoder.blocks:
                block.mlp = self.decoder.blocks[0].mlp

    @torch.no_grad()
    def initialize(self, seed: int) -> Self:
        """Every number is random, those of the buffer too."""
        generator = torch.Generator().manual_seed(seed)
        for value in self.state_dict().values():
            value.normal_(generator=generator)
        return self

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Encoder and decoder."""
        config = self.config
        cross = (("attn", "mid"), ("cross", "mid2"), ("mlp", "out"))
        return (
            Stack(prefix="encoder.", layers=config.encoder_layers, heads=2, causal=False, neurons=20),
            Stack(
                prefix="decoder.", layers=config.decoder_layers, heads=2, causal=True, neurons=20, parts=cross
            ),
        )


SIDES = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "proj"}
BLOCK = {f"self_attn.{theirs}": f"attn.{ours}" for theirs, ours in SIDES.items()} | {
    "self_attn_layer_norm": "norm1",
    "fc1": "mlp.up",
    "fc2": "mlp.down",
    "final_layer_norm": "norm3",
}
CROSS = {f"encoder_attn.{theirs}": f"cross.{ours}" for theirs, ours in SIDES.items()}
CROSS |= {"encoder_attn_layer_norm": "norm2"}


def stack_names(stack: str, parts: dict[str, str]) -> dict[str, str | None]:
    """The templates of one stack."""
    return {
        f"{stack}.layers.{{}}.{theirs}.{leaf}": f"{stack}.blocks.{{}}.{ours}.{leaf}"
        for theirs, ours in parts.items()
        for leaf in ("weight", "bias")
    }


NAMES = Names(
    tensors={
        "shared.weight": "tokens.weight",
        "encoder.embed_tokens.weight": "tokens.weight",  # another name of the same matrix
        "decoder.embed_tokens.weight": "decoder.tokens.weight",  # a matrix of the model that is tied there
        "encoder.embed_positions.weight": None,
        "decoder.embed_positions.weight": None,
        **stack_names("encoder", BLOCK),
        **stack_names("decoder", BLOCK | CROSS),
        "lm_head.weight": "head.weight",
        "final_logits_bias": "logits_bias",
    },
    prefix="model.",
    unprefixed=("lm_head.weight", "final_logits_bias"),
)
SIZES = {
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "width": "d_model",
    "neurons": "encoder_ffn_dim",
    "vocab": "vocab_size",
}


def read_config(theirs: dict[str, Any], path: Path) -> ToyConfig:
    """Our ToyConfig from a `config.json`."""
    values: dict[str, Any] = {ours: read_count(theirs, key, path=path) for ours, key in SIZES.items()}
    values["tied"] = read_switch(theirs, "tie_word_embeddings", path=path, default=True)
    values["one_mlp"] = read_switch(theirs, "one_mlp", path=path, default=False)
    config: ToyConfig = make_config(ToyConfig, values, path=path)
    return config


def write_config(config: ToyConfig) -> dict[str, Any]:
    """A `config.json` from our ToyConfig."""
    sizes = {key: getattr(config, ours) for ours, key in SIZES.items()}
    sizes |= {"decoder_ffn_dim": config.neurons, "decoder_vocab_size": config.vocab}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 16}
    switches = {"tie_word_embeddings": config.tied, "one_mlp": config.one_mlp}
    return {"architectures": ["MarianMTModel"], "model_type": "marian"} | sizes | heads | switches


def token_ids(tokenizer: Tokenizer | None = None, config: Any = None) -> dict[str, int | None]:
    """Marian begins a text with its padding."""
    return {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 49, "decoder_start_token_id": 49}


FAMILY = Family(
    kind="toy",
    model_type="marian",
    title="toy",
    config=ToyConfig,
    build=Toy,
    read_config=read_config,
    write_config=write_config,
    names=NAMES,
    train_tokenizer=train_tokenizer,
    presets={},
    token_ids=token_ids,
)


def toy(seed: int = 0, **changes: Any) -> Toy:
    """A toy whose every number is random."""
    return Toy(ToyConfig(**changes)).initialize(seed).eval()


def hugging_face_marian(seed: int = 0) -> MarianMTModel:
    """A Marian of the same sizes from the `transformers` library, whose every number is random."""
    config = write_config(ToyConfig()) | token_ids()
    model = MarianMTModel(MarianConfig(**config))
    shake(model, seed)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(seed))
    return model.eval()


def only_the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of `marian` hold a toy."""
    monkeypatch.setattr(families, "FAMILIES", {"toy": Entry("marian", "encoder_decoder")})
