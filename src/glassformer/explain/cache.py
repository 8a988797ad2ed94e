"""The key-value cache, step by step: what was computed, what was reused, and how much memory it takes."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from glassformer.errors import InputError
from glassformer.explain.reading import Array, Reading, layer_sites


@dataclass(frozen=True)
class CacheStep:
    """One step of a generation: L layers, each with a KV cache of its own."""

    step: int  # 0 reads the prompt
    computed: Array  # (L,) positions whose keys and values are new
    reused: Array  # (L,) positions whose keys and values came from the cache
    bytes: Array  # (L,) of the keys and values after the step

    @property
    def saved(self) -> float:
        """The share of the work that the cache saved: what a run without it would have computed again."""
        return float(self.reused.sum() / (self.computed + self.reused).sum())


@torch.inference_mode()
def steps(reading: Reading) -> list[CacheStep]:
    """Read a text through a cache as its generation did: the prompt at once, then token by token.

    The last token is never read. What is computed is counted where it is made (`k`), and what is reused where
    it is attended to (`pattern`).
    """
    count = len(reading.ids) - (reading.prompt or len(reading.ids))
    if not count:
        raise InputError("the cache works while tokens are generated; this text has none")
    text = replace(reading, ids=reading.ids[:-1])
    stack = text.stack()
    keys, values, patterns = (layer_sites(stack, f"attn.{name}") for name in ("k", "v", "pattern"))

    stepper = text.stepper()
    cache = stepper.new_cache(1, len(text.ids))
    found = []
    for step in range(count):
        with text.tracing(*keys, *values, *patterns) as seen:
            stepper.step(np.array([text.ids[cache.length : text.prompt + step]]), cache)

        computed = np.array([seen[site].shape[-2] for site in keys])  # (…, T, K)
        present = np.array([seen[site].shape[-1] for site in patterns])  # (…, T, S)
        made = [seen[key].nbytes + seen[value].nbytes for key, value in zip(keys, values, strict=True)]
        sizes = np.array(made) // computed * present
        found.append(CacheStep(step, computed, present - computed, sizes))
    return found
