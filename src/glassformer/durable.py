"""Files that outlive a crash: on the disk before they count, and known by their hash."""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

SEAL = "sha256 of the rest"


def sync(path: Path) -> None:
    """Force a file or a folder onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically: after a crash there is the old file or the new one, never half of either."""
    data = content.encode() if isinstance(content, str) else content
    # The name holds the process: two processes that write the same file must not share one temporary file.
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(data)
        sync(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `target` when the block ends without an error.

    Everything in it is on the disk before it gets its name. An error leaves `target` as it was.
    """
    import shutil  # slow to import, and reading needs neither
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        fresh.chmod(0o755)  # mkdtemp makes it private
        yield fresh
        for path in fresh.iterdir():
            sync(path)
        sync(fresh)
        _swap(fresh, target)
        sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _swap(fresh: Path, target: Path) -> None:
    """Rename `fresh` to `target`; an existing folder is moved away first, and back if the rename fails."""
    import shutil
    import tempfile

    if not target.exists():
        fresh.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    old = aside / target.name
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(target: Path) -> None:
    """Clean up after a process that was killed in `replace_folder(target)`, as the only writer.

    A kill between the two renames leaves no `target`: then the old one, which was moved away, is put back.
    """
    import shutil

    for old in target.parent.glob(f".{target.name}.old.*/{target.name}"):
        if not target.exists():
            old.rename(target)
    for path in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(path, ignore_errors=True)


def _open(path: Path) -> BufferedReader:
    """A regular file, opened for reading; to open a pipe would wait for a writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.open("rb")


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """The sha256 of plain data."""
    return hashlib.sha256(_text(value).encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file that carries its own hash, and force it onto the disk."""
    path.write_text(_text(value | {SEAL: hash_json(value)}), encoding="utf-8")
    sync(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Read such a file; ValueError if a single bit of it has changed."""
    with _open(path) as file:
        text = file.read().decode("utf-8")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    if not isinstance(value, dict) or _text(value) != text:
        raise ValueError(f"{path.name} was modified")
    if value.pop(SEAL, None) != hash_json(value):
        raise ValueError(f"{path.name}: checksum mismatch")
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True) + "\n"
