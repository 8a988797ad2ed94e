"""How verbs print: results on stdout as text, tables or JSON; messages on stderr."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from glassformer.errors import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from glassformer.answers.answer import Answer, Cell, Column, Table
    from glassformer.cli.flags import Picture

UNCUT = 10_000  # columns of a "terminal" that is a pipe
PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False, "emoji": False}


def stdout() -> "Console":
    """For results; plain where it is not a terminal, and NO_COLOR is honored."""
    from rich.console import Console

    return Console(**PLAIN)


def stderr() -> "Console":
    """For progress and messages."""
    from rich.console import Console

    return Console(stderr=True, **PLAIN)


def out(*lines: str, style: str = "") -> None:
    """Print lines of a result."""
    console = stdout()
    for line in lines:
        console.print(line, style=style)


def log(message: str, style: str = "") -> None:
    """Print a message on stderr."""
    stderr().print(message, style=style)


def log_cut(count: int) -> None:
    """Say how many texts were cut, if any."""
    if count:
        log(f"{counted(count, 'text')} longer than the model's context, cut to it")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def size(count: int) -> str:
    """A number of bytes, for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


# Answers


def print_answer(answer: "Answer", picture: "Picture") -> None:
    """Print an answer as a drawing and a table, or as JSON, or save it."""
    if picture.output is not None:
        save_answer(answer, picture)
        return
    view = answer.view(picture.drawing)  # an unknown drawing is an error, drawn or not
    if picture.as_json:
        print_json(answer.to_dict())
    else:
        _print_for_people(answer, view.spec)


def save_answer(answer: "Answer", picture: "Picture") -> None:
    """Save the picture or the numbers of an answer, and say where."""
    assert picture.output is not None
    theme = "dark" if picture.dark else None
    how = {"theme": theme, "width": picture.width, "scale": picture.png_scale}
    path = answer.save(picture.output, drawing=picture.drawing, **how)
    log(str(path))


def _print_for_people(answer: "Answer", view: dict[str, Any]) -> None:
    """The caption; the drawing, on a terminal; and the table, unless the drawing has all of it."""
    from glassformer.figures.labels import readable
    from glassformer.figures.terminal import lines, shows_all

    console = stdout()
    for line in answer.caption.split("\n"):
        console.print(readable(line))
    if console.is_terminal:
        colored = console.color_system is not None and not console.no_color
        for drawn in lines(view, console.width, colored=colored):
            console.print(drawn)
        if shows_all(view, console.width, columns=len(answer.columns), rows=len(answer.rows)):
            return
        console.print()
    if answer.table_note:
        console.print(answer.table_note)
    print_table(answer.table())


# Tables


def print_table(table: "Table") -> None:
    """Print a table; if it is wider than the terminal, in parts that each begin with the key columns."""
    from rich.table import Table as Grid

    console = stdout()
    if not console.is_terminal:
        console.width = UNCUT

    cells = [[cell(value, column) for value, column in _pairs(row, table.columns)] for row in table.rows]
    widths = []
    for at, name in enumerate(table.names):
        longest = max((row[at].cell_len for row in cells), default=0)
        widths.append(2 + max(len(name), longest))

    for part in parts(table.columns, widths, room=console.width):
        grid = Grid(box=None, pad_edge=False)
        for at in part:
            column = table.columns[at]
            left = column.format in ("text", "token")
            grid.add_column(column.name, justify="left" if left else "right", no_wrap=True)
        for row in cells:
            grid.add_row(*(row[at] for at in part))
        console.print(grid)


def _pairs(row: list["Cell"], columns: list["Column"]) -> list[tuple["Cell", "Column"]]:
    return list(zip(row, columns, strict=True))


def parts(columns: Sequence["Column"], widths: list[int], *, room: int) -> list[list[int]]:
    """Columns side by side as far as there is room: keys in every part, columns of one group together."""
    keys = [at for at, column in enumerate(columns) if column.key]
    rest = [at for at, column in enumerate(columns) if not column.key]

    def unit_of(at: int) -> tuple[int, int]:
        group = columns[at].group
        return (group, 0) if group else (0, at)

    found: list[list[int]] = []
    for _, group in groupby(rest, key=unit_of):
        unit = list(group)
        wide = bool(found) and sum(widths[at] for at in [*found[-1], *unit]) > room
        if not found or (wide and len(found[-1]) > len(keys)):
            found.append(list(keys))
        found[-1] += unit
    return found or [keys]


def cell(value: Any, column: "Column") -> "Text":
    """A cell in its column's format: shares in the color of their size, signed numbers by their sign."""
    from rich.text import Text

    from glassformer.figures.labels import number, readable, visible, visible_start

    if value is None:
        return Text("–")
    if column.format == "text":
        return Text(readable(str(value)))
    if column.format == "token":
        return Text(visible_start(str(value)))
    if isinstance(value, str):
        return Text(visible(str(value)))
    if column.format == "bool":
        return Text(str(value))
    if column.format in ("count", "rank"):
        first = column.format == "rank" and value == 1
        return Text(f"{value:,}", style="bold cyan" if first else "")

    shown = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    if column.format == "number" and 0 < abs(value) < 0.0005:
        shown = number(value)
    if value != value:  # nan
        shown = "–"
    elif value == float("-inf"):
        shown = "−∞"
    style = STYLES.get(column.format)
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


STYLES = {"share": _share_style, "signed": _signed_style}
