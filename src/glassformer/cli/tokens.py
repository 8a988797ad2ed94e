"""glass tokenize, glass top"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.asked import Drawing, answer, check_file
from glassformer.cli.options import (
    DEFAULT_MODEL,
    Dark,
    Device,
    Dtype,
    File,
    Json,
    Model,
    Offline,
    Output,
    Revision,
    Width,
    log,
    out,
    print_json,
    read_prompt,
)
from glassformer.errors import InputError
from glassformer.figures.labels import cells, visible

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.look import Look
    from glassformer.tokenizers import WatchedWord

BAR = 40


def tokenize(
    text: Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin.")] = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids alone, in one line.")] = False,
    merges: Annotated[
        bool, typer.Option("--merges", help="Show how the tokens are made, merge by merge.")
    ] = False,
    special: Annotated[bool, typer.Option("--special", help="Read <|endoftext|> as the token.")] = False,
    train: Annotated[
        list[Path] | None, typer.Option(help="Learn a new vocabulary from this text file; repeatable.")
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="With --train: how many tokens it shall have.")] = 4096,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="The row of each token + the row of its position.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Save --merges or --vectors (.svg, .html, .csv …); with --train: a folder."
        ),
    ] = None,
    dark: Dark = False,
    width: Width = 960,
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """The tokens a text is made of.

    \b
    glass tokenize "unbelievable"                 each token with its id
    glass tokenize --merges "unbelievable"        the merges that made them, in order
    glass tokenize --merges -o merges.svg "unbelievable"   the same as a picture
    glass tokenize --vectors "unbelievable"       what goes into the first block
    glass tokenize -m gpt2 --ids "Hello world"    only the ids
    glass tokenize --train book.txt -o my-vocab   learn a vocabulary from a text
    """
    from glassformer.tasks import tokenize as task

    if train:
        learn(train, vocab_size, output)
        return
    if output is not None:
        if not (merges or vectors):
            raise InputError("-o saves --merges or --vectors, or with --train a vocabulary")
        check_file(output)
    prompt = read_prompt(text, file)
    if vectors:
        from glassformer.tasks.load import load

        answer(
            load(model, revision=revision, offline=offline).embedding(prompt),
            as_json,
            output,
            dark=dark,
            width=width,
        )
        return
    tokenizer = task.load_tokenizer(model, revision=revision, offline=offline)
    tokens = tokenizer.encode(prompt, special=special)
    watched = tokenizer.watch(prompt, special=special) if merges else []
    if output is not None:
        from glassformer.tasks.pictures import merges as drawn

        answer(drawn(tokenizer, prompt, special=special), as_json, output, dark=dark, width=width)
    elif as_json:
        rows: list[dict[str, Any]] = [{"id": id, "text": tokenizer.decode([id])} for id in tokens]
        print_json(
            {"tokens": rows, "merges": [_word(word) for word in watched]} if merges else {"tokens": rows}
        )
    elif ids:
        print(*tokens)
    elif merges:
        for word in watched:
            _print_merges(word, tokenizer.shown)
    else:
        console = out()
        shown = [visible(tokenizer.bytes_of(id).decode("utf-8", "backslashreplace")) for id in tokens]
        console.print("".join(f"[{token}]" for token in shown))
        console.print(f"{len(tokens)} tokens, {len(prompt.encode('utf-8', 'replace'))} bytes")
        for id, token in zip(tokens, shown, strict=True):
            console.print(f"{id:>7}  {token}")


def learn(files: list[Path], vocab_size: int, output: Path | None) -> None:
    """Train a vocabulary, with a bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from glassformer.tasks import tokenize as task

    if output is None:
        raise InputError("--train needs -o FOLDER, the place for the new tokenizer.json")
    missing = next((path for path in files if not path.is_file()), None)
    if missing is not None:
        raise InputError(f"there is no file {missing}")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=log()) as progress:
        reading = progress.add_task("reading", total=sum(path.stat().st_size for path in files))

        def advance(size: int) -> None:
            progress.advance(reading, size)

        made = task.train(files, vocab_size, folder=output, progress=advance)
        progress.update(reading, completed=sum(path.stat().st_size for path in files), description="learned")
    fewer = (
        ""
        if len(made) == vocab_size
        else f"; the text has no more pairs to merge, so it is fewer than {vocab_size:,}"
    )
    print(f"{output / 'tokenizer.json'}: {len(made):,} tokens, {len(made.merges):,} merges{fewer}")


def top(
    text: Annotated[
        str | None, typer.Argument(help="The text; '-' or a pipe reads stdin. None: a text's first word.")
    ] = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    k: Annotated[int, typer.Option("-k", help="How many tokens to show.")] = 10,
    interactive: Annotated[bool, typer.Option("-i", "--interactive", help="Pick one and go on.")] = False,
    temperature: Annotated[
        float, typer.Option(help="As generate would: above 0; 1 is the model's own opinion.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="Show the cut after the k likeliest; 0: none.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Show the cut after those that reach p together; 1: none.")
    ] = 1.0,
    output: Output = None,
    drawing: Drawing = None,
    dark: Dark = False,
    width: Width = 960,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """The ten likeliest next tokens, with their probabilities.

    \b
    glass top "Once upon a"                  ten tokens with bars
    glass top -k 3 --json "The dragon"       three, as data
    glass top --top-p 0.9 "Once upon a time, there was a"    and those that would be cut off
    glass top -o top.svg "Once upon a"       a picture
    glass top --interactive "One day"        pick a token by its number, go on, 0 to go back
    """
    from glassformer.tasks.complete import check_options
    from glassformer.tasks.load import load

    prompt = "" if interactive and text is None and file is None else read_prompt(text, file)
    if k < 1:
        raise InputError(f"-k must be at least 1, not {k}")
    check_file(output)
    if output is not None and as_json:
        raise InputError("--json prints and -o saves; give one of them")
    knobs = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    check_options(knobs)
    lm = load(model, revision=revision, device=device, dtype=dtype, offline=offline)
    if interactive:
        explore(lm, prompt, k, knobs)
    elif as_json:
        found = lm.choices(prompt, k, **knobs)
        rows = [
            {
                "token": id,
                "text": lm.piece(id),
                "probability": chance,
                "logprob": math.log(chance),
                "kept": kept,
            }
            for id, (_, _, chance, kept) in zip(found.numbers["ids"].tolist(), found.rows, strict=True)
        ]
        print_json({"text": prompt, "next": rows})
    elif output is not None:
        answer(lm.choices(prompt, k, **knobs), False, output, drawing, dark, width)
    else:
        _print_top(lm.choices(prompt, k, **knobs))


def explore(lm: "LanguageModel", prompt: str, k: int, knobs: dict[str, Any]) -> None:
    """Show, let a person pick, go on; 0 takes the last token back, an empty line or Ctrl-D ends."""
    start = lm.encode(prompt)
    picked: list[int] = []
    while True:
        written = prompt + lm.text_of(picked)
        out().print(f"\n{written}▏")
        try:
            found = lm.choices([*start, *picked], k, **knobs)
        except InputError as edge:
            log().print(f"glass: {edge}")
            print(written)
            return
        _print_top(found)
        ids = found.numbers["ids"].tolist()
        sys.stderr.write(f"1–{len(ids)} picks, 0 goes back, Enter ends: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
        if not given:
            print(written)
            return
        if given == "0":
            del picked[-1:]
        elif given.isdecimal() and 1 <= int(given) <= len(ids):
            picked.append(ids[int(given) - 1])
        else:
            log().print(f"{given!r} is not a number from 0 to {len(ids)}")


def _print_top(found: "Look") -> None:
    console = out()
    width = max(cells(visible(name)) for name in found.tokens)
    for rank, token, chance, kept in found.rows:
        eighths = round(chance * BAR * 8)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        shown = visible(token)
        line = f"{rank:>3}  {shown}{' ' * (width - cells(shown))}  {chance:>6.1%}  {bar}".rstrip()
        console.print(line if kept else f"{line}  (cut off)", style="" if kept else "dim")


def _word(word: "WatchedWord") -> dict[str, Any]:
    from glassformer.tasks.pictures import steps_of

    steps = [{"pair": pair, "rank": rank, "pieces": pieces} for pair, rank, pieces in steps_of(word)]
    omitted = len(word.steps) - len(steps)
    return {
        "symbols": word.symbols,
        "steps": steps,
        "omitted": omitted,
        "pieces": word.pieces,
        "ids": word.ids,
    }


def _print_merges(word: "WatchedWord", text_of: Callable[[str], str]) -> None:
    from glassformer.tasks.pictures import steps_of

    def shown(symbols: str) -> str:
        return visible(text_of(symbols))

    console = out()
    console.print(" ".join(map(shown, word.symbols if word.steps else word.pieces)))
    steps = steps_of(word)
    for pair, rank, pieces in steps:
        console.print(
            f"  rank {rank:>6}  {shown(pair[0])} + {shown(pair[1])}  →  {' '.join(map(shown, pieces))}"
        )
    if len(word.steps) > len(steps):
        console.print(f"  … and {len(word.steps) - len(steps):,} more merges")
    console.print(f"  = {' '.join(map(str, word.ids))}")
