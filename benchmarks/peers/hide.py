"""Hide AVX-512 from a peer, so that a machine that has it can also measure AVX2.

Libraries ask the processor what it has by the instruction `cpuid`, which cannot be made to answer otherwise
on every machine. So in the copy of a library that a benchmark's own environment holds, each `cpuid` becomes
`ud2`, an instruction as long that always faults, and hide.c, preloaded, answers the fault without AVX-512.
"""

import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("hide.c")
CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
SECTION = re.compile(r"^\s*\d+\s+(\.\S+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)", re.MULTILINE)
TUNABLES = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD"


def hide(folder: Path) -> None:
    """Replace `cpuid` in every library below a folder; once is enough."""
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            str(SOURCE),
            "-o",
            str(folder / "hide.so"),
        ],
        check=True,
    )
    for library in sorted(folder.glob("lib/**/*.so*")):
        if CPUID in library.read_bytes():
            replace(library)


def replace(library: Path) -> None:
    """Replace the instructions of one library, where a disassembler finds them: the two bytes may be data
    elsewhere.
    """
    numbers = bytearray(library.read_bytes())
    headers = subprocess.run(
        ["objdump", "-h", str(library)], capture_output=True, text=True, check=True
    ).stdout
    sections = [
        (int(size, 16), int(address, 16), int(place, 16))
        for _, size, address, place in SECTION.findall(headers)
    ]
    for address in found(library):
        place = next(at + address - begin for size, begin, at in sections if begin <= address < begin + size)
        assert numbers[place : place + 2] == CPUID, f"no cpuid at {address:x} of {library}"
        numbers[place : place + 2] = UD2
    library.write_bytes(numbers)


def found(library: Path) -> list[int]:
    """The addresses of a library's `cpuid` instructions."""
    objdump = subprocess.Popen(
        ["objdump", "-d", "--no-show-raw-insn", str(library)], stdout=subprocess.PIPE, text=True
    )
    assert objdump.stdout is not None
    return [int(line.split(":")[0], 16) for line in objdump.stdout if line.rstrip().endswith("cpuid")]


def settings(folder: Path) -> dict[str, str]:
    """What the environment variables of a peer must say."""
    return {"LD_PRELOAD": str((folder / "hide.so").resolve()), "GLIBC_TUNABLES": TUNABLES}
