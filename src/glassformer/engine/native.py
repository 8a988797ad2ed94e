"""The compiled core, as Python sees it: which instruction sets there are, and one call a step.

The core checks nothing. Everything that reaches it was checked here: a model when its engine is made, a cache
when it is made, the ids of a step in the step.
"""

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from glassformer import machine
from glassformer.engine.quantize import (
    ACTIVATIONS,
    FOUR,
    INT32,
    LANES,
    MATRICES,
    NORMS,
    SIZES,
    Array,
    bits_of,
    check_arrays,
    check_config,
    check_count,
    padded,
)
from glassformer.errors import GlassError, InputError, InsufficientMemory, counted

# The fastest first. AMX is behind AVX-512, which such processors have too: its speed was never measured.
WAYS = ("avx512", "amx", "avxvnni", "avx2", "dotprod", "neon", "plain")
CHOICE = "GLASSFORMER_INSTRUCTIONS"  # an environment variable that names one of them
HALF = np.dtype(np.float16)
# Threads without a core of their own wait for each other at every barrier: 256 on two cores took 0.6 s for
# their first step, 1,024 took 5 s, and the time grows with the square.
MOST_THREADS = 256
Pointer = ctypes.c_void_p
Piece = tuple[int, int, Sequence[int], int]  # row, start, ids, scored: `Piece` of generation/stepper.py


class _Matrix(ctypes.Structure):
    _fields_ = [("weights", Pointer), ("multipliers", Pointer), ("scales", Pointer), ("bias", Pointer),
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
    """The instruction sets that were built and that this machine has: one that is named, then the fastest."""
    try:
        plain = library("plain")
    except OSError:
        return ()
    found = [way for way in WAYS if (folder() / f"core-{way}.so").is_file() and plain.glass_has(way.encode())]
    chosen = os.environ.get(CHOICE)
    if chosen and chosen not in found:
        raise InputError(f"{CHOICE}: {chosen!r} is none of {', '.join(found)}, which this machine has")
    return tuple(sorted(found, key=lambda way: way != chosen))


def status() -> str:
    """Which engine there is here, and why, in a sentence."""
    if ways():
        return f"native ({ways()[0]})"
    if any(folder().glob("core-*.so")):
        return "torch: the native engine was built for another machine; install again to have it"
    return "torch: the native engine was not built, because `pip install` found no C++ compiler"


def _close(core: ctypes.CDLL, address: int, process: int) -> None:
    if process == os.getpid():
        core.glass_close(address)


class _Team:
    """The core's threads, in the process that started them; they end with the last reference to this."""

    def __init__(self, core: ctypes.CDLL, threads: int) -> None:
        self.process = os.getpid()
        self.address = core.glass_open(threads)
        if not self.address:
            raise GlassError(f"the native engine could not start {counted(threads, 'thread')}")
        weakref.finalize(self, _close, core, self.address, self.process)


class _OneUser:
    """A lock that does not wait: a second thread gets an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InputError("the cache is in use by another thread")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _numbers(name: str, values: Any, *, kinds: str = "iu") -> Array:
    """An array of numbers of these kinds; by default integers, and no float is rounded to one."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # rows of different lengths
        raise InputError(f"{name} must be an array of numbers") from None
    empty_list = (
        array.dtype.kind == "f" and not array.size
    )  # which NumPy makes floats; its shape is refused later
    if array.dtype.kind not in kinds and not empty_list:
        raise InputError(f"{name} must be {'integers' if kinds == 'iu' else 'numbers'}, not {array.dtype}")
    return array


class KVCache:
    """Keys and values of every row, by position; padding at the left is not kept.

    Its arrays are checked here and cannot be replaced, so that a step need not look at them again.
    """

    def __init__(self, keys: Array, values: Array, padding: Array, length: int = 0) -> None:
        self._keys, self._values = _checked_arrays(keys, values)
        layers, rows, heads, groups, head_width, _ = self._keys.shape
        self._sizes = layers, heads, head_width
        addresses = self._keys.ctypes.data, self._values.ctypes.data
        self._core = _Cache(*addresses, rows, groups)  # the arrays live as long as this
        self._padding = _numbers("padding", padding).astype(np.int64)  # a copy
        if self._padding.shape != (rows,):
            raise InputError(f"padding must be one number for each of {rows} rows, not {self._padding.shape}")
        if self._padding.min() < 0:
            raise InputError("padding must not be negative")
        self._padding.setflags(write=False)
        self._one_user = _OneUser()
        self.length = length

    @property
    def rows(self) -> int:
        """How many texts it holds."""
        return int(self._core.rows)

    @property
    def capacity(self) -> int:
        """How many positions of each text it has room for."""
        return int(self._core.groups) * LANES

    @property
    def keys(self) -> Array:
        """A copy of (layers, rows, heads, groups of positions, head width, positions of a group)."""
        return self._keys.copy()

    @property
    def values(self) -> Array:
        """A copy of (layers, rows, heads, positions, padded head width)."""
        return self._values.copy()

    @property
    def padding(self) -> Array:
        """How many positions at the left of each row are padding."""
        return self._padding

    @property
    def length(self) -> int:
        """How many positions were read, padding included."""
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        self._length = check_count("length", length, least=0)

    def select(self, rows: Sequence[int]) -> Self:
        """The cache of some rows, in this order; a row may be taken more than once."""
        index = _numbers("rows", rows)
        if index.ndim != 1 or not index.size:
            raise InputError("rows must be a list of at least one row")
        if len(index) > self.rows:  # beam search selects at every step, but grows the cache once
            size = (self._keys.nbytes + self._values.nbytes) * len(index) // self.rows
            machine.check_memory(size, what=f"a cache of {len(index):,} rows")
        if index.min() < 0 or index.max() >= self.rows:
            raise InputError(f"a row is out of range (0 to {self.rows - 1})")
        index = index.astype(np.int64)
        with self._one_user:
            # `take` gives C's order, as the core reads it; indexing the second axis may not.
            keys, values = (np.take(kept, index, axis=1) for kept in (self._keys, self._values))
            return type(self)(keys, values, self._padding[index], self.length)

    def copy_row(self, source: int, target: int, *, length: int) -> None:
        """Make the first positions of a row those of another one."""
        for row in (source, target):
            check_count("row", row, least=0, most=self.rows - 1)
        check_count("length", length, least=0, most=self.capacity)
        groups = -(-length // LANES)  # positions behind the last one are written before they are read
        with self._one_user:
            self._keys[:, target, :, :groups] = self._keys[:, source, :, :groups]
            self._values[:, target, :, :length] = self._values[:, source, :, :length]

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""
        kept = check_count("length", length, least=0)
        with self._one_user:
            self.length = min(self.length, kept)


def _checked_arrays(keys: Array, values: Array) -> tuple[Array, Array]:
    """Keys and values as the core writes them; the arrays' shapes are ours, whatever the caller does."""
    for name, array, dimensions in (("keys", keys, 6), ("values", values, 5)):
        if not isinstance(array, np.ndarray) or array.dtype != HALF or array.ndim != dimensions:
            raise InputError(f"the {name} of a cache must be float16 in {dimensions} dimensions")
        if not array.flags.carray:
            raise InputError(f"the {name} of a cache must be contiguous, aligned and writable")
    layers, rows, heads, groups, head_width, lanes = keys.shape
    fits = values.shape == (layers, rows, heads, groups * LANES, padded(head_width)) and lanes == LANES
    if not fits or not keys.size:
        raise InputError(f"keys {keys.shape} and values {values.shape} do not make a cache")
    return keys.view(), values.view()


class _BufferPool:
    """Keeps the memory of a cache that is gone for the next one: a system takes long to make fresh pages."""

    MOST = 2**25  # numbers: what is larger goes back to the system

    def __init__(self) -> None:
        self._spare: list[Array] = []

    def take(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Array, list[Array]]:
        """A piece of memory, and arrays of zeros in it."""
        sizes = [math.prod(shape) for shape in shapes]
        try:
            memory = self._spare.pop()
        except IndexError:  # none is kept
            memory = np.zeros(0, dtype=HALF)
        if memory.size < sum(sizes):
            memory = np.zeros(sum(sizes), dtype=HALF)
        else:
            memory[: sum(sizes)] = 0
        parts = np.split(memory[: sum(sizes)], np.cumsum(sizes)[:-1])
        return memory, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def give(self, memory: Array) -> None:
        """Keep it, if none is kept; nothing else may look at it any more."""
        if not self._spare and memory.size <= self.MOST:
            self._spare.append(memory)


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
        try:
            check_config(config)
        except InputError as error:
            return f"the native engine cannot run this model: {error}"
        return ""

    def __init__(
        self, config: Mapping[str, Any], arrays: Mapping[str, Array], *, threads: int = 0, way: str = ""
    ) -> None:
        """`arrays` as `quantize.pack` makes them; `way` is an instruction set (the fastest there is)."""
        if not isinstance(way, str) or way not in ("", *ways()):
            raise InputError(f"the native engine has no {way!s:.50}; it has {', '.join(ways()) or 'none'}")
        if not ways():
            raise InputError("the native engine has no compiled core")
        check_arrays(config, arrays)
        self._threads = check_count("threads", threads, least=0, most=MOST_THREADS)
        if not self._threads:  # OMP_NUM_THREADS may have been set with another program in mind
            self._threads = min(machine.threads(), MOST_THREADS)
        self.config, self.way = MappingProxyType(dict(config)), way or ways()[0]
        self._arrays = dict(arrays)  # kept alive: the core has their addresses
        self._bits = bits_of(arrays)
        self._library, self._lock = library(self.way), threading.Lock()
        self._model = self._structure()
        # Read from the core's own struct: nothing can make the two differ.
        model = self._model
        self._vocab, self._context = int(model.vocab), int(model.context)
        self._cache_sizes = model.layers, model.heads, model.width // model.heads
        self._team: _Team | None = None
        self._memory = _BufferPool()

    @property
    def name(self) -> str:
        """The backend's name, without the instruction set: all of them give the same numbers."""
        return f"native int{self._bits}"

    @property
    def threads(self) -> int:
        """The number of threads that compute."""
        return self._threads

    @property
    def context(self) -> int:
        return self._context

    @property
    def vocab(self) -> int:
        return self._vocab

    def _address(self, name: str) -> int | None:
        array = self._arrays.get(name)
        return None if array is None else array.ctypes.data

    def _norm(self, name: str) -> _Norm:
        return _Norm(self._address(f"{name}.gain"), self._address(f"{name}.bias"))

    def _matrix(self, name: str) -> _Matrix:
        panels, fours, *_ = self._arrays[f"{name}.weights"].shape
        parts = (self._address(f"{name}.{part}") for part in ("weights", "multipliers", "scales", "bias"))
        return _Matrix(*parts, panels, FOUR * fours * 8 // self._bits)

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
        rows = check_count("rows", rows)
        room = padded(check_count("capacity", capacity, most=INT32 - LANES))
        layers, heads, width = self._cache_sizes
        keys = (layers, rows, heads, room // LANES, width, LANES)
        return keys, (layers, rows, heads, room, padded(width))

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> KVCache:
        """An empty cache; `padding` is the number of padding positions at the left of each row."""
        shapes = self._shapes(rows, capacity)
        what = f"a cache of {rows:,} rows and {capacity:,} positions"
        machine.check_memory(self.cache_size(rows, capacity), what=what)
        memory, (keys, values) = self._memory.take(shapes)
        cache = KVCache(keys, values, np.zeros(rows, dtype=np.int64) if padding is None else padding)
        weakref.finalize(cache, self._memory.give, memory).atexit = False
        return cache

    def cache_size(self, rows: int, capacity: int) -> int:
        """Bytes of such a cache."""
        return sum(map(math.prod, self._shapes(rows, capacity))) * HALF.itemsize

    def step(self, ids: Array, cache: KVCache) -> Array:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the token that comes next."""
        return self._read(ids, cache, every=False)

    def step_all(self, ids: Array, cache: KVCache) -> Array:
        """Read ids (B, T) behind the cache, none of them padding; logits (B, T, V) after each of them."""
        logits = self._read(ids, cache, every=True)
        return logits.reshape(cache.rows, -1, self._vocab)

    def step_pieces(self, pieces: Sequence[Piece], cache: KVCache) -> Array:
        """Read pieces of different rows, each from its own position on; logits (N, V) of the scored tokens.

        The caller keeps the length of each row; `cache.length`, one number for all rows, does not change.
        """
        self._check_cache(cache)
        if not pieces or len({row for row, *_ in pieces}) < len(pieces):
            raise InputError("pieces must be at least one, each of another row")
        ids, rows, positions, scored, done = [], [], [], [], 0
        for row, start, tokens, last in pieces:
            count = len(tokens)
            check_count("row", row, least=0, most=cache.rows - 1)
            check_count("start", start, least=0, most=cache.capacity)
            check_count("tokens of a piece", count)
            check_count("scored", last, least=0, most=count)
            ids.append(_numbers("ids", tokens))
            rows.append(np.full(count, row, dtype=np.int32))
            positions.append(np.arange(start, start + count))
            scored.append(np.arange(done + count - last, done + count))
            done += count
        joined, of, places, which = map(np.concatenate, (ids, rows, positions, scored))
        with cache._one_user:
            return self._forward(joined, cache, rows=of, positions=places, scored=which)

    def _check_cache(self, cache: KVCache) -> None:
        if not isinstance(cache, KVCache) or cache._sizes != self._cache_sizes:
            raise InputError("the cache was not made by an engine of this model's sizes")

    def _read(self, ids: Array, cache: KVCache, *, every: bool) -> Array:
        """The logits after the last token of each row, or after every token of all rows."""
        ids = _numbers("ids", ids)
        self._check_cache(cache)
        if ids.ndim != 2 or ids.shape[0] != cache.rows or ids.shape[1] == 0:
            raise InputError(f"ids must be ({cache.rows} rows, at least 1 token), not {ids.shape}")
        with cache._one_user:
            positions = cache.length + np.arange(ids.shape[1]) - cache.padding[:, None]  # (B, T)
            read = positions >= 0  # those of padding are negative
            if not read[:, -1].all():
                raise InputError("every row needs a token that is not padding")
            if every and not read.all():
                raise InputError("step_all takes no padding: it has no logits")
            counts = read.sum(axis=1)
            of = np.repeat(np.arange(cache.rows, dtype=np.int32), counts)
            scored = np.arange(ids.size) if every else counts.cumsum() - 1
            logits = self._forward(ids[read], cache, rows=of, positions=positions[read], scored=scored)
            cache.length += ids.shape[1]
        return logits

    def log_sums(self, logits: Array) -> list[float]:
        """log Σ exp of every row of logits (B, V), in less than half of NumPy's time."""
        logits = np.ascontiguousarray(_numbers("logits", logits, kinds="fiu"), dtype=np.float32)
        if logits.ndim != 2 or logits.shape[1] == 0 or max(logits.shape) > INT32:
            raise InputError(f"logits must be of shape (rows, at least 1 token), not {logits.shape}")
        tops, sums = logits.max(axis=1), np.empty(len(logits), dtype=np.float32)
        with self._lock:
            self._library.glass_exponential_sums(
                self._team_address(), logits.ctypes.data, *logits.shape, tops.ctypes.data, sums.ctypes.data
            )
        return [float(top) + math.log(total) for top, total in zip(tops, sums, strict=True)]

    def logits(self, ids: Array) -> Array:
        """Logits of the next token after every position: (B, T) -> (B, T, V), or (T,) -> (T, V)."""
        ids = _numbers("ids", ids)
        if ids.ndim not in (1, 2) or not ids.size:
            raise InputError(f"ids must be (B, T) or (T,) with at least 1 token, not {ids.shape}")
        machine.check_memory(4 * ids.size * self.vocab, what=f"the logits of {ids.size:,} tokens")
        if ids.ndim == 2:
            return np.stack([self._all_logits(row) for row in ids])
        return self._all_logits(ids)

    def _all_logits(self, ids: Array) -> Array:
        every = np.arange(len(ids))
        row = np.zeros(len(ids), dtype=np.int32)
        return self._forward(ids, self.new_cache(1, len(ids)), rows=row, positions=every, scored=every)

    def _forward(self, ids: Array, cache: KVCache, *, rows: Array, positions: Array, scored: Array) -> Array:
        """Logits of the scored ones of N tokens: `ids`, `rows` and `positions` are (N,)."""
        count = int(positions.max()) + 1
        limit = min(self._context, cache.capacity)
        if count > limit:
            raise InputError(f"{count} tokens are {count - limit} more than the {limit} there is room for")
        flat = np.ascontiguousarray(ids, dtype=np.int64)
        if flat.view(np.uint64).max() >= self._vocab:  # a negative one is very large there
            raise InputError(f"a token id is not between 0 and {self._vocab - 1}")
        if len(flat) > INT32:
            raise InputError(f"{len(flat):,} tokens are too many for one step")
        where = np.ascontiguousarray(positions, dtype=np.int32)
        which = np.ascontiguousarray(scored, dtype=np.int32)
        logits = np.empty((len(which), self._vocab), dtype=np.float32)
        batch = _Batch(
            len(flat),
            len(which),
            flat.ctypes.data,
            rows.ctypes.data,
            where.ctypes.data,
            which.ctypes.data,
            logits.ctypes.data,
        )
        model, tokens, kept = map(ctypes.byref, (self._model, batch, cache._core))
        with self._lock:
            if self._library.glass_step(self._team_address(), model, tokens, kept):
                raise InsufficientMemory(f"there is not enough memory for a step of {len(flat):,} tokens")
        return logits

    def bare(self, times: int = 1) -> None:
        """Every weight once by a vector, and nothing else: the least that a step can take."""
        for _ in range(check_count("times", times)):
            with self._lock:
                if self._library.glass_bare(self._team_address(), ctypes.byref(self._model)):
                    raise InsufficientMemory("there is not enough memory for a vector")

    def _team_address(self) -> Any:
        """The team of threads; a new one in a forked process, which has none of its parent's."""
        if self._team is None or self._team.process != os.getpid():
            self._team = _Team(self._library, self._threads)
        return self._team.address
