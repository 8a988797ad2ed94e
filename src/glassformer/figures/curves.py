"""Curves: over layers, steps or shares, and small ones over tokens."""

import math
from dataclasses import dataclass

from glassformer.figures import color
from glassformer.figures.labels import cut, number, percent, quantity, ten, tick, wrap
from glassformer.figures.marks import LABEL, SMALL, TEXT, Sheet, Spec, width_of

DOTS = 64  # points of a line that are marked one by one, at most
UPRIGHT = 13  # units that an upright label needs
BELOW = 14  # units from a plot to what is written under it: a point on the axis reaches 9 of them
SMALLEST = 1e-12  # value on a logarithmic axis


def ticks(low: float, high: float, *, count: int = 5) -> tuple[list[float], float]:
    """Round numbers between two others, and the step between them."""
    rough = (high - low) / count
    power = math.floor(math.log10(rough)) if rough > 0 else 0
    sizes = [ten(power) * n for n in (1, 2, 5, 10)]
    step = next(size for size in sizes if size >= rough * 0.999)

    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)], step


@dataclass(frozen=True)
class Axes:
    """Where a value lies in a drawing of lines."""

    left: float
    wide: float
    tall: float
    first: float  # the smallest x
    last: float
    bottom: float  # the smallest value, as a power of ten where `log` is
    top: float
    log: bool
    down: bool  # the smallest value on top, as ranks are

    def x(self, x: float) -> float:
        """The place of an x."""
        span = self.last - self.first
        share = (x - self.first) / (span or 1.0)
        return self.left + share * self.wide

    def y(self, value: float) -> float:
        """The place of a value; one out of range lies on the edge."""
        scaled = min(max(self.scaled(value), self.bottom), self.top)
        share = (scaled - self.bottom) / (self.top - self.bottom)
        below_top = share if self.down else 1 - share
        return below_top * self.tall + 6

    def scaled(self, value: float) -> float:
        """A value, or its power of ten."""
        return math.log10(max(value, SMALLEST)) if self.log else value


def lines(view: Spec, room: float) -> Sheet:
    """Lines over x; with `log` by powers of ten, with `down` the smallest on top."""
    plot = Sheet()
    axes = _axes(view, room)
    _rulers(plot, view, axes)
    foot = _names_below(plot, view, axes) if _named(view) else _numbers_below(plot, axes)
    for n in range(len(view["series"])):
        _line(plot, view, axes, n)
    if len(view["series"]) > 1:
        _line_names(plot, view, axes)

    right = axes.left + axes.wide
    for line in wrap(view["x_title"], int(right / width_of("x", SMALL))) if view.get("x_title") else []:
        foot += SMALL + 4
        plot.note(right, foot, text=line, anchor="end")
    plot.reach(right + 8, foot + 4)
    if not view.get("y_title"):
        return plot

    sheet = Sheet()
    sheet.note(0, SMALL, text=view["y_title"])
    sheet.add(plot, x=0, y=SMALL + 4)
    return sheet


def _named(view: Spec) -> bool:
    """Whether x has names, not numbers."""
    return all(isinstance(x, str) for x in view["x"])


def _places(view: Spec) -> list[float]:
    """Where on the x axis the values are; names are one apart."""
    return [float(n if _named(view) else x) for n, x in enumerate(view["x"])]


def _axes(view: Spec, room: float) -> Axes:
    low, high = _limits(view)
    left = 44.0
    names = 0.0
    if len(view["series"]) > 1:
        shown = [cut(one["name"], LABEL) for one in view["series"]]
        names = max(width_of(name, SMALL) for name in shown)
    given = min(room, float(view.get("width", 640)))

    places = _places(view)
    return Axes(
        left=left,
        wide=max(80.0, given - left - names - 14),
        tall=float(view.get("height", 220)),
        first=min(places, default=0.0),
        last=max(places, default=1.0),
        bottom=low,
        top=high,
        log=view.get("log", False),
        down=view.get("down", False),
    )


def _limits(view: Spec) -> tuple[float, float]:
    """The lowest and the highest value, as powers of ten where the axis is logarithmic."""
    values = [value for one in view["series"] for value in _known(one).values()]
    for ends in (one.get("spread", {}).values() for one in view["series"]):
        values += [value for end in ends for value in end if value is not None]
    low = view.get("low", min(values, default=0))
    high = view.get("high", max(values, default=1))
    if view.get("log"):
        low = math.log10(max(low, SMALLEST))
        high = math.log10(max(high, SMALLEST))
    if high - low < 1e-9:  # a level line lies in the middle
        return low - 0.5, high + 0.5
    return low, high


def _known(one: Spec) -> dict[int, float]:
    """The values of a series that are not null, by their place."""
    return {at: value for at, value in enumerate(one["values"]) if value is not None}


def _rulers(sheet: Sheet, view: Spec, axes: Axes) -> None:
    """Lines across at round values, with their numbers."""
    if axes.log:
        powers = range(math.floor(axes.bottom), math.ceil(axes.top) + 1)
        values, step = [ten(power) for power in powers], 1.0
    else:
        values, step = ticks(axes.bottom, axes.top)

    for value in values:
        if not axes.bottom - 1e-9 <= axes.scaled(value) <= axes.top + 1e-9:
            continue
        shown = _on_axis(view, value, step)
        y = axes.y(value)
        right = axes.left + axes.wide
        sheet.line([[axes.left, y], [right, y]], "line")
        sheet.note(axes.left - 5, y + 4, text=shown, anchor="end")


def _on_axis(view: Spec, value: float, step: float) -> str:
    """A round number as an axis shows it."""
    if view.get("unit") == "percent":
        return percent(value)
    return number(value) if view.get("log") else tick(value, step)


def _names_below(sheet: Sheet, view: Spec, axes: Axes) -> float:
    """The names of x, upright, as many as there is room for; where they end."""
    foot = axes.tall + BELOW
    skip = max(1, math.ceil(len(view["x"]) * UPRIGHT / axes.wide))
    longest = 0.0
    for n in range(0, len(view["x"]), skip):
        label = cut(view["x"][n], LABEL)
        x = axes.x(n) + 4
        sheet.text(x, foot, text=label, size=SMALL, mono=True, turn=True, anchor="end")
        longest = max(longest, width_of(label, SMALL))
    return foot + longest + 4


def _numbers_below(sheet: Sheet, axes: Axes) -> float:
    """Round numbers of x; where they end."""
    foot = axes.tall + BELOW
    shown, step = ticks(axes.first, axes.last, count=6)
    unit, letter = _thousands(max(abs(axes.first), abs(axes.last)))
    for x in shown:
        text = tick(x / unit, step / unit) + letter
        sheet.note(axes.x(x), foot + 10, text=text, anchor="middle")
    return foot + 14


def _thousands(largest: float) -> tuple[float, str]:
    """The unit of numbers below an axis, K, M or G: large ones in full would touch each other."""
    for size, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "K")):
        if largest >= size:
            return unit, letter
    return 1.0, ""


def _line(sheet: Sheet, view: Spec, axes: Axes, n: int) -> None:
    """One line; its points are marked where they are few, each with its spread if there is one."""
    one = view["series"][n]
    stroke = color.series(n)
    places = _places(view)
    known = _known(one)

    dash = {"dash": True} if n % 2 else {}
    points = {at: (axes.x(places[at]), axes.y(value)) for at, value in known.items()}
    sheet.line(list(points.values()), stroke, width=2, keys=[f"s{n}"], **dash)
    if len(known) > DOTS:
        return
    spread = one.get("spread", {})
    for at, (x, y) in points.items():
        name = view["x"][at] if _named(view) else number(places[at])
        shown = quantity(known[at], view.get("unit"))
        if spread:
            low, high = spread["low"][at], spread["high"][at]
            sheet.line([[x, axes.y(low)], [x, axes.y(high)]], stroke, width=1, keys=[f"s{n}"])
            shown += f" ({quantity(low, view.get('unit'))} to {quantity(high, view.get('unit'))})"
        tip = f"{one['name']}, {name}: {shown}"
        keys = [f"s{n}", f"x{at}"]
        sheet.rect(x - 2.5, y - 2.5, size=(5, 5), fill=stroke, tip=tip, keys=keys)


def _line_names(sheet: Sheet, view: Spec, axes: Axes) -> None:
    """The names of lines where they end, moved apart where two would meet."""
    ends = []
    lowest = 6.0 if axes.down else axes.tall + 6
    for n, one in enumerate(view["series"]):
        known = list(_known(one).values())
        end = axes.y(known[-1]) if known else lowest
        ends.append((end, n))

    for n, y in _apart(ends, bottom=axes.tall + 6).items():
        name = cut(view["series"][n]["name"], LABEL)
        x = axes.left + axes.wide + 8
        shade = color.series(n)
        sheet.text(x, y + 4, text=name, size=SMALL, fill=shade, bold=True, keys=[f"s{n}"])


def _apart(ends: list[tuple[float, int]], *, bottom: float) -> dict[int, float]:
    """Where the names of lines are, by the number of the line: near its end, a line of text apart.

    None is below the plot, where the numbers of x are.
    """
    step = SMALL + 2
    places: list[float] = []
    for end, _ in sorted(ends):
        places.append(max(end, places[-1] + step) if places else end)
    limit = bottom
    for at in reversed(range(len(places))):
        places[at] = min(places[at], limit)
        limit = places[at] - step
    return {n: y for (_, n), y in zip(sorted(ends), places, strict=True)}


def sparks(view: Spec, room: float) -> Sheet:
    """One small curve a row, all over the same tokens."""
    sheet = Sheet()
    series, labels = view["series"], view["tokens"]
    shown = [cut(one["name"], LABEL) for one in series]
    left = max((width_of(name, TEXT) for name in shown), default=0) + 10
    right = max((width_of(number(_highest(one)), SMALL) for one in series), default=0) + 6
    step = min(22.0, (room - left - right) / max(1, len(labels)))
    high = 30.0
    y = 0.0
    for n in range(len(series)):
        _spark(sheet, view, n, corner=(left, y), size=(step, high))
        y += high + 8

    longest = 0.0
    skip = max(1, math.ceil(UPRIGHT / step))
    for at in range(0, len(labels), skip):
        label = cut(labels[at], LABEL)
        x = left + (at + 0.5) * step + 4
        sheet.text(x, y, text=label, mono=True, turn=True, anchor="end", keys=[f"t{at}"])
        longest = max(longest, width_of(label, TEXT))
    sheet.reach(left + step * len(labels) + right, y + longest + 4)
    return sheet


def _highest(one: Spec) -> float:
    """The top of a small curve: its highest value."""
    return max(_known(one).values(), default=0) or 1.0


def _spark(
    sheet: Sheet, view: Spec, n: int, *, corner: tuple[float, float], size: tuple[float, float]
) -> None:
    """One small curve, filled to its ground; every token has a place that shows its value."""
    (left, y), (step, high) = corner, size
    one = view["series"][n]
    known = _known(one)
    most = _highest(one)
    ground = y + high
    area = []
    for at, value in known.items():
        x = left + (at + 0.5) * step
        area.append([x, ground - value / most * (high - 4)])
    if area:
        first, last = area[0][0], area[-1][0]
        area = [[first, ground], *area, [last, ground]]

    stroke = color.series(n)
    keys = [f"s{n}"]
    name = cut(one["name"], LABEL)
    sheet.text(left - 8, ground - 8, text=name, anchor="end", fill=stroke, bold=True, keys=keys)
    sheet.line(area, stroke, fill=stroke, width=1.2, keys=keys)
    end = left + step * len(view["tokens"]) + 4
    sheet.note(end, y + 8, text=number(most))  # every curve has a scale of its own
    sheet.note(end, ground, text="0")
    for at, value in known.items():
        token = view["tokens"][at]
        tip = f"{one['name']}, {at} {token}: {number(value)}"
        sheet.rect(left + at * step, y, size=(step, high), tip=tip, keys=[*keys, f"t{at}"])
