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
from glassformer.hub.families import Family, family_of
from glassformer.hub.folder import CONFIG, WEIGHTS, load_folder, save_folder
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
            config = _config(source, entries, read_json(work / "facts.json"), heads, activation)
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
        save_folder(target, loaded.model, tokenizer=vocabulary, dtype=dtype)


def _find(source: Path) -> Path:
    if source.is_dir():
        found = next((source / name for name in PICKLES if (source / name).is_file()), None)
        if found is None:
            raise InputError(f"{source} holds none of {', '.join(PICKLES)}")
        return found
    if not source.is_file():
        raise InputError(f"there is no file {source}")
    return source


def _check_archive(path: Path) -> None:
    """A torch file is an archive that stores, never packs: one that unpacks to more than it has is a trap."""
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                if file.read(1) == b"\x80":
                    return  # the older form: a bare pickle
            raise CheckpointError(f"{path}: not a checkpoint: neither torch's archive nor a pickle")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: a broken archive ({error})") from None
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
    source: Path,
    entries: dict[str, StoredTensor],
    facts: dict[str, Any],
    heads: int | None,
    activation: str | None,
) -> dict[str, Any]:
    """A `config.json` in Hugging Face's words: the one beside the file, or from the file and its shapes."""
    beside = source.parent / CONFIG
    said = read_json(beside) if beside.is_file() else {}
    family = family_of(said, beside)
    config = said
    if "n_layer" not in said:
        config = _measure(source, entries, family) | _from_facts(source, facts, said)
    if heads is not None:
        config["n_head"] = heads
    if activation is not None:
        config[family.activation_key] = activation
    if config.get("n_head") is None:
        raise InputError(f"{source} does not say how many attention heads the model has; give --heads")
    return config


def _from_facts(source: Path, facts: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """The numbers that shapes do not show, from what nanoGPT and minGPT store beside the weights."""
    model_args = facts.get("model_args") or {}
    if not isinstance(model_args, dict):
        raise CheckpointError(f"{source}: model_args is not a dictionary")
    nested = said.get("model")
    beside = nested.get("n_head") if isinstance(nested, dict) else None
    return {
        "n_head": model_args.get("n_head") or beside,
        # nanoGPT, which stores model_args, has the erf form; minGPT the tanh form, as GPT-2.
        "activation_function": "gelu" if model_args else "gelu_new",
    }


def _measure(source: Path, entries: dict[str, StoredTensor], family: Family) -> dict[str, Any]:
    """What the shapes of the tensors say about the model."""
    found: dict[str, StoredTensor] = {}
    for name, entry in entries.items():
        try:
            ours = family.names.ours(name)
        except KeyError:
            continue  # place_tensors reports it
        if ours is not None:
            found[ours] = entry
    tokens, positions = found.get("tokens.weight"), found.get("positions.weight")
    if tokens is None or positions is None or len(tokens.shape) != 2 or len(positions.shape) != 2:
        raise CheckpointError(f"{source}: holds no token and position matrix; not a {family.title}")
    head = found.get("head.weight")
    tied = head is None or (head.shape == tokens.shape and torch.equal(head.read(), tokens.read()))
    blocks = {int(match[1]) for name in found if (match := re.match(r"blocks\.(\d+)\.", name))}
    up = found.get("blocks.0.mlp.up.bias") or found.get("blocks.0.mlp.up.weight")
    return {
        "n_layer": max(blocks, default=-1) + 1,
        "n_embd": tokens.shape[1],
        "vocab_size": tokens.shape[0],
        "n_positions": positions.shape[0],
        "n_inner": max(up.shape) if up is not None and up.shape else None,
        "tie_word_embeddings": tied,
        "bias": "norm.bias" in found,
    }


def _stored(entries: dict[str, StoredTensor]) -> torch.dtype:
    kinds = {entry.dtype for entry in entries.values() if entry.dtype.is_floating_point}
    return kinds.pop() if len(kinds) == 1 else torch.float32
