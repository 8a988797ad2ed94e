"""The products of AMX with its tiles emulated in plain C++ (tiles.hpp), on any machine that has AVX-512: few have AMX."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from engine import test_kernels
from engine.test_build import FORWARD, SAME
from engine.test_kernels import KERNELS, each_size
from glassformer.engine import build, native

EMULATED = [*build.AVX512, "-include", str(Path(__file__).with_name("tiles.hpp"))]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx512" not in native.ways(), reason="needs a processor with AVX-512 and VNNI"),
]


def compiled(target: Path, *sources: Path, flags: list[str], shared: bool = False) -> Path:
    kept = [flag for flag in build.FLAGS if shared or flag != "-shared"]
    command = [build.compiler() or "c++", *kept, *flags, f"-I{build.HERE / 'core'}", *map(str, sources)]
    subprocess.run([*command, "-o", str(target)], check=True, timeout=600)
    return target


@pytest.fixture
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of kernels find this library as that of AMX."""
    library = ctypes.CDLL(str(compiled(tmp_path / "kernels.so", KERNELS, flags=EMULATED, shared=True)))
    monkeypatch.setattr(test_kernels, "kernels", lambda way: library)


@each_size
def test_products_of_many_rows_are_numpys_to_the_bit(emulated: None, bits: int) -> None:
    for outputs, columns in ((16, 64), (33, 1152), (40, 2048), (33, 48), (100, 768)):
        test_kernels.test_products_of_many_rows_are_numpys_to_the_bit("amx", bits, outputs, columns)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_sums_fit(emulated: None, sign: int) -> None:
    test_kernels.test_the_largest_sums_of_four_bits_fit("amx", sign)


def test_a_model_has_the_hashes_of_avx512(tmp_path: Path) -> None:
    said = {}
    for way, flags in (("amx", EMULATED), ("avx512", build.AVX512)):
        program = compiled(tmp_path / way, SAME, FORWARD, flags=flags)
        done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=600)
        said[way] = done.stdout.partition("\n")
    assert said["amx"][0] == "amx"
    assert said["amx"][2] == said["avx512"][2]
