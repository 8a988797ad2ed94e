"""Generation and beam search as most tests want them: options in place, one end token, a rule that ends a
text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from glassformer.generation import beam, decode
from glassformer.generation.decode import Event
from glassformer.generation.options import Options


def log_sums(logits: "np.ndarray[Any, Any]") -> list[float]:
    """log Σ exp of every row, for models made of plain numbers."""
    with np.errstate(invalid="ignore"):
        top = logits.max(axis=1, keepdims=True)
        return list(map(float, top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))))


def run(
    model: Any,
    prompts: Sequence[Sequence[int]],
    options: Options,
    *,
    end: int | None = None,
    halt: Callable[[Event], bool] | None = None,
    **how: Any,
) -> Iterator[Event]:
    """The events of a generation; a consumer that ends a text wherever `halt` is true."""
    ends = () if end is None else (end,)
    for event in decode.generate(model, prompts, options=options, ends=ends, **how):
        if halt is not None and event.token is not None and halt(event):
            event.continuation.stop()
            event = event._replace(finish="stop")
        yield event


def search(
    model: Any, prompt: Sequence[int], options: Options, *, end: int | None = None, **how: Any
) -> list[beam.Beam]:
    """The beams of one prompt."""
    ends = () if end is None else (end,)
    return next(iter(beam.beam_search(model, [prompt], options=options, ends=ends, **how)))
