"""LoRA folders as the `peft` library writes them: `adapter_config.json` and `adapter_model.safetensors`.

peft names a layer by its path in the Hugging Face model, so the family of the base model says how names map.
GPT-2's layers are stored (in, out) there, which peft calls `fan_in_fan_out`; the low-rank matrices are
(R, in) and (out, R) all the same.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.files import read_json
from glassformer.hub.families import Family
from glassformer.hub.folder import pretty, write_folder
from glassformer.hub.tensors import read_header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KEY = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")
PREFIX = "base_model.model."
# What a model can do -> peft's word for it; the first that fits.
TASK_TYPES = {
    frozenset({"writes", "source"}): "SEQ_2_SEQ_LM",
    frozenset({"writes"}): "CAUSAL_LM",
    frozenset({"encodes"}): "FEATURE_EXTRACTION",
}
# Switches of peft that change the numbers, with the values that plain LoRA has.
PLAIN: dict[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "bias": ("none",),
    "modules_to_save": (None, []),
    "alpha_pattern": (None, {}),
}
PLAIN |= {"layer_replication": (None,), "lora_bias": (False, None), "trainable_token_indices": (None,)}
PLAIN |= {
    "use_qalora": (False, None),
    "use_rslora": (False, True, None),
    "use_bdlora": (None,),
    "alora_invocation_tokens": (None,),
}
PLAIN |= dict.fromkeys(("arrow_config", "kasa_config", "monteclora_config"), (None,))
# Other ways to begin (pissa, olora, corda, loftq …) change the base, which is then not the one that is named.
PLAIN |= {"init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva")}


class LoraWeights(NamedTuple):
    """The two low-rank matrices beside one layer."""

    a: Tensor  # (R, in)
    b: Tensor  # (out, R)
    scale: float


@dataclass(frozen=True)
class Adapter:
    """A LoRA folder: the name of the model that it adapts, and its weights by our names of the layers."""

    base: str
    weights: dict[str, LoraWeights]


@dataclass(frozen=True)
class AdapterSummary:
    """What a LoRA folder adapts, and how, from its configuration and the headers of its weights."""

    folder: Path
    base: str
    rank: int
    alpha: float
    layers: dict[str, int]  # the layers by their names in the file, `*` for the block; how many of each
    parameters: int


def summarize(folder: Path) -> AdapterSummary:
    """Describe a LoRA folder; nothing is loaded, and its base need not be on this machine."""
    config = _read_config(folder)
    layers: Counter[str] = Counter()
    ranks, parameters = {0}, 0
    for name, entry in read_header(folder / WEIGHTS).items():
        match = KEY.fullmatch(name)
        if match is None:
            raise CheckpointError(f"{entry.path}: {name[:100]!r} is not a LoRA matrix")
        parameters += math.prod(entry.shape)
        if match["side"] == "A":
            layers[re.sub(r"\.\d+\.", ".*.", match["layer"])] += 1
            ranks.add(entry.shape[0])
    return AdapterSummary(
        folder=folder,
        base=_base(config, folder / CONFIG),
        rank=max(ranks),
        alpha=_alpha(config, folder / CONFIG),
        layers=dict(layers),
        parameters=parameters,
    )


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a LoRA adapter and no model of its own."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_base(folder: Path) -> str:
    """The name of the model that a LoRA folder adapts."""
    return _base(_read_config(folder), folder / CONFIG)


def read_adapter(folder: Path, *, family: Family) -> Adapter:
    """Read and check a LoRA folder whose base is of a family."""
    config = _read_config(folder)
    base = _base(config, folder / CONFIG)
    _alpha(config, folder / CONFIG)

    sides: dict[str, dict[str, Tensor]] = {}
    for name, entry in read_header(folder / WEIGHTS).items():
        match = KEY.fullmatch(name)
        layer = None if match is None else _our_layer(match["layer"], family)
        if match is None or layer is None or not entry.dtype.is_floating_point or len(entry.shape) != 2:
            raise CheckpointError(
                f"{entry.path}: {name[:100]!r} is not a LoRA matrix of a layer of {family.title}"
            )
        value = entry.read().float()
        if not torch.isfinite(value).all():
            raise CheckpointError(f"{entry.path}: {name[:100]} holds NaN or infinite numbers")
        if match["side"] in sides.setdefault(layer, {}):
            raise CheckpointError(f"{entry.path}: {name[:100]} is a duplicate")
        sides[layer][match["side"]] = value
    if not sides:
        raise CheckpointError(f"{folder / WEIGHTS}: holds no LoRA matrix")
    weights = {layer: _lora_weights(layer, both, config, folder) for layer, both in sides.items()}
    return Adapter(base, weights)


def save_adapter(
    folder: Path,
    weights: Mapping[str, LoraWeights],
    *,
    base: str,
    family: Family,
    dropout: float = 0.0,
    card: str | None = None,
) -> None:
    """Write a LoRA folder that `peft` loads too, for a base of a family."""
    ranks = {len(one.a) for one in weights.values()}
    scales = {one.scale for one in weights.values()}
    if len(ranks) != 1 or len(scales) != 1:
        raise CheckpointError("a LoRA folder is written with one rank and one scale for all layers")
    rank = ranks.pop()
    layers = {name: family.names.theirs(f"{name}.weight").removesuffix(".weight") for name in weights}
    config = {
        "peft_type": "LORA",
        "task_type": _task_type(family.build.capabilities),
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": scales.pop() * rank,
        "lora_dropout": dropout,
        "target_modules": sorted(layer.removeprefix(family.names.prefix) for layer in layers.values()),
        "fan_in_fan_out": all(family.names.is_transposed(f"{name}.weight") for name in weights),
        "bias": "none",
        "inference_mode": True,
    }
    tensors = {}
    for name, (a, b, _) in weights.items():
        tensors[f"{PREFIX}{layers[name]}.lora_A.weight"] = a.detach().cpu().contiguous()
        tensors[f"{PREFIX}{layers[name]}.lora_B.weight"] = b.detach().cpu().contiguous()
    files = {CONFIG: pretty(config)} | ({} if card is None else {"card.md": card})
    write_folder(folder, tensors, files=files, weights=WEIGHTS)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    config = read_json(path)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(f"{path}: peft_type {str(kind)[:40]!r} is not LORA, the only one known here")
    for key, values in PLAIN.items():
        if key in config and config[key] not in values:
            raise CheckpointError(f"{path}: {key}={str(config[key])[:40]!r} is not supported")
    return config


def _task_type(capabilities: frozenset[str]) -> str | None:
    """peft's word for what a model does; None is plain LoRA without the methods of a task."""
    return next((word for needed, word in TASK_TYPES.items() if needed <= capabilities), None)


def _alpha(config: dict[str, Any], path: Path) -> float:
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not -1e30 < alpha < 1e30:
        raise CheckpointError(f"{path}: lora_alpha is not a number")
    return alpha


def _base(config: dict[str, Any], path: Path) -> str:
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(f"{path}: base_model_name_or_path does not name the model that is adapted")
    return base


def _lora_weights(layer: str, both: dict[str, Tensor], config: dict[str, Any], folder: Path) -> LoraWeights:
    if both.keys() != {"A", "B"} or both["A"].shape[0] != both["B"].shape[1] or not len(both["A"]):
        raise CheckpointError(f"{folder / WEIGHTS}: {layer} does not have an A and a B of the same rank")
    rank = both["A"].shape[0]
    root = math.sqrt(rank) if config.get("use_rslora") else rank
    return LoraWeights(both["A"], both["B"], config["lora_alpha"] / root)


def _our_layer(theirs: str, family: Family) -> str | None:
    """Our name of a linear layer of theirs inside a block; None for anything else."""
    try:
        ours = family.names.ours(f"{theirs}.weight")
    except KeyError:
        return None
    is_layer = ours is not None and family.names.is_adaptable(ours)
    return ours.removesuffix(".weight") if ours is not None and is_layer else None
