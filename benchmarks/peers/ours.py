"""Glassformer itself, beside its peers: the native engine (int8, int4) or torch (fp32), by the whole path of
`generate_many`.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapter import main


def prepare(checkpoint: Path, target: Path, kind: str) -> None:
    """Quantize the model, as its first use would, into a home of this benchmark's own."""
    (target / "source").symlink_to(checkpoint.resolve())
    if kind != "torch":
        load(target, kind)


def load(folder: Path, kind: str) -> Any:
    """The language model of a target."""
    os.environ["GLASSFORMER_HOME"] = str(folder / "home")
    import glassformer as gf

    if "HIDE_AVX512" in os.environ:
        from glassformer.engine import native

        left = tuple(way for way in native.ways() if way in ("avx2", "plain"))
        native.ways = lambda: left  # type: ignore[assignment]
    source = str((folder / "source").resolve())
    return (
        gf.load(source, engine="torch")
        if kind == "torch"
        else gf.load(source, engine="native", quantize=kind)
    )


class Loaded:
    """A language model."""

    def __init__(self, folder: Path, kind: str, threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.lm = load(folder, kind)
        self.vocab = self.lm.backend.vocab

    def room(self, rows: int, length: int) -> None:
        """Nothing to do: each run makes its cache."""

    def run(self, ids: list[list[int]], new: int, **options: Any) -> list[list[int]]:
        """Greedy, if nothing else is said; without prompt lookup, as the peers decode."""
        usual = {"temperature": 0.0, "prompt_lookup_num_tokens": 0}
        made = self.lm.generate_many(ids, max_new_tokens=new, min_new_tokens=new, **(usual | options))
        return [out.tokens for out in made]

    def ask(self, what: str, place: int = 0, seconds: float = 0.0) -> float:
        """Tokens a second of the bare weights, of steps at a place, of default sampling, or of writing for
        some seconds.
        """
        from glassformer.tasks.bench import at_place

        work: Callable[[], object]
        if what == "bare":
            self.lm.engine.bare(2)
            work, tokens = (lambda: self.lm.engine.bare(16)), 16
        elif what == "at":
            work, tokens = at_place(self.lm, place), 16
            work()
        elif what == "sampled":
            row = [[7 * i % (self.vocab - 1) for i in range(64)]]
            work, tokens = (lambda: self.run(row, 128, temperature=0.7, top_k=40, seed=1)), 128
        else:
            steps, began, done = at_place(self.lm, 64), time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                steps()
                done += 16
            return done / (time.perf_counter() - began)
        began = time.perf_counter()
        work()
        return tokens / (time.perf_counter() - began)


if __name__ == "__main__":
    main(prepare, Loaded, needs_torch=True)
