"""The file of a kept model, read into memory and hashed while something else happens.

This needs nothing but the standard library: a start begins to read before it imports NumPy.
"""

import hashlib
import mmap
import os
from pathlib import Path
from threading import Thread

from glassformer import machine
from glassformer.errors import CheckpointError

NUMBERS = "numbers.safetensors"
LINE = 64  # bytes of a cache line; every array starts at one
PIECE = 1 << 23  # bytes that a thread reads and hashes at a time


def place(source: Path, *, bits: int = 8) -> Path:
    """Where the quantized form of a model's folder is kept, one for each number of bits."""
    name = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
    return machine.home() / "engine" / f"{source.name[:40]}-{name}{'' if bits == 8 else f'-int{bits}'}"


def kept_size(source: Path, *, bits: int) -> int:
    """Bytes of the numbers that are kept for a folder."""
    try:
        return (place(source, bits=bits) / NUMBERS).stat().st_size
    except OSError:
        return 0


class FileReader:
    """A safetensors file on its way into memory, in large pages where the system has them.

    Every weight is read for every token: with pages of two megabytes instead of four kilobytes that was 1.5
    times as fast. Pieces of the file are read and hashed by several threads, and the hash of the file is that
    of their hashes: one thread would spend most of a start with it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            self.start = 8 + int.from_bytes(file.read(8), "little")  # of the arrays
        if not 8 < self.start <= size:
            raise CheckpointError(f"{path}: too short")
        shift = -self.start % LINE
        self._numbers = memoryview(_memory(shift + size))[shift:]
        self._starts = iter(range(0, size, PIECE))
        self._hashes: dict[int, bytes] = {}
        self._others = [Thread(target=self._work, daemon=True) for _ in range(machine.threads() - 1)]
        for thread in self._others:
            thread.start()

    def wait(self) -> tuple[memoryview, str]:
        """The bytes of the whole file, and their hash. Who waits helps."""
        self._work()
        for thread in self._others:
            thread.join()
        if len(self._hashes) * PIECE < len(self._numbers):
            raise CheckpointError(f"{self.path}: too short")
        pieces = b"".join(self._hashes[first] for first in sorted(self._hashes))
        return self._numbers.toreadonly(), hashlib.sha256(pieces).hexdigest()

    def _work(self) -> None:
        with self.path.open("rb", buffering=0) as file:
            # Each thread takes the next piece; the interpreter's lock makes the shared iterator safe.
            for first in self._starts:
                piece = self._numbers[first : first + PIECE]
                file.seek(first)
                if file.readinto(piece) == len(piece):
                    self._hashes[first] = hashlib.sha256(piece).digest()


def begin(source: Path, *, bits: int) -> FileReader | None:
    """Begin to read what is kept for a folder; None if there is nothing, or no room for it."""
    try:
        machine.check_memory(kept_size(source, bits=bits), what=str(source))
        return FileReader(place(source, bits=bits) / NUMBERS)
    except (OSError, ValueError):
        return None


def _memory(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    # Private, because shared pages are never large.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
