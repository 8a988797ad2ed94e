"""GPT-3 in files. It was never published, and no other library has its banded layers: the form is our own."""

from pathlib import Path
from typing import Any

from glassformer.hub import gpt2
from glassformer.hub.families import Family
from glassformer.hub.fields import make_config, read_count
from glassformer.models.gpt import GPT3, PRESETS, GPT3Config
from glassformer.tokenizers.train import train_tokenizer

# Ours -> the key in `config.json`, beside GPT-2's keys.
OWN_SIZES = {"head_width": "head_dim", "window": "window_size", "stride": "stride"}


def read_config(theirs: dict[str, Any], path: Path) -> GPT3Config:
    """Our GPT3Config from a `config.json`."""
    values = gpt2.read_values(theirs, path)
    for ours, key in OWN_SIZES.items():
        values[ours] = read_count(theirs, key, path=path)
    config: GPT3Config = make_config(GPT3Config, values, path=path)
    return config


def write_config(config: GPT3Config) -> dict[str, Any]:
    """A `config.json` from our GPT3Config."""
    own = {key: getattr(config, ours) for ours, key in OWN_SIZES.items()}
    return gpt2.write_config(config) | {"architectures": ["GPT3"], "model_type": "glass-gpt3"} | own


FAMILY = Family(
    kind="gpt3",
    model_type="glass-gpt3",
    title="GPT-3",
    config=GPT3Config,
    build=GPT3,
    read_config=read_config,
    write_config=write_config,
    names=gpt2.NAMES,
    train_tokenizer=train_tokenizer,
    presets={name: config for name, config in PRESETS.items() if name.startswith("gpt3")},
    small={"window": 64},  # in the context of 256 that a training has by default, 256 would be dense
    options=gpt2.OPTIONS,
    note="Only Glassformer reads this folder: other libraries lack GPT-3's banded layers.",
)
