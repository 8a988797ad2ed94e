"""glass tokenize, glass top"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.answers import ask
from glassformer.answers.answer import labels
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
from glassformer.figures.terminal import bar

if TYPE_CHECKING:
    from glassformer.answers.tokens import MergedWord, Top
    from glassformer.tasks.complete import LanguageModel

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
    embedding: Annotated[
        bool, typer.Option("--embedding", help="The row of each token + the row of its position.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Save a picture or numbers (.svg, .html, .csv …); with --train: a folder."
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
    glass tokenize --embedding "unbelievable"     what goes into the first block
    glass tokenize -m gpt2 --ids "Hello world"    only the ids
    glass tokenize --train book.txt -o my-vocab   learn a vocabulary from a text
    """
    from glassformer.answers.tokens import merged
    from glassformer.tasks import tokenize as task

    if train:
        learn(train, vocab_size, output)
        return
    check_file(output)
    prompt = read_prompt(text, file)
    if embedding:
        from glassformer.tasks.complete import load

        lm = load(model, revision=revision, offline=offline)
        answer(lm.embedding(prompt), as_json, output, dark=dark, width=width)
        return

    tokenizer = task.load_tokenizer(model, revision=revision, offline=offline)
    if output is not None:
        found = ask("merges" if merges else "tokens", tokenizer, prompt, special=special)
        answer(found, as_json, output, dark=dark, width=width)
        return
    watched = tokenizer.watch(prompt, special=special) if merges else []
    tokens = tokenizer.encode(prompt, special=special)
    if as_json:
        rows: list[dict[str, Any]] = [{"id": id, "text": tokenizer.decode([id])} for id in tokens]
        words = [_word(merged(word, shown=str)) for word in watched]  # in the symbols of the vocabulary
        print_json({"tokens": rows, "merges": words} if merges else {"tokens": rows})
    elif ids:
        print(*tokens)
    elif merges:
        for word in watched:
            _print_merges(merged(word, shown=tokenizer.shown))
    else:
        console = out()
        shown = [visible(token) for token in labels(tokenizer, tokens)]
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

        made = task.train(files, vocab_size, output, progress=advance)
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
    from glassformer.tasks.complete import check_options, load

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
        found = lm.top(prompt, k, **knobs)
        rows = [{**vars(one), "kept": kept} for one, kept in zip(found, found.kept, strict=True)]
        print_json({"text": prompt, "next": rows})
    elif output is not None:
        answer(lm.top(prompt, k, **knobs), False, output, drawing, dark, width)
    else:
        _print_top(lm.top(prompt, k, **knobs))


def explore(lm: "LanguageModel", prompt: str, k: int, knobs: dict[str, Any]) -> None:
    """Show, let a person pick, go on; 0 takes the last token back, an empty line or Ctrl-D ends."""
    start = lm.encode(prompt)
    picked: list[int] = []
    while True:
        written = prompt + lm.text_of(picked)
        out().print(f"\n{written}▏")
        try:
            found = lm.top([*start, *picked], k, **knobs)
        except InputError as edge:
            log().print(f"glass: {edge}")
            print(written)
            return
        _print_top(found)
        ids = [one.token for one in found]
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


def _print_top(found: "Top") -> None:
    console = out()
    width = max(cells(visible(name)) for name in found.tokens)
    for n, (token, kept) in enumerate(zip(found.tokens, found.kept, strict=True)):
        rank, chance = n + 1, found[n].probability
        shown = visible(token)
        line = (
            f"{rank:>3}  {shown}{' ' * (width - cells(shown))}  {chance:>6.1%}  {bar(chance, BAR)}".rstrip()
        )
        console.print(line if kept else f"{line}  (cut off)", style="" if kept else "dim")


def _word(word: "MergedWord") -> dict[str, Any]:
    steps = [{"pair": one.pair, "rank": one.rank, "pieces": one.pieces} for one in word.merges]
    return {
        "symbols": word.text,
        "steps": steps,
        "omitted": word.omitted,
        "pieces": word.pieces,
        "ids": word.ids,
    }


def _print_merges(word: "MergedWord") -> None:
    console = out()
    console.print(" ".join(map(visible, word.start)))
    for merge in word.merges:
        left, right = (visible(part) for part in merge.pair)
        pieces = " ".join(map(visible, merge.pieces))
        console.print(f"  rank {merge.rank:>6}  {left} + {right}  →  {pieces}")
    if word.omitted:
        console.print(f"  … and {word.omitted:,} more merges")
    console.print(f"  = {' '.join(map(str, word.ids))}")
