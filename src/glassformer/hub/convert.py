"""Checkpoints that are pickles (`.pt`, `.bin`) -> a folder of ours: nanoGPT, minGPT, Hugging Face."""

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, InputError
from glassformer.files import read_json
from glassformer.hub.families import Pickled, family_of
from glassformer.hub.folder import CONFIG, WEIGHTS, load_folder, save_folder
from glassformer.hub.generation_config import read_generation_config, write_generation_config
from glassformer.hub.mapping import recognize
from glassformer.hub.tensors import StoredTensor, read_header
from glassformer.hub.vocabulary import load_tokenizer

PICKLES = ("pytorch_model.bin", "model.pt", "ckpt.pt")
SECONDS = 600


def convert(
    source: Path,
    target: Path,
    *,
    heads: int | None = None,
    activation: str | None = None,
    tokenizer: Path | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Read a pickled checkpoint in a confined child process and save it as a folder that needs no pickle.

    What the file does not say is taken from a `config.json` beside it, or from `heads` and `activation`.
    """
    source = _find(source)
    _check_archive(source)
    with tempfile.TemporaryDirectory(prefix="glass-convert-") as name:
        work = Path(name)
        _unpickle(source, work)
        try:
            entries = read_header(work / "tensors.safetensors")
            options = {"heads": heads, "activation": activation}
            config = _config(source, entries, read_json(work / "facts.json"), options)
            (work / "tensors.safetensors").rename(work / WEIGHTS)
            (work / CONFIG).write_text(json.dumps(config))
            loaded = load_folder(work, dtype=_stored(entries))
        except CheckpointError as error:
            # The message names the file that was given, not one that is gone in a moment.
            text = re.sub(rf"{re.escape(name)}(/[a-z.]+)?", lambda _: str(source), str(error))
            raise CheckpointError(text) from None
        vocabulary = load_tokenizer(tokenizer or source.parent)
        if tokenizer is not None and vocabulary is None:
            raise InputError(f"{tokenizer} holds no tokenizer")
        if vocabulary is not None and len(vocabulary) > loaded.model.vocab:
            raise CheckpointError(
                f"the tokenizer has {len(vocabulary):,} tokens, the model only {loaded.model.vocab:,}"
            )
        generation = write_generation_config(*read_generation_config(source.parent))
        save_folder(target, loaded.model, tokenizer=vocabulary, dtype=dtype, generation=generation)


def _find(source: Path) -> Path:
    if source.is_dir():
        found = next((source / name for name in PICKLES if (source / name).is_file()), None)
        if found is None:
            raise InputError(f"{source} holds none of {', '.join(PICKLES)}")
        return found
    if not source.is_file():
        raise InputError(f"there is no file or folder {source}; SOURCE is a path, not a model's name")
    return source


def _check_archive(path: Path) -> None:
    """A torch file is an archive that stores, never packs: one that unpacks to more than it has is a trap."""
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                if file.read(1) == b"\x80":
                    return  # the older form: a bare pickle
            entries = None
        else:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: a broken archive ({error})") from None
    if entries is None:
        raise CheckpointError(f"{path}: not a checkpoint: neither torch's archive nor a pickle")
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if packed or sum(entry.file_size for entry in entries) > path.stat().st_size or len(entries) > 100_000:
        raise CheckpointError(f"{path}: an archive that unpacks to more than it stores is not a checkpoint")


def _unpickle(source: Path, work: Path) -> None:
    command = [sys.executable, "-m", "glassformer.hub.unpickle", str(source.absolute()), str(work)]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, cwd=work
        )
    except subprocess.TimeoutExpired:
        raise CheckpointError(f"{source}: not read within {SECONDS} seconds") from None
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines()
        reason = lines[-1][:300] if lines else f"the reader was ended by signal {-child.returncode}"
        raise CheckpointError(f"{source}: not a checkpoint of plain weights ({reason})")


def _config(
    source: Path, entries: dict[str, StoredTensor], facts: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """A `config.json` in Hugging Face's words: the one beside the file, completed by family and options."""
    beside = source.parent / CONFIG
    config = read_json(beside) if beside.is_file() else {}
    family = family_of(config, beside)
    if family.complete_config is not None:
        # What is unknown or a duplicate is reported when the tensors are placed.
        found = recognize(entries.values(), family, tied={}, faults=[])
        tensors = {name: same[0] for name, same in found.items()}
        config = family.complete_config(Pickled(source, config, facts, tensors))
    for option, value in options.items():
        if value is None:
            continue
        if option not in family.options:
            raise InputError(f"--{option}: the {CONFIG} of a {family.title} says it")
        config[family.options[option]] = value
    heads = family.options.get("heads")
    if heads is not None and config.get(heads) is None:
        raise InputError(f"{source} does not say how many attention heads the model has; give --heads")
    return config


def _stored(entries: dict[str, StoredTensor]) -> torch.dtype:
    kinds = {entry.dtype for entry in entries.values() if entry.dtype.is_floating_point}
    return kinds.pop() if len(kinds) == 1 else torch.float32
