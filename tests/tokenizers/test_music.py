"""Music as words: the article's example, every event of both vocabularies, grids in both layouts."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers.music import Chorale, Grid, Performance, Plan, music_tokenizer, to_grid
from glassformer.tokenizers.score import Note, Score, name_of

ARTICLE = (
    "SET_VELOCITY<80> NOTE_ON<60> TIME_SHIFT<500> NOTE_ON<64> TIME_SHIFT<500> NOTE_ON<67> TIME_SHIFT<1000>"
    " NOTE_OFF<60> NOTE_OFF<64> NOTE_OFF<67> TIME_SHIFT<500> SET_VELOCITY<100> NOTE_ON<65> TIME_SHIFT<500> NOTE_OFF<65>"
)
CHORD = Score.of([Note(0, 2, 60), Note(0.5, 2, 64), Note(1, 2, 67), Note(2.5, 3, 65, 100)])


def test_the_articles_example() -> None:
    """A broken chord and one louder note: exactly the published events, and back."""
    events = Performance()
    ids = events.events(CHORD)
    assert events.decode(ids) == ARTICLE
    assert events.encode(ARTICLE) == ids
    heard = events.hear(ids)
    assert heard.score.notes == CHORD.notes
    assert heard.owners == [-1, 0, -1, 1, -1, 2, -1, 0, 1, 2, -1, -1, 3, -1, 3]


def test_there_are_388_events() -> None:
    """128 keys down, 128 up, 100 shifts of time, 32 velocities; and the token between pieces."""
    events = Performance()
    kinds = [word.partition("<")[0] for word in events.words]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == {"NOTE_ON": 128, "NOTE_OFF": 128, "TIME_SHIFT": 100, "SET_VELOCITY": 32, "": 1}
    assert len(events) == 389 == len(set(events.words))
    for id in range(388):
        assert events.encode(events.decode([id])) == [id]
    assert events.encode("<|endoftext|>", special=True) == [388] == [events.end]


def test_every_velocity_has_its_bin() -> None:
    """Four neighbors share an event, which says the lowest; 0 would be silence."""
    events = Performance()
    for velocity in range(1, 128):
        (id,) = events.encode(f"SET_VELOCITY<{velocity}>")
        assert events.decode([id]) == f"SET_VELOCITY<{max(1, velocity // 4 * 4)}>"


@pytest.mark.parametrize(
    "word",
    ["Once", "NOTE_ON<128>", "TIME_SHIFT<15>", "TIME_SHIFT<1010>", "SET_VELOCITY<0>", "S72", "<|endoftext|>"],
)
def test_other_words_are_refused(word: str) -> None:
    """In a sentence that shows what an event is."""
    with pytest.raises(InputError, match=r"is no event of this vocabulary; one is NOTE_ON<60>"):
        Performance().encode(f"NOTE_ON<60> {word}")


def test_long_silence_is_several_shifts() -> None:
    """Whole seconds first."""
    events = Performance()
    assert events.decode(events.events(Score.of([Note(2.034, 2.036, 60)]))) == (
        "TIME_SHIFT<1000> TIME_SHIFT<1000> TIME_SHIFT<30> SET_VELOCITY<80> NOTE_ON<60> TIME_SHIFT<10> NOTE_OFF<60>"
    )


def test_time_does_not_drift() -> None:
    """A thousand notes of 3.3 ms after each other: each within 5 ms, the last too."""
    events = Performance()
    score = Score.of(Note(n * 0.0333, n * 0.0333 + 0.02, 30 + n % 60) for n in range(1000))
    heard = events.hear(events.events(score)).score
    assert max(abs(a.start - b.start) for a, b in zip(score.notes, heard.notes, strict=True)) <= 0.005 + 1e-9


def test_what_makes_no_sense_is_passed_over() -> None:
    """A model may write anything: keys lifted that are not down, struck while they are, never lifted."""
    events = Performance()
    ids = events.encode(
        "NOTE_OFF<60> NOTE_ON<60> TIME_SHIFT<100> NOTE_ON<60> SET_VELOCITY<40> NOTE_ON<62> TIME_SHIFT<50>"
    )
    heard = events.hear([*ids, events.end])
    assert heard.score.notes == (Note(0, 0.1, 60, 64), Note(0.1, 0.15, 60, 64), Note(0.1, 0.15, 62, 40))
    assert heard.owners == [-1, 0, -1, 1, -1, 2, -1, -1]
    assert events.hear([]).score.notes == ()


GRID: Grid = [[72, 67, 64, 48], [72, 67, 62, 50], [74, -1, 62, 50], [74, 67, 59, 43]]


@pytest.mark.parametrize("ahead", [0, 1, 3, 4, 9])
def test_a_grid_comes_back(ahead: int) -> None:
    """However far the soprano runs ahead; and every word is one that was allowed, up to the end."""
    events = Chorale(ahead)
    ids = events.lay(GRID)
    assert len(ids) == 16 + ahead
    assert events.grid(ids) == GRID
    assert events.encode(events.decode(ids)) == ids
    melody = Plan({(0, at): step[0] for at, step in enumerate(GRID)}, len(GRID))
    for number, id in enumerate([*ids, events.end]):
        assert id in events.allowed(ids[:number])
        given = events.allowed(ids[:number], melody)
        assert id in given
        if number == len(ids) or events.place(number)[0] == 0:
            assert list(given) == [id]  # a melody leaves no choice
    if ahead:
        assert list(events.allowed(ids)) == [events.end]


def test_words_of_a_grid() -> None:
    """One step ahead, by hand."""
    text = "S72 S72 A67 T64 B48 S74 A67 T62 B50 S74 A- T62 B50 S. A67 T59 B43"
    assert Chorale(1).decode(Chorale(1).lay(GRID)) == text
    assert Chorale(0).decode(Chorale(0).lay(GRID[:2])) == "S72 A67 T64 B48 S72 A67 T62 B50"


def test_notes_of_a_grid() -> None:
    """Equal pitches are one note; every word knows its note, the early soprano too."""
    events = Chorale(1)
    heard = events.hear(events.lay(GRID))
    soprano = [(note.start, note.end, note.pitch) for note in heard.score.notes if note.voice == 0]
    assert soprano == [(0, 0.3, 72), (0.3, 0.6, 74)]
    assert len(heard.score.notes) == 2 + 2 + 3 + 3
    words = events.decode(events.lay(GRID)).split()
    for word, owner in zip(words, heard.owners, strict=True):
        if word in ("S.", "A-"):
            assert owner == -1
        else:
            assert heard.score.notes[owner].pitch == int(word[1:])
            assert "SATB"[heard.score.notes[owner].voice] == word[0]
    assert to_grid(heard.score) == GRID


def test_words_out_of_place_are_rests() -> None:
    """And half a step is none."""
    events = Chorale(0)
    ids = events.encode("S72 S72 T64 B48 S72 A67")
    assert events.grid(ids) == [[72, -1, 64, 48]]


def test_tracks_are_voices_or_pitches_are() -> None:
    """Four tracks by their number; fewer or more by pitch, highest first and the lowest last."""
    four = [Note(0, 0.125, pitch, voice=voice) for voice, pitch in enumerate((60, 72, 55, 40))]
    assert to_grid(Score.of(four)) == [[60, 72, 55, 40]]
    one = [note._replace(voice=0) for note in four]
    assert to_grid(Score.of(one)) == [[72, 60, 55, 40]]
    many = [Note(0, 0.125, pitch) for pitch in (50, 51, 52, 53, 54)]
    assert to_grid(Score.of(many)) == [[54, 53, 52, 50]]
    assert to_grid(Score.of([Note(0.125, 0.25, 60)])) == [[-1] * 4, [60, -1, -1, -1]]


def test_pitches_out_of_range_are_refused() -> None:
    """By their number."""
    with pytest.raises(InputError, match="pitch 85 is out of range: a chorale is sung from 36 "):
        Chorale(0).lay([[85, 60, 55, 40]])
    with pytest.raises(InputError, match="ahead must be a whole number from 0 to 1,024, not -1"):
        Chorale(-1)


def test_the_text_says_which_vocabulary_it_has() -> None:
    """Events of a performance, or voices, and how far the first runs ahead."""
    assert type(music_tokenizer([ARTICLE])) is Performance
    for ahead in (0, 7):
        found = music_tokenizer(Chorale(ahead).decode(Chorale(ahead).lay(GRID * 3)) for _ in range(2))
        assert isinstance(found, Chorale)
        assert found.ahead == ahead


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"events": "opera"}, "events 'opera' is none of performance, chorale"),
        ({"events": "performance", "ahead": 3}, "'ahead' is not a choice of performance events"),
        ({"events": "chorale", "ahead": "x"}, "ahead must be a whole number"),
        ({"events": "chorale", "behind": 1}, "'behind' is not a choice of chorale events"),
    ],
)
def test_files_are_checked(content: dict[str, object], message: str, tmp_path: Path) -> None:
    """A tokenizer.json of music, from a stranger."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "GlassMusic"} | content}))
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(tmp_path)


def test_names_of_pitches() -> None:
    """Middle C is C4."""
    assert [name_of(pitch) for pitch in (60, 61, 69, 36)] == ["C4", "C♯4", "A4", "C2"]


@pytest.mark.skipif(
    not (DATA / "jsb_chorales").is_dir(), reason="GLASSFORMER_DATA names no folder with jsb_chorales"
)
def test_chorales_come_back() -> None:
    """Some of all 382, in both layouts of the recipes."""
    with gzip.open(DATA / "jsb_chorales" / "jsb-16th-voices.json.gz") as file:
        pieces = [piece for split in json.load(file).values() for piece in split]
    assert len(pieces) == 382
    for events in (Chorale(0), Chorale(16)):
        for piece in pieces[::8]:
            assert events.grid(events.lay(piece)) == piece


def test_random_events_are_always_music() -> None:
    """Whatever a model writes is heard: notes that end after they begin, of pitches that exist."""
    draw = np.random.default_rng(0)
    for events in (Performance(), Chorale(0), Chorale(5)):
        for _ in range(20):
            ids = draw.integers(len(events), size=200).tolist()
            heard = events.hear(ids)
            assert len(heard.owners) == 200
            assert all(note.start < note.end and 0 <= note.pitch < 128 for note in heard.score.notes)
            assert list(heard.score.notes) == sorted(heard.score.notes)
            assert max(heard.owners, default=-1) < len(heard.score.notes)
