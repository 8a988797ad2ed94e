"""Documents to rows of tokens on disk: written once, checked by hash, read through memory maps.

A row is `<|endoftext|>`, document, `<|endoftext|>`, document, `<|endoftext|>` …: nothing is padded and nothing is lost. Beside
the tokens lies a mask, but only where something is to be read and not learned: a prompt, the end of a document that was cut.
"""

import contextlib
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from glassformer import machine
from glassformer.data.sources import Piece, find_files, read_pieces
from glassformer.durable import hash_file, hash_json, read_sealed, sync, write_sealed
from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer

INDEX = "index.json"
VERSION = 2
SHARD = 1 << 26  # tokens in a file
FORGOTTEN = 24 * 3600  # seconds after which nobody can still be at work on something
Progress = Callable[[int, int], object]  # bytes done, bytes in all
Ids = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Row:
    """A long row of tokens that lies on disk in shards, or a stretch of it."""

    def __init__(
        self,
        folder: Path,
        shards: list[dict[str, Any]],
        dtype: str,
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.folder, self.shards, self.dtype = folder, shards, dtype
        self.edges = np.cumsum([0, *(shard["tokens"] for shard in shards)])
        self.start, self.stop = start, int(self.edges[-1]) if stop is None else stop

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, start: int, count: int) -> tuple[Ids, Mask | None]:
        """`count` tokens from `start` on, and which of them are to be learned; behind the end the row begins again."""
        tokens, masks = self._parts(start % len(self), min(count, len(self) - start % len(self)))
        while (have := sum(map(len, tokens))) < count:
            more = self._parts(0, min(count - have, len(self)))
            tokens, masks = tokens + more[0], masks + more[1]
        mask = None if all(part is None for part in masks) else np.concatenate(
            [np.ones(len(ids), bool) if part is None else part.astype(bool) for ids, part in zip(tokens, masks, strict=True)]
        )  # fmt: skip
        return np.concatenate(tokens).astype(np.int64), mask

    def places(self, token: int) -> Ids:
        """Where a token stands."""
        found = [
            np.flatnonzero(ids == token) + edge
            for (ids, _), edge in zip(self._maps, self.edges, strict=False)
        ]
        where = np.concatenate(found) - self.start
        return where[(where >= 0) & (where < len(self))]

    def _parts(self, start: int, count: int) -> tuple[list[Any], list[Any]]:
        begin, end = self.start + start, self.start + start + count
        tokens, masks = [], []
        for number in range(int(np.searchsorted(self.edges, begin, "right")) - 1, len(self.shards)):
            low, high = begin - self.edges[number], end - self.edges[number]
            if high <= 0:
                break
            part = slice(max(0, int(low)), int(min(high, self.shards[number]["tokens"])))
            ids, mask = self._maps[number]
            tokens.append(ids[part])
            masks.append(None if mask is None else mask[part])
        return tokens, masks

    @cached_property
    def _maps(self) -> list[tuple[Any, Any]]:
        return [
            (
                np.memmap(self.folder / shard["name"], dtype=self.dtype, mode="r"),
                np.memmap(self.folder / shard["mask"], dtype=np.uint8, mode="r") if "mask" in shard else None,
            )
            for shard in self.shards
        ]


@dataclass(frozen=True)
class Corpus:
    """A prepared source: what to train on, what is held out, and all that is known about both."""

    train: Row
    held_out: Row | None
    notes: dict[str, Any]

    @property
    def digest(self) -> str:
        """One hash for all its tokens and for how they are divided."""
        return hash_json([self.notes[name] for name in ("train", "held_out", "cut", "dtype")])


def prepare(
    source: Path,
    tokenizer: Tokenizer,
    *,
    held_out: float = 0.05,
    field: str = "text",
    progress: Progress | None = None,
) -> Corpus:
    """Tokenize a file or a folder, or find that it was done before and is unharmed.

    Every n-th document is held out, so that `held_out` is their share; where there are too few documents for that, the
    end of the row is.
    """
    if tokenizer.end is None:
        raise InputError(
            "training text needs a vocabulary with <|endoftext|>, which stands between documents"
        )
    if tokenizer.prefix_space:
        raise InputError(
            "training text cannot have a vocabulary that puts a space before every text (add_prefix_space)"
        )
    if not 0 <= held_out < 1:
        raise InputError(f"held_out must be at least 0 and less than 1, not {held_out}")
    files = find_files(source)
    asked = {
        "version": VERSION,
        "files": [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        "end": tokenizer.end,
        "share": held_out,
        "field": field,
    }
    key = hash_json(asked)[:24]
    folder = machine.home() / "data" / key
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder.parent}: the tokens could not be written ({error.strerror or error})"
        ) from None
    with FileLock(folder.with_suffix(".lock")):  # who comes second waits, and finds it done
        for left in folder.parent.glob(".*.*"):  # of one that was killed
            with contextlib.suppress(FileNotFoundError):  # another process has just finished it
                if left.name.startswith(f".{key}.") or time.time() - left.stat().st_mtime > FORGOTTEN:
                    shutil.rmtree(left, ignore_errors=True)
        if not _unharmed(folder):
            _write(folder, files, tokenizer, asked | {"source": str(source)}, progress)
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """The rows of a prepared folder."""
    notes = read_sealed(folder / INDEX)
    train = Row(folder, notes["train"], notes["dtype"], stop=notes["cut"])
    held_out = None
    if notes["held_out"]:
        held_out = Row(folder, notes["held_out"], notes["dtype"])
    elif notes["cut"] is not None:
        held_out = Row(folder, notes["train"], notes["dtype"], start=notes["cut"])
    return Corpus(train, held_out, notes)


def _unharmed(folder: Path) -> bool:
    """Whether a folder is there, whole, and holds what its hashes say."""
    try:
        notes = read_sealed(folder / INDEX)
        files = {
            name: hash
            for shard in notes["train"] + notes["held_out"]
            for name, hash in shard["sha256"].items()
        }
        return all(hash_file(folder / name) == hash for name, hash in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(
    folder: Path, files: list[Path], tokenizer: Tokenizer, asked: dict[str, Any], progress: Progress | None
) -> None:
    total, done = sum(file.stat().st_size for file in files), 0
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    dtype = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
    share = float(asked["share"])
    rows = {name: _Writer(fresh, name, dtype, tokenizer) for name in ("train", "held_out")}
    try:
        documents, hashes = 0, []
        for file in files:
            hash = hashlib.sha256()

            def watch(data: bytes, hash: Any = hash) -> None:
                nonlocal done
                hash.update(data)
                done += len(data)
                if progress is not None:
                    progress(done, total)

            for piece in read_pieces(file, field=str(asked["field"]), watch=watch):
                held = int((documents + 1) * share) > int(documents * share)
                rows["held_out" if held else "train"].add(piece)
                documents += piece.last
            hashes.append(hash.hexdigest())
        shards = {name: row.close() for name, row in rows.items()}
        notes = asked | {"dtype": dtype, "documents": documents, "sha256": hashes, **shards, "cut": None}
        notes |= {"tokens": {name: row.tokens for name, row in rows.items()}}
        notes |= {"text_bytes": {name: row.text_bytes for name, row in rows.items()}}
        if share and not shards["held_out"]:
            notes["cut"] = 1 + int((1 - share) * (rows["train"].tokens - 1 - documents))
        write_sealed(fresh / INDEX, notes)
        for path in [*fresh.iterdir(), fresh]:
            sync(path)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise InputError(
            f"{folder.parent}: the tokens could not be written ({error.strerror or error})"
        ) from None
    finally:
        for row in rows.values():
            row.abandon()
        shutil.rmtree(fresh, ignore_errors=True)


class _Writer:
    """Writes a row, shard by shard, hashing as it goes."""

    def __init__(self, folder: Path, name: str, dtype: str, tokenizer: Tokenizer) -> None:
        self.folder, self.name, self.dtype, self.tokenizer = folder, name, np.dtype(dtype), tokenizer
        self.shards: list[dict[str, Any]] = []
        self.files: list[Any] = []
        self.tokens = self.text_bytes = 0
        self.room = 0
        self.masked = False

    def add(self, piece: Piece) -> None:
        """Tokenize a piece of a document and write it behind what is there."""
        end = self.tokenizer.end
        assert end is not None
        ids = self.tokenizer.encode(piece.text)
        self.text_bytes += len(piece.text.encode("utf-8", "replace"))
        learn = np.full(len(ids) + piece.last, piece.learn, dtype=np.uint8)
        row = np.array([*ids, end] if piece.last else ids, dtype=self.dtype)
        if piece.cut:
            learn[-1] = 0
        if not self.tokens:  # the row's first token: every document stands between two
            row, learn = np.insert(row, 0, end), np.insert(learn, 0, 1)
        while len(row):
            if not self.room:
                self._open()
            part = min(self.room, len(row))
            self._append(row[:part], learn[:part])
            row, learn = row[part:], learn[part:]

    def close(self) -> list[dict[str, Any]]:
        """End the row; its shards, with their hashes."""
        self.abandon()
        for shard in self.shards:
            if not self.masked:
                (self.folder / shard.pop("mask")).unlink()
            names = [shard["name"], *([shard["mask"]] if self.masked else [])]
            shard["sha256"] = {name: hash_file(self.folder / name) for name in names}
        return self.shards

    def _open(self) -> None:
        self.abandon()
        stem = f"{self.name}-{len(self.shards):05d}"
        self.shards.append({"name": f"{stem}.tokens", "mask": f"{stem}.mask", "tokens": 0})
        self.files = [(self.folder / f"{stem}{suffix}").open("wb") for suffix in (".tokens", ".mask")]
        self.room = SHARD

    def _append(self, row: Any, learn: Any) -> None:
        for file, part in zip(self.files, (row, learn), strict=True):
            file.write(part.tobytes())
        self.masked |= not learn.all()
        self.shards[-1]["tokens"] += len(row)
        self.tokens += len(row)
        self.room -= len(row)

    def abandon(self) -> None:
        """Close what is open, whether the row is at its end or not."""
        for file in self.files:
            file.close()
