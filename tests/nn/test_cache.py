"""The cache of keys and values: rows that are selected, and rows that change places."""

import numpy as np
import pytest
import torch

from glassformer.nn.cache import KVCache

LAYERS, ROWS, HEADS, ROOM, WIDTH, LENGTH = 2, 5, 3, 7, 4, 6


def a_cache(*, padded: bool = False) -> KVCache:
    """Random keys and values, not all of its room filled."""
    cache = KVCache.empty((LAYERS, ROWS, HEADS, ROOM, WIDTH), dtype=torch.float32, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for layer in range(LAYERS):
        shape = ROWS, HEADS, LENGTH, WIDTH
        cache.extend(layer, *(torch.randn(shape, generator=generator) for _ in range(2)))
    cache.length = LENGTH
    cache.padding = torch.arange(ROWS) if padded else None
    return cache


@pytest.mark.parametrize("rows", [[3], [4, 0, 0], [1, 1, 0, 3, 4], [2, 0, 1, 4, 3, 3, 2]])
def test_selected_rows_are_those(rows: list[int]) -> None:
    """Of keys, values and padding; there is as much room as before, and the old cache is unchanged."""
    cache, before = a_cache(padded=True), a_cache(padded=True)
    taken = cache.select(rows)
    assert (taken.length, taken.capacity) == (LENGTH, ROOM)
    for new, old in ((taken.keys, before.keys), (taken.values, before.values)):
        torch.testing.assert_close(new[:, :, :, :LENGTH], old[:, rows, :, :LENGTH], rtol=0, atol=0)
    assert taken.padding is not None
    assert taken.padding.tolist() == rows
    torch.testing.assert_close(cache.keys, before.keys, rtol=0, atol=0)


def test_rows_change_places_in_place() -> None:
    """As if they had been selected, whatever the order: a row may come from before, from behind, and twice."""
    rng = np.random.default_rng(1)
    orders = [list(range(ROWS)), *rng.integers(0, ROWS, size=(20, ROWS)).tolist()]
    for padded in (False, True):
        for rows in orders:
            cache = a_cache(padded=padded)
            want, memory = cache.select(rows), cache.keys.data_ptr()
            cache.reorder(rows)
            for new, old in ((cache.keys, want.keys), (cache.values, want.values)):
                torch.testing.assert_close(new[:, :, :, :LENGTH], old[:, :, :, :LENGTH], rtol=0, atol=0)
            assert cache.keys.data_ptr() == memory
            assert (cache.padding is None) == (not padded)
            if cache.padding is not None:
                assert cache.padding.tolist() == rows
