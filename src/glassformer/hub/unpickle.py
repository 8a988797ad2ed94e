"""The only place where a pickle is read: in a child process, without network, within limits, weights only.

    python -m glassformer.hub.unpickle SOURCE FOLDER

writes FOLDER/tensors.safetensors and FOLDER/facts.json; the parent trusts neither and checks both.
"""

import contextlib
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
ROOM = 1 << 30  # what reading may take beside the tensors
SECONDS = 120
WRAPPERS = ("model", "state_dict", "model_state_dict")


def leave_the_network() -> None:
    """Leave the network, where the system allows it. Must be called before any thread is started."""
    with contextlib.suppress(OSError, AttributeError):
        if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
            ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)  # where only root may do the former


def confine(size: int) -> None:
    """Bound memory, file size and time by the size of the checkpoint."""
    if resource is None:
        sys.exit("a pickle is read within limits on memory and time, which this system does not have")
    _bound(resource.RLIMIT_AS, _mapped() + ROOM + 3 * size)
    _bound(resource.RLIMIT_FSIZE, 64 * 2**20 + 2 * size)
    _bound(resource.RLIMIT_CPU, SECONDS + size // 2**24)


def _bound(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _mapped() -> int:
    """Bytes of address space that Python and torch have taken already."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 4 << 30


def unpickle(source: Path, folder: Path) -> None:
    """Read a checkpoint with torch's weights-only unpickler, write its tensors and its plain facts."""
    import torch
    from safetensors.torch import save_file

    content = torch.load(source, map_location="cpu", weights_only=True)
    if not isinstance(content, dict):
        raise TypeError(f"holds a {type(content).__name__}, not a dictionary of tensors")
    facts: dict[str, Any] = {
        key: content[key] for key in ("model_args", "config") if isinstance(content.get(key), dict)
    }
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            content = content[wrapper]
            break
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[int, str] = {}
    for name, value in content.items():
        if isinstance(name, str) and isinstance(value, torch.Tensor):
            shared = value.data_ptr() in seen and value.numel() > 0  # safetensors stores no tensor twice
            tensors[name] = value.clone() if shared else value.contiguous()
            seen[value.data_ptr()] = name
    if not tensors:
        raise ValueError("holds no tensors by name")
    save_file(tensors, folder / "tensors.safetensors")
    plain = {
        key: {k: v for k, v in fact.items() if isinstance(v, int | float | str | bool)}
        for key, fact in facts.items()
    }
    (folder / "facts.json").write_text(json.dumps(plain))


if __name__ == "__main__":
    given, target = Path(sys.argv[1]), Path(sys.argv[2])
    leave_the_network()
    import torch  # noqa: F401  (before the limits: it may take what it needs, the checkpoint may not)

    confine(given.stat().st_size)
    try:
        unpickle(given, target)
    except MemoryError:
        sys.exit("needs more memory than its size allows")
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0][:300]}")
