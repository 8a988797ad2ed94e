"""Quantized models, kept: made once from a model's files, and known to be whole and of those files.

A kept model is a folder of a sealed note and a safetensors file. The note has the configuration, the size and
the time of every file that the model was made of, and the hash of the numbers. The numbers carry the
configuration too, because heads, epsilon and the exact vocabulary do not show in the shapes of padded arrays.
What was modified, or does not fit together, counts as missing, and is made again.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.durable import read_sealed, replace_folder, write_sealed
from glassformer.engine.quantize import BITS, Array, bits_of, check_arrays, check_config, expected
from glassformer.engine.reading import NUMBERS, FileReader, kept_size, place
from glassformer.errors import CheckpointError, InputError
from glassformer.files import MAX_HEADER, parse_json, parse_spans

FORMAT = 7  # a model that was kept in another format is quantized again
NOTE = "note.json"
FIELDS = {
    "format": int, "bits": int, "config": dict, "about": dict, "folders": list, "files": dict, "sha256": str,
}  # fmt: skip
DTYPES = {"int8": "I8", "float32": "F32"}  # NumPy's names -> those of safetensors
SUFFIXES = (".json", ".safetensors", ".bpe", ".txt")  # of files that a model or its vocabulary is read from


Stamps = dict[str, list[int]]  # path -> size and time of a file


@dataclass(frozen=True)
class Kept:
    """A quantized model: its configuration, its arrays, and `about`: the folder of its vocabulary, `base`."""

    config: dict[str, Any]
    arrays: dict[str, Array]
    about: dict[str, Any]


def stamps(folders: Iterable[str | Path]) -> Stamps:
    """Size and time of a model's files in some folders: they show that one was changed, added or removed."""
    files = (
        path for folder in folders for path in Path(folder).absolute().iterdir() if path.suffix in SUFFIXES
    )
    found = {str(path): path.stat() for path in files}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in sorted(found.items())}


def keep(source: Path, kept: Kept, *, folders: Iterable[Path], stamps: Stamps) -> None:
    """Keep the quantized form of a folder: completely, or not at all.

    `folders` are those that the model was read from, and `stamps` those of their files, taken before reading.
    """
    check_arrays(kept.config, kept.arrays)
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    bits = bits_of(kept.arrays)
    target = place(source, bits=bits)
    note = {"format": FORMAT, "bits": bits, "config": kept.config, "about": kept.about}
    note |= {"folders": [str(one.absolute()) for one in folders], "files": stamps}
    try:
        with replace_folder(target) as fresh:
            try:
                save_file(kept.arrays, fresh / NUMBERS, metadata={"config": _text(kept.config)})
            except SafetensorError as error:  # the library's error for a full disk
                raise OSError(str(error)) from None
            _, digest = FileReader(fresh / NUMBERS).wait()
            write_sealed(fresh / NOTE, note | {"sha256": digest})
    except OSError:
        if not target.is_dir():  # another process kept the same model meanwhile: its result is as good
            raise


def find(source: Path, *, bits: int = 8) -> dict[str, Any] | None:
    """The note on the quantized form of a folder; None if there is none, or its files have changed since."""
    folder = place(source, bits=bits)
    try:
        note = read_sealed(folder / NOTE)
        _check_note(note, source, bits=bits)
        with (folder / NUMBERS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            _check_same_config(file.read(min(size, MAX_HEADER)), note["config"])
        fresh = stamps(note["folders"]) == note["files"]
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return note if fresh else None


def _check_note(note: dict[str, Any], source: Path, *, bits: int) -> None:
    """Refuse a note that does not have exactly the fields that `keep` writes, or is of another folder."""
    kinds = {name: type(value) for name, value in note.items()}
    if kinds != FIELDS or note["format"] != FORMAT:
        raise CheckpointError(f"{NOTE}: not a note of format {FORMAT}")
    if note["bits"] != bits:
        raise CheckpointError(f"{NOTE}: not a note on weights of {bits} bits")
    check_config(note["config"], bits=bits)
    # Without this, a note that names no folder would be fresh whatever happens to the model's files.
    folders = note["folders"]
    if source.resolve() not in [Path(one).resolve() for one in folders]:
        raise CheckpointError(f"{NOTE}: not a note on {source}")
    if note["about"].keys() != {"base"} or note["about"]["base"] not in folders:
        raise CheckpointError(f"{NOTE}: the folder of the vocabulary is not one of the model's")


def _check_same_config(header: bytes, config: Mapping[str, Any]) -> None:
    """Refuse numbers that were made for another configuration, by the header of their file."""
    metadata = parse_json(header.decode("utf-8"), Path(NUMBERS)).get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("config") != _text(config):
        raise CheckpointError(f"{NUMBERS}: made for another configuration")


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def whole_size(source: Path) -> int:
    """Bytes of the numbers that are kept for a folder, for all numbers of bits together."""
    return sum(kept_size(source, bits=bits) for bits in BITS.values())


def forget(source: Path) -> None:
    """Remove what is kept for a folder."""
    import shutil

    for bits in BITS.values():
        shutil.rmtree(place(source, bits=bits), ignore_errors=True)


def read(source: Path, note: dict[str, Any], *, begun: FileReader | None = None) -> Kept | None:
    """The quantized form of a folder that a note describes; None if it was modified.

    `begun` is a reading of its file that has begun already.
    """
    try:
        reading = begun or FileReader(place(source, bits=note["bits"]) / NUMBERS)
        numbers, digest = reading.wait()
        if digest != note["sha256"]:
            return None
        arrays = arrays_of(numbers, reading.start, config=note["config"], bits=note["bits"])
        return Kept(note["config"], arrays, note["about"])
    except (OSError, KeyError, TypeError, InputError):
        return None


def arrays_of(
    numbers: memoryview, start: int, *, config: Mapping[str, Any], bits: int = 8
) -> dict[str, Array]:
    """The arrays of a safetensors file in memory, those of a configuration; nothing is copied."""
    spans = parse_spans(bytes(numbers[8:start]), Path(NUMBERS), length=len(numbers))
    found = {span.name: span for span in spans}
    wanted = expected(config, bits=bits)
    _check_same_config(bytes(numbers[8:start]), config)
    if found.keys() != wanted.keys():
        wrong = min(found.keys() ^ wanted.keys())
        raise CheckpointError(f"{NUMBERS}: {wrong} is missing, or there is too much")
    arrays = {}
    for name, (kind, shape) in wanted.items():
        span = found[name]
        if (span.dtype, span.shape) != (DTYPES[kind], shape):
            raise CheckpointError(f"{NUMBERS}: {name} is not {kind} {shape}")
        part = numbers[span.start : span.start + span.size]
        arrays[name] = np.frombuffer(part, dtype=kind).reshape(shape)
    return arrays
