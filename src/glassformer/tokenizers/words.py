"""Tokens to words, in any script: which tokens belong together, whatever they were cut into."""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate

# Scripts that are written without blanks: each character is a word of its own.
DENSE = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")


def words(pieces: Sequence[bytes]) -> list[range]:
    """The tokens of every word, as ranges that follow each other. A token that begins inside a character begins no word."""
    text = b"".join(pieces).decode("utf-8", "surrogateescape")  # a byte that is no text is a character of its own
    sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text]
    beginnings = {
        end - size
        for end, size, before, first in zip(accumulate(sizes), sizes, " " + text, text, strict=False)
        if end == size or _begins(before, first)
    }
    places = [0, *accumulate(map(len, pieces))]
    starts = [number for number in range(len(pieces)) if places[number] in beginnings]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(pieces)], strict=False)]


def _begins(before: str, first: str) -> bool:
    """Whether a word begins with this character, after that one. A blank belongs to what follows it."""
    if first.isspace() or before.isspace():
        return (first.isspace() and first != before) or before == "\n" != first
    return _kind(before) != _kind(first) or (_kind(first) == "dense" and not unicodedata.combining(first))


def _kind(character: str) -> str:
    """dense letter, letter (also a mark or an apostrophe), number, or other."""
    category = unicodedata.category(character)[0]
    if category in "LM" and unicodedata.name(character, "").startswith(DENSE):
        return "dense"
    return "letter" if category in "LM" or character in "'’" else "number" if category == "N" else "other"
