"""The key-value cache, step by step: what was computed, what was there already, and what it costs to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.errors import InputError
from glassformer.explain.decoder import Array, Decoder, as_row, look


@dataclass(frozen=True)
class Kept:
    """One step of a generation: L layers, each with a drawer of its own."""

    step: int  # 0 reads the prompt
    computed: Array  # (L,) positions whose keys and values are new
    reused: Array  # (L,) positions whose keys and values were kept
    bytes: Array  # (L,) of the keys and values after the step

    @property
    def saved(self) -> float:
        """The share of the work that the cache saved: what a run without it would have computed again."""
        return float(self.reused.sum() / (self.computed + self.reused).sum())


@torch.inference_mode()
def kept(model: Decoder, prompt: Sequence[int], written: Sequence[int]) -> list[Kept]:
    """Read a prompt and what was written after it through a cache, as a generation does; the last token is never read.

    What is computed is counted where it is made, and what is reused where it is looked at.
    """
    if not written:
        raise InputError("the cache is seen at work while tokens are written; there are none")
    ids = as_row(model, [*prompt, *written[:-1]])[0].tolist()
    cache = model.new_cache(1, len(ids))
    found = []
    for step in range(len(written)):
        with look(model, "blocks.*.attn.k", "blocks.*.attn.pattern") as seen:
            model.step(np.array([ids[cache.length : len(prompt) + step]]), cache)
        attns = [f"blocks.{layer}.attn" for layer in range(len(model.blocks))]
        new = np.array([seen[f"{attn}.k"].shape[2] for attn in attns])  # (B, H, T, K)
        there = np.array([seen[f"{attn}.pattern"].shape[3] for attn in attns])  # (B, H, T, S)
        sizes = [
            sum(part[layer, :, :, :size].nbytes for part in (cache.keys, cache.values))
            for layer, size in enumerate(there)
        ]
        found.append(Kept(step, new, there - new, np.array(sizes)))
    return found
