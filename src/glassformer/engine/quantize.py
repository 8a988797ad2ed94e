"""Weights in eight bits: every output channel has a scale of its own, symmetric around 0.

A model becomes a dictionary of arrays, as the core reads them: rows are padded with zeros to a multiple of
sixteen, and sixteen rows of a matrix lie together as a panel, (panels, columns / 4, 16, 4).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LANES, FOUR = 16, 4
MOST = 127
MATRICES = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")
NORMS = ("norm1", "norm2")
ACTIVATIONS = {"gelu_tanh": 0, "gelu_erf": 1, "relu": 2}  # as the core counts them


def padded(size: int) -> int:
    """The next multiple of sixteen."""
    return -(-size // LANES) * LANES


def pad(values: Array, *sizes: int) -> Array:
    """Zeros behind the end of every axis, up to a size."""
    whole = np.zeros(sizes, dtype=values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    return whole


def quantize(weights: Array) -> tuple[Array, Array]:
    """A matrix (outputs, inputs) in eight bits, and the scale of each of its rows; nothing is ever -128."""
    weights = np.asarray(weights, dtype=np.float32)
    largest = np.abs(weights).max(axis=1, initial=0)
    scales = largest / np.float32(MOST)

    # A row of zeros, or of numbers too small to divide by, becomes zeros.
    divisible = scales > np.finfo(np.float32).tiny
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=divisible)
    rounded = np.rint(weights * inverse[:, None])
    return np.clip(rounded, -MOST, MOST).astype(np.int8), scales


def panels(rows: Array) -> Array:
    """Rows of int8 in the order in which the core reads them."""
    outputs = padded(rows.shape[0])
    inputs = padded(rows.shape[1])
    whole = pad(rows, outputs, inputs)
    split = whole.reshape(outputs // LANES, LANES, inputs // FOUR, FOUR)
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3))


def matrix(name: str, weights: Array, *, bias: Array | None) -> dict[str, Array]:
    """All that the core needs of one matrix (outputs, inputs)."""
    rows, scales = quantize(weights)
    sums = rows.sum(axis=1, dtype=np.int32)
    room = padded(len(rows))
    made = {
        f"{name}.weights": panels(rows),
        f"{name}.scales": pad(scales, room),
        f"{name}.sums": pad(sums, room),
    }
    if bias is not None:
        made[f"{name}.bias"] = pad(np.asarray(bias, dtype=np.float32), room)
    return made


def shape_of(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The matrices of a model, and how many outputs and inputs each has."""
    width, neurons, vocab = config["width"], config["neurons"], config["vocab"]
    sizes = {
        "attn.qkv": (3 * width, width),
        "attn.proj": (width, width),
        "mlp.up": (neurons, width),
        "mlp.down": (width, neurons),
    }
    found = {}
    for layer in range(config["layers"]):
        for name in MATRICES:
            found[f"blocks.{layer}.{name}"] = sizes[name]
    found["tokens"] = (vocab, width)
    if not config["tied"]:
        found["head"] = (vocab, width)
    return found


def norms_of(config: Mapping[str, Any]) -> list[str]:
    """The norms of a model."""
    return [f"blocks.{layer}.{name}" for layer in range(config["layers"]) for name in NORMS] + ["norm"]


def pack(config: Mapping[str, Any], weights: Mapping[str, Array]) -> dict[str, Array]:
    """A model for the core: `weights` are its parameters under our names, matrices as (outputs, inputs)."""
    made: dict[str, Array] = {}
    for name in shape_of(config):
        made |= matrix(name, weights[f"{name}.weight"], bias=weights.get(f"{name}.bias"))
    room = padded(config["width"])
    for name in norms_of(config):
        gain = np.asarray(weights[f"{name}.weight"], dtype=np.float32)
        bias = np.asarray(weights.get(f"{name}.bias", np.zeros_like(gain)), dtype=np.float32)
        made |= {f"{name}.gain": pad(gain, room), f"{name}.bias": pad(bias, room)}
    positions = np.asarray(weights["positions.weight"], dtype=np.float32)
    return made | {"positions": pad(positions, len(positions), room)}


def expected(config: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What `pack` makes for a configuration: the type and the shape of each array."""
    made: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (outputs, inputs) in shape_of(config).items():
        room = padded(outputs)
        made |= {
            f"{name}.weights": ("int8", (room // LANES, padded(inputs) // FOUR, LANES, FOUR)),
            f"{name}.scales": ("float32", (room,)),
            f"{name}.sums": ("int32", (room,)),
        }
        if config["bias"] and name.startswith("blocks"):
            made[f"{name}.bias"] = ("float32", (room,))
    width = padded(config["width"])
    for name in norms_of(config):
        made[f"{name}.gain"] = made[f"{name}.bias"] = ("float32", (width,))
    made["positions"] = ("float32", (config["context"], width))
    return made
