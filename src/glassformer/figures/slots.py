"""Slots: events as the one-hot columns that a network reads."""

from itertools import accumulate

from glassformer.figures import color
from glassformer.figures.marks import SMALL, Sheet, Spec, width_of

SLOT, COLUMN = 1.0, 12.0  # height of a slot, and width of a column of them
GAP = 3.0  # between two columns


def slots(view: Spec, room: float) -> Sheet:
    """Each event is all slots of the vocabulary, of which one is filled."""
    sheet = Sheet()
    names = [name for name, _ in view["groups"]]
    left = max((width_of(name, SMALL) for name in names), default=0.0) + 10
    count = max(1, int((room - left) / COLUMN))
    shown = view["columns"][:count]

    _groups(sheet, view, left=left, columns=len(shown))
    for at, slot in enumerate(shown):
        _column(sheet, view, at, slot=slot, left=left)
    if len(shown) < len(view["columns"]):
        some = f"the first {len(shown)} of {len(view['columns'])} columns"
        sheet.note(left, sheet.height + 12, text=some)
    return sheet


def _groups(sheet: Sheet, view: Spec, *, left: float, columns: int) -> None:
    """The empty columns, in parts of one kind of events; the name of each part."""
    y = 0.0
    for number, (name, count) in enumerate(view["groups"]):
        high = count * SLOT
        if high >= SMALL:
            ink = color.series(number)
            sheet.note(left - 6, y + high / 2 + 4, text=name, anchor="end", fill=ink)
        for at in range(columns):
            x = left + at * COLUMN
            sheet.rect(x, y, size=(COLUMN - GAP, high), stroke="line")
        y += high


def _column(sheet: Sheet, view: Spec, at: int, *, slot: int, left: float) -> None:
    """The one slot that is filled, and the name of the event below."""
    counts = [count for _, count in view["groups"]]
    group = sum(1 for end in accumulate(counts) if end <= slot)
    name = view["names"][at]
    x = left + at * COLUMN
    y = max(0.0, slot * SLOT - 1)
    sheet.rect(
        x,
        y,
        size=(COLUMN - GAP, 3),
        fill=color.series(group),
        tip=f"{at} {name}: slot {slot}",
        keys=[f"t{at}"],
    )
    below = sum(counts) * SLOT + 6
    deep = below + width_of(name, SMALL)
    sheet.text(x + 7, deep, text=name, size=SMALL, turn=True, fill="soft", mono=True)
    sheet.reach(x + COLUMN, deep + 2)
