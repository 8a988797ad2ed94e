"""Stand-in until the table of families comes: GPT-2 alone, behind the same names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glassformer.errors import InputError


@dataclass(frozen=True)
class Family:
    """What a recipe needs to know of a kind of model."""

    kind: str
    config: Any
    build: Callable[[Any], Any]
    train_tokenizer: Callable[..., Any]


def family(kind: str) -> Family:
    """The family of a kind."""
    from glassformer.models.gpt import GPT, Config
    from glassformer.tokenizers import train_tokenizer

    if kind != "gpt2":
        raise InputError(f"kind {kind!r} is none of gpt2")
    return Family(kind, Config, GPT, train_tokenizer)
