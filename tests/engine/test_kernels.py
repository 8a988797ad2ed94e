"""Every kernel against NumPy, on every instruction set that this machine has; whole numbers exactly, floats
to their digits.
"""

import ctypes
import functools
import hashlib
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.engine import build, native
from glassformer.engine.four_bits import GROUP, quantize4
from glassformer.engine.quantize import (
    ACTIVATIONS,
    LANES,
    MOST_INPUTS_INT4,
    matrix,
    pad,
    padded,
    panels,
    quantize,
)

Array = np.ndarray[Any, Any]
WAYS = native.ways()
pytestmark = pytest.mark.skipif(not WAYS, reason="the native engine was not built: there was no C++ compiler")
each_way = pytest.mark.parametrize("way", WAYS)
KERNELS = Path(__file__).with_name("kernels.cpp")
PARTS = ("weights", "multipliers", "scales", "bias")
each_size = pytest.mark.parametrize("bits", [8, 4])
erf = np.vectorize(math.erf)


def pointer(array: Array) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


@functools.cache
def kernels(way: str) -> ctypes.CDLL:
    """The kernels of `kernels.cpp`, compiled once for this state of the sources and kept in the ignored cache
    folder.
    """
    core = build.HERE / "core"
    flags = os.environ.get("KERNEL_FLAGS", "").split()
    texts = [path.read_text() for path in sorted([*core.iterdir(), KERNELS])]
    state = hashlib.sha256(repr([texts, flags, build.FLAGS]).encode()).hexdigest()[:16]
    folder = Path(__file__).parents[2] / ".pytest_cache" / f"kernels-{state}"
    if not (folder / f"kernels-{way}.so").is_file():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            assert way in build.build(Path(fresh), f"-I{core}", *flags, sources=[KERNELS], name="kernels")
            folder.mkdir(exist_ok=True)
            for path in Path(fresh).glob("*.so"):
                path.replace(folder / path.name)
    return ctypes.CDLL(str(folder / f"kernels-{way}.so"))


def core(way: str, name: str) -> Callable[..., Any]:
    function = getattr(kernels(way), name)
    function.restype = ctypes.c_float if name == "glass_quantize" else None
    return function  # type: ignore[no-any-return]


def structure(made: dict[str, Array], inputs: int) -> native._Matrix:
    """A packed matrix as the core reads it."""
    parts = (made[f"m.{part}"].ctypes.data if f"m.{part}" in made else None for part in PARTS)
    return native._Matrix(*parts, made["m.weights"].shape[0], padded(inputs))


def multiplied(way: str, weights: Array, bias: Array | None, x: Array, *, bits: int = 8) -> Array:
    """Rows through a matrix, by the core."""
    made = matrix("m", weights, bias=bias, bits=bits)
    room = made["m.weights"].shape[0] * LANES
    shape = structure(made, weights.shape[1])
    rows, out = pad(x, len(x), padded(x.shape[1])), np.full((len(x), room), np.nan, dtype=np.float32)
    core(way, "glass_multiply")(ctypes.byref(shape), pointer(rows), len(x), pointer(out))
    assert not out[:, len(weights) :].any()  # padding gives zeros
    return out[:, : len(weights)]


def integers(weights: Array, bits: int) -> tuple[Array, Array]:
    """The integers that stand for the weights of a matrix, and the scales of its rows."""
    if bits == 8:
        return quantize(weights)
    rows, multipliers, scales = quantize4(weights)
    return rows.astype(np.int64) * np.repeat(multipliers, GROUP, axis=1)[:, : weights.shape[1]], scales


def by_numpy(weights: Array, bias: Array | None, x: Array, *, bits: int = 8) -> Array:
    """The same, with NumPy's own arithmetic: to the last bit."""
    whole, scales = integers(weights, bits)
    most = np.abs(x).max(axis=1)
    by = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    rows = np.rint(x * by[:, None]).astype(np.int64)
    sums = (rows @ whole.T.astype(np.int64)).astype(np.float32)
    out = sums * ((most / np.float32(127))[:, None] * scales)
    return np.asarray(out if bias is None else out + bias)


@each_way
@each_size
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 48, 64, 768])
@pytest.mark.parametrize("outputs", [1, 15, 16, 33, 100])
def test_products_are_numpys_to_the_bit(way: str, bits: int, outputs: int, columns: int) -> None:
    """Any number of rows, outputs and columns; with a bias and without."""
    rng = np.random.default_rng(outputs * columns)
    weights, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((outputs, columns), (outputs,))
    )
    for count in (1, 2, 3, 5, 6, 7, 11, 12, 13, 25, 64):
        x = rng.standard_normal((count, columns)).astype(np.float32)
        for one in (bias, None):
            found = multiplied(way, weights, one, x, bits=bits)
            np.testing.assert_array_equal(found, by_numpy(weights, one, x, bits=bits))


@each_way
@each_size
@pytest.mark.parametrize(("outputs", "columns"), [(16, 64), (33, 1152), (40, 2048)])
def test_products_of_many_rows_are_numpys_to_the_bit(way: str, bits: int, outputs: int, columns: int) -> None:
    """More rows than a prompt has at once, and more columns than tiles of four bits have."""
    rng = np.random.default_rng(columns)
    weights = rng.standard_normal((outputs, columns)).astype(np.float32)
    for count in (4, 8, 16, 17, 23, 24, 32, 33, 128, 150):
        x = rng.standard_normal((count, columns)).astype(np.float32)
        found = multiplied(way, weights, None, x, bits=bits)
        np.testing.assert_array_equal(found, by_numpy(weights, None, x, bits=bits))


@each_way
@each_size
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_products_do_not_saturate(way: str, bits: int, sign: int) -> None:
    """The largest weights by ±127 everywhere: pairs, and groups, of products that nearly fill 16 bits."""
    weights, x = np.ones((16, 512), dtype=np.float32), np.full((3, 512), sign, dtype=np.float32)
    for _ in range(2):
        found = multiplied(way, weights, None, x, bits=bits)
        np.testing.assert_array_equal(found, by_numpy(weights, None, x, bits=bits))
        np.testing.assert_allclose(found, sign * 512.0, rtol=1e-6)
        weights[:, ::2] = -1
        x[:, ::2] = -sign


@each_way
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_sums_of_four_bits_fit(way: str, sign: int) -> None:
    """Weights of -8 and multipliers of 127 in as many columns as 32 bits allow."""
    columns = MOST_INPUTS_INT4 // LANES * LANES
    groups = -(-columns // GROUP)
    made = {
        "m.weights": np.zeros((1, columns // 8, LANES, 4), dtype=np.int8),
        "m.multipliers": np.full((1, groups, LANES), 127, dtype=np.int8),
        "m.scales": np.ones(LANES, dtype=np.float32),
    }
    for count in (1, 3, 33):
        x = np.full((count, columns), 127 * sign, dtype=np.float32)
        out = np.empty((count, LANES), dtype=np.float32)
        shape = structure(made, columns)
        core(way, "glass_multiply")(ctypes.byref(shape), pointer(x), count, pointer(out))
        np.testing.assert_array_equal(out, np.float32(columns * -8 * 127 * 127 * sign))


@each_way
@each_size
def test_a_single_weight_is_found(way: str, bits: int) -> None:
    """As the embedding reads its rows."""
    weights = np.random.default_rng(5).standard_normal((21, 74)).astype(np.float32)
    shape = structure(made := matrix("m", weights, bias=None, bits=bits), 74)
    found = np.empty((made["m.scales"].size, 80), dtype=np.int32)
    core(way, "glass_weights")(ctypes.byref(shape), pointer(found))
    np.testing.assert_array_equal(found[:21, :74], integers(weights, bits)[0])
    assert not found[21:].any()
    assert not found[:, 74:].any()


@each_way
def test_pairs_of_neighbors_with_large_sums(way: str) -> None:
    """Rows in which many, few or no neighbors are more than half of what there is, alone and among others."""
    rng = np.random.default_rng(7)
    weights = rng.choice([-1, 1, 0.99, -0.3], (40, 96)).astype(np.float32)
    x = np.concatenate(
        [rng.choice([-1, 1], (9, 96)), rng.uniform(-1, 1, (9, 96)), 0.1 * rng.standard_normal((9, 96))]
    ).astype(np.float32)
    x[-9:, 0] = 1
    x[-9:-5, 1] = [0.02, 0.01, -1, 1]  # 127 and 3, 1, -127, 127
    order = rng.permutation(len(x))
    np.testing.assert_array_equal(multiplied(way, weights, None, x[order]), by_numpy(weights, None, x[order]))
    for n in range(len(x)):
        np.testing.assert_array_equal(
            multiplied(way, weights, None, x[n : n + 1]), by_numpy(weights, None, x[n : n + 1])
        )


@each_way
def test_rows_of_nothing_and_of_much(way: str) -> None:
    """A row of zeros gives the bias; very large and very small rows keep their scale."""
    rng = np.random.default_rng(1)
    weights, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 40), (20,)))
    x = rng.standard_normal((3, 40)).astype(np.float32)
    x[0], x[1], x[2] = 0.0, x[1] * np.float32(1e30), x[2] * np.float32(1e-30)
    out = multiplied(way, weights, bias, x)
    np.testing.assert_array_equal(out, by_numpy(weights, bias, x))
    np.testing.assert_array_equal(out[0], bias)
    x[0] = np.float32(1e-38)  # too small to divide by: as good as zeros
    np.testing.assert_array_equal(multiplied(way, weights, bias, x)[0], bias)


def test_weights_lie_in_panels() -> None:
    """Sixteen rows together, four columns at a time, zeros around; nothing is ever -128."""
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((21, 10)).astype(np.float32)
    whole, scales = quantize(weights)
    assert whole.min() >= -127
    assert (np.abs(whole).max(axis=1) == 127).all()
    assert np.abs(whole * scales[:, None] - weights).max() <= scales.max() / 2 * 1.0001
    laid = panels(whole)
    assert laid.shape == (2, 4, 16, 4)
    for row in range(21):
        for column in range(10):
            assert laid[row // 16, column // 4, row % 16, column % 4] == whole[row, column]
    assert int(np.abs(laid).sum(dtype=np.int64)) == int(np.abs(whole).sum(dtype=np.int64))


@each_way
def test_rows_become_whole_numbers(way: str) -> None:
    """The largest becomes ±127, ties go to the even number."""
    rng = np.random.default_rng(3)
    x = np.ascontiguousarray(rng.standard_normal(48).astype(np.float32))
    x[:4] = np.array([127.0, 0.5, 1.5, -2.5])
    out = np.empty(48, dtype=np.int8)
    scale = core(way, "glass_quantize")(pointer(x), 48, pointer(out))
    np.testing.assert_array_equal(out, np.rint(x))
    assert scale == 1.0


@each_way
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 100, 768])
def test_norm(way: str, size: int) -> None:
    """Mean 0 and variance 1, then gain and bias; nothing behind the end."""
    rng = np.random.default_rng(size)
    x, gain, bias = (pad(rng.standard_normal(size).astype(np.float32), padded(size)) for _ in range(3))
    x[:size] += 3
    out = np.full(padded(size), np.nan, dtype=np.float32)
    norm = native._Norm(gain.ctypes.data, bias.ctypes.data)
    core(way, "glass_normalize")(pointer(x), size, ctypes.byref(norm), ctypes.c_float(1e-5), pointer(out))
    exact = x[:size].astype(np.float64)
    want = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5) * gain[:size] + bias[:size]
    np.testing.assert_allclose(out[:size], want, rtol=2e-5, atol=2e-5)
    assert not out[size:].any()


@each_way
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(way: str, kind: str) -> None:
    """As float64 has them, to a few units of the last place of their size."""
    x = np.concatenate(
        [
            np.linspace(-12, 12, 4000),
            np.linspace(-0.2, 0.2, 4000),
            [0.0, -0.0, 1e-30, -1e-30, 50, -50, 1e4, -1e4],
        ]
    )
    x = pad(x.astype(np.float32), padded(len(x)))
    out = np.empty_like(x)
    core(way, "glass_activate")(pointer(x), len(x), ACTIVATIONS[kind], pointer(out))
    exact = x.astype(np.float64)
    if kind == "relu":
        want = np.maximum(exact, 0)
    elif kind == "gelu_erf":
        want = 0.5 * exact * (1 + erf(exact / math.sqrt(2)))
    else:
        want = 0.5 * exact * (1 + np.tanh(math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)))
    np.testing.assert_allclose(out, want, rtol=1e-6, atol=6e-7)


@each_way
def test_exponential(way: str) -> None:
    """Two units in the last place; 0 where it is as good as that, never more than it can be."""
    x = np.concatenate([np.linspace(-86.9, 88, 20000), [0.0, -0.0, -87.5, -1e30, -np.inf, 200.0]]).astype(
        np.float32
    )
    x = pad(x, padded(len(x)))
    out = np.empty_like(x)
    core(way, "glass_exponential")(pointer(x), len(x), pointer(out))
    usual = (x >= -87) & (x <= 88)
    np.testing.assert_allclose(out[usual], np.exp(x[usual].astype(np.float64)), rtol=3e-7)
    assert (out[x < -87] == 0).all()
    assert np.isfinite(out).all()


@each_way
def test_half_precision_is_numpys(way: str) -> None:
    """Rounded to the nearest, ties to even, small numbers too; what is too large becomes the largest there
    is.
    """
    rng = np.random.default_rng(4)
    x = (rng.standard_normal(4096) * 2.0 ** rng.integers(-30, 15, 4096)).astype(np.float32)
    x[:8] = [0.0, -0.0, 65504, -65504, 2**-24, 2**-25, 1 + 2**-11, 1 + 3 * 2**-11]
    halves, back = np.empty(4096, dtype=np.uint16), np.empty_like(x)
    core(way, "glass_halve")(pointer(x), len(x), pointer(halves), pointer(back))
    np.testing.assert_array_equal(halves, x.astype(np.float16).view(np.uint16))
    np.testing.assert_array_equal(back, x.astype(np.float16).astype(np.float32))
    large = np.array([1e9, -1e9, 65520.0, 65519.0] * 4, dtype=np.float32)
    halves, back = np.empty(16, dtype=np.uint16), np.empty_like(large)
    core(way, "glass_halve")(pointer(large), len(large), pointer(halves), pointer(back))
    np.testing.assert_array_equal(np.abs(back), 65504)


@each_way
@pytest.mark.parametrize("width", [1, 3, 16, 17, 64, 100])
def test_attention(way: str, width: int) -> None:
    """Softmax of the scores over the square root of the width, on keys and values of half precision, masked
    ahead.
    """
    rng = np.random.default_rng(width)
    for length, count in ((1, 1), (2, 2), (15, 3), (16, 16), (17, 9), (40, 13), (130, 5)):
        keys, values = (rng.standard_normal((length, width)).astype(np.float32) for _ in range(2))
        queries = 3 * rng.standard_normal((count, width)).astype(np.float32)
        found = []
        for together in (0, 1):
            out = np.full((count, padded(width)), np.nan, dtype=np.float32)
            core(way, "glass_attend")(
                width, length, count, together, *map(pointer, (queries, keys, values, out))
            )
            found.append(out)
        np.testing.assert_array_equal(found[0], found[1])  # beside others or alone: the same bits
        k, v = (one.astype(np.float16).astype(np.float64) for one in (keys, values))
        scores = queries.astype(np.float64) @ k.T / math.sqrt(width)
        scores[np.arange(length)[None] > (length - count + np.arange(count))[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        want = weights / weights.sum(axis=1, keepdims=True) @ v
        np.testing.assert_allclose(found[0][:, :width], want, rtol=1e-5, atol=1e-5)


def test_every_way_gives_the_same_bits() -> None:
    """Not promised between machines, but so it is: whatever the instruction set, the numbers are the same."""
    rng = np.random.default_rng(6)
    weights, x = (
        rng.standard_normal((50, 70)).astype(np.float32),
        rng.standard_normal((9, 70)).astype(np.float32),
    )
    found = [multiplied(way, weights, None, x) for way in WAYS]
    assert all(np.array_equal(found[0], other) for other in found)
