"""The Transformer in files: Marian's form, in which Helsinki-NLP publishes its translators."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.hub.families import Family
from glassformer.hub.fields import make_config, read_choice, read_count, read_switch
from glassformer.hub.mapping import Names
from glassformer.models.transformer import PRESETS, Config, Transformer
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import train_pair_tokenizer

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "proj"}


def _layers(stack: str, parts: dict[str, str]) -> dict[str, str]:
    """Their names -> ours, of everything in the blocks of a stack: every part has a weight and a bias."""
    names = {}
    for theirs, ours in parts.items():
        for leaf in ("weight", "bias"):
            names[f"{stack}.layers.{{}}.{theirs}.{leaf}"] = f"{stack}.blocks.{{}}.{ours}.{leaf}"
    return names


def _attention(theirs: str, ours: str) -> dict[str, str]:
    return {f"{theirs}.{name}": f"{ours}.{mine}" for name, mine in ATTENTION.items()}


FEED_FORWARD = {"fc1": "mlp.up", "fc2": "mlp.down"}
ENCODER = _attention("self_attn", "attn") | FEED_FORWARD
ENCODER |= {"self_attn_layer_norm": "norm1", "final_layer_norm": "norm2"}
DECODER = _attention("self_attn", "attn") | _attention("encoder_attn", "cross") | FEED_FORWARD
DECODER |= {
    "self_attn_layer_norm": "norm1",
    "encoder_attn_layer_norm": "norm2",
    "final_layer_norm": "norm3",
}
NAMES = Names(
    tensors={
        # Written first: both forms of their model, with one vocabulary and with two, know this name.
        "decoder.embed_tokens.weight": "tokens.weight",
        "shared.weight": "tokens.weight",
        "encoder.embed_tokens.weight": "source_tokens.weight",
        "encoder.embed_positions.weight": None,  # a table that is computed here
        "decoder.embed_positions.weight": None,
        **_layers("encoder", ENCODER),
        **_layers("decoder", DECODER),
        "lm_head.weight": "head.weight",
        "final_logits_bias": "head.bias",
    },
    prefix="model.",
    unprefixed=("lm_head.weight", "final_logits_bias"),
    rows=("head.bias",),
    again=("source_tokens.weight",),
)

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu_erf", "gelu_new": "gelu_tanh"}
# Ours -> their keys, which must agree where there are two: one for each stack.
SIZES = {
    "layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
    "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "width": ("d_model",),
    "neurons": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "context": ("max_position_embeddings",),
}


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a Hugging Face `config.json`."""
    values: dict[str, Any] = {}
    for ours, keys in SIZES.items():
        values[ours], *others = (read_count(theirs, key, path=path) for key in keys)
        if any(other != values[ours] for other in others):
            raise CheckpointError(f"{path}: {' and '.join(keys)} differ, which is not supported")
    shared = read_switch(theirs, "share_encoder_decoder_embeddings", path=path, default=True)
    vocab = read_count(theirs, "vocab_size", path=path)
    values["vocab"] = vocab if shared else read_count(theirs, "decoder_vocab_size", path=path)
    values["source_vocab"] = 0 if shared else vocab
    values["activation"] = read_choice(
        theirs, "activation_function", path=path, choices=ACTIVATIONS, default="gelu"
    )
    values["scaled"] = read_switch(theirs, "scale_embedding", path=path, default=False)
    values["tied"] = read_switch(theirs, "tie_word_embeddings", path=path, default=True)
    values["head_bias"] = True
    values["layout"] = "halves"
    values["pad"] = _read_id(theirs, "pad_token_id", path)
    values["start"] = _read_id(theirs, "decoder_start_token_id", path)
    config: Config = make_config(Config, values, path=path)
    return config


def _read_id(theirs: dict[str, Any], key: str, path: Path) -> int:
    value = theirs.get(key)
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise CheckpointError(f"{path}: {key} is {'missing' if value is None else str(value)[:40]}")
    return value


def write_config(config: Config) -> dict[str, Any]:
    """A Hugging Face `config.json` from our Config."""
    if config.layout != "halves":
        raise CheckpointError(
            f"layout {config.layout!r}: files of this form hold models with layout 'halves'"
        )
    sizes = {key: getattr(config, ours) for ours, keys in SIZES.items() for key in keys}
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        **sizes,
        "vocab_size": config.source_vocab or config.vocab,
        "decoder_vocab_size": config.vocab,
        "share_encoder_decoder_embeddings": not config.source_vocab,
        "activation_function": activation,
        "scale_embedding": config.scaled,
        "static_position_embeddings": True,
        "tie_word_embeddings": config.tied,
        "dropout": config.dropout,
        "pad_token_id": config.pad,
        "decoder_start_token_id": config.start,
    }


def token_ids(tokenizer: Tokenizer | None, config: Config) -> dict[str, int | None]:
    """By Hugging Face's keys: the tokens that begin, end and fill up a target."""
    end = None if tokenizer is None else tokenizer.end
    return {"eos_token_id": end, "pad_token_id": config.pad, "decoder_start_token_id": config.start}


FAMILY = Family(
    kind="transformer",
    model_type="marian",
    title="Transformer",
    config=Config,
    build=Transformer,
    read_config=read_config,
    write_config=write_config,
    names=NAMES,
    train_tokenizer=train_pair_tokenizer,
    # The authors' own code, Tensor2Tensor, has the layout of Marian's files; the paper describes the other.
    presets={name: replace(config, layout="halves") for name, config in PRESETS.items()},
    small={"layers": 3, "decoder_layers": 3, "width": 256, "layout": "halves", "head_bias": True},
    token_ids=token_ids,
    objective="target_token",
)
