"""Text files to one long row of tokens, and the row to batches."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer

Tokens = np.ndarray[Any, np.dtype[np.uint16]]


def read_texts(path: Path) -> Iterator[str]:
    """The documents of a file: one text, or the `text` of every line of a `.jsonl` or `.jsonl.gz`."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]
    else:
        yield path.read_bytes().decode("utf-8")  # line ends stay as they are


def join_tokens(texts: Iterable[str], tokenizer: Tokenizer) -> Tokens:
    """All documents in one row, each between two `<|endoftext|>`."""
    if tokenizer.end is None or len(tokenizer) > 1 << 16:
        raise InputError("a corpus needs a vocabulary with <|endoftext|> and at most 65,536 tokens")
    row = [np.array([tokenizer.end], dtype=np.uint16)]
    row += [np.array([*tokenizer.encode(text), tokenizer.end], dtype=np.uint16) for text in texts]
    return np.concatenate(row)


class Windows:
    """Random windows of a row of tokens; the windows of a step depend on the seed and the step alone."""

    def __init__(self, tokens: Tokens, *, context: int, batch: int, seed: int) -> None:
        if len(tokens) <= context:
            raise InputError(f"{len(tokens)} tokens of text are too few for windows of {context + 1}")
        self.tokens, self.context, self.batch, self.seed = tokens, context, batch, seed

    def __getitem__(self, step: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """(B, T + 1): T inputs, and the same row shifted by one as targets."""
        draw = np.random.Generator(np.random.Philox(key=[self.seed, step]))
        starts = draw.integers(0, len(self.tokens) - self.context, size=self.batch)
        return np.stack([self.tokens[s : s + self.context + 1] for s in starts]).astype(np.int64)
