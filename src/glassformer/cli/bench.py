"""glass bench"""

from typing import Annotated, Any

import typer

from glassformer.cli.options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    Engine,
    Json,
    Model,
    Offline,
    log,
    out,
    print_json,
)


def bench(
    model: Model = DEFAULT_MODEL,
    engine: Engine = "auto",
    rounds: Annotated[int, typer.Option(help="Measure each so many times; the median is shown.")] = 5,
    cold: Annotated[
        bool, typer.Option("--cold/--no-cold", help="Also start `glass generate` anew, to its first token.")
    ] = True,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """How fast a model reads and writes on this machine.

    \b
    glass bench                        the storyteller, by the engine that `auto` takes
    glass bench --engine torch         the same in torch
    glass bench -m gpt2 --json         another model, as data

    OMP_NUM_THREADS sets the number of threads. Medians with the lowest and the highest round: on a busy machine figures
    wander, so compare within one run. benchmarks/peers does that beside other libraries.
    """
    from glassformer.tasks.bench import bench, cold_start
    from glassformer.tasks.load import load

    lm = load(
        model, engine=engine, device=device, dtype=dtype, offline=offline, say=lambda text: log().print(text)
    )
    figures = []
    if not as_json:
        out().print(f"{model}, {lm.backend.name}, {lm.backend.threads} threads")
    for figure in bench(lm, rounds=rounds):
        figures.append(figure)
        if not as_json:
            show(figure)
    if cold and device == "cpu" and dtype == "float32":
        figures.append(cold_start(model, engine, rounds=rounds))
        if not as_json:
            show(figures[-1])
    if as_json:
        print_json(
            {
                "model": model,
                "engine": lm.backend.name,
                "threads": lm.backend.threads,
                "figures": [one.to_dict() for one in figures],
            }
        )


def show(figure: Any) -> None:
    """One line of a figure."""
    digits = 2 if figure.median < 10 else 0
    around = (
        f"   ({min(figure.rounds):,.{digits}f} to {max(figure.rounds):,.{digits}f})" if figure.rounds else ""
    )
    out().print(f"{figure.name:<42} {figure.median:>9,.{digits}f} {figure.unit}{around}")
