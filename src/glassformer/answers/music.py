"""Music: a piece as a piano roll, its events, and which of its notes made or were heard by another one."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Drawing, Table, Text, answer
from glassformer.errors import InputError, check_position, counted
from glassformer.explain import attention as attending
from glassformer.explain import saliency as salient
from glassformer.figures.color import PALETTES, magnitude
from glassformer.figures.labels import percent, pitch_name
from glassformer.figures.marks import Spec
from glassformer.figures.specs import plain, strip
from glassformer.figures.specs import roll as rolled
from glassformer.tokenizers.music import Heard, Music

if TYPE_CHECKING:
    from glassformer.tokenizers.score import Note, Score

VOICES = ("soprano", "alto", "tenor", "bass")
COLORS = PALETTES  # for those who draw a roll that moves
COLUMNS = 64  # events that one-hot columns show
SHOWN = 240  # events of a strip
GROUPS = {
    "NOTE_ON": "a key goes down",
    "NOTE_OFF": "a key goes up",
    "TIME_SHIFT": "time goes on",
    "SET_VELOCITY": "velocity",
    "S": "soprano",
    "A": "alto",
    "T": "tenor",
    "B": "bass",
}


@dataclass(frozen=True)
class Piece:
    """A text as music."""

    events: Music
    heard: Heard
    offset: int  # position in the text of the first event

    @property
    def notes(self) -> "tuple[Note, ...]":
        """The notes, in their order."""
        return self.heard.score.notes

    def note(self, number: int) -> int:
        """The number of a note, counted from the end if it is below 0."""
        if not self.notes:
            raise InputError("the piece has no notes")
        try:
            return check_position(len(self.notes), number)
        except InputError:
            raise InputError(
                f"note {number} is out of range (there are 0 to {len(self.notes) - 1})"
            ) from None

    def position(self, number: int) -> int:
        """The position in the text of the event with which a note begins."""
        return self.offset + self.heard.owners.index(number)

    def by_note(self, shares: Array, first: int = 0) -> Array:
        """Shares (…, T) of positions, from `first` on, as shares (…, N) of notes."""
        found = np.zeros((*shares.shape[:-1], len(self.notes)))
        for at, owner in enumerate(self.heard.owners):
            position = self.offset + at - first
            if owner >= 0 and 0 <= position < shares.shape[-1]:
                found[..., owner] += shares[..., position]
        return found


def piece_of(text: Text, score: "Score | None" = None) -> Piece:
    """The music of a text, behind the token that begins a piece.

    `score` has the same notes as they were played: at another tempo, or cut off at the end.
    """
    events = text.tokenizer
    if not isinstance(events, Music):
        raise InputError(f"{text.name}: its vocabulary is none of music")
    offset = 1 if text.ids[:1] == [events.end] else 0
    heard = events.hear(text.ids[offset:])
    if score is not None:
        owners = [owner if owner < len(score.notes) else -1 for owner in heard.owners]
        heard = Heard(score, owners)
    return Piece(events, heard, offset)


@answer
class Notes(Answer):
    """An answer about notes: start, end, pitch, velocity and voice of each, (N, 5)."""

    notes: Array

    def row(self, number: int) -> list[Cell]:
        """A note in a table."""
        start, end, pitch, velocity, voice = self.notes[number].tolist()
        return [number, float(start), float(end), pitch_name(int(pitch)), int(velocity), int(voice)]

    def names(self) -> list[str]:
        """The voices, where there are four."""
        return list(VOICES) if len(set(self.notes[:, 4].tolist())) == len(VOICES) else []

    def rolled(self, **more: object) -> Spec:
        """The roll of all notes."""
        columns = [0, 1, 2, 4]
        return rolled(self.notes[:, columns].tolist(), **more)


NOTE_COLUMNS = [
    Column("note", "count", key=True),
    Column("start", "number"),
    Column("end", "number"),
    Column("pitch"),
    Column("velocity", "count"),
    Column("voice", "count"),
]


@answer
class Roll(Notes):
    """A piece as its notes."""

    kind = "roll"

    seconds: float
    given: float  # seconds of the prime, at the beginning

    def make_table(self) -> Table:
        """Every note."""
        return Table(NOTE_COLUMNS, [self.row(number) for number in range(len(self.notes))])

    def draw(self) -> Spec:
        """The roll; what was given is gray."""
        names = self.names()
        more = {"series": names} if names else {}
        velocities = self.notes[:, 3].astype(int).tolist()
        return self.rolled(given=self.given, velocities=velocities, **more)

    def to_player(self) -> str:
        """A page that plays it."""
        return self.view().to_player()

    def finding(self) -> str:
        """How much there is."""
        if not len(self.notes):
            return "no notes"
        pitches = self.notes[:, 2].astype(int)
        between = f"from {pitch_name(int(pitches.min()))} to {pitch_name(int(pitches.max()))}"
        return f"{counted(len(self.notes), 'note')} in {self.seconds:.1f} seconds, {between}"


def roll(text: Text, *, score: "Score | None" = None, given: float = 0.0) -> Roll:
    """The notes of a piece."""
    piece = piece_of(text, score)
    seconds = piece.heard.score.seconds
    caption = f"{text.name}: {counted(len(piece.notes), 'note')}, {seconds:.1f} seconds"
    caption += "\ngray: given" if given else ""
    notes = _table(piece.notes)
    return Roll(caption=caption, tokens=text.labels, notes=notes, seconds=seconds, given=given)


@answer
class Events(Answer):
    """A piece event by event; V events in the vocabulary."""

    kind = "events"

    ids: list[int]
    slots: list[str]  # the V events
    owners: list[int]  # the note of each event; -1: none

    def make_table(self) -> Table:
        """Every event with its slot and its note."""
        columns = [
            Column("place", "count", key=True),
            Column("event"),
            Column("slot", "count"),
            Column("what"),
            Column("note", "count"),
        ]
        rows: list[list[Cell]] = []
        for at, (id, owner) in enumerate(zip(self.ids, self.owners, strict=True)):
            word = self.slots[id]
            rows.append([at, word, id, GROUPS.get(_group(word), ""), None if owner < 0 else owner])
        return Table(columns, rows)

    @property
    def views(self) -> dict[str, Drawing]:
        """The events in a row, or as the columns that a network reads."""
        return {"events": self.draw, "one_hot": self.draw_columns}

    def draw(self) -> Spec:
        """One box an event, in the color of its kind."""
        groups = list(dict.fromkeys(_group(word) for word in self.slots if _group(word) in GROUPS))
        steps = [[number + 1, GROUPS[group]] for number, group in enumerate(groups)]
        scale = magnitude("what an event does:", len(groups) + 1) | {"steps": steps}
        words = [self.slots[id] for id in self.ids[:SHOWN]]
        values = [groups.index(_group(word)) + 1 if _group(word) in groups else 0 for word in words]
        return strip(words, values, scale=scale) | self.title_of_some(
            "events", shown=len(words), total=len(self.ids)
        )

    def draw_columns(self) -> Spec:
        """Every event as a column that is filled in one slot."""
        words = itertools.groupby(self.slots, key=_group)
        groups = [[GROUPS.get(group, group), len(list(every))] for group, every in words]
        shown = self.ids[:COLUMNS]
        names = [self.slots[id] for id in shown]
        drawn: Spec = {"kind": "slots", "groups": groups, "columns": shown, "names": names}
        return drawn | self.title_of_some("events", shown=len(shown), total=len(self.ids))

    def finding(self) -> str:
        """How many there are, and how few of the slots they use."""
        used = len(set(self.ids))
        return f"{counted(len(self.ids), 'event')} in {used} of {len(self.slots)} slots"


def events(text: Text) -> Events:
    """The events of a piece."""
    piece = piece_of(text)
    ids = text.ids[piece.offset :]
    caption = f"{text.name}: {counted(len(ids), 'event')} of a vocabulary of {len(piece.events):,}"
    words, owners = piece.events.words, piece.heard.owners
    return Events(caption=caption, tokens=text.labels, ids=ids, slots=words, owners=owners)


@answer
class Arcs(Notes):
    """What the heads of a layer hear from one note: weights (H, N) of all notes."""

    kind = "arcs"

    note: int
    layer: int
    weights: Array
    k: int

    def strongest(self) -> list[tuple[int, int, float]]:
        """Head, note and weight: of every head, its strongest notes but the note itself."""
        found = []
        for head, row in enumerate(self.weights):
            order = np.argsort(-row, kind="stable")[: self.k].tolist()
            found += [(head, number, float(row[number])) for number in order if row[number] > 0]
        return sorted(found, key=lambda one: -one[2])

    def make_table(self) -> Table:
        """The arcs, the widest first."""
        columns = [Column("head", "count", key=True), *NOTE_COLUMNS, Column("weight", "share")]
        rows = [[head, *self.row(number), weight] for head, number, weight in self.strongest()]
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The roll up to the note, with an arc from it to each."""
        arcs = [[self.note, number, head, round(weight, 4)] for head, number, weight in self.strongest()]
        shown = _shown(self.note, self.weights.max(0))
        heads = [f"head {head}" for head in range(len(self.weights))]
        notes = self.notes[:shown, [0, 1, 2, 4]].tolist()
        values = plain(self.weights[:, :shown].max(0))
        most = max(value or 0.0 for value in values)
        scale = magnitude("most that a head attends to a note", most or 1.0)
        more = {"values": values, "scale": scale, "unit": "percent", "chosen": self.note}
        return rolled(notes, arcs=arcs, series=heads, **more)

    def finding(self) -> str:
        """The widest arc."""
        if not self.rows:
            return "no head attends to another note"
        head, number, start, _, pitch, *_, weight = self.rows[0]
        share = percent(float(weight or 0))
        return f"head {head} attends most to note {number}, {pitch} at {start:.2f} seconds, {share}"


def arcs(
    text: Text, *, note: int = -1, layer: int | None = None, k: int = 3, score: "Score | None" = None
) -> Arcs:
    """From one note to those before it, for every head of a layer: as the note is read."""
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    piece = piece_of(text, score)
    number = piece.note(note)
    position = piece.position(number)
    # What comes later is not heard: it need not be read.
    first, before = _readable(text, position + 1)
    reading = before.reading()
    layers = range(reading.stack().layers) if layer is None else [layer]
    found = {
        one: piece.by_note(attending.patterns(reading, layers=[one])[0, :, -1], first) for one in layers
    }  # (H, N) each
    for weights in found.values():
        weights[:, number] = 0.0  # a note attends to itself, which is no arc
    busiest = max(found, key=lambda one: float(found[one].max(1).sum()))
    pitch = pitch_name(piece.notes[number].pitch)
    chosen = "the layer whose heads attend most to single notes" if layer is None else ""
    caption = f"{text.name}: what layer {busiest} hears from note {number}, {pitch}"
    return Arcs(
        caption="\n".join(filter(None, (caption, chosen))),
        tokens=text.labels,
        notes=_table(piece.notes),
        note=number,
        layer=busiest,
        weights=found[busiest],
        k=k,
    )


@answer
class NoteSaliency(Notes):
    """How much each note that was written before had a part in a note: shares (N,), at most 1 together.

    The rest is the share of events that have no note, such as shifts of time.
    """

    kind = "note_saliency"

    note: int
    method: str
    shares: Array

    def make_table(self) -> Table:
        """The notes before it, the strongest first."""
        order = sorted(range(len(self.shares)), key=lambda number: -abs(float(self.shares[number])))
        rows = [[*self.row(number), float(self.shares[number])] for number in order if self.shares[number]]
        return Table([*NOTE_COLUMNS, Column("share", "signed")], rows)

    def draw(self) -> Spec:
        """The roll up to the note, each note in the color of its share."""
        shown = _shown(self.note, self.shares)
        values = plain(np.abs(self.shares[:shown]))
        most = max(value or 0.0 for value in values)
        scale = magnitude(f"share of the saliency, {self.method}", most or 1.0)
        notes = self.notes[:shown, [0, 1, 2, 4]].tolist()
        return rolled(notes, values=values, scale=scale, unit="percent", chosen=self.note)

    def finding(self) -> str:
        """The strongest note."""
        if not self.rows:
            return "no other note has a share"
        number, start, _, pitch, *_, share = self.rows[0]
        size = percent(float(share or 0))
        return f"note {number}, {pitch} at {start:.2f} seconds, has the largest share, {size}"


def note_saliency(
    text: Text, *, note: int = -1, method: str = "grad_x_input", score: "Score | None" = None
) -> NoteSaliency:
    """Which notes made a note likely, where it was written."""
    piece = piece_of(text, score)
    number = piece.note(note)
    position = piece.position(number)
    if not position:
        raise InputError(f"note {number}: nothing comes before it")
    first, before = _readable(text, position)
    target = salient.Target(position - first - 1, text.ids[position])
    found = salient.saliency(before.reading(), [target], method=method, blank=text.blank)
    shares = piece.by_note(found.shares, first)[0]
    pitch = pitch_name(piece.notes[number].pitch)
    return NoteSaliency(
        caption=f"{text.name}: which notes made note {number}, {pitch}, likely",
        tokens=text.labels,
        notes=_table(piece.notes),
        note=number,
        method=method,
        shares=shares,
    )


def _readable(text: Text, end: int) -> tuple[int, Text]:
    """The events up to a place, as many of them as the model reads at once, and where they begin."""
    context = Text(text.lm, text.ids[:1]).reading().net.context
    first = 0 if context is None else max(0, end - context)
    return first, Text(text.lm, text.ids[first:end])


def _shown(note: int, shares: Array) -> int:
    """How many notes a picture shows: up to the note, and up to the last that has a share.

    A soprano that is written ahead is heard before it sounds.
    """
    return 1 + max(note, *np.flatnonzero(shares).tolist()) if shares.any() else note + 1


def _table(notes: "Sequence[Note]") -> Array:
    """(N, 5): start, end, pitch, velocity, voice."""
    return np.array([list(note) for note in notes], dtype=np.float64).reshape(-1, 5)


def _group(word: str) -> str:
    """What an event is about; of the token between pieces, and of the end of a melody, nothing."""
    if word[1:] == "." or not word[:1].isalpha():
        return ""
    return word.partition("<")[0] if "<" in word else word[:1]
