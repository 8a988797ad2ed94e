"""Alignment: which tokens of the source the decoder attends to while it writes each token of the target."""

import torch

from glassformer.errors import InputError, UnknownSite
from glassformer.explain.attention import patterns
from glassformer.explain.reading import Array, Reading, numbers

STEPS = "decoder.attn.pattern"  # of a recurrent decoder, once for every step


def alignments(reading: Reading) -> Array:
    """(L, H, T, S): how much every step of the decoder attends to every token of the source.

    Row t is the step that reads the target's token t, and writes the one after it.
    """
    for stack in reading.net.stacks:
        for part in stack.attention:
            if part.source:
                return patterns(reading, stack=stack.name, part=part.name)
    return _step_by_step(reading)


def alignments_within(reading: Reading, size: int) -> Array:
    """(L, H, T, S): how much every position of a decoder attends to the first `size` tokens of its own text.

    They are a part of what it attends to: its rows add up to less than 1.
    """
    found: Array = patterns(reading)[..., :size]
    return found


@torch.inference_mode()
def _step_by_step(reading: Reading) -> Array:
    """(1, 1, T, S): a recurrent network has one layer of attention, with one head."""
    try:
        seen = reading.run(STEPS)
    except UnknownSite:
        raise InputError(
            "alignment: this model has no attention to its source; saliency shows what each token is owed to"
        ) from None
    pattern = numbers(seen[STEPS])  # (T, 1, 1, 1, S), or (1, 1, 1, S) of a single step
    return pattern.reshape(1, 1, -1, pattern.shape[-1])
