"""Texts in pictures: what cannot be seen is marked, and every label knows its width."""

import math
import unicodedata
from itertools import takewhile

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
WIDE = (  # two columns: East Asian scripts and emoji
    (0x1100, 0x115F), (0x2E80, 0x303E), (0x3041, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60), (0xFFE0, 0xFFE6), (0x1F300, 0x1FAFF), (0x20000, 0x3FFFD),
)  # fmt: skip


def visible(piece: str) -> str:
    """A token's text with its blanks, control characters and other invisible ones made visible."""
    shown = "".join(
        MARKS.get(char) or (char if char.isprintable() else f"‹U+{ord(char):04X}›") for char in piece
    )
    return "◌" + shown if shown and unicodedata.category(shown[0]).startswith("M") else shown


def readable(text: str) -> str:
    """A sentence in one line: blanks stay blanks, and what could do harm on a terminal or a page is shown by its number."""
    return " ".join(
        "".join(char if char.isprintable() else visible(char) for char in word) for word in text.split()
    )


def width(char: str) -> int:
    """Columns of one character: 0, 1 or 2."""
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if any(low <= ord(char) <= high for low, high in WIDE) else 1


def cells(text: str) -> int:
    """Columns of a text."""
    return sum(map(width, text))


def cut(text: str, room: int) -> str:
    """A text in at most so many columns; where something is left out there stands "…"."""
    if cells(text) <= room:
        return text
    taken = 0

    def fits(char: str) -> bool:
        nonlocal taken
        taken += width(char)
        return taken < room

    return "".join(takewhile(fits, text)) + "…"


def wrap(text: str, room: int) -> list[str]:
    """A text in lines of at most so many columns, broken at blanks; a word that is longer is cut."""
    lines = [""]
    for word in text.split():
        word = cut(word, room)
        if lines[-1] and cells(lines[-1]) + 1 + cells(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def number(value: float) -> str:
    """A number as it stands in a picture: about three digits."""
    size = abs(value)
    sign = "−" if value < 0 else ""
    if 0 < size < 0.0005:
        power = math.floor(math.log10(size))
        return f"{sign}{int(size * ten(-power) + 0.5)}e−{-power}"
    if size >= 1e15:
        return sign + "∞" if math.isinf(value) else f"{sign}1e{math.floor(math.log10(size))}"
    decimals = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    power_of = 10.0**decimals
    rounded = int(size * power_of + 0.5) / power_of
    return (sign if rounded else "") + f"{rounded:,.{decimals}f}"


def percent(value: float) -> str:
    """A share as it stands in a picture."""
    tenths = int(abs(value) * 1000 + 0.5)
    if not tenths and value:
        return number(value * 100) + " %"
    whole = f"{tenths // 10:,}" if tenths % 10 == 0 else f"{tenths // 10:,}.{tenths % 10}"
    return ("−" if value < 0 else "") + whole + " %"


def ten(power: int) -> float:
    """A power of ten, as exact as it can be."""
    return 10.0**power if power >= 0 else 1 / 10.0**-power


def tick(value: float, step: float) -> str:
    """A round number on an axis, with as many decimals as its steps need."""
    decimals = next(
        (
            n
            for n in range(15)
            if step * ten(n) > 0.5 and abs(step * ten(n) - int(step * ten(n) + 0.5)) < 1e-6
        ),
        0,
    )
    rounded = int(abs(value) * ten(decimals) + 0.5) / ten(decimals)
    return ("−" if value < 0 and rounded else "") + f"{rounded:,.{decimals}f}"
