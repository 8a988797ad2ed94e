"""The cache as it fills: every position is computed once, and what is kept has its size."""

import pytest
from small import Pair

from glassformer.errors import InputError
from glassformer.explain.memory import kept


def test_the_cache_fills(pair: Pair) -> None:
    """The prompt at once, then a token a step; the last token written is never read."""
    found = kept(pair.ours, pair.ids[:5], pair.ids[5:])
    assert [(one.computed, one.reused) for one in found] == [(5, 0)] + [(1, 5 + step) for step in range(6)]
    assert [one.layer_bytes for one in found] == [2 * 24 * 8 * (5 + step) for step in range(7)]
    assert all(one.total_bytes == 2 * one.layer_bytes for one in found)
    assert found[-1].saved == pytest.approx(10 / 11)
    assert sum(one.computed for one in found) == len(pair.ids) - 1


def test_what_is_not_there(pair: Pair) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match="while tokens are written; there are none"):
        kept(pair.ours, pair.ids, [])
    with pytest.raises(InputError, match="more than the model's context of 40"):
        kept(pair.ours, [1] * 40, [1, 2])
