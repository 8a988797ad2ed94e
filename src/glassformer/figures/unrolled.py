"""A recurrent network, unrolled: a column for every step, its input below and its output above."""

from dataclasses import dataclass

from glassformer.figures.labels import cut, wrap
from glassformer.figures.marks import SMALL, Point, Sheet, Spec, width_of

SIZE = 12.0  # of a label
LONGEST = 10  # columns of a label
HIGH = 22.0  # of a box
RISE = 30.0  # between a box and the one above it
FLOOR = HIGH + RISE  # from one row of boxes to the next
GAP, LEAST = 34.0, 20.0  # between two columns, and where there is little room
NARROWEST = 30.0  # box
TIP = 4.0  # of an arrow
SPACE = 2.0  # between a tip and its box
STROKE = 1.2
LAP = 26.0  # between the laps of a network that is too long for one line
KEYS = ("input", "state", "output")


@dataclass(frozen=True)
class Columns:
    """How wide a column is, how far the next one is from it, and how many are in a line."""

    wide: float
    gap: float
    count: int

    def x(self, at: int) -> float:
        """Where a column of a line begins."""
        return at * (self.wide + self.gap)


def unrolled(view: Spec, room: float) -> Sheet:
    """Every step; where there is no room for all beside each other, the rest follows in further laps."""
    sheet = Sheet()
    steps = view["steps"]
    columns = _columns(steps, room)
    y = 4.0
    for start in range(0, len(steps), columns.count):
        end = min(start + columns.count, len(steps))
        left = GAP / 2 if start else 0.0
        _lap(sheet, steps, range(start, end), corner=(left, y), columns=columns)
        y = sheet.height + LAP
    if view.get("note"):
        y = sheet.height + 8
        for line in wrap(view["note"], int(room / width_of("x", SMALL))):
            y += SMALL + 3
            sheet.note(0, y, text=line)
    return sheet


def _columns(steps: list[Spec], room: float) -> Columns:
    """All steps in one line, if need be a little closer; else as many as fit."""
    labels = [cut(step[key] or "", LONGEST) for step in steps for key in KEYS]
    widest = max((width_of(label, SIZE) for label in labels), default=0.0)
    wide = min(max(NARROWEST, widest + 10), room - 2 * GAP)
    count = max(1, len(steps))
    between = (room - count * wide) / max(1, count - 1)
    if between >= LEAST:
        return Columns(wide, min(between, GAP), count)
    fits = int(room / (wide + GAP))
    return Columns(wide, GAP, max(1, fits))


def _lap(sheet: Sheet, steps: list[Spec], lap: range, *, corner: Point, columns: Columns) -> None:
    """Some steps beside each other."""
    left, top = corner
    if all(steps[at]["output"] is None for at in lap):
        top -= FLOOR  # no row above the states
    center = top + FLOOR + HIGH / 2  # of the states
    if lap.start:
        _arrow(sheet, (left - GAP / 2, center), (left, center))

    for at in lap:
        x = left + columns.x(at - lap.start)
        ahead = steps[at + 1 : at + 2]
        if ahead and at == lap[-1]:
            _onward(sheet, steps[at], start=(x + columns.wide, center), gap=columns.gap / 2)
        elif ahead:
            _onward(sheet, steps[at], start=(x + columns.wide, center), gap=columns.gap)
            if ahead[0].get("own"):
                _feed(sheet, start=(x + columns.wide, center), gap=columns.gap)
        _step(sheet, steps[at], corner=(x, top), wide=columns.wide, key=f"t{at}")
    _brackets(sheet, steps, lap, corner=(left, top + 2 * FLOOR + HIGH + 8), columns=columns)


def _step(sheet: Sheet, step: Spec, *, corner: Point, wide: float, key: str) -> None:
    """One column: the output, the state, the input, and arrows up."""
    x, top = corner
    center = x + wide / 2
    state = top + FLOOR
    below = state + FLOOR
    if step["output"] is not None:
        _arrow(sheet, (center, state), (center, top + HIGH))
        _box(sheet, step["output"], corner=(x, top), wide=wide, key=key, hue="k")
    _box(sheet, step["state"], corner=(x, state), wide=wide, key=key, hue="v")
    if step["input"] is None:
        return
    own = bool(step.get("own"))
    _arrow(sheet, (center, below), (center, state + HIGH), dash=own)
    if own:
        _own_box(sheet, step["input"], corner=(x, below), wide=wide, key=key)
    else:
        _box(sheet, step["input"], corner=(x, below), wide=wide, key=key)


def _onward(sheet: Sheet, step: Spec, *, start: Point, gap: float) -> None:
    """From a state to the next one; both ways where it is also read backwards."""
    x, y = start
    if not step.get("both_ways"):
        _arrow(sheet, start, (x + gap, y))
        return
    _arrow(sheet, (x, y - 5), (x + gap, y - 5))
    _arrow(sheet, (x + gap, y + 5), (x, y + 5))


def _feed(sheet: Sheet, *, start: Point, gap: float) -> None:
    """From an output to the input of the next step, which it becomes."""
    x, y = start
    bend = x + gap / 2
    end = x + gap - SPACE
    above, below = y - FLOOR, y + FLOOR
    way = [
        [x, above],
        [bend, above],
        [bend, below],
        [end, below],
    ]
    sheet.line(way, "soft", width=STROKE, dash=True)
    _tip(sheet, way[-1], (1.0, 0.0))


def _arrow(sheet: Sheet, start: Point, end: Point, *, dash: bool = False) -> None:
    """A straight arrow, across or upright."""
    x, y = start
    right, low = end
    long = abs(right - x) + abs(low - y)
    across = (right - x) / long
    down = (low - y) / long
    reached = (right - SPACE * across, low - SPACE * down)
    more = {"dash": True} if dash else {}
    sheet.line([start, reached], "soft", width=STROKE, **more)
    _tip(sheet, reached, (across, down))


def _tip(sheet: Sheet, end: Point, way: tuple[float, float]) -> None:
    """The tip of an arrow that goes some way."""
    x, y = end
    across, down = TIP * way[0], TIP * way[1]
    one = [x - across - down, y - down - across]
    other = [x - across + down, y - down + across]
    sheet.line([one, [x, y], other], "soft", width=STROKE)


def _box(sheet: Sheet, label: str, *, corner: Point, wide: float, key: str, hue: str = "") -> None:
    """A box with a label; states and outputs have a color."""
    x, y = corner
    edge = "line" if hue else "soft"
    sheet.rect(x, y, size=(wide, HIGH), fill=hue or "paper", stroke=edge, tip=label, keys=[key])
    _label(sheet, label, corner=corner, wide=wide, key=key, ink="black" if hue else "ink")


def _own_box(sheet: Sheet, label: str, *, corner: Point, wide: float, key: str) -> None:
    """What a network reads of its own output: with a dashed edge."""
    x, y = corner
    right, low = x + wide, y + HIGH
    sheet.rect(x, y, size=(wide, HIGH), fill="paper", tip=label, keys=[key])
    edge = [
        [x, y],
        [right, y],
        [right, low],
        [x, low],
        [x, y],
    ]
    sheet.line(edge, "soft", dash=True, keys=[key])
    _label(sheet, label, corner=corner, wide=wide, key=key, ink="soft")


def _label(sheet: Sheet, label: str, *, corner: Point, wide: float, key: str, ink: str) -> None:
    """A label in the middle of its box."""
    x, y = corner
    fits = int((wide - 4) / width_of("x", SIZE))
    shown = cut(label, min(LONGEST, fits))
    more = {"mono": True, "anchor": "middle", "fill": ink, "keys": [key]}
    sheet.text(x + wide / 2, y + 15, text=shown, size=SIZE, **more)


def _brackets(sheet: Sheet, steps: list[Spec], lap: range, *, corner: Point, columns: Columns) -> None:
    """Below the inputs: which network the columns belong to."""
    left, y = corner
    low = y + 4
    networks = [steps[at].get("network", "") for at in lap]
    for name in filter(None, dict.fromkeys(networks)):
        own = [at for at, network in enumerate(networks) if network == name]
        start = left + columns.x(own[0])
        end = left + columns.x(own[-1]) + columns.wide
        edge = [
            [start, y],
            [start, low],
            [end, low],
            [end, y],
        ]
        sheet.line(edge, "soft", width=1.0)
        sheet.note((start + end) / 2, y + 18, text=name, anchor="middle")
