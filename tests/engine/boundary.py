"""Random calls of the engine's binding, most of them wrong: each returns a result or raises one of our errors.

    python -m engine.boundary SEED CALLS     (in tests/)

A process of its own, because what this looks for ends one. At the end the engines still give the bits of the
beginning: no call wrote where it should not.
"""

import faulthandler
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.durable import write_sealed
from glassformer.engine import store
from glassformer.engine.native import Engine, KVCache
from glassformer.engine.quantize import expected, pack
from glassformer.errors import GlassError

Array = np.ndarray[Any, Any]
CONFIG: dict[str, Any] = {
    "layers": 2, "heads": 3, "width": 48, "neurons": 40, "vocab": 50, "context": 20,
    "activation": "gelu_tanh", "norm_eps": 1e-5, "tied": True, "bias": True,
}  # fmt: skip
OTHER = CONFIG | {"heads": 4, "vocab": 60, "layers": 1}
PLAIN = (None, True, False, -1, 0, 1, 2, 3, 4, 16, 17, 20, 21, 48, 2**31 - 1, 2**31, 2**63, 2**70, -(2**31),
         -(2**63), 0.5, 1e-5, 1e300, "2", "", "relu", "avx2", [], {}, [0], [-1], [0, 1], ["a"], [[1, 2], [3]])  # fmt: skip
NUMBERS = (*PLAIN, float("nan"), float("inf"), np.int64(2), np.uint64(2**64 - 1), np.float32(2), 1j, b"2")
DTYPES = (
    "int8",
    "int32",
    "int64",
    "uint64",
    ">i8",
    "float16",
    "float32",
    "float64",
    "bool",
    "complex64",
    "O",
    "U3",
)


def weights_of(config: dict[str, Any], seed: int = 0) -> dict[str, Array]:
    """Random parameters for a configuration, without torch."""
    rng = np.random.default_rng(seed)
    width, neurons = config["width"], config["neurons"]
    shapes = {
        "attn.qkv": (3 * width, width),
        "attn.proj": (width, width),
        "mlp.up": (neurons, width),
        "mlp.down": (width, neurons),
    }
    sizes: dict[str, tuple[int, ...]] = {
        "tokens.weight": (config["vocab"], width),
        "positions.weight": (config["context"], width),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for layer in range(config["layers"]):
        for name, shape in shapes.items():
            sizes |= {f"blocks.{layer}.{name}.weight": shape, f"blocks.{layer}.{name}.bias": shape[:1]}
        for name in ("norm1", "norm2"):
            sizes |= {f"blocks.{layer}.{name}.{part}": (width,) for part in ("weight", "bias")}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}


def digest(path: Path) -> str:
    """The hash of a file of numbers that has one piece: that of its hash."""
    return hashlib.sha256(hashlib.sha256(path.read_bytes()).digest()).hexdigest()


class Attack:
    """Three engines, their caches, a folder of kept models, and one random generator."""

    def __init__(self, seed: int, home: Path) -> None:
        self.rng = np.random.default_rng(seed)
        self.arrays = pack(CONFIG, weights_of(CONFIG))
        self.engines = [
            Engine(CONFIG, self.arrays, threads=2),
            Engine(OTHER, pack(OTHER, weights_of(OTHER)), threads=1),
            Engine(CONFIG, pack(CONFIG, weights_of(CONFIG), bits=4), threads=2),
        ]
        self.caches: list[KVCache] = [engine.new_cache(2, 20) for engine in self.engines]
        self.want = [engine.logits(np.arange(15)).tobytes() for engine in self.engines]
        self.source = home / "model"
        self.source.mkdir()
        (self.source / "config.json").write_text("{}")
        self._keep()
        self.folder = store.place(self.source)
        self.files = {path: path.read_bytes() for path in self.folder.iterdir()}

    def _keep(self) -> None:
        kept = store.Kept(CONFIG, self.arrays, {"base": str(self.source.absolute())})
        stamps = store.stamps([self.source])
        store.keep(self.source, kept, folders=[self.source], stamps=stamps)

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def value(self) -> Any:
        """Anything: a number, a text, a list, an array."""
        return self.array() if self.chance(0.2) else self.pick(NUMBERS)

    def count(self) -> Any:
        """Mostly a small number."""
        return int(self.rng.integers(0, 24)) if self.chance(0.7) else self.value()

    def array(self) -> Array:
        """Any type, shape and order."""
        shape = tuple(int(n) for n in self.rng.integers(0, 5, self.rng.integers(0, 4)))
        made: Array = self.rng.integers(-3, 60, shape).astype(self.pick(DTYPES))
        orders = (
            made,
            made.T,
            np.asfortranarray(made),
            np.repeat(made, 2, axis=0)[::2] if made.ndim else made,
        )
        return self.pick(orders)  # type: ignore[no-any-return]

    def engine(self) -> Engine:
        return self.pick(self.engines)  # type: ignore[no-any-return]

    def ids(self, rows: int = 0) -> Any:
        """Mostly the ids of some tokens."""
        if self.chance(0.1):
            return self.value()
        rows = rows if rows and self.chance(0.9) else int(self.rng.integers(1, 4))
        length = self.rng.integers(0 if self.chance(0.1) else 1, 9)
        low, high = (-2, 70) if self.chance(0.1) else (0, 50)
        return self.rng.integers(low, high, (rows, length)).astype(self.pick(("int64", "int32", "uint8")))

    # One kind of call each.

    def construct(self) -> None:
        config, arrays = dict(CONFIG), dict(self.arrays)
        if self.chance(0.6):
            _change(self, config, self.value)
        if self.chance(0.6):
            name = self.pick(list(arrays))
            whole = arrays[name]
            arrays[name] = self.pick(
                (self.value(), whole.T, whole[:-1], whole[::-1], whole.astype("float64"), whole)
            )
            if self.chance(0.3):
                del arrays[name]
        if self.chance(0.1):
            arrays[f"{self.pick(list(arrays))}2"] = self.array()
        threads = self.value() if self.chance(0.3) else 1
        Engine(config, arrays, threads=threads, way=self.value() if self.chance(0.1) else "").logits([1, 2])

    def pack(self) -> None:
        config, weights = dict(OTHER), weights_of(OTHER)
        _change(self, config if self.chance(0.5) else weights, self.value)
        made = pack(config, weights)
        assert {name: (str(one.dtype), one.shape) for name, one in made.items()} == expected(config)

    def new_cache(self) -> None:
        padding = (
            None if self.chance(0.5) else self.pick((self.array(), [0, 3], np.array([1, 0, 2]), self.value()))
        )
        rows = int(self.rng.integers(1, 4)) if self.chance(0.7) else self.count()
        cache = self.engine().new_cache(rows, self.count(), padding=padding)
        self.caches = [*self.caches[-5:], cache]

    def own_cache(self) -> None:
        cache = self.pick(self.caches)
        keys, values, padding = cache.keys, cache.values, cache.padding
        change = self.pick((lambda one: one[:1], lambda one: one.T, lambda one: one.astype("float32"),
                            lambda one: one[..., ::2], lambda one: one, lambda _: self.value()))  # fmt: skip
        which = self.rng.integers(3)
        parts = [change(one) if at == which else one for at, one in enumerate((keys, values, padding))]
        made = KVCache(parts[0], parts[1], parts[2], self.count())
        self.engine().step(self.ids(), made)

    def step(self) -> None:
        cache = self.pick(self.caches)
        engine = self.engine()
        ids = self.ids(cache.rows)
        logits = engine.step(ids, cache if self.chance(0.97) else self.value())
        assert logits.shape == (len(ids), engine.vocab)
        assert np.isfinite(logits).all()

    def select(self) -> None:
        rows = [
            int(self.rng.integers(-1 if self.chance(0.1) else 0, 3)) for _ in range(self.rng.integers(0, 4))
        ]
        self.caches = [
            *self.caches[-5:],
            self.pick(self.caches).select(rows if self.chance(0.8) else self.value()),
        ]

    def rewind(self) -> None:
        cache = self.pick(self.caches)
        if self.chance(0.5):
            cache.rewind(self.count())
        else:
            cache.length = self.count() if self.chance(0.5) else 0

    def sums(self) -> None:
        logits = self.rng.standard_normal((2, 37)) if self.chance(0.3) else self.value()
        found = self.engine().log_sums(logits)
        assert len(found) == len(logits)

    def logits(self) -> None:
        ids = self.ids()
        if isinstance(ids, np.ndarray) and ids.ndim and len(ids):
            ids = ids[0]
        engine = self.engine()
        engine.logits(ids)
        assert 0 <= np.min(ids) <= np.max(ids) < engine.vocab  # any other id is outside of the embedding

    def small(self) -> None:
        engine = self.engine()
        self.pick(
            (
                lambda: engine.bare(self.pick((0, 1, 2, -1, True, "2", 2**31))),
                lambda: engine.cache_size(self.count(), self.count()),
            )
        )()

    def kept(self) -> None:
        """A note or a file of numbers that was changed and sealed again: as good as missing, or the same model."""
        note = json.loads(self.files[self.folder / store.NOTE])
        note.pop("sha256 of the rest")
        numbers = self.folder / store.NUMBERS
        if self.chance(0.5):
            _change(self, note["config"] if self.chance(0.5) else note, lambda: self.pick(PLAIN))
        if self.chance(0.5):
            numbers.write_bytes(self._damaged(self.files[numbers]))
            note |= {"sha256": digest(numbers)}
        write_sealed(self.folder / store.NOTE, note)
        try:
            found = store.find(self.source)
            model = store.read(self.source, note if found is None else found)
            if model is not None:
                assert model.config == CONFIG
                assert all(np.array_equal(model.arrays[name], one) for name, one in self.arrays.items())
                Engine(model.config, model.arrays, threads=1).logits(np.arange(3))
        finally:
            for path, content in self.files.items():
                path.write_bytes(content)

    def _damaged(self, whole: bytes) -> bytes:
        """Cut, or with another header."""
        if self.chance(0.3):
            return whole[: int(self.rng.integers(0, len(whole)))]
        start = 8 + int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8:start])
        name = self.pick(list(header))
        _change(self, self.pick((header, header[name])), lambda: self.pick(PLAIN))
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + whole[start:]


def _change(attack: Attack, fields: dict[str, Any], value: Callable[[], Any]) -> None:
    """Drop, replace or add one entry."""
    name = attack.pick(list(fields))
    if attack.chance(0.2):
        del fields[name]
    elif attack.chance(0.1):
        fields["another"] = value()
    else:
        fields[name] = value()


KINDS = (Attack.construct, Attack.pack, Attack.new_cache, Attack.own_cache, Attack.step, Attack.step, Attack.select,
         Attack.rewind, Attack.sums, Attack.logits, Attack.small, Attack.kept)  # fmt: skip


def attack(seed: int, calls: int) -> Counter[str]:
    """Make random calls, all from one seed; how many of each kind were refused, and how many were not.

    Anything but a result or a `GlassError` is raised, with the number of the call.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        os.environ["GLASSFORMER_HOME"] = home
        state = Attack(seed, Path(home))
        for number in range(calls):
            kind = state.pick(KINDS)
            try:
                with np.errstate(all="ignore"):
                    kind(state)
                counts[f"{kind.__name__} done"] += 1
            except GlassError:
                counts[f"{kind.__name__} refused"] += 1
            except BaseException as error:
                raise AssertionError(f"seed {seed}, call {number}: {kind.__name__}") from error
        for engine, want in zip(state.engines, state.want, strict=True):
            assert engine.logits(np.arange(15)).tobytes() == want, f"seed {seed}: other bits after the calls"
    return counts


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.dump_traceback_later(60 + int(sys.argv[2]) // 20, exit=True)  # a call that hangs
    print(json.dumps(attack(int(sys.argv[1]), int(sys.argv[2]))))
