"""The Music Transformer in files. No other library has our form: the names are our own."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.hub.families import Family
from glassformer.hub.fields import read_fields
from glassformer.hub.mapping import Names
from glassformer.models.music import MusicConfig, MusicTransformer
from glassformer.tokenizers.music import music_tokenizer

LAYERS = [f"blocks.{{}}.{name}" for name in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.up", "mlp.down")]
OURS = [f"{layer}.{leaf}" for layer in [*LAYERS, "norm"] for leaf in ("weight", "bias")]
OURS += ["tokens.weight", "positions.weight", "blocks.{}.attn.distances", "head.weight"]


def read_config(theirs: dict[str, Any], path: Path) -> MusicConfig:
    """Our MusicConfig from a `config.json`: its keys are the fields."""
    config: MusicConfig = read_fields(MusicConfig, theirs, path=path)
    return config


def write_config(config: MusicConfig) -> dict[str, Any]:
    """A `config.json` from our MusicConfig."""
    return {"architectures": ["MusicTransformer"], "model_type": "glass-music"} | asdict(config)


FAMILY = Family(
    kind="music",
    model_type="glass-music",
    title="Music Transformer",
    config=MusicConfig,
    build=MusicTransformer,
    read_config=read_config,
    write_config=write_config,
    names=Names(tensors={name: name for name in OURS}),
    train_tokenizer=music_tokenizer,
    presets={},
    note="Only Glassformer reads this folder: other libraries lack this form of relative attention.",
)
