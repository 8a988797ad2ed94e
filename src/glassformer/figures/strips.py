"""Tokens in a row, and what belongs to each: a color, a bar, an arc to another one, the pieces that it is made of."""

from dataclasses import dataclass

from glassformer.figures import color
from glassformer.figures.labels import cut, quantity
from glassformer.figures.marks import LABEL, SMALL, TEXT, Point, Sheet, Spec, ink_over, shade, width_of

SIZE = 12.0  # of a token's text
PITCH = 19.0  # from one token to the next in a column


def tokens(view: Spec, room: float) -> Sheet:
    """A text, each token in the color of its value."""
    sheet, x, y = Sheet(), 0.0, 0.0
    high, scale = 22.0, view["scale"]
    for at, (token, value) in enumerate(zip(view["tokens"], view["values"], strict=True)):
        shown = cut(token, int((room - 8) / width_of("x", SIZE)))
        wide = width_of(shown, SIZE) + 6
        if x and x + wide > room:
            x, y = 0.0, y + high + 3

        keys = [f"t{at}"]
        if value is None:
            sheet.rect(x, y, size=(wide, high), tip=f"{at} {token}", keys=keys)
            sheet.text(x + 3, y + 15, text=shown, size=SIZE, mono=True, fill="soft")
        else:
            tip = f"{at} {token}: {quantity(value, view.get('unit'))}"
            fill, ink = shade(scale, value), ink_over(scale, value)
            sheet.rect(x, y, size=(wide, high), fill=fill, stroke="line", tip=tip, keys=keys)
            sheet.text(x + 3, y + 15, text=shown, size=SIZE, mono=True, fill=ink)
        x += wide + 2
        if token.endswith("⏎"):
            x, y = 0.0, y + high + 3
    return sheet


@dataclass(frozen=True)
class Ruler:
    """Where bars begin, and how long they are."""

    left: float  # of the room for bars
    long: float  # room for bars
    low: float  # the smallest value, at most 0
    unit: float  # length of a bar of 1
    thick: float  # of one bar

    @property
    def zero(self) -> float:
        """Where a bar of 0 is."""
        return self.left - self.low * self.unit


def bars(view: Spec, room: float) -> Sheet:
    """Values one below the other, of one series or several; after the cut come the candidates that are left out."""
    sheet, series = Sheet(), view["series"]
    labels = [cut(label, LABEL + 6) for label in view["labels"]]
    ruler = _ruler(view, labels, room)
    deep = len(series) * ruler.thick + 5
    y = _names(sheet, view, ruler.left) if len(series) > 1 else 0.0

    after = view.get("cut", {}).get("after", len(labels))
    for at, label in enumerate(labels):
        if at == after:
            sheet.line([[0, y + 2], [ruler.left + ruler.long + 60, y + 2]], "mark", dash=True)
            sheet.note(ruler.left, y + 13, text=view["cut"]["label"], fill="mark")
            y += 16
        ink = "soft" if at >= after else "ink"
        sheet.text(ruler.left - 6, y + deep / 2 + 2, text=label, anchor="end", mono=True, fill=ink)
        for n in range(len(series)):
            _bar(sheet, view, ruler, which=(n, at), y=y, faint=at >= after)
        y += deep

    if ruler.low < 0:
        sheet.line([[ruler.zero, 0], [ruler.zero, y]], "ink")
    sheet.reach(0, y)
    return sheet


def _ruler(view: Spec, labels: list[str], room: float) -> Ruler:
    every = [0.0]
    for one in view["series"]:
        every += [value for value in one["values"] if value is not None]
    low, high = min(every), max(every)
    left = max((width_of(label, TEXT) for label in labels), default=0) + 8
    long = max(60.0, min(room - left - 64, 320.0))
    return Ruler(left, long, low, long / ((high - low) or 1.0), 14.0 if len(view["series"]) == 1 else 10.0)


def _names(sheet: Sheet, view: Spec, x: float) -> float:
    """Which color is which series; how high that is."""
    for n, one in enumerate(view["series"]):
        sheet.rect(x, 1, size=(10, 10), fill=color.series(n))
        sheet.note(x + 14, 10, text=one["name"])
        x += width_of(one["name"], SMALL) + 28
    return 18.0


def _bar(sheet: Sheet, view: Spec, ruler: Ruler, *, which: tuple[int, int], y: float, faint: bool) -> None:
    """One bar with its number; none where there is no value."""
    n, at = which
    one = view["series"][n]
    value = one["values"][at]
    if value is None:
        return

    shown = quantity(value, view.get("unit"))
    tip = f"{view['labels'][at]}: {shown}"
    if len(view["series"]) > 1:
        tip += f" {one['name']}"
    top = y + 2 + n * ruler.thick
    end = ruler.zero + value * ruler.unit
    start, size = min(ruler.zero, end), (abs(value) * ruler.unit, ruler.thick - 1)
    sheet.rect(start, top, size=size, fill="line" if faint else color.series(n), tip=tip, keys=[f"t{at}"])
    # The number of a negative bar stands on the other side of zero, where there is room.
    behind = max(ruler.zero, end) + 4
    sheet.note(behind, top + ruler.thick - 3, text=shown, fill="soft" if faint else "ink")


@dataclass(frozen=True)
class Row:
    """Tokens in a line (`flat`) or, where that is too long, in a column."""

    flat: bool
    labels: list[str]
    widths: list[float]
    starts: list[float]
    left: float  # of a column: where the labels end

    def middle(self, at: int) -> float:
        """The middle of a token, along the row."""
        return self.starts[at] + self.widths[at] / 2 if self.flat else at * PITCH + 9

    def lift(self, source: int, target: int) -> float:
        """How far an arc stands out."""
        if source == target:
            return 16.0
        return 14 + abs(self.middle(source) - self.middle(target)) * 0.5


def arcs(view: Spec, room: float) -> Sheet:
    """Tokens, and arcs from each to those that it attends to."""
    sheet, row = Sheet(), _row(view, room)
    edges = sorted(view["edges"], key=lambda edge: edge[2])  # the strongest on top
    most = 200.0 if row.flat else min(200.0, room - row.left - 4)
    lifts = [min(most, row.lift(int(source), int(target))) for source, target, _ in edges]
    between = any(source != target for source, target, _ in edges)
    base = max(lifts) * 0.76 + 8 if row.flat and between else 0.0

    for edge, lift in zip(edges, lifts, strict=True):
        _arc(sheet, view, row, edge=edge, lift=lift, base=base)
    for at, label in enumerate(row.labels):
        x, y = (row.starts[at], base) if row.flat else (row.left - row.widths[at], at * PITCH)
        box: Spec = {"fill": "paper", "stroke": "line", "tip": view["tokens"][at], "keys": [f"t{at}"]}
        sheet.rect(x, y, size=(row.widths[at], 18), **box)
        sheet.text(x + 3, y + 13, text=label, size=SIZE, mono=True)
    return sheet


def _row(view: Spec, room: float) -> Row:
    labels = [cut(token, LABEL) for token in view["tokens"]]
    widths = [width_of(label, SIZE) + 6 for label in labels]
    starts, x = [], 0.0
    for wide in widths:
        starts.append(x)
        x += wide + 4
    return Row(x <= room, labels, widths, starts, max(widths, default=0.0))


def _arc(sheet: Sheet, view: Spec, row: Row, *, edge: Point, lift: float, base: float) -> None:
    source, target, weight = int(edge[0]), int(edge[1]), edge[2]
    start, end = row.middle(source), row.middle(target)
    if source == target:  # a loop
        start, end = start - 5, end + 5
    ends = [[place, base] if row.flat else [row.left + 2, place] for place in (start, end)]

    names = f"{view['tokens'][source]} → {view['tokens'][target]}"
    more: Spec = {
        "width": 0.6 + 4 * min(1.0, weight / view["scale"]["high"]),
        "tip": f"{names}: {quantity(weight, view.get('unit'))}",
        "keys": [f"t{source}", f"t{target}"],
    }
    if not row.flat:
        more["right"] = True
        sheet.reach(row.left + 2 + lift, 0)
    sheet.arc(ends[0], ends[1], lift=lift, stroke=shade(view["scale"], weight), **more)


ARROW = 24.0  # room for the arrow before a label


def boxes(view: Spec, room: float) -> Sheet:
    """Rows of pieces, each with a note: what a word is made of, or features and the label that follows them.

    The new piece of a row (`made`) is filled, a `label` stands behind an arrow.
    """
    sheet, y = Sheet(), 0.0
    left = max((width_of(row["note"], SMALL) for row in view["rows"]), default=0) + 12
    column = _label_column(view, left, room)
    for n, row in enumerate(view["rows"]):
        sheet.note(left - 8, y + 14, text=row["note"], anchor="end")
        x = left
        for at, piece in enumerate(row["pieces"]):
            shown, wide = _piece(piece, room - left)
            if x > left and x + wide > room:
                x, y = left, y + 23
            made = at == row.get("made")
            _box(sheet, (x, y), shown, tip=piece, keys=[f"r{n}", f"p{at}"], hue="v" if made else "")
            x += wide + 3
        if row.get("label") is not None:
            y = _label(sheet, row["label"], (column or x, y), n=n, edges=(left, room))
        y += 26
    sheet.reach(0, y)
    return sheet


def _piece(piece: str, room: float) -> tuple[str, float]:
    """A piece as it is shown, and the width of its box."""
    shown = cut(piece, int(room / width_of("x", SIZE)) - 1)
    return shown, width_of(shown, SIZE) + 8


def _box(sheet: Sheet, corner: Point, text: str, *, tip: str, keys: list[str], hue: str) -> None:
    x, y = corner
    wide = width_of(text, SIZE) + 8
    sheet.rect(x, y, size=(wide, 20), fill=hue or "none", stroke="line", tip=tip, keys=keys)
    sheet.text(x + 4, y + 14, text=text, size=SIZE, mono=True, fill="black" if hue else "ink")


def _label_column(view: Spec, left: float, room: float) -> float:
    """Where all labels stand below each other; 0 where some row is too long for that."""
    ends, labels = [0.0], [0.0]
    for row in view["rows"]:
        if row.get("label") is not None:
            ends.append(left + sum(_piece(piece, room - left)[1] + 3 for piece in row["pieces"]))
            labels.append(_piece(row["label"], room - left)[1])
    return max(ends) if max(ends) + ARROW + max(labels) <= room else 0.0


def _label(sheet: Sheet, label: str, corner: Point, *, n: int, edges: tuple[float, float]) -> float:
    """An arrow and the label of a row; on a new line where there is no room. The y of that line."""
    (x, y), (left, right) = corner, edges
    shown, wide = _piece(label, right - left - ARROW)
    if x + ARROW + wide > right:
        x, y = left, y + 23
    sheet.line([[x + 3, y + 10], [x + 17, y + 10]], "soft", width=1.5)
    sheet.line([[x + 13, y + 6], [x + 17, y + 10], [x + 13, y + 14]], "soft", width=1.5)
    _box(sheet, (x + ARROW - 3, y), shown, tip=label, keys=[f"r{n}", "label"], hue="k")
    return y
