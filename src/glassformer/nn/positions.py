"""Where a token is, and waves of many lengths that say so: one pair for each two numbers of a vector."""

from functools import lru_cache

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.nn.cache import KVCache

LAYOUTS = ("alternating", "halves")


def places(ids: Tensor, cache: KVCache | None, *, context: int) -> Tensor:
    """The position of every token behind a cache: (T,), or (B, T) where rows are padded on the left."""
    start = 0 if cache is None else cache.length
    padding = None if cache is None else cache.padding
    end = start + ids.shape[1]
    limit = context + (0 if padding is None else int(padding.min()))
    if end > limit:
        raise InputError(f"{end} tokens are {end - limit} more than the model's context of {context}")
    found = torch.arange(start, end, device=ids.device)
    return found if padding is None else (found - padding[:, None]).clamp(min=0)


def sinusoids(positions: int, width: int, *, layout: str = "alternating", base: float = 10_000.0) -> Tensor:
    """The position vectors of Attention Is All You Need: (positions, width), float32.

    Pair i turns by the angle position / base^(2i / width). The layout says where its sine and cosine are:
    `alternating` as in the paper (sin, cos, sin, cos, …), `halves` as in tensor2tensor and Marian (all sines
    first, then all cosines).
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}")
    if width % 2:
        raise InputError(f"sinusoids come in pairs: the width must be even, not {width}")

    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    places = torch.arange(positions, dtype=torch.float64)
    angles = places[:, None] / base ** (pairs / width)  # (positions, width / 2)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (positions, width / 2, 2)
    if layout == "halves":
        waves = waves.transpose(1, 2)
    return waves.flatten(1).float()


@lru_cache(maxsize=16)
def sinusoid_table(positions: int, width: int, layout: str, device: torch.device) -> Tensor:
    """The same, made once for each device: the table is no weight, so that no model needs to hold it."""
    return sinusoids(positions, width, layout=layout).to(device)
