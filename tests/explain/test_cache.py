"""The cache as it fills: every position is computed once, and what is kept has its size."""

import pytest
from explain.readings import reading
from small import Pair

from glassformer.errors import InputError
from glassformer.explain.cache import steps


def test_the_cache_fills(pair: Pair) -> None:
    """The prompt at once, then a token a step; the last token is never read."""
    found = steps(reading(pair, prompt=5))
    layers = len(pair.ours.blocks)
    assert [one.computed.tolist() for one in found] == [[5] * layers] + [[1] * layers] * 6
    assert [one.reused.tolist() for one in found] == [[0] * layers] + [
        [5 + step] * layers for step in range(6)
    ]
    assert [one.bytes.tolist() for one in found] == [[2 * 24 * 8 * (5 + step)] * layers for step in range(7)]
    assert found[-1].saved == pytest.approx(10 / 11)
    assert sum(one.computed[0] for one in found) == len(pair.ids) - 1


def test_what_is_not_there(pair: Pair) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match="while tokens are generated; this text has none"):
        steps(reading(pair))
    with pytest.raises(InputError, match="more than the model's context of 40"):
        steps(reading(pair, [1] * 42, prompt=40))
