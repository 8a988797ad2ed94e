"""The half of a torch model that backends use: a cache, one step behind it, the scores of a whole text."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.errors import InputError
from glassformer.nn.cache import KVCache
from glassformer.waiting import raise_if_cancelled

Array = np.ndarray[Any, Any]
Logits = np.ndarray[Any, np.dtype[np.float32]]


class Stepping(nn.Module):
    """A mixin for a model with an embedding `tokens`, a `cache_shape`, and `forward(ids, cache, last=)`."""

    tokens: nn.Embedding

    def cache_shape(self, rows: int, capacity: int) -> tuple[int, ...]:
        """The shape (L, B, H, S, K) of the keys, or of the values, that are kept for `rows` sequences.

        A model that keeps nothing returns (0, rows, 0, capacity, 0).
        """
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.tokens.weight.device

    @property
    def vocab(self) -> int:
        """How many tokens the model scores."""
        return self.tokens.num_embeddings

    @property
    def context(self) -> int | None:
        """How many positions the model can read at once; None where there is no limit."""
        return None

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> KVCache:
        """An empty cache for `rows` sequences of up to `capacity` positions.

        `padding` (B,) says how many positions at the left of each row are void.
        """
        shape = self.cache_shape(rows, capacity)
        cache = KVCache.empty(shape, dtype=self.tokens.weight.dtype, device=self.device)
        if padding is not None and padding.any():
            cache.padding = torch.as_tensor(padding, device=self.device)
        return cache

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of such a cache: keys and values."""
        return 2 * math.prod(self.cache_shape(rows, capacity)) * self.tokens.weight.itemsize

    @torch.inference_mode()
    def step(self, ids: Array, cache: KVCache) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the token that comes next."""
        raise_if_cancelled()
        logits = self(torch.as_tensor(ids, device=self.device), cache, last=True)  # (B, 1, V)
        return np.asarray(logits[:, 0].float().cpu().numpy())

    @torch.inference_mode()
    def logits(self, ids: Array) -> Logits:
        """Scores of the next token after every position: ids (B, T) -> float32 (B, T, V)."""
        raise_if_cancelled()
        logits = self(torch.as_tensor(ids, device=self.device))
        return np.asarray(logits.float().cpu().numpy())

    def log_sums(self, logits: Logits) -> list[float]:
        """The log of the sum of e^logit of every row (B, V): a logit minus it is a log-probability."""
        return [_log_sum(row) for row in logits]


class Given:
    """A model that reads a source, bound to some: what is left is a `Stepper` that continues targets.

    The sources are read in the first step, not before: then edits that are around the step change them too.
    """

    def __init__(self, net: Any, sources: Sequence[Sequence[int]]) -> None:
        """`sources` are the token ids of each; in a batch the shorter ones are filled up by `pad`."""
        longest = max(map(len, sources))
        rows = [[*source, *[net.config.pad] * (longest - len(source))] for source in sources]
        self.net, self.sources = net, torch.tensor(rows, device=net.device)  # (B, S)

    @property
    def context(self) -> int | None:
        """How many positions a target can have; None where there is no limit."""
        context: int | None = self.net.context
        return context

    @property
    def vocab(self) -> int:
        """How many tokens the model scores."""
        return int(self.net.vocab)

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> Any:
        """An empty cache for one target of each source."""
        if rows != len(self.sources):
            raise InputError(f"{len(self.sources)} sources have as many targets, not {rows}")
        return self.net.new_cache(rows, capacity, padding=padding)

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of such a cache."""
        return int(self.net.cache_size(rows, capacity))

    @torch.inference_mode()
    def step(self, ids: Array, cache: Any) -> Logits:
        """Read target ids (B, T) behind the cache; float32 logits (B, V) of the token that comes next."""
        raise_if_cancelled()
        target = torch.as_tensor(ids, device=self.net.device)
        # After the first step the cache holds what the model keeps of the sources, row by row of its own.
        logits = self.net(self.sources, target, cache, last=True)  # (B, 1, V)
        return np.asarray(logits[:, 0].float().cpu().numpy())

    @torch.inference_mode()
    def logits(self, ids: Array) -> Logits:
        """Scores of the next token after every position of the targets: ids (B, T) -> float32 (B, T, V)."""
        raise_if_cancelled()
        logits = self.net(self.sources, torch.as_tensor(ids, device=self.net.device))
        return np.asarray(logits.float().cpu().numpy())

    def log_sums(self, logits: Logits) -> list[float]:
        """The log of the sum of e^logit of every row (B, V)."""
        return [_log_sum(row) for row in logits]


def _log_sum(row: Logits) -> float:
    top = row.max()
    with np.errstate(invalid="ignore"):  # an infinite logit gives NaN, which the caller reports
        shifted = row - top
    # NumPy sums in pairs, so that float32 is exact to a few units in the last place.
    total = float(np.exp(shifted, out=shifted).sum())
    return float(top) + math.log(total)
