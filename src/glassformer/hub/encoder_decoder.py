"""GPT-2 as encoder and decoder in files: the form is our own, for its halves share what others have twice."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.hub.families import Family
from glassformer.hub.fields import read_fields
from glassformer.hub.gpt2 import NAMES as GPT2
from glassformer.hub.mapping import Names
from glassformer.hub.marian import token_ids
from glassformer.models.encoder_decoder import Config, EncoderDecoder
from glassformer.tokenizers.train import train_pair_tokenizer

BLOCK = [ours for ours in GPT2.tensors.values() if ours is not None and ours.startswith("blocks.")]
CROSS = [f"blocks.{{}}.cross.{part}" for part in ("query", "key", "value", "proj")] + ["blocks.{}.norm_cross"]
OURS = [f"{half}.{name}" for half in ("encoder", "decoder") for name in BLOCK]
OURS += [f"decoder.{part}.{leaf}" for part in CROSS for leaf in ("weight", "bias")]
OURS += [f"{norm}.{leaf}" for norm in ("encoder.norm", "norm") for leaf in ("weight", "bias")]
OURS += ["tokens.weight", "positions.weight", "head.weight"]


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a `config.json`: its keys are the fields."""
    config: Config = read_fields(Config, theirs, path=path)
    return config


def write_config(config: Config) -> dict[str, Any]:
    """A `config.json` from our Config."""
    about = {"architectures": ["GPT2EncoderDecoder"], "model_type": "glass-gpt2-encoder-decoder"}
    return about | {"is_encoder_decoder": True} | asdict(config)


FAMILY = Family(
    kind="gpt2-encoder-decoder",
    model_type="glass-gpt2-encoder-decoder",
    title="encoder-decoder of two GPT-2",
    config=Config,
    build=EncoderDecoder,
    read_config=read_config,
    write_config=write_config,
    names=Names(tensors={name: name for name in OURS}),
    train_tokenizer=train_pair_tokenizer,
    presets={},
    made_of="gpt2",
    small={"layers": 3, "decoder_layers": 3},
    token_ids=token_ids,
    note="Only Glassformer reads this folder: other libraries lack this model.",
    objective="target_token",
)
