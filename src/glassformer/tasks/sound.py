"""Sound: a score as a .wav file, by a small synthesizer. A string that is struck, and its overtones fade."""

import io
import wave
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.tokenizers.score import Note, Score

Array = np.ndarray[Any, np.dtype[np.float64]]

RATE = 44_100  # samples a second
OVERTONES = (1.0, 0.5, 0.25, 0.16, 0.08, 0.05)  # how loud each is, the fundamental first
ATTACK, RELEASE = 0.006, 0.08  # seconds until a note is there, and until it is gone
FADE = 0.9  # middle C falls to 1/e in a little more than a second; each octave higher, twice as fast
LOUDEST = 0.9  # of what a sample can hold
LONGEST = 3600.0  # seconds


def wav(score: Score) -> bytes:
    """The sound of a score: one channel of 16 bits."""
    found = samples(score)
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.round(found * 32767).astype("<i2").tobytes())
    return content.getvalue()


def samples(score: Score) -> Array:
    """The sound as numbers from -1 to 1, as loud as it may be."""
    if score.seconds > LONGEST:
        raise InputError(f"{score.seconds:,.0f} seconds are too long for one .wav; write a .mid")
    whole = np.zeros(int((score.seconds + RELEASE) * RATE) + 2)
    for note in score.notes:
        sound = tone(note)
        start = int(note.start * RATE)
        part = whole[start : start + len(sound)]
        part += sound[: len(part)]
    most = float(np.abs(whole).max())
    return whole * (LOUDEST / most) if most else whole


def frequency(pitch: float) -> float:
    """Hertz of a MIDI pitch: A4, number 69, has 440."""
    return float(440.0 * 2.0 ** ((pitch - 69) / 12))


def tone(note: Note) -> Array:
    """One note: overtones that fade, the higher ones faster."""
    length = note.end - note.start
    time = np.arange(int((length + RELEASE) * RATE)) / RATE
    pitch = frequency(note.pitch)
    fade = FADE * 2.0 ** ((note.pitch - 60) / 12 / 2)
    sound = np.zeros_like(time)
    for number, loud in enumerate(OVERTONES, 1):
        if number * pitch < RATE / 2:
            sound += (
                loud * np.exp(-fade * (0.7 + 0.3 * number) * time) * np.sin(2 * np.pi * number * pitch * time)
            )
    envelope = np.minimum(1.0, time / ATTACK) * np.clip((length + RELEASE - time) / RELEASE, 0.0, 1.0)
    shaped: Array = sound * envelope * (note.velocity / 127)
    return shaped
