"""The binding refuses what the core would crash on: each case in our own words, before any C++ runs."""

import copy
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.boundary import CONFIG, OTHER, weights_of
from glassformer.engine import native
from glassformer.engine.native import MOST_THREADS, Engine, KVCache
from glassformer.engine.quantize import pack
from glassformer.errors import InputError, InsufficientMemory

Array = np.ndarray[Any, Any]
ONE = np.array([[1]])
TESTS = Path(__file__).parents[1]
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's here")
FUZZING = 600  # random calls; take a second


@pytest.fixture(scope="module")
def arrays() -> dict[str, Array]:
    return pack(CONFIG, weights_of(CONFIG))


@pytest.fixture(scope="module")
def engine(arrays: dict[str, Array]) -> Engine:
    return Engine(CONFIG, arrays, threads=1)


def child(code: str, **how: Any) -> str:
    """What a program prints that may crash; `engine` and `arrays` are those of this file."""
    begin = """
import sys
import numpy as np
from engine.boundary import CONFIG, weights_of
from glassformer.engine.native import Engine
from glassformer.engine.quantize import pack
from glassformer.errors import GlassError
arrays = pack(CONFIG, weights_of(CONFIG))
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}{begin}{code}"],
        capture_output=True, text=True, timeout=60, cwd=TESTS, **how,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.strip()


# A model: its arrays and its threads.


@pytest.mark.parametrize(
    "name", ["tokens.weights", "blocks.1.mlp.down.scales", "blocks.0.norm1.gain", "positions"]
)
def test_arrays_that_are_not_the_models(arrays: dict[str, Array], name: str) -> None:
    """Missing, of another type, shape, byte order or memory order, not aligned."""
    with pytest.raises(InputError, match=f"the array {name} is missing"):
        Engine(CONFIG, {key: value for key, value in arrays.items() if key != name})
    whole = arrays[name]
    bytes_of = np.zeros(whole.nbytes + 1, dtype=np.int8)
    shifted = bytes_of[1:].view(whole.dtype).reshape(whole.shape)
    for other in (whole[:-1], whole[None], whole.astype(np.float64), whole.astype(">i4"), whole.tolist(), 3):
        with pytest.raises(InputError, match=f"the array {name} must be (int8|int32|float32) of shape"):
            Engine(CONFIG, arrays | {name: other})
    strange = [np.repeat(whole, 2, axis=-1)[..., ::2]] + [shifted] * (whole.itemsize > 1)
    for other in strange:
        with pytest.raises(InputError, match=f"the array {name} must be contiguous and aligned"):
            Engine(CONFIG, arrays | {name: other})


def test_an_array_too_many(arrays: dict[str, Array]) -> None:
    """A bias that the model does not have would be read, with whatever size it has."""
    with pytest.raises(InputError, match=r"'tokens\.bias' is not part of this model"):
        Engine(CONFIG, arrays | {"tokens.bias": np.zeros(1, dtype=np.float32)})
    with pytest.raises(InputError, match="is not part of this model"):
        Engine(CONFIG | {"bias": False}, arrays)
    with pytest.raises(InputError, match="the arrays must be a mapping, not NoneType"):
        Engine(CONFIG, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"heads": 0}, {"vocab": 65}, {"width": 49, "heads": 1}, {"context": 19}])
def test_a_configuration_that_is_not_the_arrays(arrays: dict[str, Array], change: dict[str, int]) -> None:
    """A division by 0, or arrays that are read behind their end."""
    with pytest.raises(InputError, match=r"heads must be|the array \S+ must be \S+ of shape"):
        Engine(CONFIG | change, arrays)


@pytest.mark.parametrize("change", [{"heads": 4}, {"vocab": 64}, {"width": 47, "heads": 1}, {"neurons": 33}])
def test_a_configuration_of_the_same_padded_shapes(arrays: dict[str, Array], change: dict[str, int]) -> None:
    """A valid file of another model: only the caller can tell, but every index stays inside the arrays."""
    other = Engine(CONFIG | change, arrays, threads=1)
    assert other.logits(np.array([1, other.vocab - 1])).shape == (2, other.vocab)


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        (-1, f"threads must be between 0 and {MOST_THREADS}, not -1"),
        (4000, f"threads must be between 0 and {MOST_THREADS}, not 4000"),
        (2**32 + 1, "threads must be between"),
        (True, "threads must be an integer, not bool"),
        ("2", "threads must be an integer, not str"),
        (2.0, "threads must be an integer, not float"),
        (None, "threads must be an integer, not NoneType"),
    ],
)
def test_a_number_of_threads_that_there_cannot_be(
    arrays: dict[str, Array], threads: Any, message: str
) -> None:
    """4,000 threads hung at their first barrier."""
    with pytest.raises(InputError, match=message):
        Engine(CONFIG, arrays, threads=threads)


def test_threads_that_the_environment_asks_for(
    arrays: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most as many as work; the number that is reported is the number there is."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4000")
    made = Engine(CONFIG, arrays)
    assert made.threads == MOST_THREADS
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Engine(CONFIG, arrays).threads == Engine(CONFIG, arrays, threads=np.int64(3)).threads == 3  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        made.threads = 4000  # type: ignore[misc]


@only_linux
def test_threads_that_cannot_be_started() -> None:
    """With too little address space for their stacks: an error, the second time too, and the process goes on."""
    code = """
import resource
engine = Engine(CONFIG, arrays, threads=200)
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
for _ in range(2):
    try:
        engine.step(np.array([[1]]), engine.new_cache(1, 4))
        sys.exit(7)
    except GlassError as error:
        print(error)
print(Engine(CONFIG, arrays, threads=1).step(np.array([[1]]), engine.new_cache(1, 4)).shape)
"""
    refused = "the native engine could not start 200 threads"
    assert child(code).splitlines() == [refused, refused, "(1, 50)"]


@pytest.mark.parametrize("way", ["sse9", 3, None, ["avx2"], np.zeros(2)])
def test_an_instruction_set_that_there_is_not(arrays: dict[str, Array], way: Any) -> None:
    """Named by something that is no text, too."""
    with pytest.raises(InputError, match="the native engine has no "):
        Engine(CONFIG, arrays, way=way)


def test_an_engine_cannot_be_changed_under_the_core(engine: Engine) -> None:
    """The sizes that are checked are those that the core has."""
    with pytest.raises(TypeError):
        engine.config["vocab"] = 10**6  # type: ignore[index]
    with pytest.raises(AttributeError):
        engine.vocab = 10**6  # type: ignore[misc]
    assert (engine.vocab, engine.context) == (50, 20)


def test_copies_share_threads_that_live_as_long_as_both(arrays: dict[str, Array]) -> None:
    """The threads of a copied engine were freed with the first of the two."""
    first = Engine(CONFIG, arrays, threads=2)
    want = first.logits([1, 2, 3]).tobytes()  # type: ignore[arg-type]
    second = copy.copy(first)
    del first
    gc.collect()
    assert second.logits([1, 2, 3]).tobytes() == want  # type: ignore[arg-type]


def test_a_model_that_the_engine_cannot_run_is_described() -> None:
    """So that torch can take it."""
    assert native.Engine.unsupported("gpt2", CONFIG) == ""
    assert "width 48 cannot be split into 7 heads" in native.Engine.unsupported("gpt2", CONFIG | {"heads": 7})
    assert "norm_eps must be a number" in native.Engine.unsupported(
        "gpt2", CONFIG | {"norm_eps": float("nan")}
    )
    assert "head_width must be" in native.Engine.unsupported("gpt2", CONFIG | {"head_width": 8})


# A cache.


@pytest.mark.parametrize(
    "other",
    [OTHER, CONFIG | {"layers": 1}, CONFIG | {"heads": 1}, CONFIG | {"width": 45}, CONFIG | {"width": 96}],
)
def test_a_cache_of_another_model(engine: Engine, other: dict[str, Any]) -> None:
    """Other layers, heads or head width: refused. Of an engine with the same sizes, even one that is gone: taken."""
    cache = Engine(other, pack(other, weights_of(other))).new_cache(1, 8)
    with pytest.raises(InputError, match="not made by an engine of this model's sizes"):
        engine.step(ONE, cache)


def test_a_cache_of_an_engine_that_is_gone(engine: Engine, arrays: dict[str, Array]) -> None:
    """A cache owns its memory."""
    cache = Engine(CONFIG, arrays, threads=1).new_cache(1, 8)
    gc.collect()
    np.testing.assert_array_equal(engine.step(ONE, cache), engine.step(ONE, engine.new_cache(1, 8)))
    for no_cache in (None, {}, cache.keys):
        with pytest.raises(InputError, match="not made by an engine"):
            engine.step(ONE, no_cache)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 2**31, 2**70, True, "3", 2.0, None])
def test_rows_and_capacities_that_there_cannot_be(engine: Engine, count: Any) -> None:
    """Refused by name, in both functions that take them."""
    for make in (engine.new_cache, engine.cache_size):
        with pytest.raises(InputError, match="rows must be"):
            make(count, 4)
        with pytest.raises(InputError, match="capacity must be"):
            make(1, count)
    assert engine.new_cache(np.int64(2), np.int32(4)).rows == 2  # type: ignore[arg-type]


def test_a_cache_beyond_the_memory(engine: Engine) -> None:
    """Refused before anything is allocated; its size is exact where 64 bits overflow."""
    assert engine.cache_size(2**31 - 1, 2**31 - 17) == 2 * 2 * 3 * 2 * 16 * (2**31 - 1) * (2**31 - 16)
    for rows, capacity in ((2**31 - 1, 16), (1, 2**31 - 17), (2**31 - 1, 2**31 - 17)):
        with pytest.raises(InsufficientMemory, match="GB of memory"):
            engine.new_cache(rows, capacity)
    with pytest.raises(InsufficientMemory, match=r"a cache of 1,000,000,000 rows"):
        engine.new_cache(1, 2000).select(np.broadcast_to(np.int64(0), 10**9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ([0], "padding must be one number for each of 2 rows"),
        ([0, 0, 0], "padding must be one number for each of 2 rows"),
        ([[0, 0]], "padding must be one number for each of 2 rows"),
        ([], "padding must be one number for each of 2 rows"),
        (0, "padding must be one number for each of 2 rows"),
        ([0, -1], "padding must not be negative"),
        ([0, -(2**63)], "padding must not be negative"),  # would overflow
        (np.array([0, 2**64 - 1], dtype=np.uint64), "padding must not be negative"),
        ([0.0, 1.0], "padding must be integers, not float64"),
        ([True, False], "padding must be integers, not bool"),
        (["a", "b"], "padding must be integers"),
        ([[0], [1, 2]], "padding must be an array of numbers"),
    ],
)
def test_a_padding_that_does_not_fit(engine: Engine, padding: Any, message: str) -> None:
    """Of another length, negative, no integers."""
    with pytest.raises(InputError, match=message):
        engine.new_cache(2, 8, padding=padding)


def test_a_padding_is_the_caches_own(engine: Engine) -> None:
    """The caller's array may change; the cache's cannot."""
    padding = np.array([0, 2])
    cache = engine.new_cache(2, 8, padding=padding)
    padding[:] = -(2**63)
    assert cache.padding.tolist() == [0, 2]
    with pytest.raises(ValueError, match="read-only"):
        cache.padding[0] = -5
    with pytest.raises(AttributeError):
        cache.keys = np.zeros(1)  # type: ignore[misc]
    cache.keys.shape = (-1,)  # of a copy: the cache keeps its own
    engine.step(np.ones((1, 5), dtype=np.int64), cache.select([1]))


def test_arrays_that_do_not_make_a_cache(engine: Engine) -> None:
    """Another type, shape or order, read-only, keys and values of different sizes, nothing at all."""
    cache = engine.new_cache(2, 8)
    keys, values, padding = cache.keys, cache.values, cache.padding
    KVCache(keys, values, padding)
    fixed = keys.copy()
    fixed.setflags(write=False)
    for one, other, message in (
        (keys.astype(np.float32), values, "keys of a cache must be float16 in 6 dimensions"),
        (keys[0], values, "keys of a cache must be float16 in 6 dimensions"),
        (None, values, "keys of a cache must be float16"),
        (keys, values.tolist(), "values of a cache must be float16"),
        (fixed, values, "keys of a cache must be contiguous, aligned and writable"),
        (keys[:, ::-1], values, "keys of a cache must be contiguous"),
        (np.asfortranarray(keys), values, "keys of a cache must be contiguous"),
        (keys, values[:, :1].copy(), "do not make a cache"),
        (keys[..., :8].copy(), values, "do not make a cache"),
        (keys[:, :0], values[:, :0], "do not make a cache"),
    ):
        with pytest.raises(InputError, match=message):
            KVCache(one, other, padding)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [-1, -(2**63), 2**31, 1.5, "1", None, True])
def test_lengths_that_there_cannot_be(engine: Engine, length: Any) -> None:
    """A negative one was a position before the cache's memory."""
    cache = engine.new_cache(1, 8)
    with pytest.raises(InputError, match="length must be"):
        cache.rewind(length)
    with pytest.raises(InputError, match="length must be"):
        cache.length = length
    with pytest.raises(InputError, match="length must be"):
        KVCache(cache.keys, cache.values, cache.padding, length)
    cache.length = 100
    with pytest.raises(InputError, match="101 tokens are 85 more than the 16"):
        engine.step(ONE, cache)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([2], r"a row is out of range \(0 to 1\)"),
        ([0, -1], r"a row is out of range \(0 to 1\)"),
        ([2**40], "a row is out of range"),
        ([], "at least one row"),
        ([[0]], "at least one row"),
        (0, "at least one row"),
        ([0.0], "rows must be integers, not float64"),
        ([True], "rows must be integers, not bool"),
        (["0"], "rows must be integers"),
        (None, "rows must be integers"),
    ],
)
def test_rows_that_a_cache_does_not_have(engine: Engine, rows: Any, message: str) -> None:
    """Counted from the end, beyond it, none, no integers."""
    with pytest.raises(InputError, match=message):
        engine.new_cache(2, 8).select(rows)


def test_a_cache_in_two_threads(engine: Engine) -> None:
    """The second one gets an error instead of a position that the first one writes; later the cache is free again."""
    cache = engine.new_cache(1, 8)
    with cache._one_user:  # as a step in another thread holds it
        for use in (lambda: engine.step(ONE, cache), lambda: cache.select([0]), lambda: cache.rewind(0)):
            with pytest.raises(InputError, match="the cache is in use by another thread"):
                use()
    with pytest.raises(InputError, match="not between 0 and 49"):
        engine.step(np.array([[50]]), cache)
    engine.step(ONE, cache)
    assert cache.length == 1


# A step.


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.ones((1, 2), dtype=np.int64), r"ids must be \(2 rows, at least 1 token\), not \(1, 2\)"),
        (np.ones((3, 2), dtype=np.int64), r"not \(3, 2\)"),
        (np.ones((2, 0), dtype=np.int64), r"not \(2, 0\)"),
        (np.ones((0, 2), dtype=np.int64), r"not \(0, 2\)"),
        (np.ones(2, dtype=np.int64), r"not \(2,\)"),
        (np.ones((2, 1, 1), dtype=np.int64), r"not \(2, 1, 1\)"),
        (7, r"not \(\)"),
        (np.ones((2, 1)), "ids must be integers, not float64"),
        (np.ones((2, 1), dtype=bool), "ids must be integers, not bool"),
        (np.full((2, 1), None), "ids must be integers, not object"),
        ([[1], [1, 2]], "ids must be an array of numbers"),
        (np.array([[1], [-1]]), "a token id is not between 0 and 49"),
        (np.array([[1], [50]]), "a token id is not between 0 and 49"),
        (np.array([[1], [2**64 - 1]], dtype=np.uint64), "a token id is not between 0 and 49"),
        (np.array([[1], [2**32 + 1]]), "a token id is not between 0 and 49"),
        (np.ones((2, 17), dtype=np.int64), "17 tokens are 1 more than the 16"),
    ],
)
def test_ids_that_are_none(engine: Engine, ids: Any, message: str) -> None:
    """Another shape, no integers, no tokens of the model, more than there is room for; nothing was read then."""
    cache = engine.new_cache(2, 16)
    with pytest.raises(InputError, match=message):
        engine.step(ids, cache)
    assert cache.length == 0


def test_ids_in_any_order_of_memory(engine: Engine) -> None:
    """Whatever integers they are, contiguous or not: the same bits."""
    ids = np.arange(6).reshape(2, 3)
    want = engine.step(ids, engine.new_cache(2, 8))
    apart = np.repeat(ids, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(ids), apart, ids.astype(np.uint8), ids.astype(">i4"), ids.tolist()):
        np.testing.assert_array_equal(engine.step(other, engine.new_cache(2, 8)), want)


@pytest.mark.parametrize(
    "ids", [[], [[]], 3, np.zeros((2, 2, 2), dtype=np.int64), [1.5], [50], [-1], [1] * 21, None]
)
def test_texts_without_logits(engine: Engine, ids: Any) -> None:
    """Empty, of three dimensions, of other numbers, longer than the context."""
    with pytest.raises(InputError):
        engine.logits(ids)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((2, 3, 4), dtype=np.float32), r"shape \(rows, at least 1 token\), not \(2, 3, 4\)"),
        (np.zeros(3, dtype=np.float32), r"not \(3,\)"),
        (np.zeros((2, 0), dtype=np.float32), r"not \(2, 0\)"),
        (3.0, "not"),
        (np.zeros((2, 2), dtype=bool), "logits must be numbers, not bool"),
        (np.zeros((2, 2), dtype=complex), "logits must be numbers, not complex128"),
        ([["a"]], "logits must be numbers"),
        ([[1.0], [1.0, 2.0]], "logits must be an array of numbers"),
    ],
)
def test_logits_that_are_none(engine: Engine, logits: Any, message: str) -> None:
    """3-D logits gave the core an address in the place of a size."""
    with pytest.raises(InputError, match=message):
        engine.log_sums(logits)


def test_logits_in_any_order_of_memory(engine: Engine) -> None:
    """Of any numbers; no rows have no sums."""
    rows = np.arange(12.0).reshape(3, 4)
    want = engine.log_sums(rows.astype(np.float32))
    for other in (rows, np.asfortranarray(rows), rows.astype(np.int16), rows[::-1][::-1], rows.tolist()):
        assert engine.log_sums(other) == want  # type: ignore[arg-type]
    assert engine.log_sums(np.zeros((0, 4))) == []


@pytest.mark.parametrize("times", [0, -1, 1.5, True, "2"])
def test_times_that_weights_are_not_read(engine: Engine, times: Any) -> None:
    """For the benchmark."""
    engine.bare(1)
    with pytest.raises(InputError, match="times must be"):
        engine.bare(times)


@only_linux
def test_a_step_without_memory() -> None:
    """One error, with one thread and two, and the engine goes on where it was."""
    code = """
import resource
for threads in (1, 2):
    engine = Engine(CONFIG, arrays, threads=threads)
    want = engine.step(np.array([[1]]), engine.new_cache(1, 16)).tobytes()
    cache = engine.new_cache(1, 1_000_000)  # a thread needs 16 MB for its attention weights
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), before[1]))
    try:
        engine.step(np.array([[1]]), cache)
    except GlassError as error:
        print(error, cache.length)
    resource.setrlimit(resource.RLIMIT_AS, before)
    print(engine.step(np.array([[1]]), cache).tobytes() == want)
"""
    assert child(code).splitlines() == ["there is not enough memory for a step of 1 tokens 0", "True"] * 2


# Everything else.


def fuzz(seed: int, calls: int) -> dict[str, int]:
    """Random calls in a process of their own; how many of each kind were made and refused."""
    done = subprocess.run(
        [sys.executable, "-m", "engine.boundary", str(seed), str(calls)],
        capture_output=True, text=True, cwd=TESTS,
    )  # fmt: skip
    assert done.returncode == 0, (seed, done.returncode, done.stderr[-4000:])
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_random_calls_never_crash() -> None:
    """A result or one of our errors, of every kind of call; the engines give the same bits afterwards."""
    found = fuzz(0, FUZZING)
    assert sum(found.values()) == FUZZING
    kinds = ("construct", "pack", "new_cache", "step", "select", "rewind", "sums", "logits", "small")
    for kind in kinds:
        assert found[f"{kind} done"] > 0
        assert found[f"{kind} refused"] > 0
