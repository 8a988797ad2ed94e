"""A model's folder, in Hugging Face's form: `config.json`, `model.safetensors` (or shards), a tokenizer."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer import machine
from glassformer.durable import replace_folder
from glassformer.errors import CheckpointError, InputError
from glassformer.files import MEGABYTE, read_json
from glassformer.hub.families import Family, family_of
from glassformer.hub.families import family as find_family
from glassformer.hub.mapping import Place, blank, export_tensors, place_tensors
from glassformer.hub.tensors import DTYPES, StoredTensor, read_header
from glassformer.hub.vocabulary import (
    SOURCE,
    check_fits,
    folder_tokenizer,
    tokenizer_config,
    tokenizer_files,
)
from glassformer.nn.net import Net
from glassformer.tokenizers import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")
OURS = {CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json", "generation_config.json", "card.md"}
OURS |= {SOURCE, "source.spm", "target.spm", "vocab.json", "target_vocab.json"}
OURS |= {"adapter_config.json", "adapter_model.safetensors"}  # what a save writes


@dataclass
class Loaded:
    """A model, the tokenizer that came with it, where both were found, and the family it belongs to."""

    model: Net
    tokenizer: Tokenizer | None
    folder: Path
    family: Family


def load_folder(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    dropout: float = 0.0,
    attention_dropout: bool | None = None,
) -> Loaded:
    """Read a folder. Every file is checked before memory is taken, and memory is taken once.

    Dropout belongs to a training, not to a model: the folder's value is not read.
    """
    model, places, _ = outline(folder, dropout=dropout, attention_dropout=attention_dropout)
    tokenizer = folder_tokenizer(folder, model.vocab, source_vocab=_source_vocab(model))
    machine.check_memory(model.config.parameters * dtype.itemsize, what=str(folder))

    for place in places:
        value = _read(place, dtype)
        for copy in place.copies:
            again = _read(place._replace(entry=copy), dtype)
            _check_same(again, value, place, copy)
        _put(model, place, value, device)
    model.tie()
    _check_filled(model)
    return Loaded(model.eval(), tokenizer, folder, find_family(model.kind))


def _source_vocab(model: Net) -> int:
    """How many tokens sources have; 0 where they have no vocabulary of their own."""
    return int(getattr(model.config, "source_vocab", 0))


def outline(
    folder: Path, *, dropout: float = 0.0, attention_dropout: bool | None = None
) -> tuple[Net, list[Place], dict[str, Any]]:
    """A folder's model without numbers, the place of each of its numbers, and its `config.json`."""
    # The weights come first: a folder of a pickle needs its remedy, with or without a configuration.
    entries = tensor_entries(folder)
    path = folder / CONFIG
    config = read_json(path)
    family = family_of(config, path)
    ours = family.read_config(config, path)
    if hasattr(ours, "dropout"):
        ours = replace(ours, dropout=dropout)
        if attention_dropout is not None:
            ours = replace(ours, attention_dropout=attention_dropout)
    elif dropout:
        raise InputError(f"dropout: a {family.title} has none")
    model = blank(family, ours, path=path)
    places = place_tensors(entries.values(), model, family=family, path=folder)
    return model, places, config


def save_folder(
    folder: Path,
    model: Net,
    *,
    tokenizer: Tokenizer | None = None,
    dtype: torch.dtype | None = None,
    card: str | None = None,
    generation: dict[str, Any] | None = None,
) -> None:
    """Write a folder that `transformers` loads too where it has the family: whole, or not at all.

    `generation` is what its `generation_config.json` recommends, as `write_generation_config` makes it.
    """
    family = find_family(model.kind)
    tensors = export_tensors(family, model)
    if dtype is not None:
        tensors = {name: value.to(dtype) for name, value in tensors.items()}
    stored = next(iter(tensors.values())).dtype

    token_ids = family.token_ids(tokenizer, model.config)
    files: dict[str, str | bytes] = {}
    if tokenizer is not None:
        check_fits(tokenizer, folder, vocab=model.vocab, source_vocab=_source_vocab(model))
        marks = family.post_processor(tokenizer, model.config)
        files |= tokenizer_files(tokenizer, post_processor=marks)
        files["tokenizer_config.json"] = pretty(tokenizer_config(tokenizer, model.context, pads=bool(marks)))
    if tokenizer is not None or generation:
        files["generation_config.json"] = pretty(token_ids | (generation or {}))
    if card is not None or family.note:
        files["card.md"] = "\n".join(text for text in (card, family.note and f"{family.note}\n") if text)
    config = family.write_config(model.config)
    files[CONFIG] = pretty(config | {"dtype": str(stored).removeprefix("torch.")} | token_ids)
    write_folder(folder, tensors, files=files)


def tensor_entries(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a folder's safetensors file or shards."""
    single, index = folder / WEIGHTS, folder / INDEX
    if single.is_file():
        return read_header(single)
    if not index.is_file():
        raise CheckpointError(f"{folder}: {_what_is_there(folder)}")
    names = read_json(index, 16 * MEGABYTE).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index}: weight_map should name a file for every tensor")
    shards = sorted(set(names.values()))
    strange = next((name for name in shards if not SHARD.fullmatch(name)), None)
    if strange is not None:
        raise CheckpointError(
            f"{index}: {strange[:100]!r} is not the name of a safetensors file in this folder"
        )
    entries: dict[str, StoredTensor] = {}
    for shard in shards:
        found = read_header(folder / shard)
        wrong = sorted(found.keys() ^ {name for name, where in names.items() if where == shard})
        if wrong:
            listed = ", ".join(repr(name[:100]) for name in wrong[:10])
            raise CheckpointError(f"{index}: index and {shard} do not name the same tensors: {listed}")
        entries |= found
    return entries


def parse_dtype(name: str) -> torch.dtype:
    """A floating-point type by its name; bf16 only where it does not crash."""
    known = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values() if dtype.is_floating_point}
    known |= {"auto": torch.float32, "fp32": torch.float32, "fp64": torch.float64}
    known |= {"bf16": torch.bfloat16, "fp16": torch.float16}
    if name not in known:
        hint = "; the native engine computes in int8 (engine native, quantize int8)" if name == "int8" else ""
        raise InputError(f"dtype {name!r} is none of {', '.join(known)}{hint}")
    if known[name] is torch.bfloat16 and machine.bf16() == "crashes":
        raise InputError(f"dtype {name!r}: bf16 crashes on this machine (see `glass env`); use float32")
    return known[name]


def _read(place: Place, dtype: torch.dtype) -> Tensor:
    value = place.read().to(dtype)
    # One pass, no copy; NaN shows in both extremes.
    if not torch.stack(value.aminmax()).isfinite().all():
        entry = place.entry
        raise CheckpointError(
            f"{entry.path}: {entry.name} holds NaN or infinite numbers, or numbers too large for {dtype}"
        )
    return value


def _put(model: Net, place: Place, value: Tensor, device: str) -> None:
    """Give a parameter or a buffer of the model its numbers."""
    path, _, leaf = place.name.rpartition(".")
    module = model.get_submodule(path)
    empty = getattr(module, leaf)
    if empty is None:
        _check_zero(value, place.entry)  # a bias, in a model that has none
        return
    value = value.to(device)
    is_learned = isinstance(empty, nn.Parameter)
    setattr(module, leaf, nn.Parameter(value, requires_grad=True) if is_learned else value)


def _check_same(again: Tensor, value: Tensor, place: Place, copy: StoredTensor) -> None:
    if not torch.equal(again, value):
        raise CheckpointError(
            f"{copy.path}: {copy.name} is not {place.entry.name},"
            " though the configuration says that they are tied"
        )


def _check_filled(model: Net) -> None:
    """A table that is not in files is computed in `forward`: one that `__init__` made has no memory here."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    empty = [name for name, value in tensors.items() if value.is_meta]
    assert not empty, f"{type(model).__name__}: {', '.join(empty)} is in no file and has no numbers"


def _check_zero(value: Tensor, entry: StoredTensor) -> None:
    if value.any():
        raise CheckpointError(
            f"{entry.path}: {entry.name} is a bias, though the configuration says that there are none"
        )


def _what_is_there(folder: Path) -> str:
    pickles = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern)
    )
    if pickles:
        remedy = f"glass convert {folder / pickles[0]}"
        return f"holds {pickles[0]}, which is a pickle and never loaded; run: {remedy}"
    return f"holds no {WEIGHTS}"


def pretty(value: object) -> str:
    """JSON for a file that people read."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_folder(
    folder: Path, tensors: Mapping[str, Tensor], *, files: Mapping[str, str | bytes], weights: str = WEIGHTS
) -> None:
    """Write tensors and texts into a folder and have them on the disk, whole, or not at all."""
    _check_replaceable(folder)
    with replace_folder(folder) as fresh:
        try:
            save_file(dict(tensors), fresh / weights, metadata={"format": "pt"})
        except SafetensorError as error:  # a full disk, as the library reports it
            raise OSError(f"{folder / weights} could not be written: {error}") from None
        (fresh / weights).chmod(0o644)  # the library makes it private
        for name, content in files.items():
            (fresh / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _check_replaceable(folder: Path) -> None:
    """Refuse to replace a file, or a folder with anything in it that a save would not write."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} - OURS if folder.is_dir() else {folder.name}
    if names:
        raise InputError(f"{folder} holds {min(names)}, which saving would delete; it is left as it is")
