"""GPT-2 in other people's words: their config keys and tensor names <-> ours.

Dialects differ in prefixes (`transformer.`), in buffers they carry along (`attn.bias` is a mask), and in orientation:
Hugging Face stores the four projections of a block as OpenAI did, (in, out); nanoGPT and minGPT as torch does, (out, in).
"""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.tensors import MAX_TENSORS, Entry
from glassformer.models.gpt import GPT, Config

# Their name -> ours; {} is the block's number, None means: not a weight, drop it.
NAMES: dict[str, str | None] = {
    "wte.weight": "tokens.weight",
    "wpe.weight": "positions.weight",
    "h.{}.ln_1.weight": "blocks.{}.norm1.weight",
    "h.{}.ln_1.bias": "blocks.{}.norm1.bias",
    "h.{}.attn.c_attn.weight": "blocks.{}.attn.qkv.weight",
    "h.{}.attn.c_attn.bias": "blocks.{}.attn.qkv.bias",
    "h.{}.attn.c_proj.weight": "blocks.{}.attn.proj.weight",
    "h.{}.attn.c_proj.bias": "blocks.{}.attn.proj.bias",
    "h.{}.attn.bias": None,
    "h.{}.attn.masked_bias": None,
    "h.{}.ln_2.weight": "blocks.{}.norm2.weight",
    "h.{}.ln_2.bias": "blocks.{}.norm2.bias",
    "h.{}.mlp.c_fc.weight": "blocks.{}.mlp.up.weight",
    "h.{}.mlp.c_fc.bias": "blocks.{}.mlp.up.bias",
    "h.{}.mlp.c_proj.weight": "blocks.{}.mlp.down.weight",
    "h.{}.mlp.c_proj.bias": "blocks.{}.mlp.down.bias",
    "ln_f.weight": "norm.weight",
    "ln_f.bias": "norm.bias",
    "lm_head.weight": "head.weight",
}
THEIRS = {ours: theirs for theirs, ours in NAMES.items() if ours is not None}
PREFIXES = re.compile(r"^(_orig_mod\.|module\.)*(transformer\.)?")
TRANSPOSED = re.compile(r"blocks\.\d+\.(attn\.qkv|attn\.proj|mlp\.up|mlp\.down)\.weight")

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
}
INTEGERS = {
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_embd",
    "vocab": "vocab_size",
    "context": "n_positions",
}
# Switches of their implementation that change the numbers, with the value that GPT-2 has.
UNSUPPORTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
MAX_PARAMETERS = 1 << 50


class Place(NamedTuple):
    """One of our parameters, and where its numbers are."""

    name: str
    entry: Entry
    transpose: bool  # stored the other way round
    by_columns: bool = False  # how it shall lie in memory

    @property
    def label(self) -> tuple[int | None, str]:
        """The block it belongs to, if any, and what the file calls it there."""
        bare = PREFIXES.sub("", self.entry.name)
        inside = re.fullmatch(r"h\.(\d+)\.(.*)", bare)
        return (None, bare) if inside is None else (int(inside[1]), inside[2])

    def read(self) -> Tensor:
        """The numbers, (out, in); a matrix lies in memory along its longer side.

        Reading along the longer side is what a product with a single row, as in decoding, does fastest.
        """
        if self.transpose:
            return self.entry.read().t() if self.by_columns else self.entry.read_transposed()
        return self.entry.read_transposed().t() if self.by_columns else self.entry.read()


def read_config(theirs: dict[str, Any], path: Path) -> Config:
    """Our Config from a Hugging Face `config.json`."""
    kind = theirs.get("model_type", "gpt2")
    if kind != "gpt2":
        raise CheckpointError(
            f"{path}: model_type {str(kind)[:40]!r} is not a model that is known here; known: gpt2"
        )
    for key, value in UNSUPPORTED.items():
        if theirs.get(key, value) != value:
            raise CheckpointError(f"{path}: {key}={str(theirs[key])[:40]!r} is not supported")
    values: dict[str, Any] = {ours: _count(theirs, key, path) for ours, key in INTEGERS.items()}
    if theirs.get("n_inner") is not None:
        values["neurons"] = _count(theirs, "n_inner", path)
    activation = theirs.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise CheckpointError(
            f"{path}: activation_function {str(activation)[:40]!r} is none of {', '.join(ACTIVATIONS)}"
        )
    epsilon = theirs.get("layer_norm_epsilon", 1e-5)
    if type(epsilon) not in (int, float) or not (0 < epsilon < 1 and math.isfinite(epsilon)):
        raise CheckpointError(f"{path}: layer_norm_epsilon must be a number between 0 and 1")
    switches = {"tied": theirs.get("tie_word_embeddings", True), "bias": theirs.get("bias", True)}
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise CheckpointError(
                f"{path}: {'tie_word_embeddings' if key == 'tied' else key} must be true or false"
            )
    try:
        return Config(**values, activation=ACTIVATIONS[activation], norm_eps=float(epsilon), **switches)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from None


def write_config(config: Config) -> dict[str, Any]:
    """A Hugging Face `config.json` from our Config."""
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    theirs = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{key: getattr(config, ours) for ours, key in INTEGERS.items()},
        "n_inner": config.neurons,
        "activation_function": activation,
        "layer_norm_epsilon": config.norm_eps,
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        "tie_word_embeddings": config.tied,
    }
    return theirs if config.bias else theirs | {"bias": False}


def our_name(theirs: str) -> str | None:
    """Our name of one of their tensors; None for what is no weight; KeyError for what nobody knows."""
    bare = PREFIXES.sub("", theirs)
    number = re.match(r"h\.([0-9]{1,9})\.", bare)
    if number is None:
        return NAMES[bare]
    ours = NAMES[bare.replace(number[0], "h.{}.", 1)]
    return None if ours is None else ours.format(int(number[1]))


def their_name(ours: str) -> str:
    """The Hugging Face name of one of our tensors."""
    number = re.match(r"blocks\.(\d+)\.", ours)
    if number is None:
        theirs = THEIRS[ours]
        return theirs if theirs.startswith("lm_head") else f"transformer.{theirs}"
    return f"transformer.{THEIRS[ours.replace(number[0], 'blocks.{}.', 1)].format(number[1])}"


def place_tensors(entries: Iterable[Entry], model: GPT, path: Path) -> list[Place]:
    """Find every parameter of the model in the files; one error that lists everything that does not fit."""
    config = model.config
    found: dict[str, Entry] = {}
    faults = []
    for entry in entries:
        try:
            ours = our_name(entry.name)
        except KeyError:
            faults.append(f"{_shown(entry)} is not a tensor of GPT-2")
            continue
        if ours in found:
            faults.append(f"{_shown(entry)} stands twice")
        elif ours is not None:
            found[ours] = entry
    stored_in_out = _stored_in_out(found, config)
    places = []
    for name, parameter in model.state_dict().items():
        shape = tuple(parameter.shape)
        transpose = stored_in_out and TRANSPOSED.fullmatch(name) is not None
        stored = shape[::-1] if transpose else shape
        if name not in found:
            if not (name == "head.weight" and config.tied):
                faults.append(f"{their_name(name)} {list(stored)} is missing")
            continue
        entry = found.pop(name)
        if entry.shape != stored:
            faults.append(f"{_shown(entry)} is {list(entry.shape)}, should be {list(stored)}")
        elif not entry.dtype.is_floating_point:
            faults.append(f"{_shown(entry)} holds {entry.dtype}, should hold floating-point numbers")
        product = TRANSPOSED.fullmatch(name) is not None or name == (
            "tokens.weight" if config.tied else "head.weight"
        )
        places.append(Place(name, entry, transpose, by_columns=product and shape[0] >= shape[1]))
    if not config.bias:  # a bias may be stored as zeros, for readers that know no model without one
        could = {
            name: p.shape
            for name, p in blank(replace(config, bias=True), path).named_parameters()
            if name.endswith(".bias")
        }
        fitting = [name for name, entry in found.items() if entry.shape == could.get(name)]
        places += [Place(name, found.pop(name), False) for name in fitting]
    faults += [
        f"{_shown(entry)} {list(entry.shape)} has no place in this configuration" for entry in found.values()
    ]
    if faults:
        more = f" and {len(faults) - 40} more" if len(faults) > 40 else ""
        raise CheckpointError(
            f"{path}: the weights do not fit the configuration: {'; '.join(faults[:40])}{more}"
        )
    return places


def blank(config: Config, path: Path) -> GPT:
    """The model without numbers: every parameter has its name and shape, none has memory."""
    if config.layers * len(NAMES) > MAX_TENSORS or config.parameters > MAX_PARAMETERS:
        raise CheckpointError(
            f"{path}: {config.layers:,} layers and {config.parameters:,} parameters are more than can be loaded"
        )
    with torch.device("meta"):
        return GPT(config)


def export_tensors(model: GPT) -> dict[str, Tensor]:
    """The weights under Hugging Face names and in their orientation."""
    state = {name: value.detach() for name, value in model.state_dict().items()}
    if model.config.tied:
        state.pop("head.weight")
    if not model.config.bias:
        full = blank(replace(model.config, bias=True), Path()).named_parameters()
        state |= {
            name: state["tokens.weight"].new_zeros(p.shape) for name, p in full if name.endswith(".bias")
        }
    return {
        their_name(name): (value.t() if TRANSPOSED.fullmatch(name) else value).contiguous()
        for name, value in state.items()
    }


def _shown(entry: Entry) -> str:
    """A tensor's name for a message: not too long, and without anything that a terminal would obey."""
    return (
        entry.name[:100].encode("unicode_escape").decode()
        if not entry.name.isprintable()
        else entry.name[:100]
    )


def _stored_in_out(found: dict[str, Entry], config: Config) -> bool:
    """Whether the projections are stored (in, out): the one that cannot be square tells."""
    witness = found.get("blocks.0.attn.qkv.weight")
    return witness is None or witness.shape != (3 * config.width, config.width)


def _count(theirs: dict[str, Any], key: str, path: Path) -> int:
    value = theirs.get(key, theirs.get("n_ctx") if key == "n_positions" else None)
    if type(value) is not int or not 1 <= value < 1 << 40:
        shown = "missing" if value is None else f"{str(value)[:40]}, which is no sensible count"
        raise CheckpointError(f"{path}: {key} is {shown}")
    return value
