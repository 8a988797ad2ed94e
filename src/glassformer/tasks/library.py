"""The models a person has: list them, look at one from outside, fetch, remove, convert."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.engine import store
from glassformer.errors import GlassError, InputError
from glassformer.hub import locate as places
from glassformer.hub.known import KNOWN
from glassformer.hub.locate import as_path, download, home_folder, kept, locate, shipped, split_name

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
    from glassformer.hub.folder import outline
    from glassformer.hub.lora import is_adapter, read_base

    folder = locate(name, revision=revision, offline=offline)
    if is_adapter(folder):
        raise InputError(
            f"{folder} is a LoRA folder; its base has the parameters: glass show {read_base(folder)}"
        )
    model, places, config = outline(folder)
    kinds = sorted({str(place.entry.dtype).removeprefix("torch.") for place in places})
    size = sum(path.stat().st_size for path in {place.entry.path for place in places})
    blocks = sum(stack.layers for stack in model.stacks)
    table = Table(name, folder, config, ", ".join(kinds), size, blocks=blocks)
    counted = dict(
        model.named_parameters()
    )  # not the token matrix once more, nor biases of zero that stand for none
    for place in places:
        if place.name not in counted:
            continue
        block, label = place.label
        row = Row(label, place.entry.shape, math.prod(place.entry.shape))
        table.total += row.parameters
        if block is None:
            table.whole.append(row)
        elif block == 0:
            table.block.append(row)
    return table


def remove(name: str) -> int:
    """Delete a model at home or in the hub's cache, and its quantized form; returns the bytes freed."""
    try:
        folder = locate(name, offline=True)
    except GlassError:
        folder = None
    freed = places.remove(name)
    if folder is not None:
        freed += store.size(folder)
        store.forget(folder)
    return freed


def known() -> dict[str, int]:
    """Models that can be pulled by a short name, with the size of their weights."""
    return {name: model.size for name, model in KNOWN.items()}


def pull(name: str, *, revision: str | None = None, offline: bool = False) -> Path:
    """Fetch a model from the hub into its cache, checked; or find it there."""
    id, revision = split_name(name, revision)
    if (here := shipped(id)) is not None:
        return here
    return download(id, revision, offline=offline)


def convert(source: Path, target: str | None, **how: Any) -> Path:
    """Turn a pickled checkpoint into a folder; a plain name as target keeps it at home under this name."""
    from glassformer.hub.convert import convert as convert_file
    from glassformer.hub.folder import parse_dtype

    source = source.absolute()
    name = target or (
        source.parent.name if source.stem in ("ckpt", "model", "pytorch_model") else source.stem
    )
    if "/" in name or name.startswith((".", "~")):
        folder = as_path(name)
    else:
        found = home_folder(split_name(name)[0])
        if found is None or shipped(name) is not None:
            raise InputError(f"{name!r} cannot be the name of a model")
        folder = found
    if folder.exists():
        raise InputError(f"{folder} is there already; choose another name")
    dtype = how.pop("dtype", None)
    convert_file(source, folder, dtype=None if dtype is None else parse_dtype(dtype), **how)
    return folder
