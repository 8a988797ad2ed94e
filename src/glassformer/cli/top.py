"""glass top"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import TEXT, Loading, Picture, option, switch
from glassformer.cli.printing import log, out, print_answer, print_json, save_answer, stdout
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.tokens import Top
    from glassformer.tasks.complete import LanguageModel

BAR = 40  # columns


@dataclass(frozen=True)
class Choosing:
    """Among which tokens one would be drawn."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float


@flags.verb
@flags.argument(
    "text", "The text; '-' or a pipe reads stdin. None: a text's first word.", type=TEXT, required=False
)
@flags.file
@option("-k", default=10, help="How many tokens to show.")
@switch("-i", "--interactive", help="Pick one and go on.")
@option("--temperature", default=1.0, help="As generate would: above 0; 1 is the model's own opinion.")
@option("--top-k", default=0, help="Show the cut after the k likeliest; 0: none.")
@option("--top-p", default=1.0, help="Show the cut after those that reach p together; 1: none.")
@option("--min-p", default=0.0, help="Show the cut below P times the probability of the likeliest; 0: none.")
@switch("--each", help="Instead, show the probability of each token of the text, given those before it.")
@flags.loading_by_any_engine
@flags.picture(flags.output, flags.dark, flags.width, flags.png_scale, flags.as_json)
@flags.collect(Choosing, "choosing")
def top(
    text: str | None,
    file: Path | None,
    k: int,
    choosing: Choosing,
    loading: Loading,
    picture: Picture,
    **mode: Any,
) -> None:
    """The likeliest next tokens, and which of them may be sampled.

    \b
    glass top "Once upon a"                  ten tokens with bars
    glass top -k 3 --json "The dragon"       three, as data
    glass top --top-p 0.9 "Once upon a time, there was a"    and those that would be cut off
    glass top -o top.svg "Once upon a"       a picture
    glass top --engine torch "Once upon a"   exact: the native engine is quantized
    glass top --interactive "One day"        pick a token by its number, go on, 0 to go back
    glass top --each "Once upon a time"      how probable each of these tokens was

    Probabilities are those of the engine that generates. `glass lens` and the other verbs that look inside
    compute in torch; --engine torch agrees with them. Unlike `glass generate`, which draws at a lower
    temperature among fewer tokens, this shows the model's own probabilities unless flags say otherwise.
    """
    from glassformer.tasks.options import check_options

    interactive = mode["interactive"]
    if mode["each"]:
        _print_each(text, file, loading, picture)
        return
    unasked = interactive and text is None and file is None
    prompt = "" if unasked else flags.read_text(text, file, is_dialog=interactive)
    flags.at_least("-k", k, least=1)
    picture.check()
    if interactive:
        flags.refuse("output", "as_json", why="does not go with --interactive, which shows every step")
    options = asdict(choosing)
    check_options(options)  # what is wrong is said before the model is loaded

    lm = loading.load_language_model()
    if interactive:
        explore(lm, prompt, k=k, options=options)
        return
    _show(
        lm.top(prompt, k, **options),
        picture,
        about={"model": lm.name, "text": prompt, "engine": lm.backend.name},
    )


def _show(found: "Top", picture: Picture, *, about: dict[str, str]) -> None:
    """The candidates with bars, as data, or as a picture."""
    if picture.as_json:
        print_json(about | {"next": rows_of(found)})
    elif picture.output is not None:
        save_answer(found, picture)
    else:
        print_top(found)
        if sys.stderr.isatty():
            log(f"({found.made})", style="dim")


def _print_each(text: str | None, file: Path | None, loading: Loading, picture: Picture) -> None:
    """How probable each token of a text is."""
    ways = ("k", "interactive", "temperature", "top_k", "top_p", "min_p")
    flags.refuse(*ways, why="does not go with --each, which is about the tokens of the text")
    prompt = flags.read_text(text, file)
    picture.check()
    lm = loading.load_language_model()
    print_answer(lm.probabilities(prompt), picture)


def rows_of(found: "Top") -> list[dict[str, Any]]:
    """Every candidate as data."""
    return [{**vars(one), "kept": kept} for one, kept in zip(found, found.kept, strict=True)]


def print_top(found: "Top") -> None:
    """Every candidate with its probability as a bar; what would be cut off is dim."""
    from glassformer.figures.labels import cells, visible_start
    from glassformer.figures.terminal import bar

    console = stdout()
    shown = [visible_start(token) for token in found.tokens]
    width = max(map(cells, shown))
    for rank, (token, one, kept) in enumerate(zip(shown, found, found.kept, strict=True), start=1):
        padded = token + " " * (width - cells(token))
        line = f"{rank:>3}  {padded}  {_share(one.probability)}  {bar(one.probability, BAR)}".rstrip()
        console.print(line if kept else f"{line}  (cut off)", style="" if kept else "dim")


def _share(probability: float) -> str:
    """A percentage; of a small one more digits, so that candidates differ."""
    return f"{probability:.1%}".rjust(7) if probability >= 0.0005 else f"{probability:.4%}".rjust(7)


def explore(lm: "LanguageModel", prompt: str, *, k: int, options: dict[str, Any]) -> None:
    """Show, let a person pick, go on; 0 takes the last token back, an empty line or Ctrl-D ends."""
    start = lm.encode(prompt)
    picked: list[int] = []
    while True:
        text = prompt + lm.text_of(picked)
        out(f"\n{text}▏")
        try:
            found = lm.top([*start, *picked], k, **options)
        except InputError as edge:  # the end of the context
            log(f"glass: {edge}")
            print(text)
            return

        print_top(found)
        numbered = [str(number) for number in range(1, len(found) + 1)]
        sys.stderr.write(f"1–{len(found)} picks, 0 goes back, Enter ends: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
        if not given:
            print(text)
            return
        if given == "0":
            del picked[-1:]
        elif given in numbered:
            picked.append(found[numbered.index(given)].token)
        else:
            log(f"{given[:40]!r} is not a number from 0 to {len(found)}")
