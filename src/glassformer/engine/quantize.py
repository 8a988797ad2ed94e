"""Weights in eight bits or in four: every output channel has a scale of its own, symmetric around 0.

A model becomes a dictionary of arrays, as the core reads them: rows are padded with zeros to a multiple of
sixteen, and sixteen rows of a matrix lie together as a panel, (panels, columns / 4, 16, 4). Of four bits, two
weights share a byte, and the columns of a row have a multiplier for each group: see four_bits.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from glassformer.engine.four_bits import GROUP, quantize4
from glassformer.errors import InputError

Array = np.ndarray[Any, Any]
LANES, FOUR, EIGHT = 16, 4, 8
MOST = 127
BITS = {"int8": 8, "int4": 4}  # how weights may be quantized
MATRICES = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")
NORMS = ("norm1", "norm2")
ACTIVATIONS = {"gelu_tanh": 0, "gelu_erf": 1, "relu": 2}  # as the core numbers them

INT32 = 2**31 - 1
# The core adds up to 127 × 128 for each input of a matrix in 32 bits: with more inputs a sum could overflow.
MOST_INPUTS = INT32 // (127 * 128)
MOST_INPUTS_INT4 = INT32 // (128 * 8 * 127)  # a multiplier, a weight, an activation
# The sizes of a model in the order of the core's struct, and the largest of each that its indices allow.
SIZES = {
    "layers": 10_000,
    "heads": MOST_INPUTS,
    "width": MOST_INPUTS,
    "neurons": MOST_INPUTS,
    "vocab": 2**30,
    "context": 2**30,
}


def check_count(name: str, value: Any, *, least: int = 1, most: int = INT32) -> int:
    """An integer between two limits, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be an integer, not {type(value).__name__}")
    if not least <= value <= most:
        raise InputError(f"{name} must be between {least} and {most}, not {value}")
    return int(value)


def check_config(config: Mapping[str, Any], *, bits: int = 8) -> None:
    """Refuse a configuration that the core cannot run, with an error that names the field."""
    if not isinstance(config, Mapping):
        raise InputError(f"the configuration must be a mapping, not {type(config).__name__}")
    for name, most in SIZES.items():
        check_count(name, config.get(name), most=most)
    heads, width = config["heads"], config["width"]
    if bits not in BITS.values():
        raise InputError(f"bits must be 8 or 4, not {bits!r:.50}")
    for name in ("width", "neurons") if bits == 4 else ():
        check_count(f"{name}, for four bits,", config[name], most=MOST_INPUTS_INT4)
    if width % heads:
        raise InputError(f"width {width} cannot be split into {heads} heads of equal width")
    if config.get("head_width", 0) not in (0, width // heads):
        raise InputError(f"head_width must be width / heads = {width // heads}")
    activation, epsilon = config.get("activation"), config.get("norm_eps")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r:.50}")
    # The core has it in float32, where 1e-60 is 0. NaN is not between 0 and 1 either.
    if type(epsilon) is not float or not 0 < epsilon < 1 or not np.float32(epsilon):
        raise InputError(f"norm_eps must be a number between 0 and 1, not {epsilon!r:.50}")
    for name in ("tied", "bias"):
        if not isinstance(config.get(name), bool):
            raise InputError(f"{name} must be true or false, not {config.get(name)!r:.50}")


def padded(size: int) -> int:
    """The next multiple of sixteen."""
    return -(-size // LANES) * LANES


def pad(values: Array, *sizes: int) -> Array:
    """Zeros behind the end of every axis, up to a size."""
    whole = np.zeros(sizes, dtype=values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    return whole


def quantize(weights: Array, *, name: str = "the matrix") -> tuple[Array, Array]:
    """A matrix (outputs, inputs) in eight bits, and the scale of each of its rows; nothing is ever -128."""
    weights = np.asarray(weights, dtype=np.float32)
    largest = np.abs(weights).max(axis=1, initial=0)
    scales = largest / np.float32(MOST)
    if not np.isfinite(scales).all():  # the largest of a row is NaN or infinite if any of it is
        raise InputError(f"{name} has numbers that are NaN or infinite")

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


def panels4(rows: Array) -> Array:
    """Rows of -8 to 7 in that order, each plus 8; of eight columns, the last four are the high bits."""
    whole = panels(rows).view(np.uint8) + np.uint8(8)  # wraps around: -8 is 248 there, and becomes 0
    return (whole[:, 0::2] | whole[:, 1::2] << 4).view(np.int8)


def matrix(
    name: str, weights: Array, *, bias: Array | None, bits: int = 8, importance: Array | None = None
) -> dict[str, Array]:
    """All that the core needs of one matrix (outputs, inputs). Eight bits need no `importance`."""
    room = padded(len(weights))
    made = {}
    if bits == 4:
        rows, multipliers, scales = quantize4(weights, importance=importance, name=f"{name}.weight")
        split = pad(multipliers, room, multipliers.shape[1]).reshape(room // LANES, LANES, -1)
        made[f"{name}.weights"] = panels4(rows)
        made[f"{name}.multipliers"] = np.ascontiguousarray(split.transpose(0, 2, 1)).astype(np.int8)
    else:
        rows, scales = quantize(weights, name=f"{name}.weight")
        made[f"{name}.weights"] = panels(rows)
    made[f"{name}.scales"] = pad(scales, room)
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


def _parameter(weights: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    """One parameter in float32, of this shape."""
    if name not in weights:
        raise InputError(f"{name} is missing")
    values = weights[name]
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != shape:
        raise InputError(f"{name} must be an array of floats of shape {shape}")
    return values.astype(np.float32, copy=False)


def _vector(weights: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    """The same for a small one, whose numbers are looked at one by one."""
    values = _parameter(weights, name, shape)
    if not np.isfinite(values).all():
        raise InputError(f"{name} has numbers that are NaN or infinite")
    return values


def pack(
    config: Mapping[str, Any],
    weights: Mapping[str, Array],
    *,
    bits: int = 8,
    importance: Callable[[str], Array | None] = lambda name: None,
) -> dict[str, Array]:
    """A model for the core: `weights` are its parameters under our names, matrices as (outputs, inputs).

    Four bits are chosen by the `importance` of the inputs of a matrix, asked for by its name, in the order of
    the layers: see `quantize4`.
    """
    check_config(config, bits=bits)
    made: dict[str, Array] = {}
    for name, shape in shape_of(config).items():
        biased = config["bias"] and name.startswith("blocks")
        bias = _vector(weights, f"{name}.bias", shape[:1]) if biased else None
        values = _parameter(weights, f"{name}.weight", shape)
        made |= matrix(name, values, bias=bias, bits=bits, importance=importance(name))
    width = config["width"]
    room = padded(width)
    for name in norms_of(config):
        gain = _vector(weights, f"{name}.weight", (width,))
        bias = _vector(weights, f"{name}.bias", (width,)) if config["bias"] else np.zeros_like(gain)
        made |= {f"{name}.gain": pad(gain, room), f"{name}.bias": pad(bias, room)}
    positions = _vector(weights, "positions.weight", (config["context"], width))
    return made | {"positions": pad(positions, len(positions), room)}


def bits_of(arrays: Mapping[str, Array]) -> int:
    """In how many bits the weights of a packed model are."""
    return 4 if "tokens.multipliers" in arrays else 8


def expected(config: Mapping[str, Any], *, bits: int = 8) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What `pack` makes for a configuration: the type and the shape of each array."""
    check_config(config, bits=bits)
    made: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (outputs, inputs) in shape_of(config).items():
        room = padded(outputs)
        columns = padded(inputs)
        weights = ("int8", (room // LANES, columns * bits // 8 // FOUR, LANES, FOUR))
        made |= {f"{name}.weights": weights, f"{name}.scales": ("float32", (room,))}
        if bits == 4:
            made[f"{name}.multipliers"] = ("int8", (room // LANES, -(-inputs // GROUP), LANES))
        if config["bias"] and name.startswith("blocks"):
            made[f"{name}.bias"] = ("float32", (room,))
    width = padded(config["width"])
    for name in norms_of(config):
        made[f"{name}.gain"] = made[f"{name}.bias"] = ("float32", (width,))
    made["positions"] = ("float32", (config["context"], width))
    return made


def check_arrays(config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that are not exactly those of a configuration, as the core reads them.

    One too many is refused as well: an optional bias would be read wherever there is one.
    """
    if not isinstance(arrays, Mapping):
        raise InputError(f"the arrays must be a mapping, not {type(arrays).__name__}")
    wanted = expected(config, bits=bits_of(arrays))
    for name in arrays.keys() - wanted.keys():
        raise InputError(f"the array {name!r:.100} is not part of this model")
    for name, (kind, shape) in wanted.items():
        array = arrays.get(name)
        if array is None:
            raise InputError(f"the array {name} is missing")
        if not isinstance(array, np.ndarray) or (array.dtype, array.shape) != (kind, shape):
            raise InputError(f"the array {name} must be {kind} of shape {shape}")
        if not (array.flags.c_contiguous and array.flags.aligned):
            raise InputError(f"the array {name} must be contiguous and aligned")
