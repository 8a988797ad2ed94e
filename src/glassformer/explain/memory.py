"""The key-value cache, step by step: what was computed, what was there already, and what it costs to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.decoder import Decoder, as_row


@dataclass(frozen=True)
class Kept:
    """One step of a generation, in every layer alike."""

    step: int  # 0 reads the prompt
    computed: int  # positions whose keys and values are new
    reused: int  # positions whose keys and values were kept
    layer_bytes: int  # of the keys and values of one layer after the step
    total_bytes: int  # of all layers

    @property
    def saved(self) -> float:
        """The share of the positions that a run without a cache would have computed again."""
        return self.reused / (self.computed + self.reused)


def kept(model: Decoder, prompt: Sequence[int], written: Sequence[int]) -> list[Kept]:
    """Read a prompt and what was written after it through a cache, as a generation does; the last token is never read."""
    if not written:
        raise InputError("the cache is seen at work while tokens are written; there are none")
    ids = as_row(model, [*prompt, *written[:-1]])[0].tolist()
    cache = model.new_cache(1, len(ids))
    found = []
    for step in range(len(written)):
        start, end = cache.length, len(prompt) + step
        model.step(np.array([ids[start:end]]), cache)
        filled = [tensor[0, :, :, : cache.length] for tensor in (cache.keys, cache.values)]  # (B, H, S, K) of the first layer
        size = sum(part.numel() * part.element_size() for part in filled)
        found.append(Kept(step, cache.length - start, start, size, size * len(cache.keys)))
    return found
