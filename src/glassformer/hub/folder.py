"""A model's folder: `config.json`, `model.safetensors` (or shards), a tokenizer. Ours is a Hugging Face folder."""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer import machine
from glassformer.durable import sync
from glassformer.errors import CheckpointError, InputError
from glassformer.hub import gpt2
from glassformer.hub.files import MEGABYTE, read_json
from glassformer.hub.tensors import DTYPES, Entry, read_header
from glassformer.hub.vocabulary import folder_tokenizer
from glassformer.models.gpt import GPT
from glassformer.tokenizers import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")
OURS = {CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json", "generation_config.json", "card.md"}
OURS |= {"adapter_config.json", "adapter_model.safetensors"}  # what a save writes


@dataclass
class Loaded:
    """A model, the tokenizer that came with it, and where both were found."""

    model: GPT
    tokenizer: Tokenizer | None
    folder: Path
    kind: str = "gpt2"


def load_folder(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    dropout: float = 0.0,
    allow_nonfinite: bool = False,
) -> Loaded:
    """Read a folder. Every file is checked before memory is taken, and memory is taken once.

    Dropout belongs to a training, not to a model: what the folder says about it is not read.
    """
    model, places, _ = outline(folder, dropout=dropout)
    tokenizer = folder_tokenizer(folder, model.config.vocab)
    machine.check_memory(model.config.parameters * dtype.itemsize, what=str(folder))
    owners = dict(model.named_modules())
    for place in places:
        value = place.read().to(dtype)
        if (
            not allow_nonfinite and not torch.stack(value.aminmax()).isfinite().all()
        ):  # one pass, no copy; NaN shows in both
            raise CheckpointError(
                f"{place.entry.path}: {place.entry.name} holds NaN or infinite numbers, or numbers too large for {dtype}"
            )
        path, _, leaf = place.name.rpartition(".")
        if place.name == "head.weight" and model.config.tied:
            _check_tied(value, model.tokens.weight, place.entry)
        elif getattr(owners[path], leaf) is None:
            _check_zero(value, place.entry)  # a bias, in a model that has none
        else:
            setattr(owners[path], leaf, nn.Parameter(value.to(device), requires_grad=True))
    model.tie()
    return Loaded(model.eval(), tokenizer, folder)


def outline(folder: Path, *, dropout: float = 0.0) -> tuple[GPT, list[gpt2.Place], dict[str, Any]]:
    """A folder's model without numbers, where each of its numbers is, and the configuration as it stands there."""
    entries = tensor_entries(
        folder
    )  # first: a folder of a pickle, with or without a configuration, is told what to do
    config = read_json(folder / CONFIG)
    model = gpt2.blank(replace(gpt2.read_config(config, folder / CONFIG), dropout=dropout), folder / CONFIG)
    return model, gpt2.place_tensors(entries.values(), model, folder), config


def save_folder(
    folder: Path,
    model: GPT,
    tokenizer: Tokenizer | None,
    *,
    dtype: torch.dtype | None = None,
    card: str | None = None,
) -> None:
    """Write a folder that `transformers` loads too: whole, or not at all."""
    tensors = gpt2.export_tensors(model)
    if dtype is not None:
        tensors = {name: value.to(dtype) for name, value in tensors.items()}
    stored = next(iter(tensors.values())).dtype
    config = gpt2.write_config(model.config) | {"dtype": str(stored).removeprefix("torch.")}
    end = None if tokenizer is None else tokenizer.end
    ends = {"bos_token_id": end, "eos_token_id": end}
    config |= ends
    files: dict[str, str] = {}
    if tokenizer is not None:
        files["tokenizer.json"] = tokenizer.to_json()
        files["tokenizer_config.json"] = pretty(_tokenizer_config(tokenizer, model.config.context))
        files["generation_config.json"] = pretty(ends)
    if card is not None:
        files["card.md"] = card
    files[CONFIG] = pretty(config)
    write_folder(folder, tensors, files)


def tensor_entries(folder: Path) -> dict[str, Entry]:
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
    entries: dict[str, Entry] = {}
    for shard in shards:
        found = read_header(folder / shard)
        wrong = sorted(found.keys() ^ {name for name, where in names.items() if where == shard})
        if wrong:
            told = ", ".join(repr(name[:100]) for name in wrong[:10])
            raise CheckpointError(f"{index}: index and {shard} do not name the same tensors: {told}")
        entries |= found
    return entries


def parse_dtype(name: str) -> torch.dtype:
    """A floating-point type by its name; bf16 only where it does not crash."""
    known = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values() if dtype.is_floating_point}
    known |= {"auto": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name not in known:
        raise InputError(f"dtype {name!r} is none of {', '.join(known)}")
    if known[name] is torch.bfloat16 and machine.bf16() == "crashes":
        raise InputError(f"dtype {name!r}: bf16 crashes on this machine (see `glass env`); use float32")
    return known[name]


def _check_tied(value: Tensor, tokens: Tensor, entry: Entry) -> None:
    if not torch.equal(value, tokens.detach().to(value.device)):
        raise CheckpointError(
            f"{entry.path}: {entry.name} is not the token matrix, though the configuration says that they are tied"
        )


def _check_zero(value: Tensor, entry: Entry) -> None:
    if value.any():
        raise CheckpointError(
            f"{entry.path}: {entry.name} is a bias, though the configuration says that there are none"
        )


def _what_is_there(folder: Path) -> str:
    pickles = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern)
    )
    if pickles:
        return f"holds {pickles[0]}, which is a pickle and never loaded; run: glass convert {folder / pickles[0]}"
    return f"holds no {WEIGHTS}"


def _tokenizer_config(tokenizer: Tokenizer, context: int) -> dict[str, object]:
    config: dict[str, object] = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": context,
        "add_prefix_space": tokenizer.prefix_space,
    }
    if tokenizer.end is not None:
        config |= {
            "bos_token": tokenizer.end_token,
            "eos_token": tokenizer.end_token,
            "unk_token": tokenizer.end_token,
        }
    return config


def pretty(value: object) -> str:
    """JSON for a file that people read."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_folder(
    folder: Path, tensors: Mapping[str, Tensor], files: Mapping[str, str], *, weights: str = WEIGHTS
) -> None:
    """Write tensors and texts into a folder and have them on the disk, whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        strange = (
            min({path.name for path in folder.iterdir()} - OURS, default=None)
            if folder.is_dir()
            else folder.name
        )
        if strange is not None:
            raise InputError(f"{folder} holds {strange}, which saving would delete; it is left as it is")
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        fresh.chmod(0o755)
        try:
            save_file(dict(tensors), fresh / weights, metadata={"format": "pt"})
        except SafetensorError as error:  # what the library makes of a full disk
            raise OSError(f"{folder / weights} could not be written: {error}") from None
        (fresh / weights).chmod(0o644)
        for name, text in files.items():
            (fresh / name).write_text(text, encoding="utf-8")
        for path in fresh.iterdir():
            sync(path)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.replace(old / folder.name)
            try:
                fresh.replace(folder)
            except OSError:
                (old / folder.name).replace(folder)
                raise
            finally:
                shutil.rmtree(old)
        else:
            fresh.replace(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
