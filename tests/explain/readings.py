"""Readings of small models, for the tests of explanations."""

from collections.abc import Sequence

from small import Pair

from glassformer.explain.reading import Reading


def reading(pair: Pair, ids: Sequence[int] | None = None, prompt: int = 0) -> Reading:
    """Our model of a pair, on its text or another one."""
    return Reading(pair.ours, list(pair.ids if ids is None else ids), prompt)
