"""The core for 64-bit ARM, built by a cross compiler and run in an emulator: bit for bit what this machine
computes. `-cpu` gives the emulator no more instructions than a build may use.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.test_build import FORWARD, SAME
from engine.test_kernels import KERNELS, PARTS, by_numpy
from glassformer.engine import build, native
from glassformer.engine.four_bits import GROUP
from glassformer.engine.quantize import ACTIVATIONS, LANES, MOST_INPUTS_INT4, matrix, pad, padded

Array = np.ndarray[Any, Any]
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CALLS, ENGINE = KERNELS.with_name("calls.cpp"), FORWARD.with_name("engine.cpp")
PROCESSORS = {
    "plain": "cortex-a72",
    "neon": "cortex-a72",
    "dotprod": "max",
}  # the first two have no dot products
KINDS = ("products", "quantized", "norm", "activations", "exponentials", "halves", "attention")
pytestmark = pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)),
    reason=f"needs {CROSS} and {EMULATOR}: apt-get install g++-aarch64-linux-gnu qemu-user",
)
each_way = pytest.mark.parametrize("way", build.ARM)


@dataclass(frozen=True)
class Call:
    """One call of a kernel: its name for messages, integers, arrays, and what is known of its result."""

    name: str
    integers: tuple[int, ...]
    arrays: tuple[Array, ...]
    size: int  # bytes of the result
    want: Array | None = None

    def as_bytes(self) -> bytes:
        head = np.zeros(5, dtype=np.int32)
        head[: 1 + len(self.integers)] = KINDS.index(self.name.split()[0]), *self.integers
        return b"".join(np.ascontiguousarray(array).tobytes() for array in (head, *self.arrays))


def product(name: str, made: dict[str, Array], rows: Array, want: Array | None = None) -> Call:
    """Rows through a packed matrix."""
    panels, (count, columns) = made["m.weights"].shape[0], rows.shape
    has = ("m.multipliers" in made) + 2 * ("m.bias" in made)
    arrays = [made[f"m.{part}"] for part in PARTS if f"m.{part}" in made]
    size = 4 * count * panels * LANES
    return Call(f"products {name}", (panels, columns, count, has), (*arrays, rows), size, want)


def products(rng: np.random.Generator) -> Iterator[Call]:
    """Odd shapes, every number of rows that a tile may have, with a bias and without."""
    for bits in (8, 4):
        for outputs, columns in ((1, 1), (15, 17), (16, 33), (33, 48), (100, 64), (70, 768), (129, 100)):
            weights = rng.standard_normal((outputs, columns)).astype(np.float32)
            bias = rng.standard_normal(outputs).astype(np.float32) if columns % 2 else None
            made = matrix("m", weights, bias=bias, bits=bits)
            room = made["m.weights"].shape[0] * LANES
            for count in (*range(1, 14), 25):
                x = rng.standard_normal((count, columns)).astype(np.float32)
                want = pad(by_numpy(weights, bias, x, bits=bits), count, room)
                rows = pad(x, count, padded(columns))
                yield product(f"{bits} bits, {outputs} x {columns}, {count} rows", made, rows, want)


def extremes(rng: np.random.Generator) -> Iterator[Call]:
    """The largest numbers there are, of either sign: everything that could overflow."""
    ones = np.ones(2 * LANES, dtype=np.float32)
    for columns in (16, 96, 512, MOST_INPUTS_INT4 // LANES * LANES):
        groups = -(-columns // GROUP)
        for sign in (1, -1, 0):
            x = rng.choice([-1, 1], (6, columns)) if sign == 0 else np.full((6, columns), sign)
            for weight in (127, -127):
                made = {"m.weights": np.full((2, columns // 4, LANES, 4), weight, dtype=np.int8)}
                yield product(f"of {weight}", made | {"m.scales": ones}, x.astype(np.float32))
            for byte in (0, 0xFF, 0x0F, 0xF0):
                made = {"m.weights": np.full((2, columns // 8, LANES, 4), byte, dtype=np.uint8)}
                made["m.multipliers"] = np.full((2, groups, LANES), 127, dtype=np.int8)
                yield product(f"of bytes {byte}", made | {"m.scales": ones}, x.astype(np.float32))


def random_bits(rng: np.random.Generator) -> Iterator[Call]:
    """Every half of a byte and every multiplier, everywhere."""
    for columns in (16, 48, 80, 160):
        groups = -(-columns // GROUP)
        made = {
            "m.weights": rng.integers(0, 256, (3, columns // 8, LANES, 4)).astype(np.uint8),
            "m.multipliers": rng.integers(0, 128, (3, groups, LANES)).astype(np.int8),
            "m.scales": rng.uniform(0.1, 1, 3 * LANES).astype(np.float32),
        }
        for count in (1, 2, 3, 4, 5, 9):
            yield product("of random bits", made, rng.standard_normal((count, columns)).astype(np.float32))


def floats(rng: np.random.Generator) -> Iterator[Call]:
    """Half precision with subnormal numbers, ties and infinities; everything that is not a product."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = every[np.isfinite(every)].astype(
        np.float32
    )  # each of them, the middle to the next, and beside it
    middle = (halves[:-1] + halves[1:]) / np.float32(2)
    around = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
    odd = np.array([0.0, -0.0, 1e-45, -1e-45, 65519, 65520, -1e9, 3e38, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([halves, middle, *around, odd])
    x = pad(x, padded(len(x)))
    yield Call("halves", (len(x),), (x,), 6 * len(x))
    x = pad(np.concatenate([np.linspace(-100, 100, 20000), odd[:-1]]).astype(np.float32), 20016)
    yield Call("exponentials", (len(x),), (x,), 4 * len(x))
    for kind in ACTIVATIONS.values():
        small = x[:-16] / np.float32(8)
        yield Call(f"activations {kind}", (len(small), kind), (small,), 4 * len(small))
    for size in (1, 2, 15, 16, 17, 100, 768):
        rows = [pad(rng.standard_normal(size).astype(np.float32), padded(size)) for _ in range(3)]
        yield Call(f"norm {size}", (size,), tuple(rows), 4 * padded(size))
    for spread in (1e-30, 1e-3, 1.0, 1e30, 0.0):
        x = (spread * rng.standard_normal(96)).astype(np.float32)
        yield Call(f"quantized {spread}", (96,), (x,), 4 + 96)
    x[:4] = np.array([127.0, 0.5, 1.5, -2.5])
    yield Call("quantized ties", (96,), (x,), 4 + 96)


def attention(rng: np.random.Generator) -> Iterator[Call]:
    for width in (1, 3, 16, 17, 64, 100):
        for length, count in ((1, 1), (2, 2), (15, 3), (16, 16), (17, 9), (40, 13), (130, 5)):
            keys, values = (rng.standard_normal((length, width)).astype(np.float32) for _ in range(2))
            queries = 3 * rng.standard_normal((count, width)).astype(np.float32)
            for together in (0, 1):
                integers, arrays = (width, length, count, together), (queries, keys, values)
                yield Call(f"attention {integers}", integers, arrays, 4 * count * padded(width))


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    rng = np.random.default_rng(0)
    return [call for some in (products, extremes, random_bits, floats, attention) for call in some(rng)]


def results(calls: list[Call], *command: str | Path) -> list[bytes]:
    """What a program makes of the calls."""
    stream = b"".join(call.as_bytes() for call in calls)
    done = subprocess.run(command, input=stream, capture_output=True, check=True, timeout=600).stdout
    ends = np.cumsum([call.size for call in calls])
    assert len(done) == ends[-1]
    return [done[end - call.size : end] for call, end in zip(calls, ends.tolist(), strict=True)]


def compiled(cxx: str, way: str, target: Path, *sources: Path) -> Path:
    flags = [flag for flag in build.FLAGS if flag != "-shared"]
    command = [cxx, *flags, *build.WAYS[way], "-static", f"-I{build.HERE / 'core'}", *map(str, sources)]
    subprocess.run([*command, "-o", str(target)], check=True, timeout=600)
    return target


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernels for every ARM processor, and for this one, in plain C++."""
    folder, sources = tmp_path_factory.mktemp("programs"), (CALLS, FORWARD, ENGINE)
    made = {way: compiled(CROSS, way, folder / way, *sources) for way in build.ARM}
    return made | {"here": compiled(build.compiler() or "c++", "plain", folder / "here", *sources)}


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a small model's logits, on the fastest instruction set of this machine."""
    way = native.ways()[0]
    program = compiled(build.compiler() or "c++", way, tmp_path_factory.mktemp("same") / way, SAME, FORWARD)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.partition("\n")[2]


@pytest.mark.slow
@each_way
def test_a_model_on_arm_has_the_same_hashes(way: str, hashes: str, tmp_path: Path) -> None:
    program = compiled(CROSS, way, tmp_path / way, SAME, FORWARD)
    command = [EMULATOR, "-cpu", PROCESSORS[way], program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, f"{way}\n{hashes}")


@pytest.mark.slow
@each_way
def test_every_kernel_on_arm_gives_the_same_bits(
    way: str, programs: dict[str, Path], calls: list[Call]
) -> None:
    """Those of plain C++ on this machine; where NumPy can compute them, NumPy's too."""
    here = results(calls, programs["here"])
    found = results(calls, EMULATOR, "-cpu", PROCESSORS[way], programs[way])
    differ = [call.name for call, one, other in zip(calls, found, here, strict=True) if one != other]
    assert not differ, f"{len(differ)} of {len(calls)} calls differ: {differ[:20]}"
    for call, one in zip(calls, found, strict=True):
        if call.want is not None:
            np.testing.assert_array_equal(np.frombuffer(one, np.float32), call.want.ravel(), call.name)


@pytest.mark.slow
def test_the_processor_says_what_it_has(programs: dict[str, Path]) -> None:
    """Dot products only where they are; a build that uses them does not run elsewhere."""
    for processor, has in (("cortex-a72", "plain neon"), ("max", "plain neon dotprod")):
        command = [EMULATOR, "-cpu", processor, programs["plain"], "plain", "neon", "dotprod", "avx2"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"plain: {has}\n"
    call = next(products(np.random.default_rng(0))).as_bytes()
    command = [EMULATOR, "-cpu", "cortex-a72", programs["dotprod"]]
    failed = subprocess.run(command, input=call, capture_output=True, timeout=60)
    assert failed.returncode == -signal.SIGILL
