"""Colors that color-blind readers can distinguish, too, on white paper and on a dark screen.

A mark names its color: a name of the palette ("ink", "s0"), "none", or a value on a scale. So a layout needs
no theme, and light and dark are two ways to look the same names up.
"""

from collections.abc import Sequence
from typing import Any

Scale = dict[str, Any]
Color = str | dict[str, Any]  # a name, or {"scale": number or scale, "value": …}; with "ink": of a text on it

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1a1a1a",
        "soft": "#595959",
        "line": "#d0d0d0",
        "hatch": "#6b6b6b",
        "mark": "#b84a00",
        "below": "#cb4b41",
    },
    "dark": {
        "paper": "#14171a",
        "ink": "#ececec",
        "soft": "#a9b0b6",
        "line": "#3c4248",
        "hatch": "#8d949b",
        "mark": "#e69f00",
        "below": "#d3694f",
    },
}
SERIES = {  # of lines, in their order
    "light": ("#0072b2", "#b84a00", "#8e3e73", "#007a5a", "#8a5a00", "#2a75a5", "#595959", "#a14a86"),
    "dark": ("#56b4e9", "#e69f00", "#cc79a7", "#2fc79a", "#f0e442", "#8fb8ff", "#bbbbbb", "#ff9e5e"),
}
HUES = {  # queries, keys and values, as the article has them; black text on them
    "q": "#cc79a7",
    "k": "#e69f00",
    "v": "#56b4e9",
}
BLACK, WHITE = "#000000", "#ffffff"
SPLIT = 0.179  # of luminance: black and white text have the same contrast on it

MAGNITUDE = {
    "light": ("#ffffff", "#d3e6f4", "#86bfe2", "#2f84bf", "#0b4a7d", "#062b4c"),
    "dark": ("#14171a", "#15324b", "#1a5d8e", "#3494d3", "#8ecbf2", "#eef8ff"),
}
SIGNED = {  # negative, zero, positive; blue is above zero, as in MAGNITUDE
    "light": ("#67001f", "#cb4b41", "#f5ab87", "#ffffff", "#8ec2dd", "#2f79b5", "#053061"),
    "dark": ("#fbc3ad", "#d3694f", "#6b3024", "#14171a", "#1f4a6b", "#4a9bd4", "#a8d3f0"),
}


def series(n: int) -> str:
    """The name of the color of a line; after the last they start over."""
    return f"s{n % len(SERIES['light'])}"


def magnitude(name: str, high: float = 1.0, *, low: float = 0.0) -> Scale:
    """A scale from nothing to much."""
    return {"name": name, "low": low, "high": high if high > low else low + 1, "stops": MAGNITUDE}


def signed(name: str, most: float) -> Scale:
    """A scale on both sides of 0."""
    return {"name": name, "low": -(most or 1.0), "high": most or 1.0, "stops": SIGNED}


PALETTES = {  # every color that a mark can name
    theme: {
        **THEMES[theme],
        **{series(n): line for n, line in enumerate(SERIES[theme])},
        **HUES,
        "black": BLACK,
    }
    for theme in THEMES
}


def resolve(named: Color, scales: Sequence[Scale], *, theme: str) -> str:
    """The color of a mark in a theme, as SVG has it."""
    if isinstance(named, str):
        return named if named == "none" else PALETTES[theme][named]

    scale = named["scale"] if isinstance(named["scale"], dict) else scales[named["scale"]]
    fill = at(scale, named["value"], theme=theme)
    return ink_on(fill) if named.get("ink") else fill


def at(scale: Scale, value: float, *, theme: str) -> str:
    """The color of a value on a scale: between the two stops that it lies between."""
    stops: Sequence[str] = scale["stops"][theme]
    share = (value - scale["low"]) / (scale["high"] - scale["low"])
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)

    left = min(int(place), len(stops) - 2)
    before, after = channels(stops[left]), channels(stops[left + 1])
    # `int(x + 0.5)`, not `round`: views.js rounds halves up, and both must find the same color.
    mixed = [int(a + (b - a) * (place - left) + 0.5) for a, b in zip(before, after, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def channels(color: str) -> list[int]:
    """Red, green and blue of "#rrggbb", 0 to 255."""
    return [int(color[n : n + 2], 16) for n in (1, 3, 5)]


def ink_on(fill: str) -> str:
    """Black or white, whichever reads better on a color."""
    return BLACK if luminance(fill) > SPLIT else WHITE


def luminance(fill: str) -> float:
    """How bright a color is, from 0 to 1 (WCAG)."""
    red, green, blue = (_linear(channel / 255) for channel in channels(fill))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
