"""A view as text: in colors where there are any, in digits and blocks where not."""

import io
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

from glassformer.figures import color
from glassformer.figures.labels import cells, cut, quantity, readable, ten, wrap
from glassformer.figures.marks import Spec
from glassformer.figures.packing import Rows, numbers

BLOCKS, EIGHTHS = "▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉"
DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
FAINT = 0.02  # of a scale: too little to color
LABEL, TEXT = 16, 9  # columns of a label and of a cell's text, at most
TALL = 48  # rows of cells


def drawn(view: Spec, width: int, colored: bool) -> str:
    """The drawing as one text."""
    out = io.StringIO()
    how: dict[str, Any] = {
        "color_system": "truecolor" if colored else None,
        "force_terminal": colored,
        "force_jupyter": False,
    }
    console = Console(file=out, width=width, highlight=False, soft_wrap=True, **how)
    title, caption = (
        Text(readable(view[name]), style=style) for name, style in (("title", "bold"), ("caption", "dim"))
    )
    for line in [title, *lines(view, width, colored), caption]:
        console.print(line)
    return out.getvalue()


def lines(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """The drawing, line by line."""
    for line in KINDS[view["kind"]](view, max(24, width), colored):
        line.rstrip()
        yield (
            line if line.plain.isprintable() else Text(readable(line.plain))
        )  # of a file that somebody else wrote
    if view.get("scale") and view.get("legend", True) and not view.get("numeric"):
        low, high = (quantity(view["scale"][end], view.get("unit")) for end in ("low", "high"))
        told = f"{low} to {high}" if colored else f"9 is {high}"
        yield Text(cut(f"{told} {view['scale']['name']}".rstrip(), width), style="dim")


def says_all(view: Spec, width: int, columns: int, rows: int) -> bool:
    """Whether a table of so many columns and rows has nothing that the drawing does not have."""
    if view["kind"] in ("bars", "boxes"):
        return view["kind"] == "boxes" or len(view["labels"]) == rows
    there = len(view.get("columns", []))
    return bool(view.get("numeric")) and there >= columns - 2 and len(_across(view, width)[0]) == there


def _theme() -> str:
    """Whether the terminal is dark, as far as it says."""
    return "light" if os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def _style(scale: Spec, value: float | None) -> Style:
    """A background in the color of a value."""
    span = scale["high"] - scale["low"]
    zero = 0.0 if scale["low"] < 0 else scale["low"]
    if value is None or abs(value - zero) < FAINT * span:
        return Style.null()
    fill = color.at(scale, value, _theme())
    return Style(color=color.ink_on(fill), bgcolor=fill)


def _digit(scale: Spec, value: float) -> str:
    """A value as one digit, tenths of its scale, with its sign."""
    most = max(abs(scale["low"]), abs(scale["high"])) if scale["low"] < 0 else scale["high"]
    share = (value if scale["low"] < 0 else value - scale["low"]) / ((most - max(scale["low"], 0)) or 1)
    tenth = min(9, int(abs(share) * 10))
    return ("-" if share < 0 and tenth else "") + str(tenth)


def tokens(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """A text, each token in its color, or with a digit behind it."""
    line = Text()
    for token, value in zip(view["tokens"], view["values"], strict=True):
        piece = Text(cut(token, width - 3), style=_style(view["scale"], value) if colored else "")
        if not colored and value is not None:
            piece.append(
                _digit(view["scale"], value)
                .replace("-", "⁻")
                .translate({ord(str(n)): DIGITS[n] for n in range(10)})
            )
        if line.cell_len + piece.cell_len > width:
            yield line
            line = Text()
        line.append_text(piece)
        if token.endswith("⏎"):
            yield line
            line = Text()
    yield line


def bars(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """Label, value, bar."""
    series, labels = view["series"], [cut(label, 26) for label in view["labels"]]
    wide = max((cells(label) for label in labels), default=0)
    told = [
        ["–" if value is None else quantity(value, view.get("unit")) for value in one["values"]]
        for one in series
    ]
    digits = max((len(one) for row in told for one in row), default=0)
    name = max((cells(one["name"]) for one in series), default=0)
    most = (
        max((abs(value) for one in series for value in one["values"] if value is not None), default=0) or 1.0
    )
    room = max(4, min(40, width - wide - digits - name - 6))
    after = view.get("cut", {}).get("after", len(labels))
    for at, label in enumerate(labels):
        if at == after:
            yield Text(cut(f"──── {view['cut']['label']}", width), style="dark_orange")
        for n, one in enumerate(series):
            value = one["values"][at] or 0.0
            eighths = round(abs(value) / most * room * 8)
            bar = "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
            start = label if n == 0 else ""
            head = f"{start}{' ' * (wide - cells(start))}  {one['name']:<{name}}{' ' if name else ''}{told[n][at]:>{digits}}  "
            shade = "dim" if at >= after else "dark_orange" if value < 0 or n else "cyan"
            yield Text(head, style="dim" if at >= after else "") + Text(bar, style=shade)


def matrix(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """Rows of cells: with their texts, or two columns each."""
    values = numbers(view["values"])
    if view.get("texts"):
        yield from _written(view, values, width, colored)
    elif values:
        yield from _cells(view, values, width, colored)


def _written(view: Spec, values: Rows, width: int, colored: bool) -> Iterator[Text]:
    """Cells with texts, as many columns as there is room for, the last ones."""
    texts, rows = view["texts"], [cut(row, LABEL) for row in view["rows"]]
    across, widths, left = _across(view, width)
    if len(across) < len(view["columns"]):
        yield Text(f"columns {across.start} to {across.stop - 1}, of {len(view['columns'])}", style="dim")
    yield Text(
        " " * (left + 1) + "".join(_padded(view["columns"][c], widths[c]) + " " for c in across).rstrip(),
        style="bold",
    )
    for r, row in enumerate(rows):
        line = Text(" " * (left - cells(row)) + row + " ")
        for c in across:
            scale = view["scales"][c] if view.get("scales") else view["scale"]
            line.append(_padded(texts[r][c], widths[c]), style=_style(scale, values[r][c]) if colored else "")
            line.append(" ")
        yield line


def _across(view: Spec, width: int) -> tuple[range, list[int], int]:
    """Which columns of cells with texts there is room for, the last ones; how wide each column is, and the rows' labels."""
    left = max((cells(cut(row, LABEL)) for row in view["rows"]), default=0)
    most = TEXT if len(view["columns"]) > 6 else 22
    widths = [
        min(most, max(cells(text) for text in column))
        for column in zip(view["columns"], *view["texts"], strict=True)
    ]
    count, room = 0, width - left - 1
    for wide in reversed(widths):
        room -= wide + 1
        if room < 0 and count:
            break
        count += 1
    return range(len(widths) - count, len(widths)), widths, left


def _padded(text: str, room: int) -> str:
    shown = cut(text, room)
    return " " * (room - cells(shown)) + shown


def _cells(view: Spec, values: Rows, width: int, colored: bool) -> Iterator[Text]:
    """Cells without texts; where they are too many, the strongest of several."""
    wide = max(cells(cut(row, LABEL)) for row in view["rows"]) if view.get("row_labels", True) else 0
    left = wide + len(str(len(values))) + 2
    rows, columns = len(values), len(values[0])
    by = max(1, math.ceil(columns / ((width - left) // 2)))
    deep = max(1, math.ceil(rows / TALL))
    if by > 1 or deep > 1:
        yield Text(f"each cell is the strongest of {deep} × {by}", style="dim")
    step = 4
    framed = {(row, column) for row, column in view.get("outlined", [])}
    heads = [f"{c:<{2 * step}}"[: 2 * step] for n, c in enumerate(range(0, columns, by)) if n % step == 0]
    yield Text(" " * left + "".join(heads).rstrip(), style="dim")
    for r in range(0, rows, deep):
        label = cut(view["rows"][r], LABEL) if wide else ""
        line = Text(f"{r:>{left - wide - 2}} {' ' * (wide - cells(label))}{label} ")
        for c in range(0, columns, by):
            patch = [value for row in values[r : r + deep] for value in row[c : c + by] if value is not None]
            value = max(patch, key=abs) if patch else None
            scale = view["scales"][c] if view.get("scales") else view["scale"]
            outlined = any(
                (row, column) in framed for row in range(r, r + deep) for column in range(c, c + by)
            )
            if value is None:
                line.append("  ")
            elif outlined:
                line.append("[]", style="dark_orange" if colored else "")
            elif colored:
                line.append("  ", style=_style(scale, value))
            else:
                line.append(f"{_digit(scale, value):>2}".replace(" 0", " ·"))
        yield line
    if view["columns"] != view["rows"] and view.get("column_labels", True):
        listed = " ".join(f"{n} {name}" for n, name in enumerate(view["columns"]))
        for text in wrap(listed, width)[:8]:
            yield Text(text, style="dim")


def arcs(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """Every token, and where it looks."""
    for at, token in enumerate(view["tokens"]):
        mine = sorted((edge for edge in view["edges"] if edge[0] == at), key=lambda edge: -edge[2])
        line = Text(f"{_padded(token, LABEL)} → ")
        for _, source, weight in mine:
            told = f"{cut(view['tokens'][source], LABEL)} {quantity(weight, view.get('unit'))}"
            if line.cell_len + cells(told) + 2 > width:
                break
            line.append(told, style=_style(view["scale"], weight) if colored else "")
            line.append("  ")
        yield line


def curves(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """A line of blocks for each series, with its first and last value."""
    names = [cut(one["name"], LABEL) for one in view["series"]]
    left = max(map(cells, names), default=0)
    room = max(8, min(60, width - left - 22))
    every = [value for one in view["series"] for value in one["values"] if value is not None]
    low, high = view.get("low", min(every, default=0)), view.get("high", max(every, default=1))
    log = view.get("log", False)

    def share(value: float) -> float:
        ends = [math.log10(max(one, ten(-12))) if log else one for one in (low, high, value)]
        found = (ends[2] - ends[0]) / ((ends[1] - ends[0]) or 1)
        return min(1.0, max(0.0, 1 - found if view.get("down") else found))

    for name, one in zip(names, view["series"], strict=True):
        there = [value for value in one["values"] if value is not None]
        if not there:
            continue
        size = min(room, len(there))
        picked = [there[int(n * len(there) / size)] for n in range(size - 1)] + [there[-1]]
        shown = "".join(BLOCKS[min(7, int(share(value) * 8))] for value in picked)
        ends = f"{quantity(there[0], view.get('unit'))} → {quantity(there[-1], view.get('unit'))}"
        yield Text(f"{' ' * (left - cells(name))}{name} ") + Text(shown, style="cyan") + Text(f" {ends}")


def sparks(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """A line of blocks over the tokens, and the tokens at which it is highest."""
    for one in view["series"]:
        values = [value or 0.0 for value in one["values"]]
        most = max(values, default=0) or 1.0
        best = sorted(range(len(values)), key=lambda at: -values[at])[:3]
        by = max(1, math.ceil(len(values) / max(8, width - 40)))
        peaks = [max(values[at : at + by]) for at in range(0, len(values), by)]
        shown = "".join(BLOCKS[min(7, int(value / most * 8))] for value in peaks)
        named = " ".join(cut(view["tokens"][at], 10) for at in best)
        yield Text(f"{cut(one['name'], LABEL)} ") + Text(shown, style="cyan") + Text(f" {named}", style="dim")


def boxes(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """Pieces with gaps between; the new one stands out."""
    left = max((cells(row["note"]) for row in view["rows"]), default=0)
    for row in view["rows"]:
        line = Text(f"{_padded(row['note'], left)}  ", style="dim")
        for at, piece in enumerate(row["pieces"]):
            new = at == row.get("made")
            shown = cut(piece if colored or not new else f"[{piece}]", width - left - 3)
            if line.cell_len + cells(shown) > width:
                yield line
                line = Text(" " * (left + 2))
            line.append(shown, style="black on cyan" if colored and new else "not dim")
            line.append(" ")
        yield line


def panels(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """One below the other; many little ones are for pictures alone."""
    for one in view["panels"]:
        if not one.get("small"):
            for text in wrap(one["title"], width) if one.get("title") else []:
                yield Text(text, style="bold")
            yield from lines(one, width, colored)


KINDS: dict[str, Callable[[Spec, int, bool], Iterator[Text]]] = {
    "tokens": tokens,
    "bars": bars,
    "matrix": matrix,
    "arcs": arcs,
    "lines": curves,
    "sparks": sparks,
    "boxes": boxes,
    "panels": panels,
}
