"""The simplest thing to translate: letters, backwards. Files of pairs, a tiny training, random translators."""

import random
from pathlib import Path
from typing import Any

import torch
from small import shake

from glassformer.hub.families import family
from glassformer.hub.folder import save_folder
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.train import train_pair_tokenizer

LETTERS = "abcde"
SEED = 47  # of a model that writes words, and other ones for every source
# One token a letter: the vocabulary has the bytes, the end, the padding, and room for no merge.
FLAGS: dict[str, Any] = {
    "kind": "transformer", "vocab": 258, "layers": 1, "decoder_layers": 1, "heads": 2, "width": 32, "context": 16, "dropout": 0.0,
    "steps": 160, "batch": 32, "lr": 1e-2, "lr_end": 1e-3, "warmup": 10, "optimizer": "muon", "eval_every": 80, "tensorboard": False,
}  # fmt: skip


def some_pairs(count: int = 300, *, longest: int = 4, seed: int = 0) -> list[tuple[str, str]]:
    """Random words, and each backwards."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, longest))) for _ in range(count)]
    return [(word, word[::-1]) for word in words]


def write_pairs(folder: Path, *pairs: tuple[str, str], name: str = "pairs.tsv") -> str:
    """A file of pairs, two columns."""
    path = folder / name
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs or some_pairs()))
    return str(path)


def pair_vocabulary(*tags: str) -> Tokenizer:
    """One token for each byte, and the special tokens."""
    return train_pair_tokenizer(["a text"], 258 + len(tags), special=[f"<to-{tag}>" for tag in tags])


def save_translator(folder: Path, *tags: str, kind: str = "transformer", **sizes: Any) -> str:
    """A folder with a small random model, which writes a few letters only."""
    tokenizer = pair_vocabulary(*tags)
    found = family(kind)
    common = {"layers": 1, "width": 16, "vocab": len(tokenizer)}
    common |= {"pad": tokenizer.special["<pad>"], "start": tokenizer.end}
    own = {"heads": 2, "context": 24, "layout": "halves", "head_bias": True, "tied": False}
    net = found.build(found.config(**common | (own if kind == "transformer" else {}) | sizes)).initialize(
        SEED
    )
    shake(net, SEED, 0.3)
    with torch.no_grad():
        for letter in LETTERS + LETTERS.upper() + " .":
            net.head.bias[tokenizer.encode(letter)] += 25  # all others are hardly ever written
        for name, parameter in net.named_parameters():
            if ".cross.value" in name or ".cross.proj" in name:
                parameter *= 4  # another source, another translation
    save_folder(folder, net.eval(), tokenizer=tokenizer)
    return str(folder)
