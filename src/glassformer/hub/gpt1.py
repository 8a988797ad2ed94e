"""GPT-1 in files: `openai-gpt`, as Hugging Face has it. It differs from GPT-2's form in few words."""

from pathlib import Path
from typing import Any

from glassformer.hub.families import Family
from glassformer.hub.fields import make_config, read_choice
from glassformer.hub.gpt2 import BLOCK, PROJECTIONS, read_sizes, write_sizes
from glassformer.hub.mapping import Names
from glassformer.models.gpt import GPT1, PRESETS, GPT1Config
from glassformer.tokenizers.train import train_word_tokenizer

NAMES = Names(
    tensors={
        "tokens_embed.weight": "tokens.weight",
        "positions_embed.weight": "positions.weight",
        "position_ids": None,
        **BLOCK,
        "lm_head.weight": "head.weight",
    },
    prefix="transformer.",
    unprefixed=("lm_head.weight",),
    transposed=PROJECTIONS,
)
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}  # what this family calls gelu is the tanh form


def read_config(theirs: dict[str, Any], path: Path) -> GPT1Config:
    """Our GPT1Config from a Hugging Face `config.json`."""
    values = read_sizes(theirs, path)
    values["activation"] = read_choice(theirs, "afn", path=path, choices=ACTIVATIONS, default="gelu")
    config: GPT1Config = make_config(GPT1Config, values, path=path)
    return config


def write_config(config: GPT1Config) -> dict[str, Any]:
    """A Hugging Face `config.json` from our GPT1Config."""
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    own = {"afn": activation}
    return {"architectures": ["OpenAIGPTLMHeadModel"], "model_type": "openai-gpt"} | write_sizes(config, own)


FAMILY = Family(
    kind="gpt1",
    model_type="openai-gpt",
    title="GPT-1",
    config=GPT1Config,
    build=GPT1,
    read_config=read_config,
    write_config=write_config,
    names=NAMES,
    train_tokenizer=train_word_tokenizer,
    presets={name: config for name, config in PRESETS.items() if name.startswith("gpt1")},
    options={"heads": "n_head", "activation": "afn"},
)
