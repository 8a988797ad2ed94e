"""The compiled core, as Python sees it: which instruction sets there are, and one call a step."""

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassformer import machine
from glassformer.engine.quantize import ACTIVATIONS, LANES, MATRICES, NORMS, Array, padded
from glassformer.errors import GlassError, InputError, counted

WAYS = ("avx512", "avx2", "plain")  # the fastest first
HALF = np.float16
SIZES = ("layers", "heads", "width", "neurons", "vocab", "context")  # as the core counts them
Pointer = ctypes.c_void_p


class _Matrix(ctypes.Structure):
    _fields_ = [("weights", Pointer), ("scales", Pointer), ("sums", Pointer), ("bias", Pointer),
                ("panels", ctypes.c_int32), ("columns", ctypes.c_int32)]  # fmt: skip


class _Norm(ctypes.Structure):
    _fields_ = [("gain", Pointer), ("bias", Pointer)]


class _Block(ctypes.Structure):
    _fields_ = [
        ("norm1", _Norm),
        ("norm2", _Norm),
        ("qkv", _Matrix),
        ("proj", _Matrix),
        ("up", _Matrix),
        ("down", _Matrix),
    ]


class _Model(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int32) for name in SIZES), ("activation", ctypes.c_int32),
                ("norm_eps", ctypes.c_float), ("tokens", _Matrix), ("head", _Matrix),
                ("positions", Pointer), ("norm", _Norm),
                ("blocks", ctypes.POINTER(_Block))]  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32), ("scored_count", ctypes.c_int32),
                ("ids", Pointer), ("rows", Pointer),
                ("positions", Pointer), ("scored", Pointer), ("logits", Pointer)]  # fmt: skip


class _Cache(ctypes.Structure):
    _fields_ = [("keys", Pointer), ("values", Pointer), ("rows", ctypes.c_int32), ("groups", ctypes.c_int32)]


def folder() -> Path:
    """Where the compiled libraries lie."""
    return Path(__file__).parent / "built"


@cache
def library(way: str) -> ctypes.CDLL:
    """The core for one instruction set."""
    loaded = ctypes.CDLL(str(folder() / f"core-{way}.so"))
    loaded.glass_open.restype = Pointer
    loaded.glass_open.argtypes = [ctypes.c_int]
    loaded.glass_close.argtypes = [Pointer]
    loaded.glass_has.argtypes = [ctypes.c_char_p]
    loaded.glass_step.argtypes = [
        Pointer,
        ctypes.POINTER(_Model),
        ctypes.POINTER(_Batch),
        ctypes.POINTER(_Cache),
    ]
    loaded.glass_bare.argtypes = [Pointer, ctypes.POINTER(_Model)]
    loaded.glass_exponential_sums.argtypes = [Pointer, Pointer, ctypes.c_int, ctypes.c_int, Pointer, Pointer]
    return loaded


@cache
def ways() -> tuple[str, ...]:
    """The instruction sets that were built and that this machine has, the fastest first."""
    try:
        plain = library("plain")
    except OSError:
        return ()
    return tuple(
        way for way in WAYS if (folder() / f"core-{way}.so").is_file() and plain.glass_has(way.encode())
    )


def status() -> str:
    """Which engine there is here, and why, in a sentence."""
    if ways():
        return f"native ({ways()[0]})"
    if any(folder().glob("core-*.so")):
        return "torch: the native engine was built for another machine; install again to have it"
    return "torch: the native engine was not built, because `pip install` found no C++ compiler"


def _close(core: ctypes.CDLL, team: int, process: int) -> None:
    if process == os.getpid():
        core.glass_close(team)


class KVCache:
    """Keys and values of every row, by position; padding at the left is not kept."""

    def __init__(self, keys: Array, values: Array, padding: Array, length: int = 0) -> None:
        self.keys, self.values, self.padding, self.length = keys, values, padding, length

    def select(self, rows: Sequence[int]) -> Self:
        """A copy for some rows, in this order; a row may be taken more than once."""
        index = list(rows)
        keys, values = (
            np.take(kept, index, axis=1) for kept in (self.keys, self.values)
        )  # in C's order, as the core reads it
        return type(self)(keys, values, self.padding[index], self.length)

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""
        self.length = min(self.length, length)


class Engine:
    """A quantized model that takes steps: what `generation/` knows of a model.

    The logits of a text are the same bits alone or in any batch, at any place in it, with any number of
    threads, read at once or in pieces.
    """

    # What every model that it runs can do: known here, so that a handle need not load torch to answer.
    capabilities = frozenset({"writes", "causal", "attends", "layers", "neurons"})

    @staticmethod
    def unsupported(kind: str, config: Mapping[str, Any]) -> str:
        """Why the engine cannot run a model; empty if it can."""
        if kind != "gpt2":
            return f"the native engine runs GPT-2, and this is {kind}"
        if config["activation"] not in ACTIVATIONS:
            return f"the native engine does not know the activation {config['activation']!r}"
        if config.get("head_width", 0) not in (0, config["width"] // config["heads"]):
            return "the native engine runs models whose heads are as wide together as the model"
        return ""

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, Array], *, threads: int = 0, way: str = ""
    ) -> None:
        """`arrays` as `quantize.pack` makes them; `way` is an instruction set (the fastest there is)."""
        chosen = way or next(iter(ways()), "")
        if chosen not in ways():
            raise InputError(
                f"the native engine has no {way or 'compiled core'}; it has {', '.join(ways()) or 'none'}"
            )
        self.config, self.way, self.threads = dict(config), chosen, threads or machine.threads()
        self._arrays = dict(arrays)  # kept alive: the core has their addresses
        self._library, self._lock = library(chosen), threading.Lock()
        self._model = self._structure()
        self._team: Any = None
        self._process = 0

    @property
    def name(self) -> str:
        """The backend's name, without the instruction set: all of them give the same numbers."""
        return "native int8"

    @property
    def context(self) -> int:
        return int(self.config["context"])

    @property
    def vocab(self) -> int:
        return int(self.config["vocab"])

    def _address(self, name: str) -> int | None:
        array = self._arrays.get(name)
        return None if array is None else array.ctypes.data

    def _norm(self, name: str) -> _Norm:
        return _Norm(self._address(f"{name}.gain"), self._address(f"{name}.bias"))

    def _matrix(self, name: str) -> _Matrix:
        panels, columns, *_ = self._arrays[f"{name}.weights"].shape
        parts = (self._address(f"{name}.{part}") for part in ("weights", "scales", "sums", "bias"))
        return _Matrix(*parts, panels, 4 * columns)

    def _structure(self) -> _Model:
        config = self.config
        blocks = (_Block * config["layers"])()
        for layer in range(config["layers"]):
            norms = (self._norm(f"blocks.{layer}.{name}") for name in NORMS)
            blocks[layer] = _Block(*norms, *(self._matrix(f"blocks.{layer}.{name}") for name in MATRICES))
        numbers = [config[name] for name in SIZES]
        head = self._matrix("tokens" if config["tied"] else "head")
        return _Model(*numbers, ACTIVATIONS[config["activation"]], config["norm_eps"],
                      self._matrix("tokens"), head,
                      self._address("positions"), self._norm("norm"), blocks)  # fmt: skip

    def _shapes(self, rows: int, capacity: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        layers, heads = self.config["layers"], self.config["heads"]
        width, groups = self.config["width"] // heads, padded(capacity) // LANES
        return (layers, rows, heads, groups, width, LANES), (
            layers,
            rows,
            heads,
            groups * LANES,
            padded(width),
        )

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> KVCache:
        """An empty cache; `padding` says how many positions at the left of each row are void."""
        void = np.zeros(rows, dtype=np.int64) if padding is None else np.asarray(padding, dtype=np.int64)
        keys, values = (np.zeros(shape, dtype=HALF) for shape in self._shapes(rows, capacity))
        return KVCache(keys, values, void)

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of such a cache."""
        return sum(int(np.prod(shape)) for shape in self._shapes(rows, capacity)) * HALF().itemsize

    def step(self, ids: Array, cache: KVCache) -> Array:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the token that comes next."""
        there = cache.length + np.arange(ids.shape[1]) >= cache.padding[:, None]  # (B, T)
        if not there[:, -1].all():
            raise InputError("every row needs a token that is not padding")
        return self._forward(ids, cache, there, there.sum(1).cumsum() - 1)

    def log_sums(self, logits: Array) -> list[float]:
        """log Σ exp of every row of logits (B, V), in less than half of NumPy's time."""
        logits = np.ascontiguousarray(logits, dtype=np.float32)
        tops, sums = logits.max(axis=1), np.empty(len(logits), dtype=np.float32)
        with self._lock:
            self._library.glass_exponential_sums(
                self._threads(), logits.ctypes.data, *logits.shape, tops.ctypes.data, sums.ctypes.data
            )
        return [float(top) + math.log(total) for top, total in zip(tops, sums, strict=True)]

    def logits(self, ids: Array) -> Array:
        """Logits of the next token after every position: (B, T) -> (B, T, V), or (T,) -> (T, V)."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.ndim == 2:
            return np.stack([self.logits(row) for row in ids])
        there = np.ones((1, len(ids)), dtype=bool)
        return self._forward(ids[None], self.new_cache(1, len(ids)), there, np.arange(len(ids)))

    def _forward(self, ids: Array, cache: KVCache, there: Array, scored: Array) -> Array:
        rows, count = ids.shape
        positions = cache.length + np.arange(count) - cache.padding[:, None]  # (B, T)
        limit = min(self.context, cache.keys.shape[3] * LANES)
        if positions.max() >= limit:
            over = positions.max() + 1 - limit
            raise InputError(
                f"{positions.max() + 1} tokens are {over} more than the {limit} there is room for"
            )
        flat = np.ascontiguousarray(ids[there], dtype=np.int64)
        if flat.min() < 0 or flat.max() >= self.vocab:
            raise InputError(f"a token id is not between 0 and {self.vocab - 1}")
        where = np.ascontiguousarray(positions[there], dtype=np.int32)
        of = np.repeat(np.arange(rows, dtype=np.int32), there.sum(1))
        which = np.ascontiguousarray(scored, dtype=np.int32)
        logits = np.empty((len(which), self.vocab), dtype=np.float32)
        batch = _Batch(
            len(flat),
            len(which),
            flat.ctypes.data,
            of.ctypes.data,
            where.ctypes.data,
            which.ctypes.data,
            logits.ctypes.data,
        )
        kept = _Cache(cache.keys.ctypes.data, cache.values.ctypes.data, rows, cache.keys.shape[3])
        with self._lock:
            if self._library.glass_step(
                self._threads(), ctypes.byref(self._model), ctypes.byref(batch), ctypes.byref(kept)
            ):
                raise MemoryError
        cache.length += count
        return logits

    def bare(self, times: int = 1) -> None:
        """Every weight once by a vector, and nothing else: the least that a step can take."""
        for _ in range(times):
            self._library.glass_bare(self._threads(), ctypes.byref(self._model))

    def _threads(self) -> Any:
        """The team of threads; a new one in a forked process, which has none of its parent's."""
        if self._process != os.getpid():
            self._team, self._process = self._library.glass_open(self.threads), os.getpid()
            if not self._team:
                raise GlassError(f"the native engine could not start {counted(self.threads, 'thread')}")
            weakref.finalize(self, _close, self._library, self._team, self._process)
        return self._team
