"""Embed a text: one vector for it, the mean of the last layer over its tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from glassformer.tasks.model import Model

POOLING = "mean of the last layer, after its norm"


def embed(model: "Model", ids: Sequence[int]) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The vector (D,) of a text: the mean over its positions of what the output reads."""
    _, seen = model.run_with_cache(list(ids), "final")
    vectors = seen["final"][0]  # (T, D)
    found: np.ndarray[Any, np.dtype[np.float32]] = vectors.float().mean(0).cpu().numpy()
    return found
