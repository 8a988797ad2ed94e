"""Tokens in a row, and what belongs to each: a color, a bar, an arc to another one, its pieces."""

from dataclasses import dataclass

from glassformer.figures import color
from glassformer.figures.labels import cut, quantity, wrap
from glassformer.figures.marks import LABEL, SMALL, TEXT, Point, Sheet, Spec, ink_over, shade, width_of

SIZE = 12.0  # of a token's text
LINE = 25.0  # from one line of tokens to the next
NOTE = 13.0  # more, where tokens have notes below them
PITCH = 19.0  # from one token to the next in a column
TIP = 3.0  # of an arrow at the end of an arc, beyond the arc itself
ARROW = 24.0  # room for the arrow before a label


def tokens(view: Spec, room: float) -> Sheet:
    """A text, each token in the color of its value."""
    sheet = Sheet()
    x = y = 0.0
    columns = int((room - 8) / width_of("x", SIZE))
    notes = view.get("notes")
    line = LINE + NOTE if notes else LINE
    for at, token in enumerate(view["tokens"]):
        shown = cut(token, columns)
        note = cut(notes[at], columns) if notes else ""
        needed = width_of(shown, SIZE), width_of(note, SMALL)
        wide = max(needed) + 6
        if x and x + wide > room:
            x = 0.0
            y += line
        _token(sheet, view, at, text=shown, box=(x, y, wide))
        _note(sheet, note, corner=(x + 3, y + LINE + 8), keys=[f"t{at}"])
        x += wide + 2
        if token.endswith("⏎"):
            x = 0.0
            y += line
    return sheet


def _note(sheet: Sheet, note: str, *, corner: Point, keys: list[str]) -> None:
    """The note below a token, word by word: an emoji changes the font of the text that it is in."""
    x, y = corner
    for word in note.split():
        sheet.text(x, y, text=word, size=SMALL, mono=True, fill="soft", keys=keys)
        x += width_of(f"{word} ", SMALL)


def _token(sheet: Sheet, view: Spec, at: int, *, text: str, box: Point) -> None:
    """A token in a box of its color; one without a value has no color and no edge."""
    x, y, wide = box
    scale, value = view["scale"], view["values"][at]
    frame: Spec = {"size": (wide, LINE - 3), "keys": [f"t{at}"]}
    tip = f"{at} {view['tokens'][at]}"
    if value is None:
        sheet.rect(x, y, **frame, tip=tip)
        sheet.text(x + 3, y + 15, text=text, size=SIZE, mono=True, fill="soft")
        return

    tip += f": {quantity(value, view.get('unit'))}"
    sheet.rect(x, y, **frame, fill=shade(scale, value), stroke="line", tip=tip)
    ink = ink_over(scale, value)
    sheet.text(x + 3, y + 15, text=text, size=SIZE, mono=True, fill=ink)


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

    def place(self, value: float) -> float:
        """Where a bar of a value ends."""
        return self.zero + value * self.unit


def bars(view: Spec, room: float) -> Sheet:
    """Values one below the other, of one series or several; after the cut, candidates that are left out."""
    sheet, series = Sheet(), view["series"]
    labels = [cut(label, LABEL + 6) for label in view["labels"]]
    ruler = _ruler(view, labels, room)
    deep = len(series) * ruler.thick + 5
    y = _names(sheet, view, ruler.left) if len(series) > 1 else 0.0

    after = view.get("cut", {}).get("after", len(labels))
    for at, label in enumerate(labels):
        faint = at >= after
        if at == after:
            y = _cut(sheet, view["cut"]["label"], ruler, y=y, room=room)
        ink = "soft" if faint else "ink"
        middle = y + deep / 2
        sheet.text(ruler.left - 6, middle + 2, text=label, anchor="end", mono=True, fill=ink)
        for n in range(len(series)):
            _bar(sheet, view, ruler, which=(n, at), y=y, faint=faint)
        y += deep

    if ruler.low < 0:
        sheet.line([[ruler.zero, 0], [ruler.zero, y]], "ink")
    if "reference" in view:
        y = _reference(sheet, view, ruler, y=y, room=room)
    sheet.reach(0, y)
    return sheet


def _reference(sheet: Sheet, view: Spec, ruler: Ruler, *, y: float, room: float) -> float:
    """A line down through the bars at a value to compare them with, and its name below; where that ends."""
    reference = view["reference"]
    x = ruler.place(reference["value"])
    sheet.line([[x, 0], [x, y + 3]], "mark", dash=True)
    value = quantity(reference["value"], view.get("unit"))
    columns = int(room / width_of("x", SMALL))
    for line in wrap(f"{reference['label']} {value}", columns):
        y += 14
        wide = width_of(line, SMALL)
        start = min(x - wide / 2, room - wide)
        sheet.note(max(0.0, start), y, text=line, fill="mark")
    return y + 4


def _cut(sheet: Sheet, reason: str, ruler: Ruler, *, y: float, room: float) -> float:
    """A line above what is left out, and why it is; where that ends."""
    right = min(room, ruler.left + ruler.long + 60)
    sheet.line([[0, y + 2], [right, y + 2]], "mark", dash=True)
    for line in wrap(reason, int(right / width_of("x", SMALL))):
        # Under the bars; further left where the labels are long and the reason would not fit there.
        x = max(0.0, min(ruler.left, right - width_of(line, SMALL)))
        sheet.note(x, y + 13, text=line, fill="mark")
        y += 13
    return y + 3


def _ruler(view: Spec, labels: list[str], room: float) -> Ruler:
    every = [0.0, view.get("low", 0.0), view.get("high", 0.0)]
    for one in view["series"]:
        every += [value for value in one["values"] if value is not None]
    if "reference" in view:
        every.append(view["reference"]["value"])
    low, high = min(every), max(every)
    least = "x" * view.get("label_columns", 0)
    widths = [width_of(label, TEXT) for label in [least, *labels]]
    left = max(widths) + 8
    long = max(60.0, min(room - left - 64, 320.0))
    return Ruler(
        left=left,
        long=long,
        low=low,
        unit=long / ((high - low) or 1.0),
        thick=14.0 if len(view["series"]) == 1 else 10.0,
    )


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
    end = ruler.place(value)
    size = abs(end - ruler.zero), ruler.thick - 1
    below = value < 0 and len(view["series"]) == 1  # several series have a color each
    fill = "line" if faint else "below" if below else color.series(n)
    sheet.rect(min(ruler.zero, end), top, size=size, fill=fill, tip=tip, keys=[f"t{at}"])

    # The number of a negative bar is on the other side of zero, where there is room.
    behind = max(ruler.zero, end) + 4
    if "reference" in view:  # nor on its line
        line = ruler.place(view["reference"]["value"])
        if behind - 4 <= line <= behind + width_of(shown, SMALL):
            behind = line + 4
    ink = "soft" if faint else "ink"
    sheet.note(behind, top + ruler.thick - 3, text=shown, fill=ink)


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
        """How far an arc reaches."""
        if source == target:
            return 16.0
        return 14 + abs(self.middle(source) - self.middle(target)) * 0.5


def arcs(view: Spec, room: float) -> Sheet:
    """Tokens, and arcs from each to those that it attends to."""
    sheet = Sheet()
    row = _row(view, room)
    edges = sorted(view["edges"], key=lambda edge: edge[2])  # the strongest on top
    most = 200.0 if row.flat else min(200.0, room - row.left - 4)
    lifts = [min(most, row.lift(int(source), int(target))) for source, target, _ in edges]

    base = 0.0
    if row.flat and any(source != target for source, target, _ in edges):
        base = max(lifts) * 0.76 + 8  # a curve reaches about three quarters of the way to its handles
    for edge, lift in zip(edges, lifts, strict=True):
        _arc(sheet, view, row, edge=edge, lift=lift, base=base)

    for at, label in enumerate(row.labels):
        wide = row.widths[at]
        x, y = (row.starts[at], base) if row.flat else (row.left - wide, at * PITCH)
        token = view["tokens"][at]
        sheet.rect(x, y, size=(wide, 18), fill="paper", stroke="line", tip=token, keys=[f"t{at}"])
        sheet.text(x + 3, y + 13, text=label, size=SIZE, mono=True)
    return sheet


def _row(view: Spec, room: float) -> Row:
    labels = [cut(token, LABEL) for token in view["tokens"]]
    widths = [width_of(label, SIZE) + 6 for label in labels]
    starts = []
    x = 0.0
    for wide in widths:
        starts.append(x)
        x += wide + 4
    longest = max(widths, default=0.0)
    return Row(flat=x <= room, labels=labels, widths=widths, starts=starts, left=longest)


def _arc(sheet: Sheet, view: Spec, row: Row, *, edge: Point, lift: float, base: float) -> None:
    """An arc with an arrow tip at the token that is attended to, the wider the more weight it has."""
    source, target = int(edge[0]), int(edge[1])
    weight, scale = edge[2], view["scale"]
    start, end = row.middle(source), row.middle(target)
    if source == target:  # a loop
        start -= 5
        end += 5

    names = f"{view['tokens'][source]} → {view['tokens'][target]}"
    more: Spec = {
        "lift": lift,
        "stroke": shade(scale, weight),
        "width": 0.6 + 4 * min(1.0, weight / scale["high"]),
        "tip": f"{names}: {quantity(weight, view.get('unit'))}",
        "keys": [f"t{source}", f"t{target}"],
    }
    tip = {"stroke": more["stroke"], "width": 1.2, "keys": more["keys"]}
    size = TIP + more["width"] / 2
    if row.flat:
        sheet.arc([start, base], [end, base], **more)
        sheet.line([[end - size, base - size], [end, base], [end + size, base - size]], **tip)
        return
    x = row.left + 2
    sheet.arc([x, start], [x, end], right=True, **more)
    sheet.line([[x + size, end - size], [x, end], [x + size, end + size]], **tip)
    sheet.reach(x + lift, 0)


def boxes(view: Spec, room: float) -> Sheet:
    """Rows of pieces, each with a note: what a word is made of, or features and the label that follows them.

    The new piece of a row (`made`) is filled, or all from `learned` on; a `label` follows an arrow.
    """
    sheet = Sheet()
    y = 0.0
    notes = [width_of(row["note"], SMALL) for row in view["rows"]]
    left = max(notes, default=0) + 12
    column = _label_column(view, left, room)
    for n, row in enumerate(view["rows"]):
        sheet.note(left - 8, y + 14, text=row["note"], anchor="end")
        x = left
        for at, piece in enumerate(row["pieces"]):
            shown, wide = _piece(piece, room - left)
            if x > left and x + wide > room:
                x = left
                y += 23
            hue = "v" if is_filled(row, at) else ""
            _box(sheet, (x, y), shown, tip=piece, keys=[f"r{n}", f"p{at}"], hue=hue)
            x += wide + 3
        if row.get("label") is not None:
            y = _label(sheet, row["label"], (column or x, y), n=n, edges=(left, room))
        y += 26
    sheet.reach(0, y)
    return sheet


def is_filled(row: Spec, at: int) -> bool:
    """Whether a piece of a row is filled: the new one, or one of those that are learned."""
    return at == row.get("made") or at >= (row.get("learned") or len(row["pieces"]))


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
    """The x at which all labels are aligned; 0 if some row is too long for that."""
    end = longest = 0.0
    for row in view["rows"]:
        if row.get("label") is None:
            continue
        widths = [_piece(piece, room - left)[1] + 3 for piece in row["pieces"]]
        _, label = _piece(row["label"], room - left)
        end = max(end, left + sum(widths))
        longest = max(longest, label)
    return end if end + ARROW + longest <= room else 0.0


def _label(sheet: Sheet, label: str, corner: Point, *, n: int, edges: tuple[float, float]) -> float:
    """An arrow and the label of a row; on a new line where there is no room. The y of that line."""
    (x, y), (left, right) = corner, edges
    shown, wide = _piece(label, right - left - ARROW)
    if x + ARROW + wide > right:
        x = left
        y += 23
    sheet.line([[x + 3, y + 10], [x + 17, y + 10]], "soft", width=1.5)
    sheet.line([[x + 13, y + 6], [x + 17, y + 10], [x + 13, y + 14]], "soft", width=1.5)
    _box(sheet, (x + ARROW - 3, y), shown, tip=label, keys=[f"r{n}", "label"], hue="k")
    return y
