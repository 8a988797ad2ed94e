"""A new vocabulary from a text of one's own."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers as fast
from tokenizers import models, pre_tokenizers, trainers

from glassformer.errors import InputError
from glassformer.tokenizers.bpe import END_OF_TEXT, SYMBOL_OF, Tokenizer

CHUNK = 1 << 20


def train_tokenizer(
    source: Iterable[str] | Sequence[Path],
    vocab_size: int,
    *,
    special: Sequence[str] = (END_OF_TEXT,),
    progress: Callable[[int], object] | None = None,
) -> Tokenizer:
    """Learn the merges of `source` (texts, or paths of text files) until the vocabulary has `vocab_size` tokens.

    `progress` is called with the number of characters read since the last call.
    """
    smallest = 256 + len(special)
    if vocab_size < smallest:
        raise InputError(f"vocab_size must be at least {smallest} (256 bytes and {len(special)} special), not {vocab_size}")
    learner = fast.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special), initial_alphabet=list(SYMBOL_OF.values()), show_progress=False
    )
    learner.train_from_iterator(_watched(_texts(source), progress), trainer)
    model = json.loads(learner.to_str())["model"]
    vocab = model["vocab"] | {token: len(model["vocab"]) + i for i, token in enumerate(special)}
    merges = [(left, right) for left, right in model["merges"]]
    return Tokenizer(vocab, merges, special={token: vocab[token] for token in special})


def _texts(source: Iterable[str | Path]) -> Iterator[str]:
    for item in source:
        if isinstance(item, Path):
            yield from _chunks(item)
        else:
            yield item


def _chunks(path: Path) -> Iterator[str]:
    """A text file in pieces that end at a line's end, so that no word is cut."""
    try:
        with path.open(encoding="utf-8") as file:
            while chunk := file.read(CHUNK):
                yield chunk + file.readline()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _watched(texts: Iterable[str], progress: Callable[[int], object] | None) -> Iterator[str]:
    for text in texts:
        yield text
        if progress is not None:
            progress(len(text))
