"""Music as tokens: a vocabulary of events, each of them a word. `SET_VELOCITY<80> NOTE_ON<60> …` is a text.

What can be done with a text can so be done with music: it is tokenized, learned, continued and explained
by the same code. Scores become events and events scores.

Two vocabularies:
    Performance   what a pianist does, in the 388 events of the article and its paper
    Chorale       what four voices sing, on a grid of 16th notes
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from glassformer.errors import InputError
from glassformer.tokenizers.score import Note, Score
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.tokenizers.watch import WatchedWord

END = "<|endoftext|>"
MODEL = "GlassMusic"  # how a tokenizer.json says that it holds one of these
SILENT = -1  # the pitch of a voice that rests


class Heard(NamedTuple):
    """Events as notes, and for every event the number of its note; -1 for one that has none."""

    score: Score
    owners: list[int]


class Plan(NamedTuple):
    """What is fixed of a chorale before it is written: pitches by voice and step, and how long it is."""

    cells: Mapping[tuple[int, int], int]
    length: int | None = None  # steps; None: its melody decides


class Music:
    """A vocabulary of events: see `Tokenizer`."""

    name: ClassVar[str]
    steady: ClassVar[bool]  # whether it writes a score, and not how it is performed
    example: ClassVar[str]

    def __init__(self, words: Sequence[str]) -> None:
        self.words = [*words, END]
        self.special = {END: len(words)}
        self.end_token = END
        self.merges: list[tuple[str, str]] = []
        self.prefix_space = False
        self.source: Tokenizer | None = None
        self._ids = {word: id for id, word in enumerate(words)}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def end(self) -> int:
        """The id of the token that a piece starts from and ends with."""
        return self.special[END]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of events, written with blanks between them."""
        known = self._ids | self.special if special else self._ids
        return [known[word] if word in known else self._other(word) for word in text.split()]

    def _other(self, word: str) -> int:
        raise InputError(f"{word[:40]!r} is no event of this vocabulary; one is {self.example}")

    def decode(self, ids: Iterable[int]) -> str:
        """The events of ids, with blanks between them."""
        return " ".join(map(self._word, ids))

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The event, and the blank between it and the event `after`, if there is one."""
        return ("" if after is None else " ").encode() + self._word(id).encode()

    def watch(self, text: str, *, special: bool = False) -> list[WatchedWord]:
        """There is nothing to watch."""
        raise InputError("a vocabulary of music has no merges: every event is a token")

    def shown(self, symbols: str) -> str:
        """Events are text for people already."""
        return symbols

    def to_json(self) -> str:
        """The content of a `tokenizer.json`, which only Glassformer reads."""
        return json.dumps({"model": {"type": MODEL, "events": self.name} | self.choices()}, indent=2) + "\n"

    def choices(self) -> dict[str, int]:
        """What its makers chose."""
        return {}

    def _word(self, id: int) -> str:
        if not 0 <= id < len(self.words):
            raise InputError(f"{id} is not a token id of this vocabulary (0 to {len(self) - 1})")
        return self.words[id]

    # What a composer asks.

    def events(self, score: Score) -> list[int]:
        """The ids of a score, without the tokens that begin and end a piece."""
        raise NotImplementedError

    def hear(self, ids: Sequence[int]) -> Heard:
        """The score of ids; what makes no sense as music is passed over."""
        raise NotImplementedError

    def seconds(self, id: int) -> float:
        """How long an event lasts before the next one."""
        raise NotImplementedError

    def allowed(self, before: Sequence[int], plan: Plan | None = None) -> Sequence[int] | None:
        """The ids that may follow the events so far; None where all may."""
        return None


# A performance.

PITCHES, SHIFTS, VELOCITIES = 128, 100, 32
SHIFT = 10  # milliseconds
BIN = 128 // VELOCITIES  # velocities that share an event
EVENT = re.compile(r"(NOTE_ON|NOTE_OFF|TIME_SHIFT|SET_VELOCITY)<([0-9]{1,4})>")


class Performance(Music):
    """128 keys go down, 128 go up, time goes on by 10 … 1,000 ms, 32 velocities are set: 388 events.

    In words, time is in milliseconds, and a velocity is a MIDI velocity: SET_VELOCITY<80> is for 80 … 83.
    """

    name = "performance"
    steady = False
    example = "NOTE_ON<60>"

    def __init__(self) -> None:
        words = [f"{what}<{pitch}>" for what in ("NOTE_ON", "NOTE_OFF") for pitch in range(PITCHES)]
        words += [f"TIME_SHIFT<{SHIFT * count}>" for count in range(1, SHIFTS + 1)]
        words += [f"SET_VELOCITY<{max(1, BIN * number)}>" for number in range(VELOCITIES)]
        super().__init__(words)

    def _other(self, word: str) -> int:
        event = EVENT.fullmatch(word)
        if event is not None and event[1] == "SET_VELOCITY" and 1 <= int(event[2]) <= 127:
            return self._ids[self.velocity(int(event[2]))]
        return super()._other(word)

    @staticmethod
    def velocity(velocity: int) -> str:
        """The event of a velocity."""
        return f"SET_VELOCITY<{max(1, BIN * (velocity // BIN))}>"

    def events(self, score: Score) -> list[int]:
        """Notes on a grid of 10 ms. At one moment keys go up before others go down, the lowest first."""
        changes = []
        for start, end, note in _on_grid(score):
            changes.append((start, 1, note.pitch, note.velocity))
            changes.append((end, 0, note.pitch, 0))

        words: list[str] = []
        now, loudness = 0, ""
        for time, down, pitch, velocity in sorted(changes):
            words += _shift(time - now)
            now = time
            if down and self.velocity(velocity) != loudness:
                loudness = self.velocity(velocity)
                words.append(loudness)
            words.append(f"NOTE_{'ON' if down else 'OFF'}<{pitch}>")
        return [self._ids[word] for word in words]

    def seconds(self, id: int) -> float:
        """Time passes by shifts alone."""
        event = EVENT.fullmatch(self._word(id))
        shifts = event is not None and event[1] == "TIME_SHIFT"
        return int(event[2]) / 1000 if event is not None and shifts else 0.0

    def hear(self, ids: Sequence[int]) -> Heard:
        """Keys that are never lifted sound until the last event, a grid step at least."""
        now, velocity = 0, 64
        notes: list[list[int]] = []  # start, end, pitch, velocity
        held: dict[int, int] = {}  # pitch -> the note that sounds
        owners = []
        for id in ids:
            event = EVENT.fullmatch(self._word(id))
            what, value = (event[1], int(event[2])) if event is not None else ("", 0)
            owner = -1
            if what in ("NOTE_ON", "NOTE_OFF"):
                owner = held.pop(value, -1)
                if owner >= 0:
                    notes[owner][1] = max(now, notes[owner][0] + SHIFT)
            if what == "NOTE_ON":
                owner = held[value] = len(notes)
                notes.append([now, -1, value, velocity])
            now += value if what == "TIME_SHIFT" else 0
            velocity = value if what == "SET_VELOCITY" else velocity
            owners.append(owner)
        for number in held.values():
            notes[number][1] = max(now, notes[number][0] + SHIFT)
        made = [Note(start / 1000, end / 1000, pitch, loud) for start, end, pitch, loud in notes]
        return _in_order(made, owners)


def _on_grid(score: Score) -> list[tuple[int, int, Note]]:
    """Notes with their first and last place on the grid; of a pitch no two sound at once."""
    found: list[tuple[int, int, Note]] = []
    following: dict[int, int] = {}  # pitch -> the place of its next note
    for note in sorted(score.notes, reverse=True):
        start, end = (math.floor(time * 1000 / SHIFT + 0.5) for time in (note.start, note.end))
        end = min(max(end, start + 1), following.get(note.pitch, end + 1))
        if start < end:  # else it is struck twice in one place
            found.append((start, end, note))
            following[note.pitch] = start
    return found[::-1]


def _shift(places: int) -> list[str]:
    """Time that goes on: whole seconds first, then the rest."""
    whole, rest = divmod(places, SHIFTS)
    return [f"TIME_SHIFT<{SHIFT * SHIFTS}>"] * whole + ([f"TIME_SHIFT<{SHIFT * rest}>"] if rest else [])


def _in_order(notes: list[Note], owners: list[int], *, quarter: float = 0.5) -> Heard:
    """A score of notes, whose numbers change with their order."""
    order = sorted(range(len(notes)), key=lambda number: notes[number])
    place = {number: at for at, number in enumerate(order)}
    score = Score(tuple(notes[number] for number in order), quarter)
    return Heard(score, [place.get(owner, -1) for owner in owners])


# A chorale.

VOICES = "SATB"
LOWEST, HIGHEST = 36, 84  # C2 to C6: every voice of a chorale, and some room to transpose
RANGE = HIGHEST - LOWEST + 2  # words of a voice: its pitches, and its rest
REST = RANGE - 1
OVER = "S."  # the melody has ended
PER_QUARTER = 4  # steps
ANDANTE = 0.6  # seconds of a quarter where nobody says how fast
Grid = list[list[int]]  # for every step the pitches of soprano, alto, tenor and bass; -1 where one rests


class Chorale(Music):
    """Four voices on a grid of 16th notes, each with words of its own: `S72 A67 T64 B48`, a rest is `S-`.

    A step is written soprano, alto, tenor, bass. The soprano runs `ahead`: beside the other voices of a step
    stands its pitch so many steps later, and the first of its pitches come before everything. So whoever
    writes the other voices knows the melody that is coming, always at the same distance, which is what
    relative attention can learn; and whoever is given a melody is given these words and writes the others.
    Where the melody has ended, `S.` stands in its place. With `ahead` 0, nothing of what is coming is known.

    A grid cannot tell a note that is held from one that is repeated: both are heard as one note.
    """

    name = "chorale"
    steady = True
    example = "S72, A67, T64 or B48"

    def __init__(self, ahead: int = 0) -> None:
        if type(ahead) is not int or not 0 <= ahead <= 1024:
            raise InputError(f"ahead must be a whole number from 0 to 1,024, not {ahead!r}")
        self.ahead = ahead
        pitches = [*map(str, range(LOWEST, HIGHEST + 1)), "-"]
        super().__init__([voice + pitch for voice in VOICES for pitch in pitches] + [OVER])

    def choices(self) -> dict[str, int]:
        """How far the soprano runs ahead."""
        return {"ahead": self.ahead}

    def events(self, score: Score) -> list[int]:
        """The ids of a score, on the grid of its quarter notes."""
        return self.lay(to_grid(score))

    def lay(self, grid: Grid) -> list[int]:
        """A grid as ids."""
        melody = [*(self.id_of(0, step[0]) for step in grid), *[self._ids[OVER]] * self.ahead]
        rest = [[self.id_of(voice, step[voice]) for voice in (1, 2, 3)] for step in grid]
        steps = ([first, *others] for first, others in zip(melody[self.ahead :], rest, strict=True))
        return [*melody[: self.ahead], *itertools.chain.from_iterable(steps)]

    def id_of(self, voice: int, pitch: int) -> int:
        """The id of a pitch in a voice."""
        if pitch == SILENT:
            return voice * RANGE + REST
        if not LOWEST <= pitch <= HIGHEST:
            raise InputError(
                f"pitch {pitch} is out of range: a chorale is sung from {LOWEST} (C2) to {HIGHEST} (C6);"
                " transpose it, or take a model of performances (docs/music.md)"
            )
        return voice * RANGE + pitch - LOWEST

    def pitch_of(self, id: int) -> int:
        """The pitch of an id."""
        return SILENT if id % RANGE == REST else LOWEST + id % RANGE

    def place(self, number: int) -> tuple[int, int]:
        """The voice and the step of an event, by its number in a piece."""
        if number < self.ahead:
            return 0, number
        step, voice = divmod(number - self.ahead, len(VOICES))
        return voice, step if voice else step + self.ahead

    def misplaced(self, ids: Sequence[int]) -> int:
        """How many words of a voice stand where it is another one's turn."""
        voices = [id // RANGE for id in ids]
        return sum(voice < 4 and voice != self.place(at)[0] for at, voice in enumerate(voices))

    def grid(self, ids: Sequence[int]) -> Grid:
        """The steps of which all four voices are there. Words that are out of place are rests."""
        cells: dict[tuple[int, int], int] = {}
        for number, id in enumerate(ids):
            voice, step = self.place(number)
            in_place = voice * RANGE <= id < (voice + 1) * RANGE
            if id in (self._ids[OVER], self.end):
                continue
            cells[voice, step] = self.pitch_of(id) if in_place else SILENT
        grid: Grid = []
        while all((voice, len(grid)) in cells for voice in range(4)):
            grid.append([cells[voice, len(grid)] for voice in range(4)])
        return grid

    def hear(self, ids: Sequence[int]) -> Heard:
        """Equal pitches that follow each other in a voice are one note."""
        grid = self.grid(ids)
        notes, cells = sung(grid, quarter=ANDANTE)
        owners = []
        for number in range(len(ids)):
            voice, step = self.place(number)
            owners.append(cells.get((voice, step), -1))
        return _in_order(notes, owners, quarter=ANDANTE)

    def seconds(self, id: int) -> float:
        """A step ends with its bass."""
        is_bass = 3 * RANGE <= id < 4 * RANGE
        return ANDANTE / PER_QUARTER if is_bass else 0.0

    def allowed(self, before: Sequence[int], plan: Plan | None = None) -> Sequence[int]:
        """The ids that may follow: those of the voice whose turn it is, and the end where a piece may end.

        Where the plan has a pitch, it leaves no choice.
        """
        plan = plan or Plan({})
        voice, step = self.place(len(before))
        if (voice, step) in plan.cells:
            return [self.id_of(voice, plan.cells[voice, step])]
        if voice:
            return range(voice * RANGE, (voice + 1) * RANGE)

        length = self._melody_length(before) if plan.length is None else plan.length
        if length is None:  # the melody goes on, or ends here; without a look ahead, all ends with it
            ends = [self._ids[OVER] if self.ahead else self.end] if step else []
            return [*range(RANGE), *ends]
        if step - self.ahead >= length:  # it is the other voices' turn no more
            return [self.end]
        return [self._ids[OVER]] if step >= length else range(RANGE)

    def _melody_length(self, before: Sequence[int]) -> int | None:
        """The steps of a melody that has ended; None while it goes on."""
        over = self._ids[OVER]
        if not self.ahead or over not in before:
            return None
        return self.place(list(before).index(over))[1]


def to_grid(score: Score) -> Grid:
    """A score on a grid of 16th notes. Four tracks are four voices; others are divided by their pitches.

    A note is in every step of which it has the middle.
    """
    step = score.quarter / PER_QUARTER
    count = math.ceil(score.seconds / step - 0.5)
    heard: list[list[Note]] = [[] for _ in range(count)]
    for note in score.notes:
        first, last = (math.ceil(time / step - 0.5) for time in (note.start, note.end))
        for at in range(first, min(last, count)):
            heard[at].append(note)
    voices = sorted({note.voice for note in score.notes})
    if len(voices) == len(VOICES):
        return [[_pitch(one for one in notes if one.voice == voice) for voice in voices] for notes in heard]
    return [_divided([note.pitch for note in notes]) for notes in heard]


def _pitch(notes: Iterable[Note]) -> int:
    """The pitch of a voice that sounds, the highest of several."""
    return max((note.pitch for note in notes), default=SILENT)


def _divided(pitches: list[int]) -> list[int]:
    """Pitches as four voices: the highest, the lowest, and what is between."""
    found = sorted(set(pitches), reverse=True)
    if len(found) > len(VOICES):
        found = [*found[:3], found[-1]]
    return [*found, *[SILENT] * (len(VOICES) - len(found))]


def sung(grid: Grid, *, quarter: float) -> tuple[list[Note], dict[tuple[int, int], int]]:
    """The notes of a grid, and for every voice and step that sounds the number of its note."""
    step = quarter / PER_QUARTER
    notes: list[Note] = []
    cells: dict[tuple[int, int], int] = {}
    for voice in range(len(VOICES)):
        start = 0
        for pitch, group in itertools.groupby(one[voice] for one in grid):
            end = start + len(list(group))
            if pitch != SILENT:
                cells |= {(voice, at): len(notes) for at in range(start, end)}
                notes.append(Note(start * step, end * step, pitch, voice=voice))
            start = end
    return notes, cells


# Which of both.

EVENTS: dict[str, Callable[..., Music]] = {"performance": Performance, "chorale": Chorale}


def music_tokenizer(
    texts: Iterable[str], size: int = 0, *, progress: Callable[[int], object] = lambda characters: None
) -> Music:
    """The vocabulary of music written in words: nothing is learned, the first text says which it is.

    A chorale's first words are its soprano's, one more than it runs ahead. `size` counts for nothing.
    """
    first = next(iter(texts), "").split()
    progress(0)
    if not first or first[0][:1] not in VOICES or EVENT.fullmatch(first[0]):
        return Performance()
    count = sum(1 for _ in itertools.takewhile(lambda word: word[0] == "S", first))
    return Chorale(count - 1)


def read_music(model: dict[str, Any]) -> Music:
    """The vocabulary that the `model` of a tokenizer.json describes."""
    events = model.get("events")
    if events not in EVENTS:
        raise InputError(f"events {str(events)[:40]!r} is none of {', '.join(EVENTS)}")
    chosen = {key: value for key, value in model.items() if key not in ("type", "events")}
    if set(chosen) - {"ahead"} or (chosen and events != "chorale"):
        raise InputError(f"{min(chosen)[:40]!r} is not a choice of {events} events")
    return EVENTS[events](**chosen)
