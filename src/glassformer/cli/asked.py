"""What the verbs that look inside share: a text and a model come in, an answer goes out as a table, as JSON or into a file."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

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
    as_text,
    log,
    out,
    print_json,
    read_prompt,
)
from glassformer.errors import InputError
from glassformer.figures.labels import readable, visible
from glassformer.figures.terminal import lines, says_all
from glassformer.figures.view import PICTURES

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.look import Look

Words = Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin.")]
FILES = (*PICTURES, ".json", ".csv")
Drawing = Annotated[
    str | None,
    typer.Option("--as", help="Another drawing of the answer, where there are several: arcs, rank …"),
]
SHARED: dict[str, tuple[Any, Any]] = {
    "text": (Words, None),
    "model": (Model, DEFAULT_MODEL),
    "file": (File, None),
    "output": (Output, None),
    "drawing": (Drawing, None),
    "dark": (Dark, False),
    "width": (Width, 960),
    "device": (Device, "cpu"),
    "dtype": (Dtype, "float32"),
    "revision": (Revision, None),
    "offline": (Offline, False),
    "as_json": (Json, False),
}
SHARES = (  # columns between 0 and 1
    "probability", "weight", "softmax", "restored", "saved", "deletion", "insertion", "before", "after",
    "previous", "first", "duplicate", "induction",
)  # fmt: skip
SIGNED = ("share", "difference", "logit")
KEYS = (
    "head",
    "position",
    "token",
    "step",
    "neuron",
    "because of",
)  # columns that say which row it is, behind the first


@dataclass(frozen=True)
class Asked:
    """What a user asks about. Nothing is read or loaded before a verb wants it."""

    text: str | None
    file: Path | None
    model: str
    how: dict[str, Any]

    @functools.cached_property
    def prompt(self) -> str:
        """The text; there must be one."""
        prompt = read_prompt(self.text, self.file)
        if not prompt:
            raise InputError("there is nothing to look at: the text is empty")
        return prompt

    @functools.cached_property
    def lm(self) -> "LanguageModel":
        """The model."""
        return self.load(self.model)

    @functools.cached_property
    def ids(self) -> list[int]:
        """The text's tokens."""
        prompt = self.prompt  # before the model, which takes longer to come
        return self.lm.encode(prompt)

    def load(self, name: str) -> "LanguageModel":
        """A model, in the way that was asked for; in torch, which is what one can look into."""
        from glassformer.tasks.load import load

        return load(name, engine="torch", **self.how)


def question(function: Callable[..., "Look"], *, without: Sequence[str] = ()) -> Callable[..., None]:
    """A verb, of a function from an `Asked` and its own flags to an answer: with the flags that all such verbs share."""
    own = list(inspect.signature(function).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED.items()
        if name not in without
    ]

    @functools.wraps(function)
    def verb(**given: Any) -> None:
        given = {name: _text(value) for name, value in given.items()}
        flags = {one.name: given.pop(one.name) for one in own}
        how = {name: given.pop(name) for name in ("as_json", "output", "drawing", "dark", "width")}
        asked = Asked(given.pop("text"), given.pop("file"), given.pop("model", DEFAULT_MODEL), given)
        check_file(how["output"])
        if how["as_json"] and how["output"] is not None:
            raise InputError("--json prints and -o saves; give one of them")
        answer(function(asked, **flags), **how)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + shared
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in parameters}
    return verb


def _text(given: Any) -> Any:
    """An argument may be any bytes; in every text those that are no UTF-8 become the same mark."""
    if isinstance(given, str):
        return as_text(given)
    return [_text(one) for one in given] if isinstance(given, list) else given


def check_file(output: Path | None) -> None:
    """Refuse a file that is neither a picture nor numbers, before anything is computed."""
    if output is not None and output.suffix.lower() not in FILES:
        raise InputError(f"{output}: a picture is saved as {', '.join(PICTURES)}, numbers as .json or .csv")


def answer(
    found: "Look",
    as_json: bool,
    output: Path | None,
    drawing: str | None = None,
    dark: bool = False,
    width: int = 960,
) -> None:
    """Draw it on the terminal and print its table, or print the numbers as JSON, or save a picture or the numbers."""
    if output is not None:
        log().print(f"{found.save(output, drawing=drawing, theme='dark' if dark else None, width=width)}")
        return
    view = found.view(drawing)  # a drawing that is not there is a mistake, drawn or not
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found, view.spec)


def _print(found: "Look", view: dict[str, Any]) -> None:
    """The drawing, if somebody looks; and the table, unless the drawing says it all.

    A table that is wider than the terminal comes in parts that each begin with its first column.
    """
    console = out()
    for told in found.caption.split("\n"):
        console.print(readable(told))
    if console.is_terminal:
        for line in lines(view, console.width, console.color_system is not None and not console.no_color):
            console.print(line)
        if says_all(view, console.width, len(found.columns), len(found.rows)):
            return
        console.print()
    cells = [
        [_cell(value, name) for value, name in zip(row, found.columns, strict=True)] for row in found.rows
    ]
    widths = [
        2 + max([len(name), *(row[at].cell_len for row in cells)]) for at, name in enumerate(found.columns)
    ]
    for part in _parts(found.columns, widths, console.width if console.is_terminal else sum(widths)):
        table = Table(box=None, pad_edge=False)
        for at in part:
            name = found.columns[at]
            wordy = all(isinstance(row[at], str) for row in found.rows)
            table.add_column(name, justify="left" if wordy else "right", no_wrap=True)
        for row in cells:
            table.add_row(*(row[at] for at in part))
        if not console.is_terminal:
            console.width = 10_000  # in a pipe nothing is cut
        console.print(table)


def _parts(columns: Sequence[str], widths: list[int], room: int) -> list[list[int]]:
    """Columns side by side as far as there is room. Those that say which row it is stand in every part; pairs stay together."""
    keys = list(takewhile(lambda at: at == 0 or columns[at] in KEYS, range(len(columns))))

    def unit_of(at: int) -> str | int:
        return columns[at].split()[-1] if columns[at][-1].isdigit() else at

    units = [list(unit) for _, unit in groupby(range(len(keys), len(columns)), key=unit_of)]
    parts: list[list[int]] = []
    for unit in units:
        if not parts or (
            sum(widths[one] for one in [*parts[-1], *unit]) > room and len(parts[-1]) > len(keys)
        ):
            parts.append(list(keys))
        parts[-1] += unit
    return parts or [keys]


def only(flag: str, why: str, others: dict[str, Any]) -> None:
    """Refuse what a flag leaves no room for."""
    given = next((name for name, value in others.items() if value is not None), None)
    if given is not None:
        raise InputError(f"{given} does not go with {flag}, which {why}")


def at_least(flag: str, value: int, least: int) -> None:
    """Refuse a number that is too small."""
    if value < least:
        raise InputError(f"{flag} must be at least {least}, not {value}")


def one_question(asked: dict[str, Any]) -> None:
    """Refuse several questions at once."""
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are {len(given)} questions; ask one at a time")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal; inside, call with how much is done, and of how much."""
    console = log()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None, done="")

        def progress(done: int, total: int) -> None:  # of 0: nobody knows
            shown.update(
                task,
                completed=done,
                total=total or None,
                done=f"{done / total:.0%}" if total else f"{done:,}",
            )

        yield progress


def _cell(value: Any, column: str) -> Text:
    """A number of a scale in the color of its size; one that has a sign in the color of its sign."""
    if value is None:
        return Text("–")
    if isinstance(value, float):
        shown = "−∞" if value == float("-inf") else "–" if value != value else f"{value:.3f}"
        if column.startswith(SIGNED):
            return Text(shown, style="dim" if abs(value) < 0.0005 else "blue" if value > 0 else "dark_orange")
        if column.startswith(SHARES):
            return Text(
                shown,
                style="bold cyan"
                if value >= 0.5
                else "cyan"
                if value >= 0.1
                else "dim"
                if value < 0.01
                else "",
            )
        return Text(shown)
    if isinstance(value, str):
        return Text(visible(value))
    return Text(f"{value:,}", style="bold cyan" if value == 1 and "rank" in column else "")
