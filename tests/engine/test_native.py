"""The whole pass: near the float model, the same bits however a text is read, and every decoder of the house."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from decoding import run, search
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import reference
from engine.conftest import engine_of, random_model
from glassformer.engine import native
from glassformer.engine.native import Engine
from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.models.gpt import GPT

Array = np.ndarray[Any, Any]
GREEDY = Options(temperature=0.0, max_new_tokens=12)


def text(rng: np.random.Generator, model: Any, length: int) -> Array:
    return rng.integers(0, model.vocab, length)


def read(engine: Engine, ids: Array, *pieces: int) -> Array:
    """Logits after a text that is read in pieces."""
    cache = engine.new_cache(1, len(ids))
    for part in np.split(ids, np.cumsum(pieces)):
        if len(part):
            out = engine.step(part[None], cache)
    return np.asarray(out[0])


# Right: as an independent implementation has it.

SIZES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 5),
        "neurons": st.sampled_from([0, 1, 7, 16, 33]),
        "vocab": st.integers(2, 300),
        "context": st.integers(1, 70),
        "activation": st.sampled_from(["gelu_tanh", "gelu_erf", "relu"]),
        "tied": st.booleans(),
        "bias": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=SIZES,
    head=st.integers(1, 40),
    seed=st.integers(0, 99),
    way=st.sampled_from(native.ways() or ("none",)),
    bits=st.sampled_from([8, 4]),
    data=st.data(),
)
def test_any_shape_is_the_references(
    sizes: dict[str, Any], head: int, seed: int, way: str, bits: int, data: st.DataObject
) -> None:
    """Layers, heads, widths, vocabularies and lengths of all kinds, on every instruction set.

    Where float32 and float64 round an activation to neighboring whole numbers, logits differ a little; never
    by much.
    """
    model = random_model(seed, width=head * sizes["heads"], **sizes)
    ids = text(
        np.random.default_rng(seed), model, data.draw(st.integers(1, sizes["context"]), label="length")
    )
    engine = engine_of(model, threads=2, way=way, bits=bits)
    weights = reference.eight_bits if bits == 8 else reference.packed(engine._arrays)
    got, want = engine.logits(ids), reference.logits(model, ids, weights)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 0.2 * max(1.0, want.std())
    assert np.abs(got - want).mean() <= 0.05 * max(0.2, want.std())


def test_four_bits_are_near_the_float_model(model: GPT, rng: np.random.Generator) -> None:
    """Farther than eight, but no more than that: on random weights, of which every bit counts."""
    ids = text(rng, model, 64)
    with torch.no_grad():
        exact = model(torch.tensor(ids)[None])[0].numpy()
    four, eight = (engine_of(model, bits=bits).logits(ids) for bits in (4, 8))
    assert np.corrcoef(four.ravel(), exact.ravel())[0, 1] > 0.95
    assert np.abs(eight - exact).mean() < np.abs(four - exact).mean() < 20 * np.abs(eight - exact).mean()


def test_it_is_near_the_float_model(model: GPT, engine: Engine, rng: np.random.Generator) -> None:
    """Eight bits cost a little, and no more."""
    ids = text(rng, model, 64)
    with torch.no_grad():
        exact = model(torch.tensor(ids)[None])[0].numpy()
    got = engine.logits(ids)
    assert np.corrcoef(got.ravel(), exact.ravel())[0, 1] > 0.999
    assert not np.array_equal(got, exact)


@pytest.mark.parametrize(
    "change", [{"tied": False}, {"bias": False}, {"activation": "relu"}, {"neurons": 20}, {"heads": 1}]
)
def test_every_key_of_a_configuration_counts(change: dict[str, Any]) -> None:
    """The reference sees each of them too; a model that ignored one would be far off."""
    model = random_model(3, **change)
    ids = text(np.random.default_rng(1), model, 30)
    assert np.abs(engine_of(model).logits(ids) - reference.logits(model, ids)).max() < 0.2


# The same bits.


@pytest.mark.parametrize("way", native.ways())
@pytest.mark.parametrize("bits", [8, 4])
def test_pieces_threads_and_rewinding_change_no_bit(
    model: GPT, way: str, bits: int, rng: np.random.Generator
) -> None:
    """Chunks of 1, 2, 3, 16 and all; one, two and three threads; after a rollback; with the prefix of another
    text.
    """
    ids = text(rng, model, 50)
    engines = [engine_of(model, threads=threads, way=way, bits=bits) for threads in (1, 2, 3)]
    want = read(engines[0], ids)
    for engine in engines:
        for size in (1, 2, 3, 16, 50):
            np.testing.assert_array_equal(read(engine, ids, *[size] * (50 // size)), want)
    engine = engines[1]
    np.testing.assert_array_equal(engine.logits(ids)[-1], want)
    np.testing.assert_array_equal(engine.logits(ids[:20]), engine.logits(ids)[:20])
    cache = engine.new_cache(1, 64)
    engine.step(np.concatenate([ids[:30], text(rng, model, 20)])[None], cache)
    cache.rewind(30)
    np.testing.assert_array_equal(engine.step(ids[None, 30:], cache)[0], want)
    other = cache.select([0, 0, 0])
    other.rewind(49)
    np.testing.assert_array_equal(engine.step(ids[None, 49:].repeat(3, 0), other), np.stack([want] * 3))


@pytest.mark.parametrize("bits", [8, 4])
def test_every_instruction_set_gives_the_same_bits(model: GPT, bits: int, rng: np.random.Generator) -> None:
    """Not only near each other."""
    ids = text(rng, model, 40)
    found = [engine_of(model, way=way, bits=bits).logits(ids) for way in native.ways()]
    assert all(np.array_equal(found[0], other) for other in found)


def test_needle_in_any_batch(model: GPT, any_engine: Engine, rng: np.random.Generator) -> None:
    """One prompt in 200 random batches of 1 to 32, anywhere, among neighbors of all lengths: the same bits
    every time.
    """
    engine = any_engine
    needle, more = text(rng, model, 17), text(rng, model, 5)
    want = [read(engine, np.concatenate([needle, more[:n]])) for n in range(6)]
    for _ in range(200):
        rows, at = (size := int(rng.integers(1, 33))), int(rng.integers(0, size))
        texts = [text(rng, model, int(rng.integers(1, 40))) for _ in range(rows)]
        texts[at] = needle
        longest = max(map(len, texts))
        padding = np.array([longest - len(one) for one in texts])
        ids = np.stack(
            [
                np.concatenate([rng.integers(0, model.vocab, pad), one])
                for pad, one in zip(padding, texts, strict=True)
            ]
        )
        cache = engine.new_cache(rows, longest + 5, padding=padding)
        np.testing.assert_array_equal(engine.step(ids, cache)[at], want[0])
        for n, token in enumerate(more, 1):
            column = rng.integers(0, model.vocab, (rows, 1))
            column[at] = token
            np.testing.assert_array_equal(engine.step(column, cache)[at], want[n])


def test_the_ids_of_padding_change_nothing(engine: Engine, model: GPT, rng: np.random.Generator) -> None:
    """Not a bit."""
    ids, padding = text(rng, model, 40).reshape(2, 20), np.array([0, 7])
    one = engine.step(ids, engine.new_cache(2, 20, padding=padding))
    ids[1, :7] = (ids[1, :7] + 1) % model.vocab
    np.testing.assert_array_equal(engine.step(ids, engine.new_cache(2, 20, padding=padding)), one)


def test_a_thousand_greedy_texts_with_and_without_cache(
    model: GPT, engine: Engine, rng: np.random.Generator
) -> None:
    """The tokens of the cache are those of reading everything anew, each time."""
    prompts = [text(rng, model, int(rng.integers(1, 12))).tolist() for _ in range(1000)]
    written: list[list[int]] = [[] for _ in prompts]
    for event in run(engine, prompts, replace(GREEDY, max_new_tokens=4)):
        if event.token is not None:
            written[event.prompt].append(event.token)
    for prompt, tokens in zip(prompts, written, strict=True):
        again = engine.logits(np.array([*prompt, *tokens]))[len(prompt) - 1 : -1]
        assert again.argmax(1).tolist() == tokens


def test_a_thousand_seeded_requests_twice_and_by_64_clients(model: GPT, rng: np.random.Generator) -> None:
    """Alone, in a batch with others, and from many threads at once: text and log-probabilities to the bit."""
    engine = engine_of(model, threads=2)
    prompts = [text(rng, model, int(rng.integers(1, 9))).tolist() for _ in range(1000)]

    def ask(which: int) -> list[tuple[int | None, float | None]]:
        options = Options(temperature=1.3, top_k=20, seed=which, max_new_tokens=5)
        return [(event.token, event.logprob) for event in run(engine, [prompts[which]], options)]

    alone = [ask(which) for which in range(1000)]
    with ThreadPoolExecutor(64) as clients:
        assert list(clients.map(ask, range(1000))) == alone
    same = Options(temperature=1.3, top_k=20, seed=7, max_new_tokens=5)
    together: list[list[Any]] = [[] for _ in prompts]
    for event in run(engine, prompts, same):
        together[event.prompt].append((event.token, event.logprob))
    assert together[7] == alone[7]


RESTART = """
import sys, zlib
sys.path[:0] = {path!r}
from engine.conftest import engine_of, random_model
import numpy as np
model = random_model()
print(zlib.crc32(engine_of(model, threads=int(sys.argv[1])).logits(np.arange(60) * 7 % 200).tobytes()))
"""


def test_the_same_bits_after_a_restart(model: GPT, engine: Engine) -> None:
    """In other processes, with one thread and two."""
    import zlib

    want = str(zlib.crc32(engine.logits(np.arange(60) * 7 % 200).tobytes()))
    for threads in ("1", "2"):
        code = RESTART.format(path=[path for path in sys.path if path])
        child = subprocess.run(
            [sys.executable, "-c", code, threads], capture_output=True, text=True, check=True
        )
        assert child.stdout.strip() == want


def test_the_same_bits_in_memory_that_was_used(model: GPT, rng: np.random.Generator) -> None:
    """A cache takes the memory of one that is gone, and a step that of the step before: of longer texts, of shorter ones."""
    engine = engine_of(model, threads=2)
    for length in (64, 3, 40, 1, 17, 64, 20):
        ids = text(rng, model, length)
        assert read(engine, ids).tobytes() == read(engine_of(model, threads=2), ids).tobytes()


def test_a_cache_is_empty_in_memory_that_was_used(engine: Engine) -> None:
    """And what a caller has seen of the cache that is gone does not change."""
    cache = engine.new_cache(1, 20)
    engine.step(np.array([[1, 2, 3]]), cache)
    address, seen = cache._keys.ctypes.data, cache.keys
    assert seen.any()
    other = engine.new_cache(1, 20)
    assert other._keys.ctypes.data != address  # the first is still in use
    del cache
    again = engine.new_cache(1, 16)
    assert again._keys.ctypes.data == address
    assert not again.keys.any()
    assert not again.values.any()
    assert seen.any()


def test_threads_that_slept(model: GPT, engine: Engine, rng: np.random.Generator) -> None:
    """They are called when there is work again; whoever is there first does it, with the same bits."""
    several, ids = engine_of(model, threads=4), text(rng, model, 60)
    want = read(engine, ids).tobytes()
    for seconds in (0.0, 0.001, 0.0025, 0.01, 0.1):
        time.sleep(seconds)
        assert read(several, ids).tobytes() == want


# As `generation/` uses it.


def test_samples_beams_and_sliding(model: GPT, engine: Engine) -> None:
    """All that the torch models do, by the same code; what is written is what the engine scores best."""
    prompts = [[1, 2, 3], [4] * 20, [9]]
    events = list(run(engine, prompts, GREEDY))
    tokens = [[e.token for e in events if e.prompt == which and e.token is not None] for which in range(3)]
    for prompt, made in zip(prompts, tokens, strict=True):
        alone = [event.token for event in run(engine, [prompt], GREEDY) if event.token is not None]
        assert alone == made
        assert len(made) == 12
    beams = search(engine, [1, 2, 3], Options(num_beams=4, num_return_sequences=4, max_new_tokens=6))
    assert len({tuple(beam.tokens) for beam in beams}) == 4
    slid = [
        e
        for e in run(engine, [[5] * 60], replace(GREEDY, max_new_tokens=30, overflow="slide"))
        if e.token is not None
    ]
    assert len(slid) == 30


def test_it_refuses_what_does_not_fit(engine: Engine, model: GPT) -> None:
    """Too many tokens, strange ids, rows of nothing: an error, before the core sees them."""
    cache = engine.new_cache(1, 10)
    engine.step(np.array([[1] * 10]), cache)
    engine.step(np.array([[1] * 6]), cache)  # room is made in sixteens
    with pytest.raises(InputError, match="17 tokens are 1 more than the 16"):
        engine.step(np.array([[1]]), cache)
    with pytest.raises(InputError, match="65 tokens are 1 more than the 64"):
        engine.step(np.ones((1, 65), dtype=np.int64), engine.new_cache(1, 100))
    for id in (-1, model.vocab):
        with pytest.raises(InputError, match="not between 0 and 199"):
            engine.step(np.array([[1, id]]), engine.new_cache(1, 10))
    with pytest.raises(InputError, match="not padding"):
        engine.step(np.array([[1, 1]]), engine.new_cache(1, 10, padding=np.array([5])))
    with pytest.raises(InputError, match="has no sse9;"):
        engine_of(model, way="sse9")


def test_an_instruction_set_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare two, or to do without the first; one that this machine lacks is refused."""
    every = native.ways()
    monkeypatch.setattr(native, "ways", native.ways.__wrapped__)
    monkeypatch.setenv(native.CHOICE, "plain")
    assert native.ways() == ("plain", *(way for way in every if way != "plain"))
    assert native.status() == "native (plain)"
    monkeypatch.setenv(native.CHOICE, "sse9")
    with pytest.raises(InputError, match="GLASSFORMER_INSTRUCTIONS: 'sse9' is none of"):
        native.ways()


def test_many_engines_come_and_go(model: GPT) -> None:
    """Threads end with their engine."""
    before = (
        len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()
    )
    for _ in range(20):
        engine_of(model, threads=3).step(np.array([[1, 2]]), engine_of(model).new_cache(1, 4))
    after = (
        len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()
    )
    assert after <= before + 3


@pytest.mark.parametrize("way", native.ways())
@pytest.mark.parametrize("size", [1, 15, 16, 17, 1023, 1024, 1025, 50257])
def test_the_log_of_the_sum_of_exponentials(
    model: GPT, way: str, size: int, rng: np.random.Generator
) -> None:
    """Of any size, to seven digits; each row the same bits alone, in a batch and with any number of threads."""
    rows = (8 * rng.standard_normal((5, size))).astype(np.float32)
    rows[1] += 1000
    one, two = (engine_of(model, way=way, threads=threads) for threads in (1, 2))
    found = two.log_sums(rows)
    np.testing.assert_allclose(
        found, np.logaddexp.reduce(rows.astype(np.float64), axis=1), rtol=1e-6, atol=1e-6
    )
    assert found == one.log_sums(rows) == [two.log_sums(row[None])[0] for row in rows]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_threads_of_its_own(model: GPT) -> None:
    """Those of its parent do not exist in it; nothing hangs."""
    code = """
import sys, os, warnings
warnings.simplefilter("ignore")
sys.path[:0] = {path!r}
from engine.conftest import engine_of, random_model
import numpy as np
engine = engine_of(random_model(), threads=2)
want = engine.logits(np.arange(9)).tobytes()
child = os.fork()
if child == 0:
    os._exit(0 if engine.logits(np.arange(9)).tobytes() == want else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert engine.logits(np.arange(9)).tobytes() == want
"""
    code = code.format(path=[path for path in sys.path if path])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
