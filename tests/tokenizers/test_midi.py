"""MIDI files: in and out, pedal, tempo, tracks; what is broken is refused in one sentence."""

import itertools
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import symusic
from conftest import DATA

from glassformer.errors import InputError
from glassformer.tokenizers.midi import held, read_midi, sustained, write_midi
from glassformer.tokenizers.music import BIN, Performance
from glassformer.tokenizers.score import Note, Score


def made(*tracks: Any, tempos: tuple[tuple[int, float], ...] = ((0, 120.0),)) -> bytes:
    """A file with 480 ticks a quarter."""
    whole = symusic.Score(480)
    for time, qpm in tempos:
        whole.tempos.append(symusic.Tempo(time, qpm=qpm))
    for track in tracks:
        whole.tracks.append(track)
    return whole.dumps_midi()


def track(
    *notes: tuple[int, int, int, int], pedal: tuple[tuple[int, int], ...] = (), drum: bool = False
) -> Any:
    """Notes as (start, duration, pitch, velocity), and turns of the pedal as (time, value)."""
    one = symusic.Track("piano", 0, drum)
    for note in notes:
        one.notes.append(symusic.Note(*note))
    for time, value in pedal:
        one.controls.append(symusic.ControlChange(time, 64, value))
    return one


def rounded(score: Score) -> list[tuple[float, float, int, int, int]]:
    return [(round(note.start, 4), round(note.end, 4), *note[2:]) for note in score.notes]


def test_what_is_written_is_read() -> None:
    """To the millisecond, with tracks, velocities and tempo."""
    score = Score.of(
        [Note(0.013, 0.5, 60, 1), Note(0.25, 1.007, 64, 127, 1), Note(0.25, 2, 67, 64)], quarter=0.5
    )
    back = read_midi(write_midi(score))
    assert rounded(back) == rounded(score)
    assert back.quarter == 0.5


def test_a_file_is_written_where_it_should_be(tmp_path: Path) -> None:
    """And has the same bytes."""
    score = Score.of([Note(0, 1, 60)])
    assert write_midi(score, tmp_path / "a.mid") == (tmp_path / "a.mid").read_bytes()
    assert rounded(read_midi(tmp_path / "a.mid")) == [(0, 1, 60, 80, 0)]


def test_tempo_changes_are_heard() -> None:
    """A quarter of 0.5 s, then one of 1 s; a steady reading keeps the first tempo."""
    content = made(track((0, 480, 60, 80), (480, 480, 62, 80)), tempos=((0, 120.0), (480, 60.0)))
    assert rounded(read_midi(content)) == [(0, 0.5, 60, 80, 0), (0.5, 1.5, 62, 80, 0)]
    steady = read_midi(content, steady=True)
    assert rounded(steady) == [(0, 0.5, 60, 80, 0), (0.5, 1.0, 62, 80, 0)]
    assert steady.quarter == 0.5


def test_the_pedal_holds_notes() -> None:
    """Until it is lifted, or the key is struck again; a pedal in another track too; a steady reading has none."""
    notes = track((0, 240, 60, 80), (480, 240, 60, 70), (480, 240, 64, 70), (1440, 240, 67, 60))
    pedal = track((0, 10, 36, 9), pedal=((100, 127), (960, 0)))
    content = made(notes, pedal)
    assert rounded(read_midi(content)) == [
        (0, 0.0104, 36, 9, 1),  # it ends before the pedal goes down
        (0, 0.5, 60, 80, 0),  # it is struck again
        (0.5, 1.0, 60, 70, 0),
        (0.5, 1.0, 64, 70, 0),
        (1.5, 1.75, 67, 60, 0),
    ]
    assert [end for _, end, *_ in rounded(read_midi(content, steady=True))] == [
        0.0104,
        0.25,
        0.75,
        0.75,
        1.75,
    ]


def test_turns_of_a_pedal() -> None:
    """Pressed twice it is down once; what is never lifted is lifted at the end."""
    assert held([(1, True), (2, True), (3, False), (4, False), (5, True)], 9) == [(1, 3), (5, 9)]
    assert held([(0, False)], 9) == []
    assert held([(10, True)], 9) == [(10, 10)]
    assert sustained([Note(0, 1, 60), Note(2, 2, 60)], [(0.5, 5)]) == [Note(0, 2, 60), Note(2, 5, 60)]


def test_drums_are_no_piano() -> None:
    """Their track is left out, and a file of nothing else has no notes."""
    drums = track((0, 480, 40, 80), drum=True)
    assert rounded(read_midi(made(drums, track((0, 480, 60, 80))))) == [(0, 0.5, 60, 80, 0)]
    with pytest.raises(InputError, match="the file: holds no notes"):
        read_midi(made(drums))


GOOD = made(track((0, 480, 60, 80)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "song.mid: is empty"),
        (b"hello", "song.mid: is not a MIDI file"),
        (b"RIFF" + b"\0" * 40, "song.mid: is not a MIDI file"),
        (GOOD[:10], "song.mid: is a damaged MIDI file"),
        (GOOD[:-9], "song.mid: is a damaged MIDI file"),
        (b"MThd" + b"\xff" * 40, "song.mid: is a damaged MIDI file"),
        (made(), "song.mid: holds no notes"),
    ],
)
def test_broken_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """In one sentence that names the file."""
    path = tmp_path / "song.mid"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_midi(path)
    assert "\n" not in str(caught.value)


# Files byte by byte: one note C4 of a quarter, in a track of its own.
KEY_DOWN, KEY_UP = b"\x00\x90\x3c\x50", b"\x83\x60\x80\x3c\x40"
ENDED = b"\x00\xff\x2f\x00"


def raw(kind: int, *tracks: bytes, division: int = 480) -> bytes:
    whole = struct.pack(">4sIHHh", b"MThd", 6, kind, len(tracks), division)
    return whole + b"".join(b"MTrk" + struct.pack(">I", len(track)) + track for track in tracks)


C4 = KEY_DOWN + KEY_UP + ENDED


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (raw(0, C4), 1),
        (raw(1, C4, C4.replace(b"\x3c", b"\x40")), 2),
        (raw(2, C4), 1),  # one piece alone
        (raw(0, KEY_DOWN + b"\x83\x60\x3c\x00" + ENDED), 1),  # running status; a key goes up by velocity 0
        (raw(0, b"\x00\xc0\x28" + C4), 1),  # a violin is played on the piano
        (raw(0, b"\x00\x90\x40\x50" + C4), 1),  # a note that never ends is passed over
        (raw(0, C4) + b"junk", 1),
    ],
)
def test_files_of_all_types(content: bytes, count: int) -> None:
    """One track, several, and what programs write into them."""
    for steady in (False, True):
        found = rounded(read_midi(content, steady=steady))
        assert len(found) == count
        assert found[0] == (0, 0.5, 60, 80, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (raw(2, C4, C4), r"the file: holds 2 pieces \(MIDI type 2\); save one of them as a file"),
        (raw(1, C4, division=-6360), r"the file: counts time in frames of a film \(SMPTE\)"),
        (raw(1, C4, division=0), r"the file: is a damaged MIDI file \(a quarter note has no ticks\)"),
        (raw(3, C4), "the file: is a damaged MIDI file"),
        (raw(1), "the file: holds no notes"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    """Read as a score or as a performance."""
    for steady in (False, True):
        with pytest.raises(InputError, match=message):
            read_midi(content, steady=steady)


def test_random_damage_is_read_or_refused() -> None:
    """Whatever the bytes are, a score or a sentence."""
    draw = np.random.default_rng(0)
    whole = write_midi(Score.of(Note(n / 10, n / 10 + 0.3, 40 + n, 1 + n) for n in range(60)))
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for at in draw.integers(14, len(whole), size=3):
            damaged[at] = draw.integers(256)
        try:
            assert all(note.start < note.end for note in read_midi(bytes(damaged)).notes)
        except InputError:
            refused += 1
    assert 0 < refused < 300


def check_round_trip(score: Score) -> None:
    """Through events and back: as many notes, onsets within 5 ms, velocities within their bin."""
    events = Performance()
    back = events.hear(events.events(score)).score
    assert len(back.notes) == len(score.notes)
    ours = sorted(score.notes, key=lambda note: (note.pitch, note.start))
    theirs = sorted(back.notes, key=lambda note: (note.pitch, note.start))
    for note, heard in zip(ours, theirs, strict=True):
        assert note.pitch == heard.pitch
        assert abs(note.start - heard.start) <= 0.005 + 1e-9
        assert abs(note.end - heard.end) <= 0.015
        assert note.velocity // BIN == heard.velocity // BIN


def test_any_file_comes_back_through_events() -> None:
    """Random notes in several tracks, with a pedal, from a file with changing tempo."""
    draw = np.random.default_rng(1)
    tracks = []
    for number in range(3):
        starts = np.cumsum(draw.integers(20, 400, size=80)).tolist()
        low = 21 + 30 * number
        lengths, pitches, velocities = (
            draw.integers(*bounds, size=80).tolist() for bounds in ((10, 900), (low, low + 29), (1, 128))
        )
        notes = zip(starts, lengths, pitches, velocities, strict=True)
        turns = tuple((start, int(draw.integers(0, 128))) for start in starts[::3])
        tracks.append(track(*notes, pedal=turns))
    score = read_midi(made(*tracks, tempos=((0, 97.3), (3000, 41.0), (9000, 180.0))))
    ordered = sorted(score.notes, key=lambda note: (note.pitch, note.start))
    for note, after in itertools.pairwise(ordered):
        assert (
            note.pitch < after.pitch or after.start - note.start > 0.02
        )  # no key is struck twice in one place
    check_round_trip(score)


@pytest.mark.skipif(
    not (DATA / "asap_midi").is_dir(), reason="GLASSFORMER_DATA names no folder with asap_midi"
)
def test_performances_come_back_through_events() -> None:
    """Five recorded ones, of different composers."""
    with zipfile.ZipFile(DATA / "asap_midi" / "asap_perf.zip") as archive:
        files = [name for name in archive.namelist() if name.endswith(".mid")]
        for name in files[:: len(files) // 5][:5]:
            score = read_midi(archive.read(name))
            struck: dict[int, Note] = {}
            kept = []  # of keys that are struck twice in one place of the grid, the later stroke
            for note in sorted(score.notes, reverse=True):
                after = struck.get(note.pitch)
                if after is None or int(after.start * 100 + 0.5) != int(note.start * 100 + 0.5):
                    kept.append(note)
                    struck[note.pitch] = note
            check_round_trip(Score.of(kept))
            assert len(kept) >= 0.999 * len(score.notes)
