"""The models a person has: list them, look at one from outside, fetch, remove, convert."""

import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.durable import replace_folder
from glassformer.engine import store
from glassformer.errors import GlassError, InputError, NetworkError
from glassformer.hub import locate as places
from glassformer.hub.known import KNOWN
from glassformer.hub.locate import (
    as_path,
    download,
    home_folder,
    is_whole,
    kept,
    locate,
    shipped,
    split_name,
)

if TYPE_CHECKING:
    from glassformer.hub.lora import AdapterSummary
    from glassformer.nn.stack import Stack

__all__ = [
    "ModelSummary", "PartSummary", "TensorSummary", "base_for_training", "convert", "describe",
    "describe_adapter", "forget_quantized", "kept", "known", "plan_removal", "pull", "split_name",
]  # fmt: skip


FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class TensorSummary:
    """A tensor of the file: its name there and ours, by which it is frozen or adapted, within a block."""

    name: str
    own: str
    shape: tuple[int, ...]
    parameters: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data: what is in the file."""
        return {"name": self.name, "shape": self.shape, "parameters": self.parameters}


@dataclass
class PartSummary:
    """The tensors of one block of a stack, which all its blocks have; or tensors outside of all blocks."""

    stack: str  # "blocks" in a model of one stack, else "encoder" or "decoder"; "" outside of all blocks
    blocks: int
    tensors: list[TensorSummary] = field(default_factory=list)

    @property
    def block_total(self) -> int:
        """The parameters of one block."""
        return sum(tensor.parameters for tensor in self.tensors)


@dataclass
class ModelSummary:
    """The article's table of parameters, from the file itself; or of a published size, without one."""

    name: str
    folder: Path | None
    config: dict[str, Any]
    dtype: str  # as the file has it; "" without one
    size: int  # of the file, in bytes
    parts: list[PartSummary] = field(default_factory=list)  # in the model's order
    total: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "name": self.name,
            "folder": None if self.folder is None else str(self.folder),
            "dtype": self.dtype,
            "size": self.size,
            "stacks": [_stack_to_dict(part) for part in self.parts if part.stack],
            "whole": [tensor.to_dict() for part in self.parts if not part.stack for tensor in part.tensors],
            "total": self.total,
            "config": self.config,
        }


def describe(name: str, *, revision: str | None = None, offline: bool = False) -> ModelSummary:
    """Count a model's parameters from the headers of its files; nothing is loaded.

    Where a published model cannot be fetched, they are counted from its sizes.
    """
    from glassformer.hub.folder import outline

    try:
        folder = locate(name, revision=revision, offline=offline)
    except NetworkError:
        summary = _published(name)
        if summary is None:
            raise
        return summary
    model, places, config = outline(folder)
    kinds = sorted({str(place.entry.dtype).removeprefix("torch.") for place in places})
    size = sum(path.stat().st_size for path in {place.entry.path for place in places})
    learned = dict(model.named_parameters())  # neither buffers nor zeros in the place of biases
    counted = [place for place in places if place.name in learned]
    parts = _parts([(one.name, one.label, one.entry.shape) for one in counted], model.stacks)
    total = sum(math.prod(place.entry.shape) for place in counted)
    return ModelSummary(name, folder, config, ", ".join(kinds), size, parts, total)


def describe_adapter(
    name: str, *, revision: str | None = None, offline: bool = False
) -> "AdapterSummary | None":
    """What a LoRA folder adapts, and how; None for a model of its own."""
    from glassformer.hub.lora import is_adapter, summarize

    try:
        folder = locate(name, revision=revision, offline=offline)
    except NetworkError:
        return None  # `describe` knows the published sizes, or raises it again
    return summarize(folder) if is_adapter(folder) else None


def _published(name: str) -> ModelSummary | None:
    """A published size by its name, counted from a model without numbers; None for another name."""
    from glassformer.hub.families import FAMILIES, family
    from glassformer.hub.mapping import blank

    for kind in FAMILIES:
        found = family(kind)
        if name not in found.presets:
            continue
        config = found.presets[name]
        model = blank(found, config, path=Path(name))
        tensors = []
        for key, value in model.named_parameters():
            tensors.append((key, _without_block(key, model.stacks), tuple(value.shape)))
        parts = _parts(tensors, model.stacks)
        return ModelSummary(name, None, found.write_config(config), "", 0, parts, config.parameters)
    return None


def _without_block(name: str, stacks: "tuple[Stack, ...]") -> str:
    """A parameter's name within its block: blocks.0.attn.qkv.weight -> attn.qkv.weight."""
    for stack in stacks:
        name = name.removeprefix(stack.site(0, ""))
    return name


def _parts(tensors: list[tuple[str, str, tuple[int, ...]]], stacks: "tuple[Stack, ...]") -> list[PartSummary]:
    """One part for every stack, and one for the tensors before, between and after them.

    A tensor is our name of it, what the table calls it, and its shape.
    """
    parts: list[PartSummary] = []
    for own, label, shape in tensors:
        stack = next((one for one in stacks if own.startswith(f"{one.prefix}blocks.")), None)
        name, blocks = ("", 1) if stack is None else (stack.name, stack.layers)
        if not parts or parts[-1].stack != name:
            parts.append(PartSummary(name, blocks))
        if stack is None or own.startswith(stack.site(0, "")):
            within = _without_block(own, stacks)
            parts[-1].tensors.append(TensorSummary(label, within, shape, math.prod(shape)))
    return parts


def _stack_to_dict(part: PartSummary) -> dict[str, Any]:
    block = [tensor.to_dict() for tensor in part.tensors]
    return {"name": part.stack, "blocks": part.blocks, "block": block, "block_total": part.block_total}


def plan_removal(name: str) -> places.Removal:
    """How to delete a model at home or in the hub's cache, with its quantized form; it is not done yet."""
    plan = places.plan_removal(name)
    try:
        folder = locate(name, offline=True)
    except GlassError:
        return plan

    def delete() -> None:
        plan.delete()
        store.forget(folder)

    quantized = store.whole_size(folder)
    return places.Removal(plan.size + quantized, delete, with_quantized=quantized > 0)


def base_for_training(name: str, *, revision: str | None = None) -> str:
    """The name by which another process finds a model on this machine: a shipped one's, else its folder."""
    folder = locate(name, revision=revision, offline=True)
    return name if shipped(name) == folder else str(folder.absolute())


def forget_quantized(folder: Path) -> None:
    """Remove the quantized form of a model whose folder is removed."""
    store.forget(folder)


def known() -> dict[str, int]:
    """Models that can be pulled by a short name, with the size of their weights."""
    return {name: model.size for name, model in KNOWN.items()}


def pull(
    name: str, *, revision: str | None = None, offline: bool = False, progress: places.Progress | None = None
) -> Path:
    """Fetch a model from the hub into its cache, checked; or find it there. `progress`: as of `download`."""
    id, revision = split_name(name, revision)
    if (here := shipped(id)) is not None:
        return here
    return download(id, revision, offline=offline, progress=progress)


def convert(source: Path, target: str | None, **how: Any) -> Path:
    """Turn a pickled checkpoint into a folder, or copy a run's model; a plain name as target is a name of
    `glass models`.
    """
    places.refuse_files_of_others(source)
    source = source.absolute()
    folder = _new_folder(source, target)
    model = locate(str(source)) if source.is_dir() else None
    if model is not None and is_whole(model):
        given = next((f"--{name}" for name, value in how.items() if value is not None), None)
        if given is not None:
            raise InputError(f"{given} is for a pickled checkpoint; {model} is copied as it is")
        with replace_folder(folder) as fresh:
            _copy(model, fresh)
        return folder

    from glassformer.hub.convert import convert as convert_file
    from glassformer.hub.folder import parse_dtype

    dtype = how.pop("dtype", None)
    convert_file(source, folder, dtype=None if dtype is None else parse_dtype(dtype), **how)
    return folder


def _copy(model: Path, folder: Path) -> None:
    try:
        shutil.copytree(model, folder, dirs_exist_ok=True)
    except shutil.Error as error:  # a list of files that could not be copied
        source, _, why = error.args[0][0]
        raise GlassError(f"{source} could not be copied ({why.split(':')[0]})") from None


def _new_folder(source: Path, target: str | None) -> Path:
    """Where a converted model goes: a folder that does not exist yet."""
    name = target or (
        source.parent.name if source.stem in ("ckpt", "model", "pytorch_model") else source.stem
    )
    if name.endswith(FILES):
        raise InputError(f"TARGET is a folder or a name, not a file such as {name[:200]!r}")
    if "/" in name or name.startswith((".", "~")):
        folder = as_path(name)
    else:
        id, _ = split_name(name)
        if shipped(id) is not None or id in KNOWN:
            raise InputError(f"{id} is a model of that name already; give another name as TARGET")
        found = home_folder(id)
        if found is None:
            raise InputError(f"{name!r} cannot be the name of a model")
        folder = found
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another name")
    return folder
