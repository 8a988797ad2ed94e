"""`generation_config.json`: how a model's makers recommend to generate with it, and its end tokens."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.files import read_json

NAME = "generation_config.json"
# Settings that mean the same there and here. Others (max_length, cache settings …) concern their library
# alone.
SETTINGS = (
    "max_new_tokens", "min_new_tokens", "do_sample", "temperature", "top_k", "top_p", "min_p",
    "typical_p", "repetition_penalty", "num_beams", "length_penalty", "early_stopping", "bad_words_ids",
    "forced_eos_token_id", "renormalize_logits",
)  # fmt: skip


def read_generation_config(folder: Path) -> tuple[dict[str, Any], frozenset[int]]:
    """The recommended settings of a folder's model and its end tokens; both empty without the file."""
    path = folder / NAME
    if not path.is_file():
        return {}, frozenset()
    content = read_json(path)
    settings = {key: content[key] for key in SETTINGS if content.get(key) is not None}
    return settings, _end_tokens(content.get("eos_token_id"), path)


def write_generation_config(settings: dict[str, Any], ends: Collection[int]) -> dict[str, Any]:
    """The same as the file has it; what a family states of its special tokens is put before it."""
    ids = sorted(ends)
    return settings | ({} if not ids else {"eos_token_id": ids[0] if len(ids) == 1 else ids})


def _end_tokens(given: Any, path: Path) -> frozenset[int]:
    """One id, or a list of them."""
    ids = given if isinstance(given, list) else [] if given is None else [given]
    if any(type(id) is not int or id < 0 for id in ids):
        raise CheckpointError(
            f"{path}: eos_token_id must be a token id or a list of them, not {str(given)[:60]!r}"
        )
    return frozenset(ids)
