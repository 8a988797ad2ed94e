"""A score: notes with their times. What music is between files, vocabularies, sound and pictures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

NAMES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")


class Note(NamedTuple):
    """A note: when it begins and ends, its pitch (60 is middle C), how hard it is struck, and who has it."""

    start: float
    end: float
    pitch: int
    velocity: int = 80
    voice: int = 0

    @property
    def name(self) -> str:
        """The pitch as musicians write it: C4 is middle C."""
        return name_of(self.pitch)


def name_of(pitch: int) -> str:
    """A MIDI pitch as musicians write it."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


@dataclass(frozen=True)
class Score:
    """Notes in the order of their beginnings. Times are seconds."""

    notes: tuple[Note, ...]
    quarter: float = 0.5  # seconds of a quarter note, for those who count in notes

    @classmethod
    def of(cls, notes: Iterable[Note], *, quarter: float = 0.5) -> "Score":
        """Notes in order."""
        return cls(tuple(sorted(notes)), quarter)

    @property
    def seconds(self) -> float:
        """When the last note ends."""
        return max((note.end for note in self.notes), default=0.0)

    def until(self, seconds: float) -> "Score":
        """The beginning: notes that begin before a time, which they do not outlast."""
        early = (note for note in self.notes if note.start < seconds)
        return Score(tuple(note._replace(end=min(note.end, seconds)) for note in early), self.quarter)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("start", "end", "pitch", "velocity", "voice")
        notes = [
            {name: round(value, 4) for name, value in zip(names, note, strict=True)} for note in self.notes
        ]
        return {"seconds": round(self.seconds, 4), "quarter": self.quarter, "notes": notes}
