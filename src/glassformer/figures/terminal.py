"""A view as text: in colors where there are any, in digits and blocks where not."""

import io
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.style import Style
from rich.text import Text

from glassformer.figures import color
from glassformer.figures.labels import (
    axis_titles,
    cells,
    cut,
    percent,
    pitch_name,
    quantity,
    readable,
    ten,
    wrap,
)
from glassformer.figures.marks import Spec
from glassformer.figures.packing import Array, Rows, numbers, unpacked
from glassformer.figures.strips import is_filled
from glassformer.figures.trees import Tree

BLOCKS, EIGHTHS = "▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FAINT = 0.02  # of a scale: too little to color
LABEL, TEXT = 16, 9  # columns of a label and of a cell's text, at most
STATES = 2  # the row of the states, between outputs and inputs, where a network is unrolled
TALL = 48  # rows of cells


def drawn(view: Spec, width: int, *, colored: bool) -> str:
    """The drawing as one text."""
    out = io.StringIO()
    how: dict[str, Any] = {
        "color_system": "truecolor" if colored else None,
        "force_terminal": colored,
        "force_jupyter": False,
    }
    console = Console(file=out, width=width, highlight=False, soft_wrap=True, **how)
    title = Text(readable(view["title"]), style="bold")
    caption = Text(readable(view["caption"]), style="dim")
    for line in [title, *lines(view, width, colored=colored), caption]:
        console.print(line)
    return out.getvalue()


def lines(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """The drawing, line by line."""
    draw = KINDS[view["kind"]]
    for line in draw(view, max(24, width), colored=colored):
        line.rstrip()
        # A view can come from a file that another program wrote: no escape code of it reaches the terminal.
        yield line if line.plain.isprintable() else Text(readable(line.plain))

    if view.get("scale") and view.get("legend", True) and not view.get("numeric") and _draws(view):
        for text in wrap(_legend(view, colored), max(24, width)):
            yield Text(text, style="dim")


def _legend(view: Spec, colored: bool) -> str:
    """What colors mean; without them, what the digits in their place mean."""
    scale, kind = view["scale"], view["kind"]
    name = scale["name"].replace("hatched:", "blank:")  # as a terminal shows masked cells
    low, high = (quantity(scale[end], view.get("unit")) for end in ("low", "high"))
    if colored:
        return f"{low} to {high} {name}"
    if kind == "arcs":  # has numbers, not digits
        return f"numbers: {name}"

    signed = scale["low"] < 0 < scale["high"]
    lowest = f", -9 is {low}" if signed else ""
    nothing = f"0 is {low}, " if scale["low"] and not signed else ""
    ends = f"{nothing}9 is {high}{lowest} {name}"
    if kind in ("tokens", "tree") or view.get("texts"):
        return f"digits behind tokens: {ends}"
    return f"· is near {'0' if signed else low}, {ends}" if kind == "matrix" else ends


def _draws(view: Spec) -> bool:
    """Whether a view is drawn at all: panels that are all small are for pictures alone."""
    return view["kind"] != "panels" or not all(one.get("small") for one in view["panels"])


def shows_all(view: Spec, width: int, *, columns: int, rows: int) -> bool:
    """Whether a table of `columns` and `rows` has nothing that the drawing does not have."""
    if view["kind"] == "boxes":
        return True
    if view["kind"] == "bars":
        return len(view["labels"]) == rows
    if not view.get("numeric"):
        return False
    every = len(view.get("columns", []))
    visible, _, _ = _across(view, width)
    return every >= columns - 2 and len(visible) == every


def bar(share: float, room: int) -> str:
    """A bar of blocks that fills a share (0 to 1) of `room` columns, to an eighth of a column."""
    share = min(max(share, 0.0), 1.0)
    whole, eighths = divmod(round(share * room * 8), 8)
    return "█" * whole + EIGHTHS[eighths].strip()


def _theme() -> str:
    """Whether the terminal is dark, if it reports its colors."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in ("7", "15") else "dark"


def _style(scale: Spec, value: float | None, colored: bool = True) -> Style:
    """A background in the color of a value; none for next to nothing."""
    zero = 0.0 if scale["low"] < 0 else scale["low"]
    least = FAINT * (scale["high"] - scale["low"])
    if not colored or value is None or abs(value - zero) < least:
        return Style.null()
    fill = color.at(scale, value, theme=_theme())
    return Style(color=color.ink_on(fill), bgcolor=fill)


def _digit(scale: Spec, value: float) -> str:
    """A value as one digit, tenths of its scale, with its sign."""
    low, high = scale["low"], scale["high"]
    zero, most = (0.0, max(abs(low), abs(high))) if low < 0 < high else (low, high)
    share = (value - zero) / ((most - zero) or 1)
    tenth = min(9, int(abs(share) * 10))
    return ("-" if share < 0 and tenth else "") + str(tenth)


def tokens(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """A text, each token in its color, or with a digit behind it."""
    line, scale = Text(), view["scale"]
    for token, value in zip(view["tokens"], view["values"], strict=True):
        piece = Text(cut(token, width - 3), style=_style(scale, value, colored))
        if not colored and value is not None:
            piece.append(_digit(scale, value).translate(RAISED))
        if line.cell_len + piece.cell_len > width:
            yield line
            line = Text()
        line.append_text(piece)
        if token.endswith("⏎"):
            yield line
            line = Text()
    yield line


def bars(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """Label, value, bar."""
    series = view["series"]
    labels = [cut(label, 26) for label in view["labels"]]
    shown = [_quantities(one["values"], view.get("unit")) for one in series]
    digits = _widest([text for row in shown for text in row])
    wide = _widest(labels)
    name = _widest([one["name"] for one in series])
    sizes = [abs(value or 0.0) for one in series for value in one["values"]]
    sizes += [abs(view.get(end, 0.0)) for end in ("low", "high")]
    most = max(sizes, default=0) or 1.0
    room = max(4, min(40, width - wide - digits - name - 6))

    after = view.get("cut", {}).get("after", len(labels))
    for at, label in enumerate(labels):
        if at == after:
            reason = view["cut"]["label"]
            yield Text(cut(f"──── {reason}", width), style="dark_orange")
        faint = "dim" if at >= after else ""
        for n, one in enumerate(series):
            value = one["values"][at] or 0.0
            start = _left(label if n == 0 else "", wide)
            kind = _left(one["name"], name) + (" " if name else "")
            head = f"{start}  {kind}{shown[n][at]:>{digits}}  "
            shade = "dark_orange" if value < 0 or n else "cyan"
            blocks = bar(abs(value) / most, room)
            yield Text(head, style=faint) + Text(blocks, style=faint or shade)
    if "reference" in view:
        reference = view["reference"]
        value = quantity(reference["value"], view.get("unit"))
        line = f"──── {reference['label']} {value}"
        yield Text(cut(line, width), style="dark_orange")


def _quantities(values: Sequence[float | None], unit: str | None) -> list[str]:
    return ["–" if value is None else quantity(value, unit) for value in values]


def _widest(texts: Sequence[str]) -> int:
    """Columns of the longest text."""
    return max(map(cells, texts), default=0)


def matrix(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """Rows of cells: with their texts, or two columns each."""
    titles = axis_titles(view)
    for line in wrap(titles, width) if titles else []:
        yield Text(line, style="dim")
    if "banner" in view:
        yield Text(view["banner"][1], style="bold")
    if view.get("texts"):
        yield from _texts(view, numbers(view["values"]), width, colored)
    elif view["rows"]:
        yield from _cells(view, width, colored)


def _texts(view: Spec, values: Rows, width: int, colored: bool) -> Iterator[Text]:
    """Cells with texts, as many columns as there is room for, the last ones."""
    with_digits = not colored and not view.get("numeric")  # a text says nothing about the value of its cell
    digits = 2 if view["scale"]["low"] < 0 else 1  # a sign and a digit, or a digit
    across, widths, left = _across(view, width, more=digits if with_digits else 0)
    every = len(view["columns"])
    if len(across) < every:
        last = across.stop - 1
        yield Text(f"columns {across.start} to {last}, of {every}", style="dim")

    names = [_right(view["columns"][c], widths[c]) for c in across]
    yield Text(" " * (left + 1) + " ".join(names), style="bold")
    for r, row in enumerate(view["rows"]):
        label = cut(row, LABEL)
        line = Text(_right(label, left) + " ")
        for c in across:
            value = values[r][c]
            scale = _scale(view, c)
            digit = ""
            if with_digits and value is not None:
                digit = _digit(scale, value).translate(RAISED)
            text = cut(view["texts"][r][c], widths[c] - len(digit))
            style = _style(scale, value, colored)
            line.append(_right(text + digit, widths[c]), style=style)
            line.append(" ")
        yield line


def _scale(view: Spec, column: int) -> Spec:
    """The scale of a column."""
    scale: Spec = view["scales"][column] if view.get("scales") else view["scale"]
    return scale


def _across(view: Spec, width: int, *, more: int = 0) -> tuple[range, list[int], int]:
    """The last columns of cells with texts that fit; the widths of all columns, and of the labels of rows.

    `more` is room for a digit behind every text.
    """
    left = _widest([cut(row, LABEL) for row in view["rows"]])
    most = TEXT if len(view["columns"]) > 6 else 22
    columns = zip(view["columns"], *view["texts"], strict=True)
    widths = [min(most, _widest(column)) + more for column in columns]

    count = 0
    room = width - left - 1
    for wide in reversed(widths):
        room -= wide + 1
        if room < 0 and count:
            break
        count += 1
    last_ones = range(len(widths) - count, len(widths))
    return last_ones, widths, left


def _right(text: str, room: int) -> str:
    """A text at the right of its room."""
    shown = cut(text, room)
    return " " * (room - cells(shown)) + shown


def _left(text: str, room: int) -> str:
    """A text at the left of its room."""
    return text + " " * (room - cells(text))


def _cells(view: Spec, width: int, colored: bool) -> Iterator[Text]:
    """Cells without texts; where they are too many, the strongest of several."""
    values = unpacked(view["values"])
    rows, columns = values.shape
    labels = [cut(row, LABEL) for row in view["rows"]]
    wide = _widest(labels) if view.get("row_labels", True) else 0
    digits = len(str(rows))
    left = wide + digits + 2
    by = max(1, math.ceil(columns / ((width - left) // 2)))
    deep = max(1, math.ceil(rows / TALL))
    if by > 1 or deep > 1:
        yield Text(f"each cell is the strongest of {deep} × {by}", style="dim")

    heads = [f"{c:<8}"[:8] for c in range(0, columns, 4 * by)]  # a number above every fourth cell
    yield Text(" " * left + "".join(heads).rstrip(), style="dim")
    for r in range(0, rows, deep):
        label = _right(labels[r], wide) if wide else ""
        line = Text(f"{r:>{digits}} {label} ")
        for c in range(0, columns, by):
            patch = values[r : r + deep, c : c + by]
            line.append_text(_patch(view, patch, (r, c), colored))
        yield line

    if view["columns"] != view["rows"] and view.get("column_labels", True):
        listed = " ".join(f"{n} {name}" for n, name in enumerate(view["columns"]))
        for text in wrap(listed, width)[:8]:
            yield Text(text, style="dim")


def _patch(view: Spec, patch: Array, place: tuple[int, int], colored: bool) -> Text:
    """Some cells as two columns: the strongest value in its color, or as a digit."""
    known = patch[patch == patch]  # nan is masked
    if not known.size:
        return Text("  ")

    row, column = place
    down, across = patch.shape
    for r, c in view.get("outlined", []):
        if row <= r < row + down and column <= c < column + across:
            return Text("[]", style="dark_orange" if colored else "")

    value = float(max(known, key=abs))
    scale = _scale(view, column)
    if colored:
        return Text("  ", style=_style(scale, value))
    return Text(f"{_digit(scale, value):>2}".replace(" 0", " ·"))


def arcs(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """Every token, and those that it attends to."""
    for at, token in enumerate(view["tokens"]):
        edges = [edge for edge in view["edges"] if edge[0] == at]
        line = Text(f"{_right(token, LABEL)} → ")
        edges.sort(key=lambda edge: -edge[2])
        for _, source, weight in edges:
            name = cut(view["tokens"][source], LABEL)
            shown = f"{name} {quantity(weight, view.get('unit'))}"
            if line.cell_len + cells(shown) + 2 > width:
                break
            line.append(shown, style=_style(view["scale"], weight, colored))
            line.append("  ")
        yield line


def curves(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """A line of blocks for each series, with its first and last value."""
    names = [cut(one["name"], LABEL) for one in view["series"]]
    left = _widest(names)
    room = max(8, min(60, width - left - 22))
    every = [value for one in view["series"] for value in one["values"] if value is not None]
    low = view.get("low", min(every, default=0))
    high = view.get("high", max(every, default=1))

    for name, one in zip(names, view["series"], strict=True):
        known = [value for value in one["values"] if value is not None]
        if not known:
            continue
        size = min(room, len(known))
        picked = [known[int(n * len(known) / size)] for n in range(size - 1)]
        heights = [_height(view, value, low, high) for value in [*picked, known[-1]]]
        shown = "".join(map(_block, heights))
        ends = " → ".join(_quantities([known[0], known[-1]], view.get("unit")))
        start = _right(name, left) + " "
        yield Text(start) + Text(shown, style="cyan") + Text(f" {ends}")
    axes = " over ".join(view[title] for title in ("y_title", "x_title") if view.get(title))
    for text in wrap(axes, width) if axes else []:
        yield Text(text, style="dim")


def _height(view: Spec, value: float, low: float, high: float) -> float:
    """How high a value lies between two others, from 0 to 1."""
    if view.get("log"):
        low, high, value = (math.log10(max(one, ten(-12))) for one in (low, high, value))
    share = (value - low) / ((high - low) or 1)
    return min(1.0, max(0.0, 1 - share if view.get("down") else share))


def _block(share: float) -> str:
    """A block as high as a share."""
    return BLOCKS[min(7, int(share * 8))]


def sparks(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """A line of blocks over the tokens, and the tokens at which it is highest."""
    for one in view["series"]:
        values = [value or 0.0 for value in one["values"]]
        most = max(values, default=0) or 1.0
        best = sorted(range(len(values)), key=lambda at: -values[at])[:3]
        by = max(1, math.ceil(len(values) / max(8, width - 48)))
        peaks = [max(values[at : at + by]) for at in range(0, len(values), by)]

        name = cut(one["name"], LABEL)
        shown = "".join(_block(value / most) for value in peaks)
        where = " ".join(cut(view["tokens"][at], 10) for at in best)
        scale = f" 0 to {quantity(most, None)}"
        room = width - cells(f"{name} {shown}{scale}")
        rest = cut(f", highest at {where}", max(0, room))
        line = Text(f"{name} ")
        line.append(shown, style="cyan")
        line.append(scale + rest, style="dim")
        yield line


def boxes(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """Pieces with gaps between; new or learned ones are emphasized, a label follows an arrow."""
    left = _widest([row["note"] for row in view["rows"]])
    for row in view["rows"]:
        note = _right(row["note"], left)
        line = Text(f"{note}  ", style="dim")
        pieces = [(piece, is_filled(row, at)) for at, piece in enumerate(row["pieces"])]
        if row.get("label") is not None:
            pieces.append((f"→ {row['label']}", False))
        for piece, new in pieces:
            whole = f"[{piece}]" if new and not colored else piece
            shown = cut(whole, width - left - 3)
            if line.cell_len + cells(shown) > width:
                yield line
                line = Text(" " * (left + 2))
            line.append(shown, style="black on cyan" if colored and new else "not dim")
            line.append(" ")
        yield line


def folders(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """The query, then a line for every key: its name, its score, and a bar as long as its weight."""
    yield Text(f"query {view['query']}", style="bold")
    left = _widest(view["tokens"])
    for token, score, weight in zip(view["tokens"], view["scores"], view["weights"], strict=True):
        line = Text(f"{_right(token, left)}  {quantity(score, ''):>8}  ")
        line.append(bar(weight, max(8, min(40, width - left - 20))), style="cyan" if colored else "")
        line.append(f" {percent(weight)}")
        yield line
    if view.get("rest"):
        yield Text(view["rest"], style="dim")


def tree(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """A line for every way to a leaf, from where it leaves another one; the marked way has a mark."""
    nodes, grown = view["nodes"], Tree(view["nodes"])
    for chain in grown.lines():
        level = grown.depth[chain[0]]
        marked = bool(nodes[chain[-1]].get("marked"))
        line = Text(
            ("● " if marked else "· ") + "  " * min(level, width // 8), style="bold" if marked else ""
        )
        line.append(f"{level + 1}: ", style="dim")
        for at in chain:
            node = nodes[at]
            piece = Text(cut(node["label"], LABEL), style=_style(view["scale"], node["value"], colored))
            if not colored and node["value"] is not None:
                piece.append(_digit(view["scale"], node["value"]).translate(RAISED))
            if line.cell_len + piece.cell_len + 1 > width:
                yield line
                line = Text("    ")
            line.append_text(piece).append(" ")
        note = nodes[chain[-1]]["note"]
        if line.cell_len + cells(note) > width:
            yield line
            line = Text("    ")
        yield line.append(note, style="dim")


def unrolled(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """Outputs, states and inputs, one below the other; what is too long for one line follows below it."""
    steps = view["steps"]
    labels = [label for step in steps for label in (_own(step), step["state"], step["output"] or "")]
    wide = min(TEXT, _widest(labels))
    count = max(1, (width - 2) // (wide + 3))
    for start in range(0, len(steps), count):
        lap = steps[start : start + count]
        rows = [
            [_middle(step["output"] or "", wide) for step in lap],
            [_middle("↑" if step["output"] is not None else "", wide) for step in lap],
            [_middle(step["state"], wide) for step in lap],
            [_middle("↑" if step["input"] is not None else "", wide) for step in lap],
            [_middle(_own(step), wide) for step in lap],
        ]
        arrows = ["⇄" if step.get("both_ways") else "→" for step in lap]
        if start + count >= len(steps):
            arrows[-1] = ""
        for n, row in enumerate(rows):
            is_state = n == STATES
            after = arrows if is_state else [" "] * len(row)
            line = " ".join(f"{piece} {arrow}" for piece, arrow in zip(row, after, strict=True))
            if line.strip():
                yield Text(line, style="cyan" if is_state else "dark_orange" if n < STATES else "")
        names = dict.fromkeys(step.get("network", "") for step in lap)
        if any(names):
            yield Text(", then ".join(filter(None, names)), style="dim")
    if view.get("note"):
        for text in wrap(view["note"], width):
            yield Text(text, style="dim")


def _own(step: Spec) -> str:
    """An input; one that was an output before is in brackets."""
    given = step["input"] or ""
    return f"({given})" if step.get("own") else given


def _middle(text: str, room: int) -> str:
    """A text in the middle of its room."""
    shown = cut(text, room)
    left = (room - cells(shown)) // 2
    return " " * left + shown + " " * (room - cells(shown) - left)


def roll(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """A line a pitch, a column some time; a note begins with a full block. Arcs are for pictures alone."""
    notes = view["notes"]
    if not notes:
        return
    columns = max(8, width - 5)
    end = max(note[1] for note in notes) or 1.0
    places = {pitch: [" "] * columns for pitch in sorted({int(note[2]) for note in notes}, reverse=True)}
    for start, stop, pitch, _ in notes:
        first = min(columns - 1, int(columns * start / end))
        last = round(columns * stop / end)
        last = min(columns, max(first + 1, last))
        held = "▬" * (last - first - 1)
        places[int(pitch)][first:last] = ["█", *held]
    for pitch, line in places.items():
        name = f"{pitch_name(pitch):<4} "
        drawn = "".join(line)
        yield Text((name + drawn).rstrip())
    last_time = f"{end:.1f} s"
    yield Text(f"     0 s {last_time:>{columns - 4}}", style="dim")


def slots(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """An event a line: its name, and its place among all slots."""
    total = max(1, sum(count for _, count in view["groups"]))
    room = max(8, width - 22)
    for name, slot in zip(view["names"], view["columns"], strict=True):
        place = min(room - 1, int(room * slot / total))
        before = "·" * place
        after = "·" * (room - place - 1)
        shown = cut(name, 20)
        yield Text(f"{shown:<20}  {before}█{after}")


def panels(view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
    """One below the other; many little ones are for pictures alone."""
    for one in view["panels"]:
        if one.get("small"):
            continue
        for text in wrap(one["title"], width) if one.get("title") else []:
            yield Text(text, style="bold")
        yield from lines(one, width, colored=colored)


class Drawing(Protocol):
    """A function that draws one kind of view."""

    def __call__(self, view: Spec, width: int, *, colored: bool) -> Iterator[Text]:
        """Its lines."""


KINDS: dict[str, Drawing] = {
    "tokens": tokens,
    "bars": bars,
    "matrix": matrix,
    "arcs": arcs,
    "lines": curves,
    "sparks": sparks,
    "boxes": boxes,
    "folders": folders,
    "tree": tree,
    "unrolled": unrolled,
    "roll": roll,
    "slots": slots,
    "panels": panels,
}
