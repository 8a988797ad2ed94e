"""What generation uses of a torch model."""

import numpy as np
from small import small_model

from glassformer.generation.sampling import log_sum
from glassformer.nn.stack import Stack


def test_log_sums_have_the_bits_of_sampling() -> None:
    """The model's sums and those of `generation/` are the same to the last bit."""
    logits = np.random.default_rng(0).normal(size=(4, 5001)).astype(np.float32) * 9
    assert small_model().log_sums(logits) == [log_sum(row) for row in logits]


def test_a_cache_has_the_size_it_says() -> None:
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
