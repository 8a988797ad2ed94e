"""Sinusoidal positions in numbers, whatever model uses them."""

from glassformer.explain.reading import Array, numbers
from glassformer.nn.positions import LAYOUTS, sinusoids


def layouts(positions: int, width: int, *, base: float = 10_000.0) -> dict[str, Array]:
    """The table (positions, width) in each published layout."""
    return {layout: numbers(sinusoids(positions, width, layout=layout, base=base)) for layout in LAYOUTS}
