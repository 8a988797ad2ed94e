"""Look at tokens: the vocabulary of a model, or a new one. No torch here."""

from collections.abc import Callable
from pathlib import Path

from glassformer.durable import replace_file
from glassformer.errors import InputError
from glassformer.hub import vocabulary
from glassformer.hub.locate import locate
from glassformer.tokenizers import Tokenizer, train_tokenizer


def load_tokenizer(name: str, *, revision: str | None = None, offline: bool = False) -> Tokenizer:
    """The tokenizer of a model, or of a folder that holds only a vocabulary."""
    tokenizer = vocabulary.load_tokenizer(locate(name, revision=revision, offline=offline))
    if tokenizer is None:
        raise InputError(f"{name} has no vocabulary; a folder needs one of {', '.join(vocabulary.FILES)}")
    return tokenizer


def train(
    files: list[Path], vocab_size: int, *, folder: Path, progress: Callable[[int], object] | None = None
) -> Tokenizer:
    """Learn a vocabulary from text files and write it to `folder/tokenizer.json`."""
    tokenizer = train_tokenizer(files, vocab_size, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "tokenizer.json", tokenizer.to_json())
    return tokenizer
