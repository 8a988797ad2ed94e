"""Colors that everybody can tell apart, on white paper and on a dark screen."""

from collections.abc import Sequence
from typing import Any

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1a1a1a",
        "soft": "#595959",
        "line": "#d0d0d0",
        "hatch": "#6b6b6b",
        "mark": "#b84a00",
    },
    "dark": {
        "paper": "#14171a",
        "ink": "#ececec",
        "soft": "#a9b0b6",
        "line": "#3c4248",
        "hatch": "#8d949b",
        "mark": "#e69f00",
    },
}
SERIES = {  # of lines, in their order
    "light": ("#0072b2", "#b84a00", "#8e3e73", "#007a5a", "#8a5a00", "#2a75a5", "#595959", "#a14a86"),
    "dark": ("#56b4e9", "#e69f00", "#cc79a7", "#2fc79a", "#f0e442", "#8fb8ff", "#bbbbbb", "#ff9e5e"),
}
HUES = {
    "q": "#cc79a7",
    "k": "#e69f00",
    "v": "#56b4e9",
}  # queries, keys and values, as the article has them; black text on them

MAGNITUDE = {
    "light": ("#ffffff", "#d3e6f4", "#86bfe2", "#2f84bf", "#0b4a7d", "#062b4c"),
    "dark": ("#14171a", "#15324b", "#1a5d8e", "#3494d3", "#8ecbf2", "#eef8ff"),
}
SIGNED = {  # against, nothing, for
    "light": ("#053061", "#2f79b5", "#8ec2dd", "#ffffff", "#f5ab87", "#cb4b41", "#67001f"),
    "dark": ("#a8d3f0", "#4a9bd4", "#1f4a6b", "#14171a", "#6b3024", "#d3694f", "#fbc3ad"),
}


def magnitude(name: str, high: float = 1.0, low: float = 0.0) -> dict[str, Any]:
    """A scale from nothing to much."""
    return {"name": name, "low": low, "high": high if high > low else low + 1, "stops": MAGNITUDE}


def signed(name: str, most: float) -> dict[str, Any]:
    """A scale on both sides of 0."""
    return {"name": name, "low": -(most or 1.0), "high": most or 1.0, "stops": SIGNED}


def at(scale: dict[str, Any], value: float, theme: str) -> str:
    """The color of a value."""
    stops: Sequence[str] = scale["stops"][theme]
    share = (value - scale["low"]) / (scale["high"] - scale["low"])
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    left = min(int(place), len(stops) - 2)
    ends = [[int(stop[n : n + 2], 16) for n in (1, 3, 5)] for stop in stops[left : left + 2]]
    mixed = (int(a + (b - a) * (place - left) + 0.5) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def ink_on(fill: str) -> str:
    """Black or white, whichever reads better on a color."""
    return "#000000" if luminance(fill) > 0.179 else "#ffffff"


def luminance(fill: str) -> float:
    """How bright a color is, from 0 to 1 (WCAG)."""
    parts = [int(fill[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
