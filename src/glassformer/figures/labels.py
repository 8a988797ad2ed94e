"""Texts in pictures: what cannot be seen is marked, and every label has a width."""

import math
import unicodedata
from functools import lru_cache
from typing import Any

LONGEST = 200  # characters of a token in a label
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
PITCHES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")
HALF = 0.5 + 1e-9  # rounds halves up, also those that a float holds as a little less: 0.5005 × 1000
SMALLEST = 1e-307  # a number below it is shown as 0: floats of that size have few digits themselves
WIDE = (  # two columns: East Asian scripts and emoji
    (0x1100, 0x115F), (0x2E80, 0x303E), (0x3041, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F), (0xFF00, 0xFF60), (0xFFE0, 0xFFE6), (0x1F300, 0x1FAFF), (0x20000, 0x3FFFD),
)  # fmt: skip


def visible(piece: str) -> str:
    """A token's text with its blanks, control characters and other invisible ones made visible."""
    shown = "".join(_visible(char) for char in piece)
    # A combining mark at the start would be drawn on the character before the label.
    alone = shown and unicodedata.category(shown[0]).startswith("M")
    return "◌" + shown if alone else shown


def visible_start(piece: str) -> str:
    """A token as `visible` has it, but no longer than a label needs: one may have a million characters."""
    return visible(piece) if len(piece) <= LONGEST else visible(piece[:LONGEST]) + "…"


def pitch_name(pitch: int) -> str:
    """A MIDI pitch as musicians write it: 60 is C4."""
    return f"{PITCHES[pitch % 12]}{pitch // 12 - 1}"


def quoted(piece: str) -> str:
    """A token in a sentence: its blank is visible, so no line is broken between a quote and a word."""
    return f"“{visible_start(piece)}”"


def _visible(char: str) -> str:
    if char in MARKS:
        return MARKS[char]
    return char if char.isprintable() else f"‹U+{ord(char):04X}›"


def readable(text: str) -> str:
    """A sentence in one line; what could harm a terminal or a page is shown by its number."""
    return " ".join(_printable(word) for word in text.split())


def _printable(word: str) -> str:
    return "".join(char if char.isprintable() else visible(char) for char in word)


@lru_cache(maxsize=4096)  # a long text asks for the same few characters again and again
def width(char: str) -> int:
    """Columns of one character: 0, 1 or 2."""
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if is_wide(char) else 1


def is_wide(char: str) -> bool:
    """Whether a character takes two columns."""
    return any(low <= ord(char) <= high for low, high in WIDE)


def cells(text: str) -> int:
    """Columns of a text."""
    return len(text) if text.isascii() else sum(map(width, text))


def cut(text: str, room: int) -> str:
    """A text in at most `room` columns; "…" marks what is left out."""
    if cells(text) <= room:
        return text

    kept, taken = "", 0
    for char in text:
        taken += width(char)
        if taken >= room:  # the last column is for the "…"
            break
        kept += char
    return kept + "…"


def wrap(text: str, room: int) -> list[str]:
    """A text in lines of at most `room` columns, broken at blanks; a word that is longer is cut."""
    lines = [""]
    for word in text.split():
        word = cut(word, room)
        if lines[-1] and cells(lines[-1]) + 1 + cells(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def axis_titles(view: dict[str, Any]) -> str:
    """What the rows and the columns of a matrix are, in one line; empty where it does not say."""
    titles = {"rows": view.get("y_title"), "columns": view.get("x_title")}
    return " · ".join(f"{axis}: {title}" for axis, title in titles.items() if title)


def quantity(value: float, unit: str | None) -> str:
    """A value in its unit."""
    return percent(value) if unit == "percent" else number(value)


def number(value: float) -> str:
    """A number as a picture shows it: about three digits."""
    size = abs(value)
    sign = "−" if value < 0 else ""
    if size < SMALLEST:
        return "0"
    if math.isinf(value):
        return sign + "∞"
    if size < 0.0005 or size >= 1e15:
        return sign + _power_of_ten(size)

    decimals = _decimals(value)
    # `int(x + HALF)`, not `round`: views.js rounds halves up, and both must write the same digits.
    rounded = int(size * 10.0**decimals + HALF) / 10.0**decimals
    return (sign if rounded else "") + f"{rounded:,.{decimals}f}"


def _power_of_ten(size: float) -> str:
    """One digit and a power of ten."""
    power = math.floor(math.log10(size))
    digit = int(size / ten(power) + HALF)
    if digit == 10:  # 9.6e−5 is 1e−4
        digit, power = 1, power + 1
    return f"{digit}e{power}".replace("-", "−")


def _decimals(value: float) -> int:
    """The number of digits after the point."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return 0
    if size >= 10:
        return 1
    return 2 if size >= 1 else 3


def percent(value: float) -> str:
    """A share as a picture shows it."""
    tenths = int(abs(value) * 1000 + HALF)
    if not tenths and value:
        return number(value * 100) + " %"

    sign = "−" if value < 0 else ""
    whole = f"{tenths // 10:,}"
    fraction = f".{tenths % 10}" if tenths % 10 else ""
    return f"{sign}{whole}{fraction} %"


def ten(power: int) -> float:
    """A power of ten, as exact as it can be."""
    return 10.0**power if power >= 0 else 1 / 10.0**-power


def tick(value: float, step: float) -> str:
    """A round number on an axis, with as many decimals as its steps need."""
    decimals = next((n for n in range(15) if _is_whole(step * ten(n))), 0)
    rounded = int(abs(value) * ten(decimals) + 0.5) / ten(decimals)
    sign = "−" if value < 0 and rounded else ""
    return sign + f"{rounded:,.{decimals}f}"


def _is_whole(value: float) -> bool:
    """Whether a number is a whole one above 0, but for the error of floats."""
    return value > 0.5 and abs(value - int(value + 0.5)) < 1e-6
