"""What this machine is: cores, memory, instruction sets, bf16, where things are kept. No torch here.

Imported by all, so it imports little: what one function needs it fetches itself.
"""

import contextlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.errors import InputError, InsufficientMemory

AMX_GUARD = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_BF16"
LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub")
SETS_OF_INTEREST = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile",
    "amx_bf16", "amx_int8", "asimd", "asimddp", "bf16", "i8mm", "sve",
)  # fmt: skip
BF16_PROBE = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); assert (a @ a)[0, 0] == 64; print('sound')"
)
PROBE_SECONDS = 120
SHARE_OF_MEMORY = 0.8
UNKNOWN = sys.maxsize  # bytes of memory, where the system does not tell: nothing is refused for lack of it
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, LARGE = (
    -3,
    -1,
    1 << 30,
)  # glibc's names: pieces up to this size are kept


def home() -> Path:
    """Where models and notes are kept: `GLASSFORMER_HOME`, or a folder in the user's home."""
    given = os.environ.get("GLASSFORMER_HOME") or "~/.glassformer"
    try:
        return Path(given).expanduser()
    except RuntimeError:  # ~ of a user who does not exist, or who has no home, as in some containers
        raise InputError(f"no home folder is known for {given}; set GLASSFORMER_HOME to a folder") from None


# What is kept at home: the folder, what is in it, and whether it may be deleted.
HOME_FOLDERS = {
    "models": ("models that `glass convert` keeps; `glass rm NAME` removes one", False),
    "engine": ("quantized copies of models, made again when they are needed", True),
    "files": ("files that were uploaded to `glass serve`", False),
    "jobs": ("fine-tunings of `glass serve`, and the models that they made", False),
    "data": ("tokenized text of trainings, made again from its files", True),
}


def kept_at_home() -> list[dict[str, Any]]:
    """What lies in the home folder: its size in bytes, what it is, and whether it may be deleted."""
    found = []
    for name, (what, deletable) in HOME_FOLDERS.items():
        folder = home() / name
        found.append(
            {"folder": str(folder), "size": _size(folder), "what": what, "may_be_deleted": deletable}
        )
    return found


def _size(folder: Path) -> int:
    """The bytes of all files in a folder; 0 without one."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it has just gone
            total += 0 if path.is_symlink() or path.is_dir() else path.stat().st_size
    return total


@cache
def cpu() -> dict[str, Any]:
    """The processor's name and the instruction sets it announces."""
    import platform

    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass  # not Linux: the name is all there is
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    name = fields.get("model name") or platform.processor() or platform.machine()
    return {"name": name, "sets": [name for name in SETS_OF_INTEREST if name in flags]}


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads to compute with: OMP_NUM_THREADS, as torch has it, or one for each core."""
    wished = os.environ.get("OMP_NUM_THREADS", "")
    sensible = wished.isascii() and wished.isdecimal() and len(wished) < 5 and int(wished) > 0
    return int(wished) if sensible else cores()


def available_memory() -> int:
    """Bytes that could be allocated now, as the system reports it; UNKNOWN where it does not."""
    limits = []
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
        ceiling = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if ceiling != "max":
            stat = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines())
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            limits.append(int(ceiling) - used + int(stat["inactive_file"]) + int(stat["active_file"]))
    except (OSError, KeyError, ValueError):
        pass
    if limits:
        return min(limits)
    if not hasattr(os, "sysconf"):  # Windows
        return UNKNOWN
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """The bytes of memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def check_memory(size: int, *, what: str) -> None:
    """Refuse what would not fit, before any of it is allocated."""
    free = available_memory()
    if size > SHARE_OF_MEMORY * free:
        raise InsufficientMemory(
            f"{what} needs {size / 1e9:,.1f} GB of memory;"
            f" {free / 1e9:,.1f} GB are free, of which {SHARE_OF_MEMORY:.0%} may be taken"
        )


def keep_memory() -> None:
    """Keep freed memory for the next step, in large pages, instead of returning it to the system.

    A training step takes and frees gigabytes, and every page that comes from the system must be cleared
    first: without that, steps of GPT-2 small were 1.4 times as fast. Linux alone. torch decides about pages
    when it starts, so call this before it is imported.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    with contextlib.suppress(OSError, AttributeError):  # another system, another allocator: as it was
        import ctypes

        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE)


@cache
def installed(library: str) -> str:
    """A library's version, found without importing it."""
    from importlib.metadata import PackageNotFoundError, version  # slow to come, and seldom needed

    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def guard_bf16() -> None:
    """Keep oneDNN away from AMX, unless it was seen to work here.

    Some virtual machines announce AMX but have no tiles: a bf16 matrix product then kills the process. The
    switch must be set before torch starts, so it is set on import of the package where the processor
    announces AMX.
    """
    if "amx_tile" in cpu()["sets"] and _remembered().get("bf16") != "safe":
        os.environ.setdefault(AMX_GUARD, WITHOUT_AMX)


def bf16(*, probe_again: bool = False) -> str:
    """Whether bf16 products work here: "safe", "safe without AMX" or "crashes"; tried in a child process."""
    verdict = _remembered().get("bf16")
    if verdict is None or probe_again:
        environment = {key: value for key, value in os.environ.items() if key != AMX_GUARD}
        if _survives(environment):
            verdict = "safe"
        elif _survives(environment | {AMX_GUARD: WITHOUT_AMX}):
            verdict = "safe without AMX"
        else:
            verdict = "crashes"
        _remember({"bf16": verdict})
    return str(verdict)


def describe() -> dict[str, Any]:
    """All that `glass env` reports."""
    import platform

    processor = cpu()
    return {
        "glassformer": installed("glassformer"),
        "python": platform.python_version(),
        **{library: installed(library) for library in LIBRARIES},
        "system": platform.platform(),
        "processor": processor["name"],
        "cores": cores(),
        "instruction sets": processor["sets"],
        "memory available": available_memory(),
        "bf16": bf16(),
        "models kept in": str(home() / "models"),
        "hub cache": _hub_cache(),
    }


def _hub_cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _survives(environment: dict[str, str]) -> bool:
    import subprocess

    command = [sys.executable, "-c", BF16_PROBE]
    try:
        child = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == 0 and child.stdout.strip() == "sound"


def _key() -> str:
    return f"{cpu()['name']} · torch {installed('torch')}"


def _remembered() -> dict[str, Any]:
    facts = _notes().get(_key())
    return facts if isinstance(facts, dict) else {}


def _notes() -> dict[str, Any]:
    """What is remembered of every machine that shares this home."""
    from glassformer.files import read_json

    try:
        return read_json(home() / "machine.json")
    except InputError:  # none yet, or not ours
        return {}


def _remember(facts: dict[str, Any]) -> None:
    from glassformer.durable import replace_file

    try:
        path = home() / "machine.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(_notes() | {_key(): _remembered() | facts}, ensure_ascii=False))
    except (OSError, InputError):
        pass  # a home that cannot be written to costs a new probe, nothing else
