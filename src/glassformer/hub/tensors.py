"""safetensors files from strangers: the whole header is checked before anything is read or allocated."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.hub.files import MEGABYTE, parse_json

MAX_HEADER = 8 * MEGABYTE
MAX_TENSORS = 10_000
SLICE = 1024
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
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


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors of a safetensors file; raises if header and file do not agree exactly."""
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if length < 8 or size > min(MAX_HEADER, length - 8):
                limit = f"the file has {length:,} bytes, a header may have {MAX_HEADER:,}"
                raise CheckpointError(
                    f"{path}: the header claims {size:,} bytes ({limit}); truncated or no safetensors file"
                )
            text = file.read(size).decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: the header is not UTF-8 text") from None
    header = parse_json(text, path)
    notes = header.pop("__metadata__", {})
    if notes is not None and not (
        isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values())
    ):
        raise CheckpointError(f"{path}: __metadata__ should hold texts by name")
    if len(header) > MAX_TENSORS:
        raise CheckpointError(
            f"{path}: {len(header):,} tensors are more than the {MAX_TENSORS:,} that are accepted"
        )
    entries = {name: _entry(path, name, fields, 8 + size) for name, fields in header.items()}
    _check_layout(path, list(entries.values()), 8 + size, length)
    return entries


def _entry(path: Path, name: str, fields: object, origin: int) -> Entry:
    def wrong(reason: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name[:100]!r} {reason}")

    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise wrong("does not have exactly a dtype, a shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise wrong(f"has the dtype {str(dtype)[:20]!r}, none of {', '.join(DTYPES)}")
    if not _counts(shape) or len(shape) > 8 or not _counts(offsets) or len(offsets) != 2:
        raise wrong("has a shape or data_offsets that are not lists of counts")
    size = math.prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != size:
        raise wrong(
            f"needs {size:,} bytes for its shape {shape}, its offsets give it {offsets[1] - offsets[0]:,}"
        )
    return Entry(path, name, DTYPES[dtype], tuple(shape), origin + offsets[0], size)


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _check_layout(path: Path, entries: list[Entry], origin: int, length: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    position = origin
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.size)):
        if entry.start != position:
            fault = "overlaps the tensor before it" if entry.start < position else "leaves a hole before it"
            raise CheckpointError(f"{path}: tensor {entry.name[:100]!r} {fault}")
        position += entry.size
    if position != length:
        fault = "truncated" if position > length else "longer than its header says"
        raise CheckpointError(f"{path}: {fault}: {length:,} bytes, where the header describes {position:,}")
