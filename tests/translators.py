"""Small translators whose every number is random, for the tests of what one can ask about a translation."""

from collections.abc import Sequence
from typing import Any

import torch
from small import TEXT, shake, small_net

from glassformer.hub.families import family
from glassformer.tasks.tags import tag
from glassformer.tasks.translate import Translator
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import PADDING

LANGUAGES = ("en", "fr")


def vocabulary(languages: Sequence[str] = LANGUAGES) -> Tokenizer:
    """With a tag for each of two languages, or of others."""
    return family("transformer").train_tokenizer([TEXT], 300, special=[tag(one) for one in languages])


def small_translator(
    kind: str = "transformer",
    seed: int = 0,
    *,
    name: str = "",
    languages: Sequence[str] = LANGUAGES,
    **changes: Any,
) -> Translator:
    """A Transformer or a recurrent network, which translates between both."""
    tokenizer = vocabulary(languages)
    ids: dict[str, Any] = {"start": tokenizer.end, "pad": tokenizer.special[PADDING]}
    net = small_net(kind, seed, torch.float64, **{"vocab": len(tokenizer)} | ids | changes)
    shake(net, seed, 0.1)
    return Translator(net, tokenizer, name=name or f"small {kind}")
