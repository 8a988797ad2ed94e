"""Sound, by measurement: the pitches that a spectrum shows are those of the score, at their times."""

import io
import math
import wave

import numpy as np
import pytest
from numpy.typing import NDArray

from glassformer.errors import InputError
from glassformer.tasks.sound import RATE, wav
from glassformer.tokenizers.score import Note, Score

LOUD = 0.02  # of the loudest partial: what is softer is no partial


def read(content: bytes) -> NDArray[np.float64]:
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def partials(sound: NDArray[np.float64], start: float, end: float) -> list[tuple[float, float]]:
    """Frequency and size of every peak of a spectrum, the frequency by a parabola through the peak."""
    part = sound[int(start * RATE) : int(end * RATE)]
    spectrum = np.abs(np.fft.rfft(part * np.blackman(len(part)), 1 << 18))
    loud = LOUD * spectrum.max()
    found = []
    for at in np.flatnonzero((spectrum[1:-1] > spectrum[:-2]) & (spectrum[1:-1] >= spectrum[2:])) + 1:
        if spectrum[at] > loud:
            left, top, right = np.log(spectrum[at - 1 : at + 2])
            shift = 0.5 * (left - right) / (left - 2 * top + right)
            found.append(((at + shift) * RATE / (1 << 18), float(spectrum[at])))
    return found


def pitch_of(frequency: float) -> float:
    return 69 + 12 * math.log2(frequency / 440)


def heard(sound: NDArray[np.float64], start: float, end: float) -> set[int]:
    """The pitches of a chord: the lowest partial is a fundamental, and takes what fits above it with it.

    A partial that is an overtone of a lower pitch counts only if it is louder than that pitch alone makes it.
    """
    found: set[int] = set()
    made: dict[int, float] = {}  # pitch of a partial -> how loud the notes so far make it
    for frequency, size in partials(sound, start, end):
        pitch = round(pitch_of(frequency))
        assert (
            abs(pitch_of(frequency) - pitch) < 0.16
        )  # an overtone may lie beside its key, the seventh apart
        if size > 1.35 * made.get(pitch, 0.0) + 1e-9 and abs(pitch_of(frequency) - pitch) < 0.05:
            rest = size - made.get(pitch, 0.0)
            found.add(pitch)
            for number, share in enumerate((1.0, 0.5, 0.25, 0.16, 0.08, 0.05), 1):
                above = round(pitch_of(frequency * number))
                made[above] = made.get(above, 0.0) + rest * share
    return found


@pytest.mark.parametrize("pitch", [24, 36, 45, 60, 69, 81, 96, 108])
def test_one_note_has_its_pitch(pitch: int) -> None:
    """Within two hundredths of a semitone; all other partials are its overtones."""
    sound = read(wav(Score.of([Note(0.1, 1.1, pitch)])))
    (lowest, _), *others = partials(sound, 0.15, 1.0)
    assert abs(pitch_of(lowest) - pitch) < 0.02
    assert all(abs(frequency / lowest - round(frequency / lowest)) < 0.01 for frequency, _ in others)


def test_chords_are_heard_as_they_are_written() -> None:
    """Chords of a chorale, one after the other: each has its own pitches and no others."""
    chords = [(72, 67, 64, 48), (74, 67, 59, 55), (71, 62, 55, 43), (76, 69, 60, 57), (65, 60, 57, 53)]
    notes = [Note(at * 1.0, at + 0.9, pitch) for at, chord in enumerate(chords) for pitch in chord]
    sound = read(wav(Score.of(notes)))
    for at, chord in enumerate(chords):
        assert heard(sound, at + 0.05, at + 0.85) == set(chord)
        assert heard(sound, at + 0.05, at + 0.85) != {*chord[:3], chord[3] + 1}


def test_notes_are_where_they_should_be() -> None:
    """Silence before, sound between, silence after; a piece is as long as its last note and its echo."""
    sound = read(wav(Score.of([Note(0.5, 1.0, 60)])))
    assert np.abs(sound[: int(0.5 * RATE)]).max() == 0
    assert np.abs(sound[int(0.51 * RATE) : int(0.99 * RATE)]).max() > 0.5
    assert len(sound) / RATE == pytest.approx(1.08, abs=0.01)
    assert abs(sound[-1]) < 0.01


def test_velocity_is_loudness() -> None:
    """A note struck twice as hard is twice as loud."""
    sound = read(wav(Score.of([Note(0, 0.5, 60, 50), Note(1, 1.5, 60, 100)])))
    soft, loud = (np.abs(sound[int(at * RATE) : int((at + 0.5) * RATE)]).max() for at in (0, 1))
    assert loud / soft == pytest.approx(2.0, rel=0.02)
    assert loud <= 1.0


def test_silence_and_hours() -> None:
    """Nothing is silence; what would fill a disk is refused."""
    assert np.abs(read(wav(Score.of([])))).max() == 0
    with pytest.raises(InputError, match=r"7,200 seconds are too long for one \.wav"):
        wav(Score.of([Note(0, 7200, 60)]))
