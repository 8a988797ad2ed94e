"""Keys and values of earlier tokens, kept so that they are never computed again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from glassformer.errors import InputError


@dataclass
class KVCache:
    """Plain data: room for `capacity` positions, of which the first `length` are filled."""

    keys: Tensor  # (L, B, H, S, K)
    values: Tensor  # (L, B, H, S, K)
    length: int = 0
    padding: Tensor | None = None  # (B,) how many positions at the left of each row are padding

    @classmethod
    def empty(cls, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Self:
        """Room for keys and values of `shape` (L, B, H, S, K)."""
        keys, values = (torch.zeros(*shape, dtype=dtype, device=device) for _ in range(2))
        return cls(keys, values)

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values (B, H, T, K) and return all of them (B, H, S, K)."""
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise InputError(
                f"{end} positions are more than the {self.capacity} that this cache has room for"
            )
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def select(self, rows: Sequence[int]) -> Self:
        """A copy for some rows, in this order; a row may be taken more than once."""
        index = self._index(rows)
        padding = None if self.padding is None else self.padding[index]
        return type(self)(
            self._taken(self.keys, index), self._taken(self.values, index), self.length, padding
        )

    def reorder(self, rows: Sequence[int]) -> None:
        """Make each row a copy of another one (or of itself), in place; as many rows as there are."""
        moved = [row for row, source in enumerate(rows) if row != source]
        if not moved:
            return
        to, source = self._index(moved), self._index([rows[row] for row in moved])
        for kept in (*self.keys, *self.values):  # of a layer, (B, H, S, K)
            filled = kept[:, :, : self.length]
            filled.index_copy_(0, to, filled.index_select(0, source))
        if self.padding is not None:
            self.padding = self.padding[self._index(rows)]

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""
        self.length = min(self.length, length)

    def _taken(self, kept: Tensor, index: Tensor) -> Tensor:
        """Some rows of keys or values; of their positions only the filled ones are copied."""
        layers, _, *sizes = kept.shape
        taken = kept.new_empty(layers, len(index), *sizes)
        filled = slice(self.length)
        torch.index_select(kept[:, :, :, filled], 1, index, out=taken[:, :, :, filled])
        return taken

    def _index(self, rows: Sequence[int]) -> Tensor:
        return torch.as_tensor(rows, dtype=torch.long, device=self.keys.device)
