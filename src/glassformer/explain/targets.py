"""What a model should predict in every step, and what it predicts: untrained, and trained."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from glassformer.explain.reading import Array, Readable, Reading, numbers


def untrained(net: Readable, *, seed: int = 0) -> Readable:
    """A model of the same sizes with the weights that a training starts from."""
    build: Any = type(net)
    return cast(Readable, build(net.config).initialize(seed).to(net.device).eval())


@torch.inference_mode()
def logprobs(reading: Reading, *, vocabulary: Sequence[int] | None = None) -> Array:
    """(T, V) after every position; of some tokens alone as if there were no others: (T, C)."""
    reading.check_ids()
    with reading.lock:
        logits = reading.logits(last=False)[0].double()
    chosen = logits if vocabulary is None else logits[:, list(vocabulary)]
    return numbers(chosen.log_softmax(-1))


def before_training(reading: Reading, *, seed: int = 0) -> Reading:
    """The same texts, read by an untrained model."""
    return replace(reading, net=untrained(reading.net, seed=seed))
