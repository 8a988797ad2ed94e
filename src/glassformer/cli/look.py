"""glass attention, lens, saliency, neurons, edit, diff"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassformer.cli.options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    File,
    Json,
    Model,
    Offline,
    Revision,
    log,
    out,
    print_json,
    read_prompt,
    visible,
)
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.look import Look

Words = Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write the numbers to a file: .json or .csv.")]
Layer = Annotated[int | None, typer.Option("-l", "--layer", help="One layer, counted from 0.")]
Head = Annotated[int | None, typer.Option("--head", help="One head, counted from 0.")]
Layers = Annotated[list[int] | None, typer.Option("-l", "--layer", help="Only this layer; repeatable.")]
Generated = Annotated[int, typer.Option("-n", "--max-new-tokens", help="First write so many tokens, and explain those.")]
WORDY = ("token", "source", "likeliest", "because of", "stage", "query", "step")
Seed = Annotated[int, typer.Option("-s", "--seed", help="Of what is written, and of factors.")]


def attention(
    text: Words = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    layer: Layer = None,
    head: Head = None,
    query: Annotated[str | None, typer.Option(help="The five steps of this word (or position) in --layer and --head.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Which heads look from this word (or position) …")] = None,
    target: Annotated[str | None, typer.Option("--to", help="… to that one.")] = None,
    by_word: Annotated[bool, typer.Option("--words", help="Join the tokens of a word.")] = False,
    robot: Annotated[bool, typer.Option("--robot", help="The article's table: 'robot must obey orders'.")] = False,
    output: Output = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Who looks at whom.

    \b
    glass attention "The cat sat. The cat"               what kind of head each is, on this text
    glass attention -l 2 --head 1 "The cat sat"          where one head looks
    glass attention -l 2 --head 1 --query sat "The cat sat"   q·k, ÷ √K, mask, softmax, values
    glass attention --from it --to robot "A robot obeys; it must"   the heads that look there most
    glass attention --robot                              the article's table, with its missing step
    """
    from glassformer.tasks import look

    if robot:
        show(look.robot(), as_json, output)
        return
    if (source is None) != (target is None):
        raise InputError("--from and --to belong together")
    if query is not None and (layer is None or head is None):
        raise InputError("--query needs --layer and --head")
    if head is not None and layer is None:
        raise InputError("--head needs --layer")
    lm, ids = _read(text, file, model, revision=revision, device=device, dtype=dtype, offline=offline)
    if source is not None and target is not None:
        found = look.search(lm, ids, source, target)
    elif query is not None and layer is not None and head is not None:
        found = look.steps(lm, ids, layer, head, look.places_of(lm, ids, query)[-1])
    elif layer is not None:
        found = look.pattern(lm, ids, layer, head, by_word=by_word)
    else:
        found = look.heads(lm, ids)
    show(found, as_json, output)


def lens(
    text: Words = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    position: Annotated[str, typer.Option("-p", "--position", help="A position, a word, or all.")] = "-1",
    watch: Annotated[list[str] | None, typer.Option("-w", "--watch", help="Also follow this token (' is'); repeatable.")] = None,
    k: Annotated[int, typer.Option("-k", help="So many candidates (in --json).")] = 5,
    output: Output = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """What every layer would say next, if it were the last.

    \b
    glass lens "Once upon a"                         after the last token, layer by layer
    glass lens -p time "Once upon a time, there"     after another one
    glass lens -w " is" -w " are" "The keys to the cabinet"    two words against each other
    glass lens -p all -o lens.csv "Once upon a time"           every layer and position
    """
    from glassformer.tasks import look

    lm, ids = _read(text, file, model, revision=revision, device=device, dtype=dtype, offline=offline)
    found = look.lens(lm, ids, k=k, watch=watch or [])
    where = None if position == "all" else look.places_of(lm, ids, position)
    show(found, as_json, output, keep=lambda row: where is None or row[1] in where)


def saliency(
    text: Words = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    count: Generated = 5,
    method: Annotated[
        str, typer.Option(help="grad_x_input, gradient, integrated_gradients, occlusion or rollout.")
    ] = "grad_x_input",
    foil: Annotated[str | None, typer.Option("--not", help="Why not this token instead (' are')?")] = None,
    tested: Annotated[bool, typer.Option("--test/--no-test", help="Deletion, insertion, agreement with other methods.")] = True,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; higher is wilder.")] = 0.0,
    seed: Seed = 0,
    output: Output = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Which earlier tokens made the next ones likely.

    \b
    glass saliency -n 3 "The little dog was very"          three tokens, and what each is owed to
    glass saliency --method occlusion "Once upon a"        by taking tokens away
    glass saliency -n 1 --not " are" "The keys to the"     why this one and not that one

    Deletion: how much of the token's probability is left on average while the tokens named are taken away (low is good).
    Insertion: how much is there on average while they are put back (high is good).
    """
    from glassformer.tasks import look

    prompt = read_prompt(text, file)
    lm = _load(model, revision=revision, device=device, dtype=dtype, offline=offline)
    other = None if foil is None else look.find_token(lm, foil)
    written = lm.generate(prompt, max_new_tokens=count, temperature=temperature, seed=seed)
    console = log()
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(method, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        found = look.why(lm, written, method, foil=other, tested=tested, progress=progress)
    show(found, as_json, output)


def neurons(
    text: Words = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    layers: Layers = None,
    k: Annotated[int, typer.Option("-k", help="So many neurons a token.")] = 3,
    factors: Annotated[int, typer.Option(help="Instead: so many factors (NMF) over all these neurons.")] = 0,
    seed: Seed = 0,
    output: Output = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Which neurons fire at which tokens.

    \b
    glass neurons "The little dog ran"               the strongest at every token
    glass neurons -l 0 -k 10 "The little dog ran"    ten of the first layer
    glass neurons --factors 4 "1, 2, 3, 4, 5"        what they have in common
    """
    from glassformer.tasks import look

    lm, ids = _read(text, file, model, revision=revision, device=device, dtype=dtype, offline=offline)
    show(look.factors(lm, ids, factors, layers, seed) if factors else look.neurons(lm, ids, layers, k), as_json, output)


def diff(
    one: Annotated[str, typer.Argument(help="A model: a shipped name, a folder, a run, a hub id.")],
    other: Annotated[str, typer.Argument(help="Another one with the same vocabulary.")],
    text: Words = None,
    file: File = None,
    output: Output = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Two models on one text, token by token.

    \b
    glass diff storyteller runs/mine "Once upon a time, there was a dog."
    """
    from glassformer.tasks import look

    prompt = read_prompt(text, file)
    first, second = (_load(name, device=device, dtype=dtype, offline=offline) for name in (one, other))
    show(look.compare(first, second, prompt), as_json, output)


def _load(name: str, **how: Any) -> "LanguageModel":
    from glassformer.tasks.complete import load

    return load(name, **how)


def _read(text: str | None, file: Path | None, model: str, **how: Any) -> "tuple[LanguageModel, list[int]]":
    prompt = read_prompt(text, file)
    if not prompt:
        raise InputError("there is nothing to look at: the text is empty")
    lm = _load(model, **how)
    return lm, lm.encode(prompt)


def show(found: "Look", as_json: bool, output: Path | None, keep: Any = lambda row: True) -> None:
    """Print the table, or the numbers as JSON, or write them to a file."""
    if output is not None:
        if output.suffix not in (".json", ".csv"):
            raise InputError(f"{output}: numbers are written as .json or .csv")
        data = found.to_csv() if output.suffix == ".csv" else json.dumps(found.to_dict(), ensure_ascii=False) + "\n"
        try:
            output.write_text(data, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{output}: cannot be written ({error.strerror})") from None
        log().print(f"{output}")
        return
    if as_json:
        print_json(found.to_dict())
        return
    console = out()
    console.print(found.caption)
    table = Table(box=None, pad_edge=False)
    for name in found.columns:
        table.add_column(name, justify="left" if name in WORDY else "right", no_wrap=True)
    for row in filter(keep, found.rows):
        table.add_row(*map(_cell, row))
    if not console.is_terminal:
        console.width = 10_000  # in a pipe nothing is cut
    console.print(table)


def _cell(value: Any) -> Text:
    if isinstance(value, float):
        shown = "−∞" if value == float("-inf") else "–" if value != value else f"{value:.3f}"
        return Text(shown, style="bold" if value >= 0.5 else "dim" if abs(value) < 0.05 else "")
    return Text(visible(value) if isinstance(value, str) else str(value))
