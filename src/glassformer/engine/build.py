"""Build the core: one library for each instruction set that the compiler knows; none without a compiler.

    python src/glassformer/engine/build.py

`pip install` calls this; it needs nothing but a C++17 compiler ($CXX, c++, g++ or clang++).
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = [HERE / "core" / name for name in ("forward.cpp", "engine.cpp")]
FLAGS = [
    "-std=c++17", "-O3", "-fPIC", "-shared", "-pthread",
    "-ffp-contract=off", "-fno-math-errno",  # floats are rounded as they are written
    "-Wall", "-Wextra", "-Wconversion", "-Werror", "-Wno-psabi",
]  # fmt: skip
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"]
WAYS = {
    "plain": ["-DGLASS_PLAIN"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avxvnni": ["-mavx2", "-mfma", "-mf16c", "-mavxvnni"],
    "avx512": AVX512,
    "amx": [*AVX512, "-mamx-tile", "-mamx-int8", "-DGLASS_AMX"],
    "neon": [],  # part of every 64-bit ARM processor
    "dotprod": ["-march=armv8.2-a+dotprod"],
}
X86, ARM = ("plain", "avx2", "avxvnni", "avx512", "amx"), ("plain", "neon", "dotprod")
MACHINES = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}


def compiler() -> str | None:
    """A C++ compiler, if there is one."""
    named = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in named if (found := shutil.which(name))), None)


def build(folder: Path, *more: str, sources: Sequence[Path] = SOURCES, name: str = "core") -> list[str]:
    """Compile into a folder; returns the instruction sets that were built. `more` are compiler flags."""
    cxx = compiler()
    if cxx is None:
        return []
    folder.mkdir(exist_ok=True)
    built = []
    for way in MACHINES.get(platform.machine().lower(), ("plain",)):
        target = folder / f"{name}-{way}.so"
        command = [cxx, *FLAGS, *WAYS[way], *more, *map(str, sources), "-o", f"{target}.new"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"the engine for {way} was not built: {done.stderr[-2000:]}", file=sys.stderr)
            continue
        Path(f"{target}.new").replace(target)
        built.append(way)
    return built


if __name__ == "__main__":
    print(*(build(HERE / "built") or ["no C++ compiler was found"]))
