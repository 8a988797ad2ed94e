"""Recurrent sequence-to-sequence models in files. No other library has them: the form is our own."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.hub.families import Family
from glassformer.hub.fields import read_fields
from glassformer.hub.mapping import Names
from glassformer.hub.marian import token_ids
from glassformer.models.seq2seq import Config, Seq2Seq
from glassformer.tokenizers.train import train_pair_tokenizer

CELLS = [f"{side}.{{}}.{part}" for side in ("forwards", "backwards") for part in ("input", "hidden")]
LAYERS = [f"encoder.{cell}" for cell in CELLS]
LAYERS += ["decoder.cells.{}.input", "decoder.cells.{}.hidden", "decoder.bridge.{}"]
LAYERS += ["decoder.attn.query", "decoder.attn.key", "decoder.join", "head"]
OURS = [f"{layer}.{leaf}" for layer in LAYERS for leaf in ("weight", "bias")]
OURS += ["tokens.weight", "source_tokens.weight", "decoder.attn.weight"]


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a `config.json`: its keys are the fields."""
    config: Config = read_fields(Config, theirs, path=path)
    return config


def write_config(config: Config) -> dict[str, Any]:
    """A `config.json` from our Config."""
    return {"architectures": ["Seq2Seq"], "model_type": "glass-seq2seq", "is_encoder_decoder": True} | asdict(
        config
    )


FAMILY = Family(
    kind="seq2seq",
    model_type="glass-seq2seq",
    title="recurrent sequence-to-sequence model",
    config=Config,
    build=Seq2Seq,
    read_config=read_config,
    write_config=write_config,
    names=Names(tensors={name: name for name in OURS}),
    train_tokenizer=train_pair_tokenizer,
    presets={},
    token_ids=token_ids,
    note="Only Glassformer reads this folder: other libraries lack this model.",
    objective="target_token",
)
