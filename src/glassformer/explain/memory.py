"""The key-value cache, step by step: what was computed, what was there already, and what it costs to keep."""

from dataclasses import dataclass

from glassformer.errors import InputError
from glassformer.explain.decoder import Decoder


@dataclass(frozen=True)
class Kept:
    """One step of a generation, in every layer alike."""

    step: int  # 0 reads the prompt
    computed: int  # positions whose keys and values are new
    reused: int  # positions whose keys and values were kept
    layer_bytes: int  # of the cache of one layer after the step
    total_bytes: int  # of all layers
    saved: float  # share of the multiplications of a run without a cache that were not needed


def kept(model: Decoder, prompt: int, generated: int) -> list[Kept]:
    """The cache while `generated` tokens are written after a prompt; the last token is never read."""
    if prompt < 1 or generated < 1:
        raise InputError("the cache needs a prompt and at least one generated token")
    if prompt + generated - 1 > model.context:
        raise InputError(f"{prompt + generated - 1} tokens are more than the model's context of {model.context}")
    size = model.tokens.weight.itemsize
    steps = []
    for step in range(generated):
        computed, reused = (prompt, 0) if step == 0 else (1, prompt + step - 1)
        layer = 2 * model.config.width * size * (computed + reused)
        steps.append(Kept(step, computed, reused, layer, layer * len(model.blocks), reused / (computed + reused)))
    return steps
