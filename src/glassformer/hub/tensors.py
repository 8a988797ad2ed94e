"""Tensors of safetensors files; the whole header is checked before anything is read or allocated."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.files import read_spans

SLICE = 1024
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies in its file."""

    path: Path
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    size: int

    def read(self) -> Tensor:
        """The tensor, read into memory of its own."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return self._take(file, self.shape)

    def read_transposed(self) -> Tensor:
        """The transpose of a matrix, in memory of its own; read in slices, so that it is held only once."""
        rows, columns = self.shape
        whole = torch.empty(columns, rows, dtype=self.dtype)
        with self.path.open("rb") as file:
            file.seek(self.start)
            for row in range(0, rows, SLICE):
                size = min(SLICE, rows - row)
                whole[:, row : row + size] = self._take(file, (size, columns)).t()
        return whole

    def _take(self, file: BinaryIO, shape: tuple[int, ...]) -> Tensor:
        raw = torch.empty(math.prod(shape) * self.dtype.itemsize, dtype=torch.uint8)
        if file.readinto(raw.numpy().data) != len(raw):  # type: ignore[attr-defined]
            raise CheckpointError(f"{self.path}: ends in the middle of {self.name}")
        return raw.view(self.dtype).view(shape)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file; raises if header and file do not agree exactly."""
    return {
        span.name: StoredTensor(path, span.name, DTYPES[span.dtype], span.shape, span.start, span.size)
        for span in read_spans(path)
    }
