"""Documents to rows of tokens on disk: written once, checked by hash, read through memory maps.

A row is `<|endoftext|>`, document, `<|endoftext|>`, document, `<|endoftext|>` …: nothing is padded and
nothing is lost. Beside the tokens lies a mask, but only where something is to be read and not learned: a
prompt, the end of a cut document.
"""

import contextlib
import hashlib
import re
import shutil
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
from glassformer.durable import (
    hash_file,
    hash_json,
    read_sealed,
    remove_leftovers,
    replace_folder,
    write_sealed,
)
from glassformer.errors import InputError
from glassformer.tokenizers import Tokenizer

INDEX = "index.json"
VERSION = 3
SHARD = 1 << 26  # tokens in a file
ABANDONED = 24 * 3600  # seconds after which no process can still be writing a folder
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
        """`count` tokens from `start` on, and which of them are to be learned. The row is a ring."""
        start %= len(self)
        tokens, masks = self._parts(start, min(count, len(self) - start))
        while (have := sum(map(len, tokens))) < count:
            more_tokens, more_masks = self._parts(0, min(count - have, len(self)))
            tokens += more_tokens
            masks += more_masks

        ids = np.concatenate(tokens).astype(np.int64)
        if all(mask is None for mask in masks):
            return ids, None
        # A shard without a mask is learned as a whole.
        pairs = zip(tokens, masks, strict=True)
        learned = [np.ones(len(part), bool) if mask is None else mask.astype(bool) for part, mask in pairs]
        return ids, np.concatenate(learned)

    def places(self, token: int) -> Ids:
        """The positions of a token."""
        shards = zip(self._maps, self.edges[:-1], strict=True)
        found = [np.flatnonzero(ids == token) + edge for (ids, _), edge in shards]
        where = np.concatenate(found) - self.start
        return where[(where >= 0) & (where < len(self))]

    def _parts(self, start: int, count: int) -> tuple[list[Any], list[Any]]:
        """Tokens and masks of a stretch, one entry for each shard that it touches."""
        begin, end = self.start + start, self.start + start + count
        tokens, masks = [], []
        first = int(np.searchsorted(self.edges, begin, "right")) - 1  # the shard in which it begins
        for number in range(first, len(self.shards)):
            low, high = (
                begin - self.edges[number],
                end - self.edges[number],
            )  # counted from the shard's first token
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

    Every n-th document is held out, so that `held_out` is their share; where there are too few documents for
    that, the end of the row is.
    """
    if tokenizer.end is None:
        raise InputError("training text needs a vocabulary with <|endoftext|>, which separates documents")
    if tokenizer.prefix_space:
        raise InputError(
            "training text cannot have a vocabulary that puts a space before every text (add_prefix_space)"
        )
    if not 0 <= held_out < 1:
        raise InputError(f"held_out must be at least 0 and less than 1, not {held_out}")
    files = find_files(source)
    key = {
        "version": VERSION,
        "files": [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        "end": tokenizer.end,
        "share": held_out,
        "field": field,
    }
    # Its name is for those who look what takes up their disk; the hash is what tells texts apart.
    name = re.sub(r"[^A-Za-z0-9_]+", "-", Path(source).stem)[:40].strip("-")
    folder = machine.home() / "data" / f"{name}-{hash_json(key)[:24]}".lstrip("-")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(folder, error) from None
    with FileLock(folder.with_suffix(".lock")):  # a second process waits, and finds it done
        remove_leftovers(folder)
        _remove_abandoned(folder.parent)
        if not _is_intact(folder):
            writer = _CorpusWriter(files, tokenizer, key, progress)
            try:
                with replace_folder(folder) as fresh:
                    writer.write(fresh, source=str(source))
            except OSError as error:
                raise _not_written(folder, error) from None
    return open_corpus(folder)


def _not_written(folder: Path, error: OSError) -> InputError:
    return InputError(f"{folder.parent}: the tokens could not be written ({error.strerror or error})")


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left of other texts, once it is old: another may still be at work."""
    for left in parent.glob(".*.*"):
        with contextlib.suppress(FileNotFoundError):  # another process has just finished it
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


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


def _is_intact(folder: Path) -> bool:
    """Whether a folder exists, complete, and holds what its hashes say."""
    try:
        notes = read_sealed(folder / INDEX)
        for shard in notes["train"] + notes["held_out"]:
            if any(hash_file(folder / name) != hash for name, hash in shard["sha256"].items()):
                return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


class _CorpusWriter:
    """Tokenizes files into the two rows of a corpus, and describes them in its index."""

    def __init__(
        self, files: list[Path], tokenizer: Tokenizer, key: dict[str, Any], progress: Progress | None
    ) -> None:
        self.files, self.tokenizer, self.key, self.progress = files, tokenizer, key, progress
        self.dtype = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
        self.share = float(key["share"])
        self.total = sum(file.stat().st_size for file in files)
        self.done = self.documents = 0

    def write(self, folder: Path, *, source: str) -> None:
        """Write everything into an empty folder."""
        rows = {name: _Writer(folder, name, self.dtype, self.tokenizer) for name in ("train", "held_out")}
        try:
            hashes = [self._read(file, rows) for file in self.files]
            shards = {name: row.close() for name, row in rows.items()}
        finally:
            for row in rows.values():
                row.abandon()
        notes = self.key | {"source": source, "dtype": self.dtype, "documents": self.documents}
        notes |= {"sha256": hashes, **shards, "cut": None}
        notes |= {"tokens": {name: row.tokens for name, row in rows.items()}}
        notes |= {"text_bytes": {name: row.text_bytes for name, row in rows.items()}}
        if self.share and not shards["held_out"]:
            # Too few documents to hold one out: the end of the row is, not counting the tokens between
            # documents.
            notes["cut"] = 1 + int((1 - self.share) * (rows["train"].tokens - 1 - self.documents))
        write_sealed(folder / INDEX, notes)

    def _read(self, file: Path, rows: dict[str, "_Writer"]) -> str:
        """Add the documents of a file to the rows; the hash of the file."""
        hash = hashlib.sha256()

        def watch(data: bytes) -> None:
            hash.update(data)
            self.done += len(data)
            if self.progress is not None:
                self.progress(self.done, self.total)

        for piece in read_pieces(file, field=str(self.key["field"]), watch=watch):
            # Whenever the share of all documents so far reaches another whole number, this one is held out.
            held = int((self.documents + 1) * self.share) > int(self.documents * self.share)
            rows["held_out" if held else "train"].add(piece)
            self.documents += piece.last
        return hash.hexdigest()


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
        """Tokenize a piece of a document and append it."""
        end = self.tokenizer.end
        assert end is not None
        ids = self.tokenizer.encode(piece.text)
        self.text_bytes += len(piece.text.encode("utf-8", "replace"))
        learn = np.full(len(ids) + piece.last, piece.learn, dtype=np.uint8)
        row = np.array([*ids, end] if piece.last else ids, dtype=self.dtype)
        if piece.cut:
            learn[-1] = 0  # the document was cut here, which is no place to learn how documents end
        if not self.tokens:  # the row's first token: every document has an end token on both sides
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
