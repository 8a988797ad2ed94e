"""Labeled texts: a label for each text, or for each of its words."""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from glassformer.data.sources import read_lines
from glassformer.errors import InputError


class Labeled(NamedTuple):
    """The words of a text with a label each; or a text, as its only word, with its label."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


def read_labeled(path: Path, *, by_word: bool) -> list[Labeled]:
    """The texts of a file, also packed as .gz or .zst.

    Each line is a text, a tab and its label. `by_word`: a word, a tab and its label; an empty line ends a
    sentence.
    """
    found = list(_sentences(path) if by_word else _texts(path))
    if not found:
        raise InputError(f"{path} holds no labeled texts")
    return found


def _texts(path: Path) -> Iterator[Labeled]:
    for number, line in enumerate(list(read_lines(path)), 1):
        word, label = _columns(line, f"{path}, line {number}")
        yield Labeled((word,), (label,))


def _sentences(path: Path) -> Iterator[Labeled]:
    rows: list[tuple[str, str]] = []
    for number, line in enumerate(list(read_lines(path)), 1):
        if line.strip():
            rows.append(_columns(line, f"{path}, line {number}"))
        elif rows:
            yield _sentence(rows)
            rows = []
    if rows:
        yield _sentence(rows)


def _sentence(rows: Sequence[tuple[str, str]]) -> Labeled:
    words, labels = zip(*rows, strict=True)
    return Labeled(words, labels)


def _columns(line: str, where: str) -> tuple[str, str]:
    text, tab, label = line.rpartition("\t")
    if not tab:
        raise InputError(f"{where}: no tab between a text and its label: {line[:60]!r}")
    for name, value in (("text", text), ("label", label)):
        if not value.strip():
            raise InputError(f"{where}: the {name} is empty")
    return text.strip(), label.strip()


def held_apart(texts: Sequence[Labeled], share: float) -> tuple[list[Labeled], list[Labeled]]:
    """Texts to learn from, and about a `share` held out, by a hash of their words: none is on both sides."""
    limit = share * (1 << 32)
    held = [zlib.crc32(" ".join(text.words).casefold().encode()) < limit for text in texts]
    learn = [text for text, out in zip(texts, held, strict=True) if not out]
    return learn, [text for text, out in zip(texts, held, strict=True) if out]
