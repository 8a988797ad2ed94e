"""Files from strangers: text and JSON with a limit, safetensors headers checked completely. No torch.

What is not a regular file is refused: a pipe may keep its reader waiting forever, and a device may never end.
"""

import json
import math
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from glassformer.errors import CheckpointError, InputError

MEGABYTE = 1 << 20
MAX_HEADER = 8 * MEGABYTE
MAX_TENSORS = 10_000
# Types of numbers in a safetensors file, and the bytes of one.
ITEM_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


# What a shell puts in the place of <(a command): a pipe that is open already.
OPEN_PIPES = ("/dev/fd/", "/proc/self/fd/")

Kind = type[InputError]


def open_file(path: Path, *, kind: Kind = CheckpointError, pipes: bool = False) -> BinaryIO:
    """A regular file, opened for reading; `kind` is the error that is raised for anything else.

    With `pipes`, also a <(command) of the shell.
    """
    try:
        mode = path.stat().st_mode
        is_open = pipes and str(path).startswith(OPEN_PIPES)
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or is_open:  # to open a folder fails by itself
            return path.open("rb")
    except OSError as error:
        raise kind(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:  # a NUL, or half a character
        raise kind(f"{str(path)[:200]!r}: not the name of a file") from None
    raise kind(f"{path}: cannot be read (it is a pipe or a device, not a regular file)")


def read_stream(file: BinaryIO, limit: int, *, name: str | Path, kind: Kind = InputError) -> bytes:
    """All that comes from an open file, if that is at most `limit` bytes."""
    try:
        raw = file.read(limit + 1)
    except OSError as error:
        raise kind(f"{name}: cannot be read ({error.strerror})") from None
    if len(raw) > limit:
        raise kind(f"{name}: larger than the {limit // MEGABYTE} MB that such a file may have")
    return raw


def read_bytes(path: Path, limit: int, *, kind: Kind = CheckpointError, pipes: bool = False) -> bytes:
    """The bytes of a file of at most `limit` bytes."""
    with open_file(path, kind=kind, pipes=pipes) as file:
        return read_stream(file, limit, name=path, kind=kind)


def read_text(path: Path, limit: int, *, kind: Kind = CheckpointError) -> str:
    """The text of a UTF-8 file of at most `limit` bytes; a byte-order mark is dropped."""
    raw = read_bytes(path, limit, kind=kind)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{path}: not UTF-8 text (byte {error.start})") from None


def read_json(path: Path, limit: int = MEGABYTE) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_json(read_text(path, limit), path)


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """A JSON object: no key twice, no NaN, no bottomless nesting."""
    value = parse_value(text, path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: should hold a JSON object, holds a {type(value).__name__}")
    return value


def parse_value(text: str, path: Path, *, kind: Kind = CheckpointError) -> Any:
    """Any JSON: no key twice, no NaN, no bottomless nesting."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = reason.partition("; use sys.")[0]  # Python's advice on numbers of thousands of digits
        raise kind(f"{path}: not valid JSON ({reason})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) == len(pairs):
        return whole
    counts = Counter(key for key, _ in pairs)
    twice = next(key for key, count in counts.items() if count > 1)
    raise ValueError(f"the key {twice[:60]!r} is a duplicate")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, up to a line that is none or is still being written."""
    found = []
    with open_file(path, kind=InputError) as file:
        for line in file:
            try:
                value = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                break
            if not isinstance(value, dict) or not line.endswith(b"\n"):
                break
            found.append(value)
    return found


class Span(NamedTuple):
    """Where one tensor lies in a safetensors file."""

    name: str
    dtype: str  # a key of ITEM_SIZES
    shape: tuple[int, ...]
    start: int  # from the beginning of the file
    size: int  # in bytes


def read_spans(path: Path) -> list[Span]:
    """The tensors of a safetensors file; raises if header and file do not agree exactly."""
    try:
        with open_file(path) as file:
            length = path.stat().st_size
            size = int.from_bytes(file.read(8), "little")
            if length < 8 or size > min(MAX_HEADER, length - 8):
                limit = f"the file has {length:,} bytes, a header may have {MAX_HEADER:,}"
                raise CheckpointError(
                    f"{path}: the header claims {size:,} bytes ({limit}); truncated or no safetensors file"
                )
            return parse_spans(file.read(size), path, length=length)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None


def parse_spans(header: bytes, path: Path, *, length: int) -> list[Span]:
    """The tensors that the header of a file of `length` bytes describes."""
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: the header is not UTF-8 text") from None
    tensors = parse_json(text, path)
    notes = tensors.pop("__metadata__", None)
    by_name = isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values())
    if notes is not None and not by_name:
        raise CheckpointError(f"{path}: __metadata__ should hold texts by name")
    if len(tensors) > MAX_TENSORS:
        raise CheckpointError(
            f"{path}: {len(tensors):,} tensors are more than the {MAX_TENSORS:,} that are accepted"
        )
    origin = 8 + len(header)
    spans = [_span(path, name, fields, origin) for name, fields in tensors.items()]
    _check_layout(path, spans, origin, length)
    return spans


def _span(path: Path, name: str, fields: object, origin: int) -> Span:
    def wrong(reason: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name[:100]!r} {reason}")

    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise wrong("does not have exactly a dtype, a shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise wrong(f"has the dtype {str(dtype)[:20]!r}, none of {', '.join(ITEM_SIZES)}")
    if not _counts(shape) or len(shape) > 8 or not _counts(offsets) or len(offsets) != 2:
        raise wrong("has a shape or data_offsets that are not lists of counts")
    begin, end = offsets
    size = math.prod(shape) * ITEM_SIZES[dtype]
    if end - begin != size:
        raise wrong(f"needs {size:,} bytes for its shape {shape}, its offsets give it {end - begin:,}")
    return Span(name, dtype, tuple(shape), origin + begin, size)


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _check_layout(path: Path, spans: list[Span], origin: int, length: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    position = origin
    for span in sorted(spans, key=lambda span: (span.start, span.size)):
        if span.start != position:
            fault = "overlaps the tensor before it" if span.start < position else "leaves a hole before it"
            raise CheckpointError(f"{path}: tensor {span.name[:100]!r} {fault}")
        position += span.size
    if position != length:
        fault = "truncated" if position > length else "longer than its header says"
        raise CheckpointError(f"{path}: {fault}: {length:,} bytes, where the header describes {position:,}")
