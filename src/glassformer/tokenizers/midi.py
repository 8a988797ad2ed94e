"""MIDI files in and out, by the `symusic` library: tempo changes, sustain pedal, several tracks."""

import bisect
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from glassformer.errors import InputError
from glassformer.files import MEGABYTE, read_bytes
from glassformer.tokenizers.score import Note, Score

SUFFIXES = (".mid", ".midi")
LARGEST = 16 * MEGABYTE  # a concert is 0.5 MB
LONGEST = 24 * 3600.0  # seconds; a file that says more is broken
TICKS = 500  # of a quarter note in files that are written: at 120 quarters a minute one is a millisecond
HEADER = struct.Struct(">4sIHHh")  # name, length, type, tracks, ticks of a quarter note
SEVERAL_PIECES = 2  # the type of a file whose tracks follow each other
PEDAL, DOWN = 64, 64  # the number of the sustain pedal's control, and the value from which on it is down
VOICE_NAMES = ("soprano", "alto", "tenor", "bass")


def read_midi(source: Path | bytes, *, steady: bool = False) -> Score:
    """The notes of a file, of all tracks but drums; a voice is a track, counted from 0.

    The file is one piano: a note sounds as long as its sustain pedal holds it, in whichever track that is, or
    until its key is struck again. `steady` reads a score instead of a performance: the first tempo lasts to
    the end, and pedals count for nothing.
    """
    where = "the file" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_bytes(source, LARGEST, kind=InputError)
    whole = _parsed(content, where, "tick" if steady else "second")
    quarter = _quarter(whole)
    unit = quarter / whole.ticks_per_quarter if steady else 1.0

    tracks = [track for track in whole.tracks if not track.is_drum]
    voices = [track for track in tracks if len(track.notes)]
    struck = [
        Note(note.time * unit, (note.time + note.duration) * unit, note.pitch, note.velocity, voice)
        for voice, track in enumerate(voices)
        for note in track.notes
        if note.velocity > 0
    ]
    if not struck:
        raise InputError(f"{where}: holds no notes (drums are left out)")
    longest = max(note.end for note in struck)
    if not longest <= LONGEST or min(struck).start < 0:
        raise InputError(f"{where}: is damaged: its notes last {longest:,.0f} seconds")
    if steady:
        return Score.of(struck, quarter=quarter)
    controls = [control for track in tracks for control in track.controls if control.number == PEDAL]
    turns = [(control.time, control.value >= DOWN) for control in controls]
    return Score.of(sustained(struck, held(turns, longest)), quarter=quarter)


def write_midi(score: Score, path: Path | None = None) -> bytes:
    """A MIDI file of a score, a track for each voice; it is written to `path`, if there is one."""
    symusic = _library()
    whole = symusic.Score(TICKS)
    whole.tempos.append(symusic.Tempo(0, qpm=60.0 / score.quarter))
    ticks = TICKS / score.quarter  # in a second
    voices = sorted({note.voice for note in score.notes})
    for voice in voices:
        name = VOICE_NAMES[voice] if len(voices) == 4 and voice < 4 else "piano"
        track = symusic.Track(name, 0, False)
        for note in score.notes:
            if note.voice == voice:
                start, end = round(note.start * ticks), round(note.end * ticks)
                track.notes.append(symusic.Note(start, max(1, end - start), note.pitch, note.velocity))
        whole.tracks.append(track)
    content: bytes = whole.dumps_midi()
    if path is not None:
        path.write_bytes(content)
    return content


def held(turns: Iterable[tuple[float, bool]], end: float) -> list[tuple[float, float]]:
    """The stretches of time in which a pedal is down; what is never lifted is lifted at the `end`."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for time, down in sorted([*turns, (math.inf, False)]):
        if down and since is None:
            since = time
        elif not down and since is not None:
            found.append((since, min(time, max(end, since))))
            since = None
    return found


def sustained(notes: Iterable[Note], pedals: Sequence[tuple[float, float]]) -> list[Note]:
    """Notes as they sound: those that end under the pedal go on until it is lifted.

    No key is struck while it is down: a note ends where the next one of its pitch begins.
    """
    beginnings = [down for down, _ in pedals]
    found: list[Note] = []
    following: dict[int, float] = {}  # pitch -> when it is struck next
    for note in sorted(notes, reverse=True):
        last = bisect.bisect_right(beginnings, note.end) - 1  # the pedal's last way down before the note ends
        end = max(note.end, pedals[last][1]) if last >= 0 else note.end
        end = min(end, following.get(note.pitch, math.inf))
        if note.start < end:
            found.append(note._replace(end=end))
            following[note.pitch] = note.start
    return found[::-1]


def _parsed(content: bytes, where: str, unit: str) -> Any:
    symusic = _library()
    if not content:
        raise InputError(f"{where}: is empty")
    if not content.startswith(b"MThd"):
        raise InputError(f"{where}: is not a MIDI file")
    _check_header(content, where)
    try:
        return symusic.Score.from_midi(content, ttype=unit)
    except (RuntimeError, ValueError, IndexError, OverflowError) as error:
        reason = str(error).removeprefix("MiniMidi: ").removesuffix(": iostream error")
        raise InputError(f"{where}: is a damaged MIDI file ({reason[:120]})") from None


def _check_header(content: bytes, where: str) -> None:
    """Refuse what has another meaning than one piece that counts time in parts of a quarter note."""
    if len(content) < HEADER.size or HEADER.unpack_from(content)[1] != HEADER.size - 8:
        raise InputError(f"{where}: is a damaged MIDI file (its header has another length)")
    _, _, kind, tracks, division = HEADER.unpack_from(content)
    if kind == SEVERAL_PIECES and tracks > 1:
        raise InputError(f"{where}: holds {tracks} pieces (MIDI type 2); save one of them as a file")
    if division < 0:
        raise InputError(f"{where}: counts time in frames of a film (SMPTE), not in quarter notes")
    if division == 0:
        raise InputError(f"{where}: is a damaged MIDI file (a quarter note has no ticks)")


def _quarter(whole: Any) -> float:
    """Seconds of a quarter note at the first tempo; 0.5 where none is said."""
    tempo = whole.tempos[0].qpm if len(whole.tempos) else 120.0
    return 60.0 / tempo if math.isfinite(tempo) and tempo > 0 else 0.5


def _library() -> Any:
    try:
        import symusic
    except ImportError:
        raise InputError("MIDI files need one more library: pip install 'glassformer[music]'") from None
    return symusic
