"""glass eval"""

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glassformer.cli.options import Device, Dtype, Engine, Json, Offline, Revision, log, out, print_json


def evaluate(
    model: Annotated[
        str, typer.Argument(help="A shipped name, a folder, a run, a hub id or a name kept at home.")
    ],
    what: Annotated[
        str, typer.Argument(help="wikitext2, lambada, or a file or folder of text or JSON lines.")
    ],
    stride: Annotated[
        int, typer.Option(help="How far windows move in the second measurement; 0: half a window.")
    ] = 0,
    documents: Annotated[int, typer.Option(help="Only so many documents; 0: all.")] = 0,
    characters: Annotated[int, typer.Option(help="Only so many characters of each; 0: all.")] = 0,
    field: Annotated[str, typer.Option(help="The key under which a line of JSON has its text.")] = "text",
    engine: Engine = "torch",
    revision: Revision = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """How well a model knows a text that it has not seen.

    \b
    glass eval runs/shakespeare part.txt     perplexity and bits per byte, without overlap and with a stride
    glass eval gpt2 wikitext2                the raw test set; looked for in GLASSFORMER_DATA
    glass eval gpt2 lambada                  the last word of a passage: accuracy and perplexity
    glass eval gpt2 wikitext2 --engine native    what eight bits cost

    The protocol is printed with every figure: without it, no two perplexities can be compared. Lower is better.
    """
    from glassformer.tasks.evaluate import evaluate as measure
    from glassformer.tasks.load import load

    lm = load(model, engine=engine, revision=revision, device=device, dtype=dtype, offline=offline)
    console = log()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        found = list(
            measure(
                lm, what, stride=stride, documents=documents, characters=characters, field=field,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        )  # fmt: skip
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    for one in found:
        parts = [
            f"perplexity {one.perplexity:.2f}",
            f"loss {one.loss:.4f} nats a token",
            f"{one.tokens:,} tokens",
        ]
        parts += [] if one.bits_per_byte is None else [f"{one.bits_per_byte:.4f} bits per byte"]
        parts = parts if one.accuracy is None else [f"accuracy {one.accuracy:.2%}", *parts]
        out().print(f"{one.name}:  {'  '.join(parts)}\n  {one.protocol}")
