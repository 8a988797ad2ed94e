"""A piano roll: notes as bars over time, high pitches above low ones; and arcs from one note to others."""

import math
from dataclasses import dataclass

from glassformer.figures import color
from glassformer.figures.labels import pitch_name, quantity
from glassformer.figures.marks import SMALL, Sheet, Spec, shade, width_of

LEFT, GAP = 30.0, 18.0  # room for the names of pitches, and between two systems
SECOND = 46.0  # how long a second is, unless all of it fits at a larger scale
LONGEST = 130.0  # and how long at most
ROW, ARCED = 6.0, 70.0  # height of a pitch; room for arcs above
THIN, THICK, APART = 0.8, 5.0, 2.5  # arcs of no weight and of the most; how far those of two heads are apart
HIGHER = 5.0  # and how much higher each
WEAK = 0.25  # a weight that is drawn wide only if there is none larger: few percent stay thin


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
        if pitch % 12:
            continue
        below = staff.y(pitch, system) + ROW
        sheet.line([[left, below], [right, below]], "line")
        sheet.note(LEFT - 4, below, text=pitch_name(pitch), anchor="end")
    bottom = staff.y(staff.low, system) + ROW
    sheet.line([[left, bottom], [right, bottom]], "soft")
    step = _step(staff)
    time = math.ceil(start / step) * step
    while time <= end + 1e-9:
        x = staff.x(time, system)
        sheet.line([[x, bottom], [x, bottom + 3]], "soft")
        sheet.note(x, bottom + 13, text=f"{time:g} s", anchor="middle")
        time += step


def _step(staff: Staff) -> float:
    """Seconds between two times that are written, so that their texts have room."""
    for step in (1, 2, 5, 10, 30, 60, 300):
        if step * staff.second >= 34:
            return step
    return 600


def _note(sheet: Sheet, view: Spec, staff: Staff, *, number: int, note: list[float]) -> None:
    """One bar, in two parts where a system ends in between."""
    start, end = note[:2]
    pitch = int(note[2])
    more: Spec = {
        "fill": _fill(view, number, note),
        "tip": _tip(view, number, note),
        "keys": [f"t{number}"],
    }
    if "values" in view:
        more["stroke"] = "soft"

    first = int(start / staff.system + 1e-9)
    last = math.ceil(end / staff.system - 1e-9) - 1
    for system in range(first, max(first, last) + 1):
        begins = max(start, system * staff.system)
        ends = min(end, (system + 1) * staff.system)
        left, right = staff.x(begins, system), staff.x(ends, system)
        top = staff.y(pitch, system) + 0.5
        long = max(1.5, right - left - 0.8)
        sheet.rect(left, top, size=(long, ROW - 1), **more)


def _fill(view: Spec, number: int, note: list[float]) -> color.Color:
    """The color of a note: of its value where notes have values, else of its voice."""
    if view.get("chosen") == number:
        return "ink"
    if "values" in view:
        value = view["values"][number]
        return "line" if value is None else shade(view["scale"], value)
    is_given = note[0] < view.get("given", 0.0) - 1e-9
    return "soft" if is_given else color.series(int(note[3]))


def _tip(view: Spec, number: int, note: list[float]) -> str:
    """What a note is, in words."""
    start, end = note[:2]
    tip = f"{number} {pitch_name(int(note[2]))}, {start:.2f} to {end:.2f} s"
    value = view["values"][number] if "values" in view else None
    if value is None:
        return tip
    return f"{tip}: {quantity(value, view.get('unit'))}"


def _arc(sheet: Sheet, view: Spec, staff: Staff, *, arc: list[float], most: float) -> None:
    """From a note to one that it attends to: the color is the head's, the width is the weight."""
    source, target, head = map(int, arc[:3])
    weight = arc[3]
    aside = APART * (head - (len(view["series"]) - 1) / 2)  # arcs of two heads are not one
    from_x, from_y = _head_of(view["notes"][source], staff)
    to_x, to_y = _head_of(view["notes"][target], staff)

    # A curve reaches three quarters of the way to its handles. Long arcs of several heads end at one height
    # each, so that none hides another.
    room = min(ARCED, min(from_y, to_y) * 1.3) - HIGHER * (len(view["series"]) - 1)
    lift = max(0.0, min(14 + abs(from_x - to_x) * 0.3, room)) + HIGHER * head
    name = view["series"][head]
    share = quantity(weight, view.get("unit"))
    sheet.arc(
        (from_x + aside, from_y),
        (to_x + aside, to_y),
        lift=lift,
        stroke=color.series(head),
        width=THIN + (THICK - THIN) * weight / max(most, WEAK),
        tip=f"{name}: note {source} → note {target}, {share}",
        keys=[f"t{source}", f"t{target}"],
    )


def _head_of(note: list[float], staff: Staff) -> tuple[float, float]:
    """Where arcs meet a note: above its beginning."""
    start, end = note[:2]
    middle = (start + min(end, start + 0.3)) / 2
    return staff.x(middle, 0), staff.y(int(note[2]), 0)


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
