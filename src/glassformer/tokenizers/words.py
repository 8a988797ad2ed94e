"""Tokens to words, in any script: which tokens belong together, whatever they were cut into."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

# Scripts that are written without blanks: each character is a word of its own.
DENSE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")

JOINERS = "\u200c\u200d"  # they change how their neighbors are drawn
APOSTROPHES = "'’"  # letters between letters


def words(pieces: Sequence[bytes]) -> list[range]:
    """The tokens of every word, as ranges that follow each other.

    A token that begins inside a character begins no word.
    """
    text = b"".join(pieces).decode(
        "utf-8", "surrogateescape"
    )  # a byte that is no text is a character of its own
    places = accumulate((len(character.encode("utf-8", "surrogateescape")) for character in text), initial=0)
    kinds = [_kind(character) for character in text]
    for at in range(1, len(text) - 1):
        if text[at] in APOSTROPHES and kinds[at - 1] == kinds[at + 1] == "letter":
            kinds[at] = "letter"
    beginnings = {
        place for at, place in enumerate(places) if at == 0 or (at < len(text) and _begins(text, kinds, at))
    }
    starts = [
        number for number, place in enumerate(accumulate(map(len, pieces), initial=0)) if place in beginnings
    ]
    return [
        range(start, end)
        for start, end in zip(starts, [*starts[1:], len(pieces)], strict=False)
        if start < len(pieces)
    ]


def _begins(text: str, kinds: Sequence[str], at: int) -> bool:
    """Whether a word begins at a character that is not the first.

    A blank belongs to what follows it, a mark to what it sits on.
    """
    before, first = text[at - 1], text[at]
    if first.isspace() or before.isspace():
        return (first.isspace() and first != before) or before == "\n" != first
    if unicodedata.category(first)[0] == "M" or first in JOINERS or before in JOINERS:
        return False
    return kinds[at - 1] != kinds[at] or kinds[at] == "dense"


@lru_cache(maxsize=4096)  # a long text asks for the same few characters again and again
def _kind(character: str) -> str:
    """dense letter, letter (also a mark), number, or other."""
    category = unicodedata.category(character)[0]
    if category in "LM" and unicodedata.name(character, "").startswith(DENSE):
        return "dense"
    return "letter" if category in "LM" else "number" if category == "N" else "other"
