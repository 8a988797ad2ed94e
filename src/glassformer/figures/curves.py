"""Curves: over layers, steps or shares, and small ones over tokens."""

import math

from glassformer.figures import color
from glassformer.figures.labels import cut, number, percent, ten, tick
from glassformer.figures.marks import LABEL, SMALL, TEXT, Sheet, Spec, width_of, written


def ticks(low: float, high: float, count: int = 5) -> tuple[list[float], float]:
    """Round numbers between two others, and the step between them."""
    rough = (high - low) / count
    base = ten(math.floor(math.log10(rough)) if rough > 0 else 0)
    step = next(base * n for n in (1, 2, 5, 10) if base * n >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)], step


def lines(view: Spec, room: float, theme: str) -> Sheet:
    """Lines over x; with `log` by powers of ten, with `down` the smallest on top, as ranks are."""
    sheet, series, xs = Sheet(theme), view["series"], view["x"]
    named = all(isinstance(x, str) for x in xs)
    places = [float(n) for n in range(len(xs))] if named else [float(x) for x in xs]
    log, down = view.get("log", False), view.get("down", False)
    ys = [value for one in series for value in one["values"] if value is not None]
    low, high = (
        view.get(end, edge) for end, edge in (("low", min(ys, default=0)), ("high", max(ys, default=1)))
    )

    def scaled(value: float) -> float:
        return math.log10(max(value, 1e-12)) if log else value

    bottom, top = scaled(low), scaled(high)
    if top - bottom < 1e-9:
        bottom, top = bottom - 0.5, top + 0.5
    names = (
        max((width_of(cut(one["name"], LABEL), SMALL) for one in series), default=0)
        if len(series) > 1
        else 0.0
    )
    left, tall = 44.0, float(view.get("height", 220))
    wide = max(80.0, min(room, float(view.get("width", 640))) - left - names - 14)
    first, last = min(places, default=0), max(places, default=1)

    def place(x: float, value: float) -> list[float]:
        share = (min(max(scaled(value), bottom), top) - bottom) / (top - bottom)
        return [
            left + (x - first) / ((last - first) or 1.0) * wide,
            (share if down else 1 - share) * tall + 6,
        ]

    marks, step = (
        ([ten(n) for n in range(math.floor(bottom), math.ceil(top) + 1)], 1.0) if log else ticks(bottom, top)
    )
    for value in [mark for mark in marks if bottom - 1e-9 <= scaled(mark) <= top + 1e-9]:
        y = place(first, value)[1]
        sheet.line([[left, y], [left + wide, y]], sheet.color("line"))
        told = (
            percent(value) if view.get("unit") == "percent" else number(value) if log else tick(value, step)
        )
        sheet.text(left - 5, y + 4, told, size=SMALL, anchor="end", fill=sheet.color("soft"))
    foot = tall + 8
    if named:
        skip = max(1, math.ceil(len(xs) * 13 / wide))
        shown = [n for n in range(len(xs)) if n % skip == 0]
        for n in shown:
            sheet.text(
                place(places[n], low)[0] + 4,
                foot,
                cut(xs[n], LABEL),
                size=SMALL,
                mono=True,
                turn=True,
                anchor="end",
            )
        foot += max((width_of(cut(xs[n], LABEL), SMALL) for n in shown), default=0) + 4
    else:
        shown_x, step = ticks(first, last, 6)
        for x in shown_x:
            sheet.text(
                place(x, low)[0],
                foot + 10,
                tick(x, step),
                size=SMALL,
                anchor="middle",
                fill=sheet.color("soft"),
            )
        foot += 14
    for n, one in enumerate(series):
        stroke = color.SERIES[theme][n % len(color.SERIES[theme])]
        points = [(x, value) for x, value in zip(places, one["values"], strict=True) if value is not None]
        look = {"width": 2, "keys": [f"s{n}"], **({"dash": True} if n % 2 else {})}
        sheet.line([place(x, value) for x, value in points], stroke, **look)
        for x, value in points if len(points) <= 64 else []:
            px, py = place(x, value)
            where = xs[places.index(x)] if named else number(x)
            tip = f"{one['name']}, {where}: {written(value, view.get('unit'))}"
            sheet.rect(px - 2.5, py - 2.5, 5, 5, stroke, tip=tip, keys=[f"s{n}", f"x{places.index(x)}"])
    if len(series) > 1:
        final = [
            next((value for value in reversed(one["values"]) if value is not None), low) for one in series
        ]
        ends = sorted((place(last, value)[1], n) for n, value in enumerate(final))
        y = -math.inf
        for wanted, n in ends:
            y = max(wanted, y + SMALL + 2)
            stroke = color.SERIES[theme][n % len(color.SERIES[theme])]
            sheet.text(
                left + wide + 8,
                y + 4,
                cut(series[n]["name"], LABEL),
                size=SMALL,
                fill=stroke,
                bold=True,
                keys=[f"s{n}"],
            )
    for what, x, y in (
        (view.get("x_title"), left + wide, foot + SMALL + 4),
        (view.get("y_title"), left + wide, -4),
    ):
        if what:
            sheet.text(x, y + (0 if y > 0 else 6), what, size=SMALL, anchor="end", fill=sheet.color("soft"))
    sheet.reach(left + wide + 8, foot + 4)
    return sheet


def sparks(view: Spec, room: float, theme: str) -> Sheet:
    """One small curve a row, all over the same tokens."""
    sheet, series, labels = Sheet(theme), view["series"], view["tokens"]
    left = max((width_of(cut(one["name"], LABEL), TEXT) for one in series), default=0) + 10
    step = min(22.0, (room - left) / max(1, len(labels)))
    high, y = 30.0, 0.0
    for n, one in enumerate(series):
        stroke = color.SERIES[theme][n % len(color.SERIES[theme])]
        there = [(at, value) for at, value in enumerate(one["values"]) if value is not None]
        most = max((value for _, value in there), default=0) or 1.0
        points = [[left + (at + 0.5) * step, y + high - value / most * (high - 4)] for at, value in there]
        area = [[points[0][0], y + high], *points, [points[-1][0], y + high]] if points else []
        sheet.text(
            left - 8,
            y + high - 8,
            cut(one["name"], LABEL),
            anchor="end",
            fill=stroke,
            bold=True,
            keys=[f"s{n}"],
        )
        sheet.line(area, stroke, fill=stroke, width=1.2, keys=[f"s{n}"])
        for at, value in there:
            tip = f"{one['name']}, {at} {labels[at]}: {number(value)}"
            sheet.rect(left + at * step, y, step, high, "none", tip=tip, keys=[f"s{n}", f"t{at}"])
        y += high + 8
    skip = max(1, math.ceil(13 / step))
    shown = [at for at in range(len(labels)) if at % skip == 0]
    for at in shown:
        sheet.text(
            left + (at + 0.5) * step + 4,
            y,
            cut(labels[at], LABEL),
            mono=True,
            turn=True,
            anchor="end",
            keys=[f"t{at}"],
        )
    sheet.reach(
        left + step * len(labels),
        y + max((width_of(cut(labels[at], LABEL), TEXT) for at in shown), default=0) + 4,
    )
    return sheet
