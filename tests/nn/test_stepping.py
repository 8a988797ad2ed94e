"""What generation uses of a torch model."""

import math

import numpy as np
import pytest
from small import small_model

from glassformer.nn.stack import Stack


def test_log_sums_are_float32_sums() -> None:
    """Row by row, to the last bit: the largest, and the log of a float32 sum of what is left of the others."""
    logits = np.random.default_rng(0).normal(size=(4, 5001)).astype(np.float32) * 9
    sums = small_model().log_sums(logits)
    assert sums == [float(row.max()) + math.log(float(np.exp(row - row.max()).sum())) for row in logits]
    wide = logits.astype(np.float64)
    assert sums == pytest.approx(np.log(np.exp(wide).sum(-1)).tolist(), rel=1e-6)
    logits[1, 3] = np.inf
    assert math.isnan(small_model().log_sums(logits)[1])


def test_a_cache_has_its_declared_size() -> None:
    """Bytes are counted without making the cache."""
    model = small_model()
    cache = model.new_cache(3, 11)
    assert model.cache_size(3, 11) == cache.keys.nbytes + cache.values.nbytes
    assert cache.capacity == 11


def test_a_stack_names_its_sites() -> None:
    """The prefix comes first."""
    assert Stack(layers=2, heads=1, causal=True, neurons=4).site(1, "attn.mix") == "blocks.1.attn.mix"
    encoder = Stack(prefix="encoder.", layers=2, heads=1, causal=False, neurons=4)
    assert (encoder.name, encoder.site(0, "out")) == ("encoder", "encoder.blocks.0.out")
