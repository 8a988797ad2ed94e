"""Small decoders whose every number is random, with tags: what translates and summarizes without an encoder."""

from pathlib import Path
from typing import Any

import torch
from small import TEXT, shake, small_net

from glassformer.hub.families import family
from glassformer.hub.folder import save_folder
from glassformer.tasks.decoder_translate import DecoderTranslator
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.bpe import END_OF_TEXT

TAGS = ("<to-en>", "<to-fr>", "<summarize>")


def tagged_vocabulary(*tags: str, kind: str = "gpt2") -> Tokenizer:
    """With a token for the end of a text, and tags."""
    return family(kind).train_tokenizer([TEXT], 320, special=(END_OF_TEXT, *(tags or TAGS)))


def small_decoder(
    seed: int = 0, *tags: str, kind: str = "gpt2", dtype: torch.dtype = torch.float64, **changes: Any
) -> DecoderTranslator:
    """A decoder with tags."""
    tokenizer = tagged_vocabulary(*tags, kind=kind)
    net = small_net(kind, seed, dtype, **{"vocab": len(tokenizer), "context": 64} | changes)
    shake(net, seed, 0.1)
    return DecoderTranslator(net, tokenizer, name=f"small {kind}")


def save_decoder(folder: Path, *tags: str, seed: int = 0, **changes: Any) -> str:
    """Its folder."""
    lm = small_decoder(seed, *tags, dtype=torch.float32, **changes)
    save_folder(folder, lm.net, tokenizer=lm.tokenizer)
    return str(folder)
