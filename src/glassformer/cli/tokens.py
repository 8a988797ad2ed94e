"""glass tokenize, glass top"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from glassformer.tasks.written import Candidate
    from glassformer.tokenizers import WatchedWord

BAR = 40
MOST_PIECES = 1_000_000


def tokenize(
    text: Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin.")] = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids alone, in one line.")] = False,
    merges: Annotated[bool, typer.Option("--merges", help="Show how the tokens are made, merge by merge.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Read <|endoftext|> as the token.")] = False,
    train: Annotated[list[Path] | None, typer.Option(help="Learn a new vocabulary from this text file; repeatable.")] = None,
    vocab_size: Annotated[int, typer.Option(help="With --train: how many tokens it shall have.")] = 4096,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="With --train: the folder for tokenizer.json.")] = None,
    revision: Revision = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """The tokens a text is made of.

    \b
    glass tokenize "unbelievable"                 each token with its id
    glass tokenize --merges "unbelievable"        the merges that made them, in order
    glass tokenize -m gpt2 --ids "Hello world"    only the ids
    glass tokenize --train book.txt -o my-vocab   learn a vocabulary from a text
    """
    from glassformer.tasks import tokenize as task

    if train:
        learn(train, vocab_size, output)
        return
    prompt = read_prompt(text, file)
    tokenizer = task.load_tokenizer(model, revision=revision, offline=offline)
    tokens = tokenizer.encode(prompt, special=special)
    watched = tokenizer.watch(prompt, special=special) if merges else []
    if as_json:
        rows: list[dict[str, Any]] = [{"id": id, "text": tokenizer.decode([id])} for id in tokens]
        print_json({"tokens": rows, "merges": [_word(word) for word in watched]} if merges else {"tokens": rows})
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

        made = task.train(files, vocab_size, output, progress=advance)
        progress.update(reading, completed=sum(path.stat().st_size for path in files), description="learned")
    fewer = "" if len(made) == vocab_size else f"; the text has no more pairs to merge, so it is fewer than {vocab_size:,}"
    print(f"{output / 'tokenizer.json'}: {len(made):,} tokens, {len(made.merges):,} merges{fewer}")


def top(
    text: Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin. None: a text's first word.")] = None,
    model: Model = DEFAULT_MODEL,
    file: File = None,
    k: Annotated[int, typer.Option("-k", help="How many tokens to show.")] = 10,
    interactive: Annotated[bool, typer.Option("-i", "--interactive", help="Pick one and go on.")] = False,
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
    glass top --interactive "One day"        pick a token by its number, go on, 0 to go back
    """
    from glassformer.tasks.complete import load

    prompt = "" if interactive and text is None and file is None else read_prompt(text, file)
    if k < 1:
        raise InputError(f"-k must be at least 1, not {k}")
    lm = load(model, revision=revision, device=device, dtype=dtype, offline=offline)
    if interactive:
        explore(lm, prompt, k)
    elif as_json:
        print_json({"text": prompt, "next": [vars(one) for one in lm.top(prompt, k)]})
    else:
        _print_top(lm.top(prompt, k))


def explore(lm: "LanguageModel", prompt: str, k: int) -> None:
    """Show, let a person pick, go on; 0 takes the last token back, an empty line or Ctrl-D ends."""
    start = lm.encode(prompt)
    picked: list[int] = []
    while True:
        written = prompt + lm.text_of(picked)
        out().print(f"\n{written}▏")
        try:
            found = lm.top([*start, *picked], k)
        except InputError as edge:
            log().print(f"glass: {edge}")
            print(written)
            return
        _print_top(found)
        sys.stderr.write(f"1–{len(found)} picks, 0 goes back, Enter ends: ")
        sys.stderr.flush()
        answer = sys.stdin.readline().strip()
        if not answer:
            print(written)
            return
        if answer == "0":
            del picked[-1:]
        elif answer.isdecimal() and 1 <= int(answer) <= len(found):
            picked.append(found[int(answer) - 1].token)
        else:
            log().print(f"{answer!r} is not a number from 0 to {len(found)}")


def _print_top(found: "list[Candidate]") -> None:
    console = out()
    width = max(len(visible(one.text)) for one in found)
    for rank, one in enumerate(found, 1):
        eighths = round(one.probability * BAR * 8)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        console.print(f"{rank:>3}  {visible(one.text):<{width}}  {one.probability:>6.1%}  {bar}".rstrip())


def _steps(word: "WatchedWord") -> list[tuple[tuple[str, str], int, list[str]]]:
    """(pair, rank, pieces after it) of every merge; of a very long word only the first, for each has all its pieces."""
    pieces = list(word.symbols)
    steps = []
    for pair, rank, at in word.steps[: MOST_PIECES // max(1, len(pieces))]:
        pieces[at : at + 2] = ["".join(pair)]
        steps.append((pair, rank, list(pieces)))
    return steps


def _word(word: "WatchedWord") -> dict[str, Any]:
    steps = [{"pair": pair, "rank": rank, "pieces": pieces} for pair, rank, pieces in _steps(word)]
    omitted = len(word.steps) - len(steps)
    return {"symbols": word.symbols, "steps": steps, "omitted": omitted, "pieces": word.pieces, "ids": word.ids}


def _print_merges(word: "WatchedWord", text_of: Callable[[str], str]) -> None:
    def shown(symbols: str) -> str:
        return visible(text_of(symbols))

    console = out()
    console.print(" ".join(map(shown, word.symbols if word.steps else word.pieces)))
    steps = _steps(word)
    for pair, rank, pieces in steps:
        console.print(f"  rank {rank:>6}  {shown(pair[0])} + {shown(pair[1])}  →  {' '.join(map(shown, pieces))}")
    if len(word.steps) > len(steps):
        console.print(f"  … and {len(word.steps) - len(steps):,} more merges")
    console.print(f"  = {' '.join(map(str, word.ids))}")
