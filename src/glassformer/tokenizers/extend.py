"""More special tokens for a vocabulary that exists."""

from collections.abc import Sequence

from glassformer.errors import InputError
from glassformer.tokenizers.bpe import BPE
from glassformer.tokenizers.tokenizer import Tokenizer

# What surrounds the texts that a head reads: see data/transformations.py.
START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"


def with_special(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The same vocabulary with these special tokens behind its own; those that it has keep their ids."""
    if not isinstance(tokenizer, BPE):
        raise InputError("only byte pair encodings take more special tokens, and this vocabulary is none")
    return tokenizer.with_special(names)
