"""Recurrent networks that label texts, in files. No other library has them: the form is our own."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.hub.families import Family
from glassformer.hub.fields import read_fields
from glassformer.hub.mapping import Names
from glassformer.models.rnn import RNN, Config
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import train_pair_tokenizer

LAYERS = [f"encoder.{side}.{{}}.{part}" for side in ("forwards", "backwards") for part in ("input", "hidden")]
OURS = [f"{layer}.{leaf}" for layer in [*LAYERS, "head"] for leaf in ("weight", "bias")]


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a `config.json`: its keys are the fields, and `labels` is a list of names."""
    config: Config = read_fields(Config, theirs, path=path)
    return config


def write_config(config: Config) -> dict[str, Any]:
    """A `config.json` from our Config."""
    return {"architectures": ["RNN"], "model_type": "glass-rnn"} | asdict(config)


def token_ids(tokenizer: Tokenizer | None, config: Config) -> dict[str, int | None]:
    """By Hugging Face's keys: the tokens that end a text and fill up a row."""
    return {"eos_token_id": None if tokenizer is None else tokenizer.end, "pad_token_id": config.pad}


FAMILY = Family(
    kind="rnn",
    model_type="glass-rnn",
    title="recurrent network that labels texts",
    config=Config,
    build=RNN,
    read_config=read_config,
    write_config=write_config,
    names=Names(tensors={name: name for name in [*OURS, "tokens.weight"]}),
    train_tokenizer=train_pair_tokenizer,
    presets={},
    token_ids=token_ids,
    note="Only Glassformer reads this folder: other libraries lack this model.",
    objective="labels",
)
