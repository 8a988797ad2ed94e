"""Tokens in a row, and what belongs to each: a color, a bar, a bow to another one, the pieces that it is made of."""

from collections.abc import Sequence

from glassformer.figures import color
from glassformer.figures.labels import cut
from glassformer.figures.marks import LABEL, SMALL, TEXT, Sheet, Spec, width_of, written


def tokens(view: Spec, room: float, theme: str) -> Sheet:
    """A text, each token in the color of its value."""
    sheet, x, y = Sheet(theme), 0.0, 0.0
    size, high = 12.0, 22.0
    for at, (token, value) in enumerate(zip(view["tokens"], view["values"], strict=True)):
        shown = cut(token, int((room - 8) / width_of("x", size)))
        wide = width_of(shown, size) + 6
        if x and x + wide > room:
            x, y = 0.0, y + high + 3
        fill = color.at(view["scale"], value, theme) if value is not None else "none"
        tip = f"{at} {token}" + (f": {written(value, view.get('unit'))}" if value is not None else "")
        edge = {"stroke": sheet.color("line")} if value is not None else {}
        sheet.rect(x, y, wide, high, fill, **edge, tip=tip, keys=[f"t{at}"])
        ink = sheet.color("soft") if fill == "none" else color.ink_on(fill)
        sheet.text(x + 3, y + 15, shown, size=size, mono=True, fill=ink)
        x += wide + 2
        if token.endswith("⏎"):
            x, y = 0.0, y + high + 3
    return sheet


def bars(view: Spec, room: float, theme: str) -> Sheet:
    """Values one below the other, of one series or several; behind the cut stands what could not be drawn."""
    sheet, series = Sheet(theme), view["series"]
    labels = [cut(label, LABEL + 6) for label in view["labels"]]
    every = [0.0, *(value for one in series for value in one["values"] if value is not None)]
    low, high = min(every), max(every)
    left = max((width_of(label, TEXT) for label in labels), default=0) + 8
    long = max(60.0, min(room - left - 64, 320.0))
    unit = long / ((high - low) or 1.0)
    zero = left + (-low) * unit
    thick = 14.0 if len(series) == 1 else 10.0
    deep = len(series) * thick + 5
    y = 0.0
    if len(series) > 1:
        x = left
        for n, one in enumerate(series):
            sheet.rect(x, 1, 10, 10, color.SERIES[theme][n])
            sheet.text(x + 14, 10, one["name"], size=SMALL, fill=sheet.color("soft"))
            x += width_of(one["name"], SMALL) + 28
        y = 18.0
    after = view.get("cut", {}).get("after", len(labels))
    for at, label in enumerate(labels):
        faint = at >= after
        if at == after:
            sheet.line([[0, y + 2], [left + long + 60, y + 2]], sheet.color("mark"), dash=True)
            sheet.text(left, y + 13, view["cut"]["label"], size=SMALL, fill=sheet.color("mark"))
            y += 16
        ink = sheet.color("soft" if faint else "ink")
        sheet.text(left - 6, y + deep / 2 + 2, label, anchor="end", mono=True, fill=ink)
        for n, one in enumerate(series):
            value = one["values"][at]
            if value is None:
                continue
            fill = sheet.color("line") if faint else color.SERIES[theme][n]
            tip = f"{view['labels'][at]}: {written(value, view.get('unit'))}" + (
                f" {one['name']}" if len(series) > 1 else ""
            )
            x, w = (zero, value * unit) if value >= 0 else (zero + value * unit, -value * unit)
            top = y + 2 + n * thick
            sheet.rect(x, top, w, thick - 1, fill, tip=tip, keys=[f"t{at}"])
            end = zero + value * unit + 4 if value >= 0 else zero + 4
            sheet.text(end, top + thick - 3, written(value, view.get("unit")), size=SMALL, fill=ink)
        y += deep
    if low < 0:
        sheet.line([[zero, 0], [zero, y]], sheet.color("ink"))
    sheet.reach(0, y)
    return sheet


def arcs(view: Spec, room: float, theme: str) -> Sheet:
    """Tokens in a line, or where that is too long in a column, and bows from each to where it looks."""
    sheet, size = Sheet(theme), 12.0
    labels = [cut(token, LABEL) for token in view["tokens"]]
    widths = [width_of(label, size) + 6 for label in labels]
    flat = sum(widths) + 4 * len(widths) <= room
    edges = sorted(view["edges"], key=lambda edge: edge[2])  # the strongest on top
    far = max((abs(edge[0] - edge[1]) for edge in edges), default=0)
    left = max(widths, default=0)
    starts = [sum(widths[:n]) + 4 * n for n in range(len(widths))]
    most = 200.0 if flat else min(200.0, room - left - 4)
    lifts = [min(most, lift_of(edge, starts, widths, flat)) for edge in edges]
    base = max(lifts, default=0) * 0.76 + 8 if flat and far else 0.0
    for (source, target, weight), lift in zip(edges, lifts, strict=True):
        tip = f"{view['tokens'][source]} → {view['tokens'][target]}: {written(weight, view.get('unit'))}"
        look = {
            "width": 0.6 + 4 * min(1.0, weight / view["scale"]["high"]),
            "tip": tip,
            "keys": [f"t{source}", f"t{target}"],
            "right": not flat,
        }
        ends = [
            [starts[at] + widths[at] / 2, base] if flat else [left + 2, at * 19 + 9]
            for at in (source, target)
        ]
        if source == target:  # a loop
            ends[0][not flat] -= 5
            ends[1][not flat] += 5
        sheet.arc(ends[0], ends[1], lift, color.at(view["scale"], weight, theme), **look)
        sheet.reach(0 if flat else left + 2 + lift, 0)
    for at, label in enumerate(labels):
        x, y = (starts[at], base) if flat else (left - widths[at], at * 19.0)
        box = {"stroke": sheet.color("line"), "tip": view["tokens"][at], "keys": [f"t{at}"]}
        sheet.rect(x, y, widths[at], 18, sheet.color("paper"), **box)
        sheet.text(x + 3, y + 13, label, size=size, mono=True)
    return sheet


def lift_of(edge: Sequence[float], starts: Sequence[float], widths: Sequence[float], flat: bool) -> float:
    """How far a bow stands out."""
    a, b = int(edge[0]), int(edge[1])
    if a == b:
        return 16.0
    long = abs(starts[a] + widths[a] / 2 - starts[b] - widths[b] / 2) if flat else abs(a - b) * 19.0
    return 14 + long * 0.5


def boxes(view: Spec, room: float, theme: str) -> Sheet:
    """Rows of pieces, each with a note: what a word is made of, step by step. The new piece of a row is filled."""
    sheet, size, y = Sheet(theme), 12.0, 0.0
    left = max((width_of(row["note"], SMALL) for row in view["rows"]), default=0) + 12
    for n, row in enumerate(view["rows"]):
        sheet.text(left - 8, y + 14, row["note"], size=SMALL, anchor="end", fill=sheet.color("soft"))
        x = left
        for at, piece in enumerate(row["pieces"]):
            shown = cut(piece, int((room - left) / width_of("x", size)) - 1)
            wide = width_of(shown, size) + 8
            if x > left and x + wide > room:
                x, y = left, y + 23
            fill = color.HUES["v"] if at == row.get("made") else "none"
            sheet.rect(x, y, wide, 20, fill, stroke=sheet.color("line"), tip=piece, keys=[f"r{n}", f"p{at}"])
            sheet.text(
                x + 4,
                y + 14,
                shown,
                size=size,
                mono=True,
                fill="#000000" if fill != "none" else sheet.color("ink"),
            )
            x += wide + 3
        y += 26
    sheet.reach(0, y)
    return sheet
