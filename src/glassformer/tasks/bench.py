"""How fast a model is here: tokens a second of reading and generating, memory, time to the first token."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.engine.native import Engine
from glassformer.errors import GlassError, InputError
from glassformer.tasks.complete import LanguageModel

try:
    import resource
except ImportError:  # Windows has none: peak memory is not measured there
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Figure:
    """One measurement: the median of several rounds, and the rounds."""

    id: str  # the same for every model and context
    name: str
    unit: str
    median: float
    rounds: list[float]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return dict(vars(self))


def bench(lm: LanguageModel, *, rounds: int = 5) -> Iterator[Figure]:
    """Measure a loaded model: every figure as it is there. A first round warms up and does not count."""
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, not {rounds}")
    context = lm.backend.context or 1024
    long, short = min(512, context - 1), min(64, context // 4)
    many, few = min(128, context - short), min(32, context - short)
    yield _measure("prefill", f"prefill: {long} tokens", long, rounds, lambda: _write(lm, 1, long, 1))
    yield _measure(
        "decode", f"decode: {many} tokens after {short}", many, rounds, lambda: _write(lm, 1, short, many)
    )
    sampled = {"temperature": 0.7, "top_k": 40, "seed": 0}
    drawn = "the same, drawn among the 40 best"
    yield _measure("decode_sampled", drawn, many, rounds, lambda: _write(lm, 1, short, many, **sampled))
    batch = f"decode: 8 texts of {few} tokens at once"
    yield _measure("decode_batch", batch, 8 * few, rounds, lambda: _write(lm, 8, short, few))
    if lm.backend.context is not None:  # elsewhere a step costs the same at every position
        for id, place in (("decode_early", min(100, context // 2)), ("decode_late", context - 24)):
            yield _measure(id, f"decode at position {place}", 16, rounds, at_place(lm, place))
    if isinstance(engine := lm.backend, Engine):
        yield _measure("weights", "the weights alone, once a token", 8, rounds, lambda: engine.bare(8))
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        yield Figure("peak_memory", "peak memory", "MB", peak / 1e6, [])


def cold_start(model: str, engine: str, *, quantize: str = "int8", rounds: int = 5) -> Figure:
    """From the start of a process to the first token: `glass generate -n 1`, all in all."""
    command = [
        sys.executable,
        "-m",
        "glassformer",
        "generate",
        "-m",
        model,
        "--engine",
        engine,
        "--quantize",
        quantize,
        "-n",
        "1",
        "-s",
        "0",
        "Once",
    ]
    taken = []
    for turn in range(rounds + 1):
        began = time.perf_counter()
        child = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=dict(os.environ))
        if child.returncode:
            raise GlassError(f"glass generate failed: {child.stderr.decode(errors='replace').strip()[-300:]}")
        if turn:
            taken.append(time.perf_counter() - began)
    return Figure("first_token", "process start to first token", "s", statistics.median(taken), taken)


def _measure(id: str, name: str, tokens: int, rounds: int, work: Callable[[], object]) -> Figure:
    speeds = []
    for turn in range(rounds + 1):
        began = time.perf_counter()
        work()
        if turn:
            speeds.append(tokens / (time.perf_counter() - began))
    return Figure(id, name, "tokens/s", statistics.median(speeds), speeds)


def _ids(lm: LanguageModel, row: int, count: int) -> list[int]:
    return [(7 * i + 13 * row) % (lm.backend.vocab - 1) for i in range(count)]


def _write(lm: LanguageModel, rows: int, given: int, new: int, **options: Any) -> None:
    prompts = [_ids(lm, row, given) for row in range(rows)]
    # Without prompt lookup: it measures how much the text repeats itself.
    usual = {"temperature": 0.0, "prompt_lookup_num_tokens": 0}
    made = lm.generate_many(prompts, max_new_tokens=new, min_new_tokens=new, **(usual | options))
    assert all(len(out.tokens) == new for out in made)


def at_place(lm: LanguageModel, place: int) -> Callable[[], None]:
    """Sixteen steps behind a prefix of `place` tokens, to be repeated."""
    stepper = lm.backend
    cache = stepper.new_cache(1, min(place + 16, stepper.context or place + 16))
    stepper.step(np.array([_ids(lm, 0, place)]), cache)

    def steps() -> None:
        cache.rewind(place)  # a KV cache, of torch or of the engine, forgets without a copy
        for token in _ids(lm, 0, 16):
            stepper.step(np.array([[token]]), cache)

    return steps
