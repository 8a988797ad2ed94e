"""Small models and folders that many tests build."""

from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel, PreTrainedModel

from glassformer.hub.families import family
from glassformer.models.gpt import GPT, Config
from glassformer.nn.net import Net
from glassformer.tokenizers import ByteBPE, train_tokenizer

TEXT = "Once upon a time, there was a little girl named Lily. She liked to play outside in the park. " * 20


def small_config(**changes: object) -> Config:
    """Two layers, three heads, odd sizes: what is equal by accident elsewhere is not equal here."""
    return Config(**{"layers": 2, "heads": 3, "width": 24, "vocab": 97, "context": 40} | changes)  # type: ignore[arg-type]


def small_model(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: object) -> GPT:
    """A model whose every number is random, biases and gains included."""
    model = GPT(small_config(**changes)).initialize(seed)
    shake(model, seed)
    return model.to(dtype).eval()


def small_net(kind: str, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: object) -> Net:
    """A small model of any kind, whose every number is random; a size that its kind lacks is left out."""
    found = family(kind)
    sizes = {"layers": 2, "heads": 3, "width": 24, "vocab": 97, "context": 40}
    known = {field.name for field in fields(found.config)}
    usual = {name: size for name, size in sizes.items() if name in known}
    model = found.build(found.config(**usual | changes)).initialize(seed)
    shake(model, seed)
    return model.to(dtype).eval()


@torch.no_grad()
def shake(model: torch.nn.Module, seed: int, size: float = 0.3) -> None:
    """Move every parameter away from its initial value."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=size)


def small_tokenizer(size: int = 300) -> ByteBPE:
    """A vocabulary learned from three sentences."""
    return train_tokenizer([TEXT], size)


def hugging_face(seed: int = 0, **changes: object) -> GPT2LMHeadModel:
    """A small random model of the `transformers` library."""
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 97, "n_positions": 40}
    config = GPT2Config(**sizes | changes, attn_implementation="eager", bos_token_id=0, eos_token_id=0)
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(config)
    shake(model, seed, 0.2)
    model.tie_weights()
    return model.eval()


def hugging_face_gpt1(seed: int = 0, **changes: object) -> OpenAIGPTLMHeadModel:
    """A small random GPT-1 of the `transformers` library."""
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 97, "n_positions": 40}
    torch.manual_seed(seed)
    model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes | changes))
    shake(model, seed, 0.2)
    model.tie_weights()
    return model.eval()


def save_hugging_face(model: PreTrainedModel, folder: Path, **how: object) -> Path:
    """Its folder, as `transformers` writes it."""
    model.save_pretrained(folder, **how)
    return folder


class Pair(NamedTuple):
    """One random model in two implementations, ours and that of `transformers`, and a text for both."""

    ours: GPT
    theirs: GPT2LMHeadModel
    ids: list[int]
