"""Curves: over layers, steps or shares, and small ones over tokens."""

import math
from dataclasses import dataclass

from glassformer.figures import color
from glassformer.figures.labels import cut, number, percent, quantity, ten, tick
from glassformer.figures.marks import LABEL, SMALL, TEXT, Sheet, Spec, width_of

DOTS = 64  # points of a line that are marked one by one, at most
UPRIGHT = 13  # units that an upright label needs
SMALLEST = 1e-12  # value on a logarithmic axis


def ticks(low: float, high: float, count: int = 5) -> tuple[list[float], float]:
    """Round numbers between two others, and the step between them."""
    rough = (high - low) / count
    base = ten(math.floor(math.log10(rough)) if rough > 0 else 0)
    step = next(base * n for n in (1, 2, 5, 10) if base * n >= rough * 0.999)

    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
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
        return self.left + (x - self.first) / ((self.last - self.first) or 1.0) * self.wide

    def y(self, value: float) -> float:
        """The place of a value; one out of range lies on the edge."""
        scaled = min(max(self.scaled(value), self.bottom), self.top)
        share = (scaled - self.bottom) / (self.top - self.bottom)
        return (share if self.down else 1 - share) * self.tall + 6

    def scaled(self, value: float) -> float:
        """A value, or its power of ten."""
        return math.log10(max(value, SMALLEST)) if self.log else value


def lines(view: Spec, room: float) -> Sheet:
    """Lines over x; with `log` by powers of ten, with `down` the smallest on top."""
    sheet = Sheet()
    axes = _axes(view, room)
    _rulers(sheet, view, axes)
    foot = _names_below(sheet, view, axes) if _named(view) else _numbers_below(sheet, axes)
    for n in range(len(view["series"])):
        _line(sheet, view, axes, n)
    if len(view["series"]) > 1:
        _line_names(sheet, view, axes)

    right = axes.left + axes.wide
    if view.get("x_title"):
        sheet.note(right, foot + SMALL + 4, text=view["x_title"], anchor="end")
    if view.get("y_title"):
        sheet.note(right, 2, text=view["y_title"], anchor="end")
    sheet.reach(right + 8, foot + 4)
    return sheet


def _named(view: Spec) -> bool:
    """Whether x has names, not numbers."""
    return all(isinstance(x, str) for x in view["x"])


def _places(view: Spec) -> list[float]:
    """Where on the x axis the values are; names are one apart."""
    return [float(n if _named(view) else x) for n, x in enumerate(view["x"])]


def _axes(view: Spec, room: float) -> Axes:
    series, log = view["series"], view.get("log", False)
    values = [value for one in series for value in one["values"] if value is not None]
    low = view.get("low", min(values, default=0))
    high = view.get("high", max(values, default=1))
    if log:
        low, high = math.log10(max(low, SMALLEST)), math.log10(max(high, SMALLEST))
    if high - low < 1e-9:  # a level line lies in the middle
        low, high = low - 0.5, high + 0.5

    left, names = 44.0, 0.0
    if len(series) > 1:
        names = max(width_of(cut(one["name"], LABEL), SMALL) for one in series)
    wide = max(80.0, min(room, float(view.get("width", 640))) - left - names - 14)
    tall = float(view.get("height", 220))

    places = _places(view)
    first, last = min(places, default=0.0), max(places, default=1.0)
    return Axes(left, wide, tall, first, last, low, high, log, view.get("down", False))


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
        sheet.line([[axes.left, y], [axes.left + axes.wide, y]], "line")
        sheet.note(axes.left - 5, y + 4, text=shown, anchor="end")


def _on_axis(view: Spec, value: float, step: float) -> str:
    """A round number as it stands on an axis."""
    if view.get("unit") == "percent":
        return percent(value)
    return number(value) if view.get("log") else tick(value, step)


def _names_below(sheet: Sheet, view: Spec, axes: Axes) -> float:
    """The names of x, upright, as many as there is room for; where they end."""
    foot = axes.tall + 8
    skip = max(1, math.ceil(len(view["x"]) * UPRIGHT / axes.wide))
    longest = 0.0
    for n in range(0, len(view["x"]), skip):
        label = cut(view["x"][n], LABEL)
        look: Spec = {"size": SMALL, "mono": True, "turn": True, "anchor": "end"}
        sheet.text(axes.x(n) + 4, foot, text=label, **look)
        longest = max(longest, width_of(label, SMALL))
    return foot + longest + 4


def _numbers_below(sheet: Sheet, axes: Axes) -> float:
    """Round numbers of x; where they end."""
    foot = axes.tall + 8
    shown, step = ticks(axes.first, axes.last, 6)
    for x in shown:
        sheet.note(axes.x(x), foot + 10, text=tick(x, step), anchor="middle")
    return foot + 14


def _line(sheet: Sheet, view: Spec, axes: Axes, n: int) -> None:
    """One line; its points are marked where they are few."""
    one, places = view["series"][n], _places(view)
    known = [at for at, value in enumerate(one["values"]) if value is not None]
    stroke, values = color.series(n), one["values"]

    dash = {"dash": True} if n % 2 else {}
    points = [[axes.x(places[at]), axes.y(values[at])] for at in known]
    sheet.line(points, stroke, width=2, keys=[f"s{n}"], **dash)
    if len(known) > DOTS:
        return
    for at, (x, y) in zip(known, points, strict=True):
        name = view["x"][at] if _named(view) else number(places[at])
        tip = f"{one['name']}, {name}: {quantity(values[at], view.get('unit'))}"
        sheet.rect(x - 2.5, y - 2.5, size=(5, 5), fill=stroke, tip=tip, keys=[f"s{n}", f"x{at}"])


def _line_names(sheet: Sheet, view: Spec, axes: Axes) -> None:
    """The names of lines where they end, moved down where two would meet."""
    ends = []
    for n, one in enumerate(view["series"]):
        known = [value for value in one["values"] if value is not None]
        y = axes.y(known[-1]) if known else (axes.tall + 6 if not axes.down else 6.0)
        ends.append((y, n))

    y = -math.inf
    for wanted, n in sorted(ends):
        y = max(wanted, y + SMALL + 2)
        name = cut(view["series"][n]["name"], LABEL)
        look: Spec = {"size": SMALL, "fill": color.series(n), "bold": True, "keys": [f"s{n}"]}
        sheet.text(axes.left + axes.wide + 8, y + 4, text=name, **look)


def sparks(view: Spec, room: float) -> Sheet:
    """One small curve a row, all over the same tokens."""
    sheet, series, labels = Sheet(), view["series"], view["tokens"]
    left = max((width_of(cut(one["name"], LABEL), TEXT) for one in series), default=0) + 10
    step = min(22.0, (room - left) / max(1, len(labels)))
    high, y = 30.0, 0.0
    for n in range(len(series)):
        _spark(sheet, view, n, corner=(left, y), size=(step, high))
        y += high + 8

    longest = 0.0
    for at in range(0, len(labels), max(1, math.ceil(UPRIGHT / step))):
        label = cut(labels[at], LABEL)
        look: Spec = {"mono": True, "turn": True, "anchor": "end", "keys": [f"t{at}"]}
        sheet.text(left + (at + 0.5) * step + 4, y, text=label, **look)
        longest = max(longest, width_of(label, TEXT))
    sheet.reach(left + step * len(labels), y + longest + 4)
    return sheet


def _spark(
    sheet: Sheet, view: Spec, n: int, *, corner: tuple[float, float], size: tuple[float, float]
) -> None:
    """One small curve, filled to its ground; every token has a place that says its value."""
    one, (left, y), (step, high) = view["series"][n], corner, size
    values, ground = one["values"], y + high
    known = [at for at, value in enumerate(values) if value is not None]
    most = max((values[at] for at in known), default=0) or 1.0
    area = [[left + (at + 0.5) * step, ground - values[at] / most * (high - 4)] for at in known]
    if area:
        area = [[area[0][0], ground], *area, [area[-1][0], ground]]

    stroke, keys = color.series(n), [f"s{n}"]
    name = cut(one["name"], LABEL)
    sheet.text(left - 8, ground - 8, text=name, anchor="end", fill=stroke, bold=True, keys=keys)
    sheet.line(area, stroke, fill=stroke, width=1.2, keys=keys)
    for at in known:
        tip = f"{one['name']}, {at} {view['tokens'][at]}: {number(values[at])}"
        sheet.rect(left + at * step, y, size=(step, high), tip=tip, keys=[f"s{n}", f"t{at}"])
