"""A recurrent network, unrolled: a column for every step, its input below and its output above."""

from glassformer.figures.labels import cut
from glassformer.figures.marks import SMALL, Point, Sheet, Spec, width_of

SIZE = 12.0  # of a label
LONGEST = 10  # columns of a label
HIGH = 22.0  # of a box
RISE = 30.0  # between a box and the one above it
GAP = 34.0  # between two columns
NARROWEST = 30.0  # box
TIP = 4.0  # of an arrow
SPACE = 2.0  # between a tip and its box
STROKE = 1.2
LAP = 26.0  # between the laps of a network that is too long for one line
BRACKET = 24.0  # below the inputs: which network the columns belong to


def unrolled(view: Spec, room: float) -> Sheet:
    """Every step; where there is no room for all beside each other, the rest follows in further laps."""
    sheet, steps = Sheet(), view["steps"]
    labels = [step[key] for step in steps for key in ("input", "state", "output") if step[key]]
    widest = max((width_of(cut(label, LONGEST), SIZE) for label in labels), default=0.0) + 10
    wide = min(max(NARROWEST, widest), room - 2 * GAP)
    fits = max(1, int((room - GAP / 2) / (wide + GAP)))
    count = min(fits, len(steps)) or 1
    y = 4.0
    for start in range(0, len(steps), count):
        lap = range(start, min(start + count, len(steps)))
        _lap(sheet, view, lap, corner=(GAP / 2 if start else 0.0, y), wide=wide)
        y = sheet.height + LAP
    if view.get("note"):
        sheet.note(0, sheet.height + SMALL + 8, text=view["note"])
    return sheet


def _lap(sheet: Sheet, view: Spec, lap: range, *, corner: Point, wide: float) -> None:
    """Some steps beside each other."""
    steps, (left, top) = view["steps"], corner
    if all(steps[at]["output"] is None for at in lap):
        top -= HIGH + RISE  # no row above the states
    middle = top + HIGH + RISE  # of the states' upper edge
    bottom = middle + HIGH + RISE
    if lap.start:
        _arrow(sheet, (left - GAP / 2, middle + HIGH / 2), (left, middle + HIGH / 2))
    for at in lap:
        x, step = left + (at - lap.start) * (wide + GAP), steps[at]
        center = x + wide / 2
        key = [f"t{at}"]
        if at + 1 < len(steps):
            _onward(sheet, steps, at, start=(x + wide, middle), last=at == lap[-1])
        if step["output"] is not None:
            _arrow(sheet, (center, middle), (center, top + HIGH))
            _box(sheet, (x, top), step["output"], wide=wide, hue="k", keys=key)
        _box(sheet, (x, middle), step["state"], wide=wide, hue="v", keys=key)
        if step["input"] is not None:
            _arrow(sheet, (center, bottom), (center, middle + HIGH), dash=bool(step.get("own")))
            _box(sheet, (x, bottom), step["input"], wide=wide, keys=key, own=bool(step.get("own")))
    _brackets(sheet, steps, lap, corner=(left, bottom + HIGH + 8), wide=wide)


def _onward(sheet: Sheet, steps: list[Spec], at: int, *, start: Point, last: bool) -> None:
    """From a state to the next one, and from an output to the input that it becomes."""
    x, y = start
    center = y + HIGH / 2
    end = x + (GAP / 2 if last else GAP)
    if steps[at].get("both_ways"):
        _arrow(sheet, (x, center - 5), (end, center - 5))
        _arrow(sheet, (end, center + 5), (x, center + 5))
    else:
        _arrow(sheet, (x, center), (end, center))
    if not steps[at + 1].get("own") or last:
        return
    bend, above, below = x + GAP / 2, y - RISE - HIGH / 2, y + HIGH + RISE + HIGH / 2
    way = [[x, above], [bend, above], [bend, below], [x + GAP - SPACE, below]]
    sheet.line(way, "soft", width=STROKE, dash=True)
    _tip(sheet, way[-1], (1.0, 0.0))


def _arrow(sheet: Sheet, start: Point, end: Point, *, dash: bool = False) -> None:
    """A straight arrow, across or upright."""
    (x, y), (right, low) = start, end
    long = abs(right - x) + abs(low - y)
    across, down = (right - x) / long, (low - y) / long
    reached = (right - SPACE * across, low - SPACE * down)
    sheet.line([start, reached], "soft", width=STROKE, **({"dash": True} if dash else {}))
    _tip(sheet, reached, (across, down))


def _tip(sheet: Sheet, end: Point, way: tuple[float, float]) -> None:
    """The tip of an arrow that goes some way."""
    (x, y), (across, down) = end, way
    back, side = (x - TIP * across, y - TIP * down), (TIP * down, TIP * across)
    points = [
        [back[0] - side[0], back[1] - side[1]],
        [x, y],
        [back[0] + side[0], back[1] + side[1]],
    ]
    sheet.line(points, "soft", width=STROKE)


def _box(
    sheet: Sheet, corner: Point, label: str, *, wide: float, keys: list[str], hue: str = "", own: bool = False
) -> None:
    """A box with a label in its middle; what the network reads of its own output has a dashed edge."""
    (x, y), shown = corner, cut(label, min(LONGEST, int((wide - 4) / width_of("x", SIZE))))
    edge = "none" if own else "line" if hue else "soft"
    sheet.rect(x, y, size=(wide, HIGH), fill=hue or "paper", stroke=edge, tip=label, keys=keys)
    if own:
        around = [[x, y], [x + wide, y], [x + wide, y + HIGH], [x, y + HIGH], [x, y]]
        sheet.line(around, "soft", dash=True, keys=keys)
    ink = "black" if hue else "soft" if own else "ink"
    more = {"mono": True, "anchor": "middle", "fill": ink, "keys": keys}
    sheet.text(x + wide / 2, y + 15, text=shown, size=SIZE, **more)


def _brackets(sheet: Sheet, steps: list[Spec], lap: range, *, corner: Point, wide: float) -> None:
    """Below the inputs: which network the columns belong to."""
    left, y = corner
    names = dict.fromkeys(steps[at].get("network", "") for at in lap)
    for name in filter(None, names):
        own = [at - lap.start for at in lap if steps[at].get("network") == name]
        start, end = left + own[0] * (wide + GAP), left + own[-1] * (wide + GAP) + wide
        sheet.line([[start, y], [start, y + 4], [end, y + 4], [end, y]], "soft", width=1.0)
        sheet.note((start + end) / 2, y + BRACKET - 6, text=name, anchor="middle")
