"""A folder's model in torch: a whole model, or a LoRA folder with the one that it names."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.folder import Loaded, load_folder, parse_dtype
from glassformer.hub.locate import as_path, locate
from glassformer.hub.lora import is_adapter, read_adapter, read_base
from glassformer.training.lora import fold, insert


def load_torch(folder: Path, *, device: str = "cpu", dtype: str = "float32", offline: bool = False) -> Loaded:
    """The model of a folder, whichever kind it is."""
    how: dict[str, Any] = {"dtype": parse_dtype(dtype), "device": str(find_device(device))}
    return load_adapted(folder, offline=offline, **how) if is_adapter(folder) else load_folder(folder, **how)


def load_adapted(folder: Path, *, offline: bool = False, **how: Any) -> Loaded:
    """A LoRA folder: the model that it names, with what it learned folded in."""
    loaded = load_folder(base_folder(folder, read_base(folder), offline=offline), **how)
    adapter = read_adapter(folder, family=loaded.family)
    try:
        insert(loaded.model, adapter.detours)
    except InputError as error:
        raise CheckpointError(f"{folder}: {error} {adapter.base[:100]!r}") from None
    fold(loaded.model)
    for name in adapter.detours:
        if not torch.stack(loaded.model.get_parameter(f"{name}.weight").aminmax()).isfinite().all():
            raise CheckpointError(
                f"{folder}: what it adds to {name} is too large for {loaded.model.tokens.weight.dtype}"
            )
    return replace(loaded, folder=folder)


def base_folder(folder: Path, name: str, *, offline: bool = False) -> Path:
    """The folder of the model that a LoRA folder names: as a path from there, or as any other name."""
    beside = as_path(str(folder.absolute() / name))
    base = locate(str(beside) if beside.is_dir() else name, offline=offline)
    if is_adapter(base):
        raise InputError(f"{folder}: its base {name} is a LoRA folder itself; merge that one first")
    return base


def find_device(name: str) -> torch.device:
    """A device by its name, if it is there."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device {name!r} is not there; cpu always is") from None
    return device
