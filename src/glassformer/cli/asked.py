"""What the verbs that look inside share: a text and a model come in, an answer goes out as a table, as JSON or into a file."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from rich.text import Text

from glassformer.answers.answer import Column, Table
from glassformer.answers.answer import Text as About
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
from glassformer.figures.view import check_format

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.tasks.complete import LanguageModel

Words = Annotated[str | None, typer.Argument(help="The text; '-' or a pipe reads stdin.")]
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

    @functools.cached_property
    def about(self) -> About:
        """The text, to be asked about."""
        return About(self.lm, self.ids)

    def load(self, name: str) -> "LanguageModel":
        """A model, in the way that was asked for; in torch, which is what one can look into."""
        from glassformer.tasks.complete import load

        return load(name, engine="torch", **self.how)


def question(function: Callable[..., "Answer"], *, without: Sequence[str] = ()) -> Callable[..., None]:
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
    if output is not None:
        check_format(output)


def answer(
    found: "Answer",
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


def _print(found: "Answer", view: dict[str, Any]) -> None:
    """The drawing, if it goes to a terminal; and the table, unless the drawing says it all."""
    console = out()
    for line in found.caption.split("\n"):
        console.print(readable(line))
    if console.is_terminal:
        colored = console.color_system is not None and not console.no_color
        for drawn in lines(view, console.width, colored=colored):
            console.print(drawn)
        if says_all(view, console.width, columns=len(found.columns), rows=len(found.rows)):
            return
        console.print()
    _print_table(found.table())


def _print_table(table: Table) -> None:
    """A table that is wider than the terminal comes in parts that each begin with the columns that name a row."""
    console = out()
    cells = [
        [cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows
    ]
    widths = []
    for at, name in enumerate(table.names):
        widths.append(2 + max([len(name), *(row[at].cell_len for row in cells)]))

    for part in _parts(table.columns, widths, console.width if console.is_terminal else sum(widths)):
        grid = Grid(box=None, pad_edge=False)
        for at in part:
            column = table.columns[at]
            left = column.format in ("text", "token")
            grid.add_column(column.name, justify="left" if left else "right", no_wrap=True)
        for row in cells:
            grid.add_row(*(row[at] for at in part))
        if not console.is_terminal:
            console.width = 10_000  # in a pipe nothing is cut
        console.print(grid)


def _parts(columns: Sequence[Column], widths: list[int], room: int) -> list[list[int]]:
    """Columns side by side as far as there is room: keys in every part, columns of one group together."""
    keys = [at for at, column in enumerate(columns) if column.key]
    rest = [at for at, column in enumerate(columns) if not column.key]

    def unit_of(at: int) -> tuple[int, int]:
        group = columns[at].group
        return (group, 0) if group else (0, at)

    parts: list[list[int]] = []
    for _, group in groupby(rest, key=unit_of):
        unit = list(group)
        wide = bool(parts) and sum(widths[at] for at in [*parts[-1], *unit]) > room
        if not parts or (wide and len(parts[-1]) > len(keys)):
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


def cell(value: Any, column: Column) -> Text:
    """A cell as its column's format says: shares in the color of their size, signed numbers in that of their sign."""
    if value is None:
        return Text("–")
    if column.format in ("text", "token") or isinstance(value, str):
        return Text(visible(str(value)))
    if column.format == "bool":
        return Text(str(value))
    if column.format in ("count", "rank"):
        first = column.format == "rank" and value == 1
        return Text(f"{value:,}", style="bold cyan" if first else "")

    shown = f"{value:.3f}"
    if value != value:
        shown = "–"
    elif value == float("-inf"):
        shown = "−∞"
    style = {"share": _share_style, "signed": _signed_style}.get(column.format)
    return Text(shown, style=style(value) if style else "")


def _share_style(value: float) -> str:
    if value >= 0.5:
        return "bold cyan"
    if value >= 0.1:
        return "cyan"
    return "dim" if value < 0.01 else ""


def _signed_style(value: float) -> str:
    if abs(value) < 0.0005:
        return "dim"
    return "blue" if value > 0 else "dark_orange"
