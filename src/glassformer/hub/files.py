"""Small files from strangers: read with a limit, parsed strictly."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError

MEGABYTE = 1 << 20


def read_text(path: Path, limit: int) -> str:
    """The text of a UTF-8 file of at most `limit` bytes; a byte-order mark is dropped."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) > limit:
        raise CheckpointError(f"{path}: larger than the {limit // MEGABYTE} MB that such a file may have")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 text (byte {error.start})") from None


def read_json(path: Path, limit: int = MEGABYTE) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_json(read_text(path, limit), path)


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """A JSON object: no key twice, no NaN, no bottomless nesting."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CheckpointError(f"{path}: not valid JSON ({reason})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: should hold a JSON object, holds a {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) == len(pairs):
        return whole
    counts = Counter(key for key, _ in pairs)
    twice = next(key for key, count in counts.items() if count > 1)
    raise ValueError(f"the key {twice[:60]!r} is a duplicate")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
