"""Tokens to words, in any script: which tokens belong together, whatever they were cut into."""

import unicodedata
from collections.abc import Sequence

# Scripts that are written without blanks: each character is a word of its own.
DENSE = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")


def words(pieces: Sequence[bytes]) -> list[range]:
    """The tokens of every word, as ranges that follow each other. A token that ends inside a character never stands alone."""
    starts = []
    waiting, before = b"", ""
    for number, piece in enumerate(pieces):
        whole = not waiting
        text, rest = _whole(waiting + piece)
        if whole and (number == 0 or _begins(before, text[:1])):
            starts.append(number)
        waiting, before = rest, text[-1:] or before
    ends = [*starts[1:], len(pieces)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _whole(data: bytes) -> tuple[str, bytes]:
    """The text of some bytes, and what is only the beginning of a character."""
    for cut in range(len(data), max(-1, len(data) - 4), -1):
        try:
            return data[:cut].decode("utf-8"), data[cut:]
        except UnicodeDecodeError as error:
            if error.end < cut:  # not an unfinished end, but no text at all
                break
    return data.decode("utf-8", "replace"), b""


def _begins(before: str, first: str) -> bool:
    """Whether a word begins with this character, after that one. A blank belongs to what follows it."""
    if not first or not before:  # a character that is not whole yet, or the first of all
        return True
    if first.isspace() or before.isspace():
        return (first.isspace() and first != before) or before == "\n" != first
    kinds = [_kind(before), _kind(first)]
    return kinds[1] != "M" and (kinds[0] != kinds[1] or kinds[1] == "dense")


def _kind(character: str) -> str:
    """letter (an apostrophe too), number, mark, dense letter, or other."""
    category = unicodedata.category(character)[0]
    if category == "L" and unicodedata.name(character, "").startswith(DENSE):
        return "dense"
    return "L" if character in "'’" else category if category in "LNM" else "other"
