"""GPT-2 in files: Hugging Face's config keys and tensor names <-> ours. nanoGPT and minGPT share them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError
from glassformer.hub.families import Family, Pickled
from glassformer.hub.fields import make_config, read_choice, read_count, read_fraction, read_switch
from glassformer.hub.mapping import Names
from glassformer.hub.tensors import StoredTensor
from glassformer.models.gpt import GPT, PRESETS, Config
from glassformer.tokenizers.train import train_tokenizer

BLOCK: dict[str, str | None] = {
    "h.{}.ln_1.weight": "blocks.{}.norm1.weight",
    "h.{}.ln_1.bias": "blocks.{}.norm1.bias",
    "h.{}.attn.c_attn.weight": "blocks.{}.attn.qkv.weight",
    "h.{}.attn.c_attn.bias": "blocks.{}.attn.qkv.bias",
    "h.{}.attn.c_proj.weight": "blocks.{}.attn.proj.weight",
    "h.{}.attn.c_proj.bias": "blocks.{}.attn.proj.bias",
    "h.{}.attn.bias": None,  # a mask
    "h.{}.attn.masked_bias": None,
    "h.{}.ln_2.weight": "blocks.{}.norm2.weight",
    "h.{}.ln_2.bias": "blocks.{}.norm2.bias",
    "h.{}.mlp.c_fc.weight": "blocks.{}.mlp.up.weight",
    "h.{}.mlp.c_fc.bias": "blocks.{}.mlp.up.bias",
    "h.{}.mlp.c_proj.weight": "blocks.{}.mlp.down.weight",
    "h.{}.mlp.c_proj.bias": "blocks.{}.mlp.down.bias",
}
PROJECTIONS = (
    "blocks.{}.attn.qkv.weight",
    "blocks.{}.attn.proj.weight",
    "blocks.{}.mlp.up.weight",
    "blocks.{}.mlp.down.weight",
)
NAMES = Names(
    tensors={
        "wte.weight": "tokens.weight",
        "wpe.weight": "positions.weight",
        **BLOCK,
        "ln_f.weight": "norm.weight",
        "ln_f.bias": "norm.bias",
        "lm_head.weight": "head.weight",
    },
    prefix="transformer.",
    unprefixed=("lm_head.weight",),
    transposed=PROJECTIONS,
)

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
}
SIZES = {
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_embd",
    "vocab": "vocab_size",
    "context": "n_positions",
}
OPTIONS = {"heads": "n_head", "activation": "activation_function"}  # of `glass convert` -> keys
# Switches of their implementation that change the numbers, with the value that GPT-2 has.
UNSUPPORTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a Hugging Face `config.json`."""
    config: Config = make_config(Config, read_values(theirs, path), path=path)
    return config


def read_values(theirs: dict[str, Any], path: Path) -> dict[str, Any]:
    """The fields of our Config from a `config.json` with GPT-2's keys."""
    for key, value in UNSUPPORTED.items():
        if theirs.get(key, value) != value:
            raise CheckpointError(f"{path}: {key}={str(theirs[key])[:40]!r} is not supported")

    values: dict[str, Any] = read_sizes(theirs, path)
    if theirs.get("n_inner") is not None:
        values["neurons"] = read_count(theirs, "n_inner", path=path)
    values["activation"] = read_choice(
        theirs, "activation_function", path=path, choices=ACTIVATIONS, default="gelu_new"
    )
    return values


def read_sizes(theirs: dict[str, Any], path: Path) -> dict[str, Any]:
    """What all relatives of GPT-2 have under the same keys."""
    values: dict[str, Any] = {}
    for ours, key in SIZES.items():
        values[ours] = read_count(theirs, key, path=path, instead="n_ctx" if ours == "context" else "")
    values["norm_eps"] = read_fraction(theirs, "layer_norm_epsilon", path=path, default=1e-5)
    values["tied"] = read_switch(theirs, "tie_word_embeddings", path=path, default=True)
    values["bias"] = read_switch(theirs, "bias", path=path, default=True)
    return values


def write_config(config: Config) -> dict[str, Any]:
    """A Hugging Face `config.json` from our Config."""
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    own = {"n_inner": config.neurons, "activation_function": activation}
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"} | write_sizes(config, own)


def write_sizes(config: Config, own: dict[str, Any]) -> dict[str, Any]:
    """What all relatives of GPT-2 write under the same keys, around what is their own."""
    sizes = {key: getattr(config, ours) for ours, key in SIZES.items()}
    dropout = dict.fromkeys(("embd_pdrop", "resid_pdrop"), config.dropout)
    dropout["attn_pdrop"] = config.pattern_dropout
    rest = {"layer_norm_epsilon": config.norm_eps, **dropout, "tie_word_embeddings": config.tied}
    return sizes | own | rest | ({} if config.bias else {"bias": False})


def complete_config(pickled: Pickled) -> dict[str, Any]:
    """A whole `config.json`: as it is, or for nanoGPT and minGPT, which write none, from their checkpoint."""
    if "n_layer" in pickled.config:
        return pickled.config
    model_args = pickled.facts.get("model_args") or {}
    if not isinstance(model_args, dict):
        raise CheckpointError(f"{pickled.path}: model_args is not a dictionary")
    nested = pickled.config.get("model")  # of minGPT's own `config.json`
    beside = nested.get("n_head") if isinstance(nested, dict) else None
    return measure(pickled.tensors, path=pickled.path) | {
        "n_head": model_args.get("n_head") or beside,
        # nanoGPT, which stores model_args, has the erf form; minGPT the tanh form, as GPT-2.
        "activation_function": "gelu" if model_args else "gelu_new",
    }


def measure(tensors: Mapping[str, StoredTensor], *, path: Path) -> dict[str, Any]:
    """What the shapes of the tensors, by our names, say about the model: all but heads and activation."""
    tokens, positions = tensors.get("tokens.weight"), tensors.get("positions.weight")
    if tokens is None or positions is None or len(tokens.shape) != 2 or len(positions.shape) != 2:
        raise CheckpointError(f"{path}: holds no token and position matrix; not a GPT-2")
    head = tensors.get("head.weight")
    tied = head is None or (head.shape == tokens.shape and torch.equal(head.read(), tokens.read()))
    blocks = {int(match[1]) for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    up = tensors.get("blocks.0.mlp.up.bias") or tensors.get("blocks.0.mlp.up.weight")
    return {
        "n_layer": max(blocks, default=-1) + 1,
        "n_embd": tokens.shape[1],
        "vocab_size": tokens.shape[0],
        "n_positions": positions.shape[0],
        "n_inner": max(up.shape) if up is not None and up.shape else None,
        "tie_word_embeddings": tied,
        "bias": "norm.bias" in tensors,
    }


FAMILY = Family(
    kind="gpt2",
    model_type="gpt2",
    title="GPT-2",
    config=Config,
    build=GPT,
    read_config=read_config,
    write_config=write_config,
    names=NAMES,
    train_tokenizer=train_tokenizer,
    presets={name: config for name, config in PRESETS.items() if name.startswith("gpt2")},
    options=OPTIONS,
    complete_config=complete_config,
)
