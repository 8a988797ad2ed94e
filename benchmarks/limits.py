"""How fast integer products can be on this machine: in registers alone, and as the matrices of a model.

    python benchmarks/limits.py [--threads 2] [--way avx512]

The figures say what share of the machine a whole prefill reaches: benchmarks/peers shows it for its models.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from glassformer.engine import build, native

SOURCE = Path(__file__).with_name("limits.cpp")
SHAPES = {"gpt2": (12, 768, 3072), "gpt2-medium": (24, 1024, 4096), "storyteller": (6, 256, 1024)}


class Limits(NamedTuple):
    """10^9 operations a second; a multiplication and an addition are two."""

    registers: float
    products: float


def measure(model: str, way: str, *, threads: int) -> Limits:
    """The limits for the matrices of a model, on an instruction set."""
    cxx = build.compiler()
    assert cxx is not None, "there is no C++ compiler"
    flags = [flag for flag in build.FLAGS if flag not in ("-shared", "-fPIC")]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "limits"
        command = [cxx, *flags, *build.WAYS[way], f"-I{build.HERE / 'core'}", str(SOURCE)]
        subprocess.run([*command, "-o", str(target)], check=True)
        sizes = map(str, (threads, *SHAPES[model]))
        printed = subprocess.run([target, *sizes], check=True, capture_output=True, text=True).stdout
    return Limits(*map(float, printed.split()))


def operations(model: str) -> float:
    """Operations of a token's products, without those of the output matrix, which one token needs alone."""
    layers, width, neurons = SHAPES[model]
    return 2.0 * layers * (4 * width * width + 2 * width * neurons)


def main() -> None:
    """Print both limits for every model."""
    parser = argparse.ArgumentParser(description="Measure the limits of integer products.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", choices=native.ways(), default=native.ways()[0], help="the instruction set")
    asked = parser.parse_args()
    print("| model | in registers, GOPS | its matrices by 128 rows | |\n|---|---|---|---|")
    for model in SHAPES:
        found = measure(model, asked.way, threads=asked.threads)
        share = found.products / found.registers
        print(f"| {model} | {found.registers:,.0f} | {found.products:,.0f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
