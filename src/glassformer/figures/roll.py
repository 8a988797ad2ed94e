"""A piano roll: notes as bars over time, the higher the higher up; and arcs from one note to others."""

import math
from dataclasses import dataclass
from typing import Any

from glassformer.figures import color
from glassformer.figures.labels import pitch_name, quantity
from glassformer.figures.marks import SMALL, Sheet, Spec, shade, width_of

LEFT, GAP = 30.0, 18.0  # room for the names of pitches, and between two systems
SECOND = 46.0  # how long a second is, unless all of it fits at a larger scale
LONGEST = 130.0  # and how long at most
ROW, ARCED = 6.0, 70.0  # height of a pitch; room for arcs above
THIN, THICK, APART = 0.8, 5.0, 2.5  # arcs of no weight and of the most; how far those of two heads are apart
HIGHER = 5.0  # and how much higher each
SLOT, COLUMN = 1.0, 12.0  # height of a slot, and width of a column of them


@dataclass(frozen=True)
class Staff:
    """How times and pitches become places."""

    low: int
    high: int
    top: float
    second: float  # units of a second
    system: float  # seconds in a system

    @property
    def height(self) -> float:
        """Of a system, with the room above it and the times below it."""
        return self.top + (self.high - self.low + 1) * ROW + GAP

    def x(self, time: float, system: int) -> float:
        """Where a time is."""
        return LEFT + (time - system * self.system) * self.second

    def y(self, pitch: int, system: int) -> float:
        """The upper edge of a pitch."""
        return system * self.height + self.top + (self.high - pitch) * ROW


def roll(view: Spec, room: float) -> Sheet:
    """All notes; a long piece in several systems, one below the other, unless arcs hold it together."""
    sheet, notes = Sheet(), view["notes"]
    if not notes:
        sheet.note(0, 12, text="no notes")
        return sheet
    staff = _staff(view, room)
    end = max(note[1] for note in notes)
    for system in range(max(1, math.ceil(end / staff.system - 1e-9))):
        _system(sheet, staff, system, min(end, (system + 1) * staff.system))
    for number, note in enumerate(notes):
        _note(sheet, view, staff, number=number, note=note)
    arcs = sorted(view.get("arcs", []), key=lambda one: one[3])  # the strongest on top
    for arc in arcs:
        _arc(sheet, view, staff, arc=arc, most=arcs[-1][3])
    if "series" in view:
        _names(sheet, view["series"], room)
    return sheet


def _staff(view: Spec, room: float) -> Staff:
    notes = view["notes"]
    pitches = [int(note[2]) for note in notes]
    end = max(0.1, *(note[1] for note in notes))
    fits = (room - LEFT - 2) / end  # units of a second where all is one system
    together = bool(view.get("arcs")) or fits >= SECOND
    second = min(LONGEST, fits) if together else SECOND
    system = end if together else max(1.0, math.floor((room - LEFT - 2) / SECOND))
    top = ARCED if view.get("arcs") else 4.0
    return Staff(min(pitches) - 1, max(pitches) + 1, top, second, system)


def _system(sheet: Sheet, staff: Staff, system: int, end: float) -> None:
    """Lines and names of the pitches C, and times below."""
    start = system * staff.system
    left, right = staff.x(start, system), staff.x(end, system)
    for pitch in range(staff.low, staff.high + 1):
        y = staff.y(pitch, system)
        if pitch % 12 == 0:
            sheet.line([[left, y + ROW], [right, y + ROW]], "line")
            sheet.note(LEFT - 4, y + ROW, text=pitch_name(pitch), anchor="end")
    bottom = staff.y(staff.low, system) + ROW
    sheet.line([[left, bottom], [right, bottom]], "soft")
    step = next((one for one in (1, 2, 5, 10, 30, 60, 300) if one * staff.second >= 34), 600)
    time = math.ceil(start / step) * step
    while time <= end + 1e-9:
        x = staff.x(time, system)
        sheet.line([[x, bottom], [x, bottom + 3]], "soft")
        sheet.note(x, bottom + 13, text=f"{time:g} s", anchor="middle")
        time += step


def _note(sheet: Sheet, view: Spec, staff: Staff, *, number: int, note: list[float]) -> None:
    """One bar, in two parts where a system ends in between."""
    start, end, pitch, voice = note[0], note[1], int(note[2]), int(note[3])
    values = view.get("values")
    value = None if values is None else values[number]
    fill: color.Color = color.series(voice)
    if values is not None:
        fill = "line" if value is None else shade(view["scale"], value)
    elif start < view.get("given", 0.0) - 1e-9:
        fill = "soft"
    chosen = view.get("chosen") == number
    tip = f"{number} {pitch_name(pitch)}, {start:.2f} to {end:.2f} s"
    if value is not None:
        tip += f": {quantity(value, view.get('unit'))}"
    more: Spec = {"fill": "ink" if chosen else fill, "tip": tip, "keys": [f"t{number}"]}
    if values is not None:
        more["stroke"] = "soft"
    first = int(start / staff.system + 1e-9)
    last = max(first, math.ceil(end / staff.system - 1e-9) - 1)
    for system in range(first, last + 1):
        left = staff.x(max(start, system * staff.system), system)
        right = staff.x(min(end, (system + 1) * staff.system), system)
        sheet.rect(left, staff.y(pitch, system) + 0.5, size=(max(1.5, right - left - 0.8), ROW - 1), **more)


def _arc(sheet: Sheet, view: Spec, staff: Staff, *, arc: list[float], most: float) -> None:
    """From a note to one that it attends to: the color is the head's, the width is the weight."""
    source, target, head, weight = int(arc[0]), int(arc[1]), int(arc[2]), arc[3]
    ends = []
    for number in (source, target):
        start, end, pitch, _ = view["notes"][number]
        middle = (start + min(end, start + 0.3)) / 2
        aside = APART * (head - (len(view["series"]) - 1) / 2)  # arcs of two heads are not one
        ends.append((staff.x(middle, 0) + aside, staff.y(int(pitch), 0)))
    (x, y), (other, higher) = ends
    lift = 14 + abs(x - other) * 0.3 + HIGHER * head
    lift = min(lift, ARCED, min(y, higher) * 1.3)  # a curve reaches three quarters of the way to its handles
    tip = f"{view['series'][head]}: note {source} → note {target}, {quantity(weight, view.get('unit'))}"
    sheet.arc(
        ends[0],
        ends[1],
        lift=lift,
        stroke=color.series(head),
        width=THIN + (THICK - THIN) * weight / (most or 1.0),
        tip=tip,
        keys=[f"t{source}", f"t{target}"],
    )


def _names(sheet: Sheet, names: list[str], room: float) -> None:
    """Which color is which head, or which voice."""
    x, y = LEFT, sheet.height + 8
    for number, name in enumerate(names):
        wide = 14 + width_of(name, SMALL)
        if x > LEFT and x + wide > room:
            x, y = LEFT, y + 14
        sheet.rect(x, y, size=(10, 10), fill=color.series(number))
        sheet.note(x + 14, y + 9, text=name)
        x += wide + 12


def slots(view: Spec, room: float) -> Sheet:
    """Events as one-hot columns: each is all slots of the vocabulary, of which one is filled."""
    sheet, groups = Sheet(), view["groups"]
    left = max((width_of(name, SMALL) for name, _ in groups), default=0.0) + 10
    tall = sum(count for _, count in groups) * SLOT
    shown = view["columns"][: max(1, int((room - left) / COLUMN))]
    y = 0.0
    for number, (name, count) in enumerate(groups):
        high = count * SLOT
        if high >= SMALL:
            sheet.note(left - 6, y + high / 2 + 4, text=name, anchor="end", fill=color.series(number))
        for at in range(len(shown)):
            sheet.rect(left + at * COLUMN, y, size=(COLUMN - 3, high), stroke="line")
        y += high
    for at, slot in enumerate(shown):
        x, name = left + at * COLUMN, view["names"][at]
        group = _group_of(slot, groups)
        where = max(0.0, slot * SLOT - 1)
        tip = f"{at} {name}: slot {slot}"
        sheet.rect(x, where, size=(COLUMN - 3, 3), fill=color.series(group), tip=tip, keys=[f"t{at}"])
        deep = tall + 6 + width_of(name, SMALL)
        sheet.text(x + 7, deep, text=name, size=SMALL, turn=True, fill="soft", mono=True)
        sheet.reach(x + COLUMN, deep + 2)
    if len(shown) < len(view["columns"]):
        sheet.note(left, sheet.height + 12, text=f"the first {len(shown)} of {len(view['columns'])} columns")
    return sheet


def _group_of(slot: int, groups: list[list[Any]]) -> int:
    """The group that a slot is in."""
    for number, (_, count) in enumerate(groups):
        if slot < count:
            return number
        slot -= count
    return len(groups)
