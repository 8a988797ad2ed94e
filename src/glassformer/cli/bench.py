"""glass bench"""

from typing import TYPE_CHECKING

from glassformer.cli import flags
from glassformer.cli.flags import Loading, option
from glassformer.cli.printing import out, print_json
from glassformer.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glassformer.tasks.bench import Figure
    from glassformer.tasks.complete import LanguageModel


@flags.verb
@flags.model_argument(flags.MODEL, default=flags.DEFAULT_MODEL)
@flags.loading(flags.engine, flags.quantize, flags.device, flags.dtype, flags.revision, flags.offline)
@option("--rounds", default=5, help="Measure each N times; the median is shown.")
@option("--cold/--no-cold", default=True, help="Also start `glass generate` anew, to its first token.")
@flags.as_json
def bench(loading: Loading, *, rounds: int, cold: bool, as_json: bool) -> None:
    """How fast a model reads and generates on this machine.

    \b
    glass bench                        the storyteller, by the engine that `auto` takes
    glass bench --engine torch         the same in torch
    glass bench --quantize int4        with weights of four bits
    glass bench gpt2 --json            another model, as data

    OMP_NUM_THREADS sets the number of threads. Medians with the lowest and the highest round: on a busy
    machine figures vary, so compare within one run. benchmarks/peers does that beside other libraries.
    """
    flags.at_least("--rounds", rounds, least=1)
    lm = loading.load_language_model()
    backend = lm.backend
    if not as_json:
        out(f"{loading.model}, {backend.name}, {counted(backend.threads, 'thread')}")

    figures = []
    for figure in measure(lm, loading, rounds=rounds, cold=cold):
        figures.append(figure)
        if not as_json:
            out(line_of(figure))
    if as_json:
        about = {"model": loading.model, "engine": backend.name, "threads": backend.threads}
        print_json(about | {"figures": [one.to_dict() for one in figures]})


def measure(lm: "LanguageModel", loading: Loading, *, rounds: int, cold: bool) -> "Iterator[Figure]":
    """Every figure as it is measured."""
    from glassformer.tasks.bench import bench, cold_start

    yield from bench(lm, rounds=rounds)
    if cold and loading.device == "cpu" and loading.dtype == "float32":
        yield cold_start(loading.model, loading.engine, quantize=loading.quantize, rounds=rounds)


def line_of(figure: "Figure") -> str:
    """One line of a figure."""
    digits = 2 if figure.median < 10 else 0
    around = ""
    if figure.rounds:
        around = f"   ({min(figure.rounds):,.{digits}f} to {max(figure.rounds):,.{digits}f})"
    return f"{figure.name:<42} {figure.median:>9,.{digits}f} {figure.unit}{around}"
