"""The models a person has: list them, look at one from outside, fetch, remove, convert. No torch unless converting."""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.hub.known import KNOWN
from glassformer.hub.locate import as_path, download, home_folder, kept, locate, remove, split_name

__all__ = ["Row", "Table", "convert", "describe", "kept", "known", "pull", "remove"]


@dataclass(frozen=True)
class Row:
    """One tensor of the file, or one that recurs in every block."""

    name: str
    shape: tuple[int, ...]
    parameters: int


@dataclass
class Table:
    """The article's table of parameters, from the file itself."""

    name: str
    folder: Path
    config: dict[str, Any]
    dtype: str
    size: int
    block: list[Row] = field(default_factory=list)
    blocks: int = 0
    whole: list[Row] = field(default_factory=list)
    total: int = 0

    @property
    def block_total(self) -> int:
        return sum(row.parameters for row in self.block)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "dtype": self.dtype,
            "size": self.size,
            "blocks": self.blocks,
            "block": [vars(row) for row in self.block],
            "block_total": self.block_total,
            "whole": [vars(row) for row in self.whole],
            "total": self.total,
            "config": self.config,
        }


def describe(name: str, *, revision: str | None = None, offline: bool = False) -> Table:
    """Count a model's parameters from the headers of its files; nothing is loaded."""
    from glassformer.hub import gpt2
    from glassformer.hub.files import read_json
    from glassformer.hub.folder import CONFIG, tensor_entries

    folder = locate(name, revision=revision, offline=offline)
    config = read_json(folder / CONFIG)
    entries = tensor_entries(folder)
    gpt2.place_tensors(entries.values(), gpt2.blank(gpt2.read_config(config, folder / CONFIG), folder / CONFIG), folder)
    weights = {gpt2.PREFIXES.sub("", n): e for n, e in entries.items() if gpt2.our_name(n) is not None}
    kinds = sorted({str(entry.dtype).removeprefix("torch.") for entry in weights.values()})
    size = sum(path.stat().st_size for path in {entry.path for entry in entries.values()})
    table = Table(name, folder, config, ", ".join(kinds), size)
    for bare, entry in sorted(weights.items(), key=lambda item: _order(item[0])):
        count = math.prod(entry.shape)
        inside = re.match(r"h\.(\d+)\.(.*)", bare)
        if bare == "lm_head.weight" and config.get("tie_word_embeddings", True):
            continue  # the token matrix once more
        table.total += count
        if inside is None:
            table.whole.append(Row(bare, entry.shape, count))
        elif inside[1] == "0":
            table.block.append(Row(inside[2], entry.shape, count))
        if inside is not None:
            table.blocks = max(table.blocks, int(inside[1]) + 1)
    return table


def known() -> dict[str, int]:
    """Models that can be pulled by a short name, with the size of their weights."""
    return {name: model.size for name, model in KNOWN.items()}


def pull(name: str, *, revision: str | None = None, offline: bool = False) -> Path:
    """Fetch a model from the hub into its cache, checked; or find it there."""
    id, revision = split_name(name, revision)
    return download(id, revision, offline=offline)


def convert(source: Path, target: str | None, **how: Any) -> Path:
    """Turn a pickled checkpoint into a folder; a plain name for the target means: keep it at home under this name."""
    from glassformer.hub.convert import convert as convert_file
    from glassformer.hub.folder import parse_dtype

    name = target or (source.parent.name if source.stem in ("ckpt", "model", "pytorch_model") else source.stem)
    if "/" in name or name.startswith((".", "~")):
        folder = as_path(name)
    else:
        found = home_folder(split_name(name)[0])
        if found is None:
            raise InputError(f"{name!r} cannot be the name of a model")
        folder = found
    if folder.exists():
        raise InputError(f"{folder} is there already; choose another name")
    dtype = how.pop("dtype", None)
    convert_file(source, folder, dtype=None if dtype is None else parse_dtype(dtype), **how)
    return folder


def _order(bare: str) -> tuple[int, int, int]:
    """Embeddings, blocks, the rest; inside a block as the data flows."""
    from glassformer.hub.gpt2 import NAMES

    inside = re.match(r"h\.(\d+)\.", bare)
    template = re.sub(r"^h\.\d+\.", "h.{}.", bare)
    place = list(NAMES).index(template)
    return (1 if inside else (0 if place < 2 else 2), int(inside[1]) if inside else 0, place)
