"""Files that outlive a crash: on the disk before they count, and known by their hash."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

SEAL = "sha256 of the rest"


def sync(path: Path) -> None:
    """Have a file or a folder on the disk, not only on its way there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Put a text in the place of a file, or of none: after a crash there is the old one or the new one, and it is whole."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    sync(fresh)
    fresh.replace(path)


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """The sha256 of plain data."""
    return hashlib.sha256(_text(value).encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file that carries its own hash, and have it on the disk."""
    path.write_text(_text(value | {SEAL: hash_json(value)}), encoding="utf-8")
    sync(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Read it again; ValueError if so much as a bit of it has changed."""
    text = path.read_bytes().decode("utf-8")
    value = json.loads(text)
    if not isinstance(value, dict) or _text(value) != text:
        raise ValueError(f"{path.name} is not as it was written")
    if value.pop(SEAL, None) != hash_json(value):
        raise ValueError(f"{path.name} does not have its own hash")
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True) + "\n"
