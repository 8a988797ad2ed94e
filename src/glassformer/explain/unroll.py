"""A recurrent encoder-decoder, unrolled: its state after every token that it reads, and that it writes."""

from dataclasses import dataclass

import torch

from glassformer.errors import InputError
from glassformer.explain.reading import Array, Reading, numbers

STATES = "encoder.states"
HIDDEN = "decoder.hidden"
CONTEXT = ("decoder.attn.context", "decoder.context")  # by attention, or the mean of all states
PATTERN = "decoder.attn.pattern"


@dataclass(frozen=True)
class Unrolled:
    """S tokens of the source, T steps of the decoder; E and D numbers in a state of each.

    Step t reads token t of the target, and writes the one after it.
    """

    read: Array  # (S, E) the encoder's states, both directions side by side
    wrote: Array  # (T, D) the decoder's states
    context: Array | None  # (T, E) what each step got of the source; None: nothing but the first state
    pattern: Array | None  # (T, S) the weights of its attention, if it has any
    logprobs: Array  # (T, V) of the token that is written


@torch.inference_mode()
def unroll(reading: Reading) -> Unrolled:
    """One run of the model, step by step."""
    seen = reading.run("*", last=False)
    if STATES not in seen or HIDDEN not in seen:
        raise InputError("unroll: this model has no recurrent state")

    def steps(site: str) -> Array:
        """(T, …): a site that is met once in every step; with a single step it has no axis of its own."""
        value = numbers(seen[site])
        size = value.shape[-1]
        return value.reshape(len(reading.ids), size)

    context = next((site for site in CONTEXT if site in seen), None)
    return Unrolled(
        read=numbers(seen[STATES][0]),
        wrote=steps(HIDDEN),
        context=None if context is None else steps(context),
        pattern=steps(PATTERN) if PATTERN in seen else None,
        logprobs=numbers(seen["logits"][0].log_softmax(-1)),
    )
