"""glass models, show, pull, rm, convert"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.answers import ask
from glassformer.cli.asked import answer, check_file, one_question
from glassformer.cli.options import Dark, Json, Offline, Output, Revision, Width, out, print_json
from glassformer.errors import InputError
from glassformer.tasks import library

NOTE_124M = """
Why 124M and not 117M: OpenAI's first release note and the paper's table say 117M, a miscount that was corrected
later. Counted from this file it is 124,439,808: 12 blocks of 7,087,872, a token matrix of 50,257 × 768, a position
matrix of 1,024 × 768 and the last layer norm. The output matrix is the token matrix once more and counts once.
(The Illustrated GPT-2's own table sums to 124,410,624: it gives the feed-forward layer's first bias as 768 instead
of 3,072 in each block, and leaves out the last layer norm.)"""


def models(as_json: Json = False) -> None:
    """The models on this machine: shipped, kept at home, and in the hub's cache.

    \b
    glass models             a table
    glass models --json      the same, as data
    """
    found = library.kept()
    if as_json:
        print_json([{**vars(one), "folder": str(one.folder)} for one in found])
        return
    console = out()
    width = max((len(one.name) for one in found), default=4)
    for one in found:
        console.print(
            f"{one.name:<{width}}  {_size(one.size):>9}  {one.where:<9}  {one.revision or one.folder}"
        )
    names = {one.name for one in found}
    missing = [f"{name} ({_size(size)})" for name, size in library.known().items() if name not in names]
    if missing:
        console.print(f"\nTo be had by `glass pull NAME`: {', '.join(missing)}, or any GPT-2 on the hub.")


def show(
    model: Annotated[
        str, typer.Argument(help="A shipped name, a folder, a hub id or a name kept at home.")
    ] = "storyteller",
    curve: Annotated[
        bool, typer.Option("--curve", help="Instead: the loss of a training (its folder or metrics.jsonl).")
    ] = False,
    training_rows: Annotated[
        str | None, typer.Option(help="Instead: the rows of features and label that this text becomes.")
    ] = None,
    window: Annotated[int, typer.Option(help="With --training-rows: tokens of a row, at most.")] = 8,
    update: Annotated[
        str | None, typer.Option(help="Instead: one training step toward this text's last token, in numbers.")
    ] = None,
    lr: Annotated[float, typer.Option(help="With --update: the learning rate.")] = 0.001,
    output: Output = None,
    dark: Dark = False,
    width: Width = 960,
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """A model's parameters: per tensor, per block, in total, counted from its file.

    \b
    glass show                    the model that ships
    glass show gpt2               GPT-2 small, and why it says 124M and not 117M
    glass show -o parameters.svg  a picture of where they are
    glass show --curve runs/mine  how a training went; with -o as a picture
    glass show --training-rows "A robot must obey"    features and label, as training sees a text
    glass show --update "A robot must obey"           one update: predict, error, weights, predict again
    """
    check_file(output)
    one_question({"--curve": curve, "--training-rows": training_rows, "--update": update})
    how: dict[str, Any] = {"as_json": as_json, "output": output, "dark": dark, "width": width}
    if curve:
        answer(ask("curve", [metrics_of(model)]), **how)
        return
    if training_rows is not None:
        from glassformer.tasks.tokenize import load_tokenizer

        tokenizer = load_tokenizer(model, revision=revision, offline=offline)
        answer(ask("training_rows", tokenizer, training_rows, window=window), **how)
        return
    if update is not None:
        from glassformer.tasks.complete import load

        lm = load(model, engine="torch", revision=revision, offline=offline)
        answer(lm.update(update, lr=lr), **how)
        return

    table = library.describe(model, revision=revision, offline=offline)
    if output is not None:
        answer(ask("parameters", table), **how)
        return
    if as_json:
        print_json(table.to_dict())
        return
    console = out()
    width = max(len(row.name) for row in [*table.whole, *table.block]) + 2
    console.print(f"{model}  ({table.folder})\n")
    for row in table.whole[:2]:
        console.print(_row(row, width))
    console.print(f"{table.blocks} blocks, each:")
    for row in table.block:
        console.print("  " + _row(row, width - 2))
    console.print(f"  {'one block':<{width + 16}}{table.block_total:>15,}")
    console.print(f"{f'{table.blocks} blocks':<{width + 18}}{table.block_total * table.blocks:>15,}")
    for row in table.whole[2:]:
        console.print(_row(row, width))
    console.print(f"{'total':<{width + 18}}{table.total:>15,}")
    console.print(f"\n{_size(table.size)} on disk, {table.dtype}")
    if table.total == 124_439_808:
        console.print(NOTE_124M)


def metrics_of(name: str) -> Path:
    """The log of a training: the file itself, or that in its folder."""
    path = Path(name)
    file = path / "metrics.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: there is no such log of a training")
    return file


def pull(
    model: Annotated[str, typer.Argument(help="A hub id, as gpt2 or owner/name@revision.")],
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Fetch a model from the hub into its cache, and check its hash.

    \b
    glass pull gpt2                          GPT-2 small, 548 MB
    glass pull distilbert/distilgpt2@main    any GPT-2 on the hub, at a revision
    """
    folder = library.pull(model, revision=revision, offline=offline)
    print_json({"folder": str(folder)}) if as_json else print(folder)


def rm(
    model: Annotated[str, typer.Argument(help="A name from `glass models`.")],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a model that was pulled or converted.

    \b
    glass rm gpt2            asks first
    glass rm -y my-model     does not
    """
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("rm asks before it removes; without a terminal give --yes")
        typer.confirm(f"Remove {model}?", abort=True, err=True)
    freed = library.remove(model)
    print_json({"removed": model, "freed": freed}) if as_json else print(
        f"removed {model}, {_size(freed)} freed"
    )


def convert(
    source: Annotated[
        Path, typer.Argument(help="A .pt or .bin file, or its folder: nanoGPT, minGPT, Hugging Face.")
    ],
    target: Annotated[
        str | None, typer.Argument(help="A name to keep it under, or a folder (with a slash).")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Number of attention heads, if the file does not say it (minGPT).")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="gelu_new (tanh) or gelu (erf), if it is not as usual.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with the vocabulary.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Store as float32, float16 or bfloat16.")] = None,
    as_json: Json = False,
) -> None:
    """Turn a pickled checkpoint into a folder that loads without pickle, here and in transformers.

    \b
    glass convert out/ckpt.pt my-model           nanoGPT; then: glass generate -m my-model
    glass convert model.pt ./folder --heads 6    minGPT, into a folder of your choice

    The pickle is read in a confined child process, weights only. nanoGPT checkpoints are taken to use the erf form of
    GELU, as its code does since June 2023; older ones want --activation gelu_new.
    """
    folder = library.convert(
        source, target, heads=heads, activation=activation, tokenizer=tokenizer, dtype=dtype
    )
    print_json({"folder": str(folder)}) if as_json else print(folder)


def _row(row: library.Row, width: int) -> str:
    shape = " × ".join(f"{n:,}" for n in row.shape)
    return f"{row.name:<{width}}{shape:>18}{row.parameters:>15,}"


def _size(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
