"""Composing: what is given stays, what is written is music, and the same seed writes the same."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composers import TUNE, performer, small_composer, tune

from glassformer.errors import InputError
from glassformer.hub.folder import save_folder
from glassformer.tasks.compose import Composer, Guided
from glassformer.tasks.load import load
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import RANGE, Chorale, to_grid
from glassformer.tokenizers.score import Note, Score
from glassformer.trace import trace


def test_the_same_seed_writes_the_same() -> None:
    """And another one something else; a new one is drawn where none is given."""
    model = small_composer()
    one, same, other = (model.compose(seconds=2, seed=seed) for seed in (1, 1, 2))
    assert one.to_dict() == same.to_dict()
    assert one.tokens != other.tokens
    assert model.compose(seconds=1).seed != model.compose(seconds=1).seed


@pytest.mark.parametrize("ahead", [0, 3])
def test_voices_keep_their_places(ahead: int) -> None:
    """Every word is of the voice whose turn it is, at any temperature: the grid has all of them."""
    model = small_composer(Chorale(ahead))
    out = model.compose(seconds=6, seed=3, temperature=5.0)
    steps = 40 if out.finish_reason == "length" else (len(out.tokens) - ahead) // 4
    assert isinstance(model.events, Chorale)
    assert len(model.events.grid(out.tokens)) == steps
    for number, id in enumerate(out.tokens):
        assert id in model.events.allowed(out.tokens[:number])
    assert out.seconds <= 6.0 + 1e-9


@pytest.mark.parametrize("ahead", [0, 3, 40])
def test_a_melody_is_kept(ahead: int) -> None:
    """The soprano is the tune, to the step, and three voices are written to it; then the piece ends."""
    model = small_composer(Chorale(ahead))
    out = model.harmonize(tune(), seed=5)
    assert isinstance(model.events, Chorale)
    grid = model.events.grid([*out.prompt_tokens[1:], *out.tokens])
    assert [step[0] for step in grid] == TUNE
    assert out.finish_reason == "stop"
    assert len(out.prompt_tokens) == 1 + min(
        ahead + 1, ahead + 1
    )  # the melody that comes first is read at once
    assert {note.voice for note in out.score.notes} <= {0, 1, 2, 3}


def test_a_prime_is_kept_and_gone_on_with() -> None:
    """Note by note; `given` says how much of the piece it is."""
    begun = [[67 + at, 62, 57, 45 + at] for at in range(8)]
    for ahead in (0, 3):
        model = small_composer(Chorale(ahead))
        assert isinstance(model.events, Chorale)
        prime = model.events.hear(model.events.lay(begun)).score
        out = model.compose(prime, seconds=1.5, seed=0)
        assert to_grid(out.score)[:8] == begun
        assert out.given == pytest.approx(1.2)
        assert out.seconds <= 2.7 + 1e-9
        assert len(out.tokens) > 4 * 8
        nothing = model.compose(prime, seconds=0)
        assert nothing.tokens == []


def test_a_performance_is_gone_on_with() -> None:
    """Its events are the prompt; what is written is cut where the time is over."""
    model = performer()
    prime = Score.of([Note(0, 0.5, 60, 81), Note(0.25, 1.0, 64, 90)])
    out = model.compose(prime, seconds=3, seed=1)
    assert model.events.decode(out.prompt_tokens[1:]) == (
        "SET_VELOCITY<80> NOTE_ON<60> TIME_SHIFT<250> SET_VELOCITY<88> NOTE_ON<64> TIME_SHIFT<250> NOTE_OFF<60>"
        " TIME_SHIFT<500> NOTE_OFF<64>"
    )
    assert out.given == pytest.approx(1.0)
    assert out.score.notes[0] == Note(0, 0.5, 60, 80)
    assert out.seconds <= 4.0 + 1e-9
    assert all(note.start < 4.0 for note in out.score.notes)


def test_the_tempo_is_that_of_what_was_given() -> None:
    """A tune twice as fast is harmonized twice as fast."""
    fast = Score.of(
        [note._replace(start=note.start / 2, end=note.end / 2) for note in tune().notes], quarter=0.3
    )
    model = small_composer()
    slow, quick = model.harmonize(tune(), seed=2), model.harmonize(fast, seed=2)
    assert slow.tokens == quick.tokens
    assert quick.seconds == pytest.approx(slow.seconds / 2)
    assert quick.score.quarter == pytest.approx(0.3)
    assert quick.roll().seconds == pytest.approx(quick.seconds)


def test_a_piece_may_outgrow_the_context() -> None:
    """The model goes on with the last half of it; voices keep their places."""
    model = small_composer(Chorale(2), context=40)
    out = model.compose(seconds=7.5, seed=9)
    assert isinstance(model.events, Chorale)
    assert len(out.tokens) > 3 * 40 or out.finish_reason == "stop"
    for number, id in enumerate(out.tokens):
        assert id in model.events.allowed(out.tokens[:number])


def test_probabilities_are_of_what_may_follow() -> None:
    """A guided step is the model's own scores where they are allowed, and hopeless elsewhere."""
    model = small_composer(Chorale(0))
    ids = np.array([[model.events.end, *model.events.encode("S72 A67")]])
    guided = Guided(model.backend, lambda before: model.events.allowed(before), start=ids[0].tolist())
    masked = guided.step(ids, guided.new_cache(1, 8))
    plain = model.backend.step(ids, model.backend.new_cache(1, 8))
    tenor = model.events.allowed([0, 0])
    assert np.array_equal(masked[0, list(tenor)], plain[0, list(tenor)])
    others = sorted(set(range(len(model.events))) - set(tenor))
    assert (masked[0, others] < -1e8).all()
    total = guided.log_sums(masked)[0]
    assert np.exp(masked[0, list(tenor)] - total).sum() == pytest.approx(1.0)


def test_greedy_composing_takes_the_likeliest() -> None:
    """Temperature 0: each token is the best of those that may follow, as the whole text scores them."""
    model = small_composer(Chorale(1))
    out = model.compose(seconds=1.2, temperature=0.0, seed=4)
    ids = [*out.prompt_tokens, *out.tokens]
    logits = model.logits(ids)
    for number, token in enumerate(out.tokens):
        allowed = list(model.events.allowed(out.tokens[:number]))
        assert token == allowed[int(logits[number, allowed].argmax())]


def test_progress_and_cancelling() -> None:
    """Seconds of music that are there, of how many; a piece that is cancelled is what it is by then."""
    seen: list[tuple[float, float]] = []
    model = small_composer(Chorale(0))
    model.compose(seconds=3, seed=3, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] <= 3.0
    assert {total for _, total in seen} == {3.0}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    calls = iter([False] * 9 + [True] * 99)
    out = model.compose(seconds=3, seed=3, cancelled=lambda: next(calls))
    assert (out.finish_reason, len(out.tokens)) == ("cancelled", 9)


def test_files(tmp_path: Path) -> None:
    """A file is read, and a piece is kept in every form; MIDI brings it back."""
    model = small_composer()
    write_midi(tune(), tmp_path / "tune.mid")
    out = model.harmonize(tmp_path / "tune.mid", seed=5)
    assert out.tokens == model.harmonize(tune(), seed=5).tokens
    for name in ("a.mid", "a.wav", "a.html", "a.svg", "a.json", "a.csv"):
        assert out.save(tmp_path / name).stat().st_size > 100
    back = read_midi(tmp_path / "a.mid", steady=True)
    assert to_grid(back) == to_grid(out.score)
    assert (tmp_path / "a.wav").read_bytes()[:4] == b"RIFF"
    with pytest.raises(
        InputError, match=r"a\.mp3: music is saved as \.mid, \.midi, \.wav, \.html; its roll as"
    ):
        out.save(tmp_path / "a.mp3")
    with pytest.raises(InputError, match="cannot be written"):
        out.save(tmp_path / "none" / "a.mid")


def test_a_notebook_plays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is displayed is the sound; elsewhere there is a sentence."""
    piece = small_composer().harmonize(tune(), seed=5)
    displayed: list[Any] = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    piece.play()
    assert displayed[0].data == piece.to_wav()
    assert displayed[0]._repr_html_().count("<audio") == 1
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(InputError, match=r"play\(\) is for notebooks; save it as \.wav or \.html"):
        piece.play()


def test_a_piece_is_asked_as_a_text_is() -> None:
    """Attention of its events: rows add up to 1, as many as there are events and the token that begins it."""
    model = small_composer()
    piece = model.harmonize(tune(), seed=5)
    found = piece.attention(layer=1, head=2)
    count = 1 + len(model.events.encode(piece.text))
    assert found.weights.shape == (count, count)
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    with torch.no_grad(), trace(model.net, "blocks.1.attn.pattern") as seen:
        model.net(torch.tensor([[*piece.prompt_tokens, *piece.tokens]]))
    np.testing.assert_allclose(found.weights, seen["blocks.1.attn.pattern"][0, 2], atol=1e-6)


@pytest.mark.parametrize("ahead", [0, 3, 16])
def test_a_file_that_is_only_looked_at_is_whole(ahead: int) -> None:
    """Also its last steps, beside which no soprano comes any more."""
    model = small_composer(Chorale(ahead))
    whole = model.harmonize(tune(), seed=5)
    looked = model.compose(whole.score, seconds=0)
    assert to_grid(looked.score) == to_grid(whole.score)
    assert looked.text == whole.text
    assert looked.given == pytest.approx(whole.seconds)


def test_what_was_written_is_heard_again() -> None:
    """In words or ids, at any tempo; the same questions have the same answers."""
    model = small_composer()
    piece = model.harmonize(tune(), seed=5)
    ids = [*piece.prompt_tokens[1:], *piece.tokens]
    for events in (piece.text, ids):
        again = model.hear(events, quarter=1.2, given=0.5)
        assert to_grid(again.score) == to_grid(piece.score)
        assert again.seconds == pytest.approx(2 * piece.seconds)
        assert again.given == 0.5
        assert again.arcs(3).rows == [
            [head, number, pytest.approx(2 * start), pytest.approx(2 * end), *rest]
            for head, number, start, end, *rest in piece.arcs(3).rows
        ]
    with pytest.raises(InputError, match=r"quarter must be from 0\.05 to 10 seconds, not 0"):
        model.hear(ids, quarter=0)
    with pytest.raises(InputError, match="'Once' is no event"):
        model.hear("Once")
    assert performer().hear("NOTE_ON<60> TIME_SHIFT<500>", quarter=2.0).seconds == 0.5


def test_a_folder_is_loaded_as_a_composer(tmp_path: Path) -> None:
    """By what its model can do; it continues events in words, too."""
    model = small_composer()
    save_folder(tmp_path / "m", model.net, tokenizer=model.events)
    loaded = load(str(tmp_path / "m")).expect(Composer)
    assert loaded.compose(seconds=2, seed=1).tokens == model.compose(seconds=2, seed=1).tokens
    assert loaded.generate("S72 S72 S72", max_new_tokens=3, seed=0).text.count(" ") == 3
    assert "composes" in loaded.capabilities


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"seconds": -1}, "seconds must be from 0 to 3,600, not -1"),
        ({"seconds": float("nan")}, "seconds must be from 0 to 3,600, not nan"),
        ({"prime": tune(), "melody": tune()}, "give a prime or a melody, not both"),
        ({"num_beams": 3}, "music is drawn event by event"),
        ({"temprature": 1}, "unknown option 'temprature'; did you mean 'temperature'"),
        ({"melody": Score.of([Note(0, 1, 90)])}, "pitch 90 is out of range"),
        ({"prime": "no such.mid"}, r"no such\.mid"),
    ],
)
def test_what_cannot_be_done_is_said(how: dict[str, object], message: str) -> None:
    """In one sentence."""
    with pytest.raises(InputError, match=message):
        small_composer().compose(**how)  # type: ignore[arg-type]


def test_a_performer_harmonizes_nothing() -> None:
    """It has no voices."""
    with pytest.raises(
        InputError, match="small composer writes no voices to a melody: it was trained on performances"
    ):
        performer().harmonize(tune())


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_prime_longer_than_the_context_is_kept(ahead: int) -> None:
    """What the model cannot read any more still says whose turn it is."""
    model = small_composer(Chorale(ahead), context=40)
    steps = [[72 - at % 5, 67, 64 - at % 3, 48] for at in range(30)]  # 120 events
    prime = Chorale(0).hear(Chorale(0).lay(steps)).score
    piece = model.compose(prime, seconds=3, seed=1)
    ids = [*piece.prompt_tokens[1:], *piece.tokens]
    assert isinstance(model.events, Chorale)
    assert model.events.grid(ids)[:30] == steps
    assert all(model.events.place(number)[0] * RANGE <= id for number, id in enumerate(ids))
    assert piece.seconds > prime.seconds + 2


def test_notes_behind_the_context_can_be_asked_about() -> None:
    """They hear the events before them, as many as the model reads at once; attention is of the first ones."""
    model = small_composer(Chorale(0), context=24)
    steps = [[72 - at % 5, 67 + at % 2, 64 - at % 3, 48 + at % 7] for at in range(12)]
    piece = model.hear(Chorale(0).lay(steps))
    last = piece.arcs(-1)
    assert last.note == len(piece.score.notes) - 1
    assert last.weights[:, 0].max() == 0.0  # too far back
    ids = piece._piece().ids
    at = 1 + max(
        number for number, owner in enumerate(model.events.hear(ids[1:]).owners) if owner == last.note
    )
    first = 1 + model.events.hear(ids[1:]).owners.index(last.note)
    assert at >= first > 24
    shares = piece.note_saliency(-1).shares
    assert np.count_nonzero(shares)
    assert len(piece.attention(0, 0).tokens) == 24


def test_a_long_melody_is_harmonized_as_a_whole() -> None:
    """However long it is."""
    model = small_composer(Chorale(0), context=40)
    grid = [[60 + at % 12, -1, -1, -1] for at in range(700)]
    tune = Chorale(0).hear(Chorale(0).lay(grid)).score
    piece = model.harmonize(tune, seed=1)
    assert isinstance(model.events, Chorale)
    assert len(model.events.grid([*piece.prompt_tokens[1:], *piece.tokens])) == 700


@pytest.mark.parametrize(("what", "words"), [
    (lambda model: model.compose(3), "music is a MIDI file or a Score, not int"),
    (lambda model: model.compose(b"x"), "music is a MIDI file or a Score, not bytes"),
    (lambda model: model.hear([9999]), "9999 is no"),
    (lambda model: model.hear("S60 S60 S60 S60 S60 S60"), "begins with 1 word of the soprano"),
    (lambda model: model.hear("S60 A60 T60 B48", given=-3), "given must be"),
])  # fmt: skip
def test_what_is_no_music(what: Any, words: str) -> None:
    """One sentence."""
    with pytest.raises(InputError, match=words):
        what(small_composer(Chorale(0)))


def test_pieces_about_which_there_is_little_to_say() -> None:
    """Without a note, or with a single one."""
    piece = small_composer(Chorale(0)).hear("")
    assert piece.roll().finding() == "no notes"
    single = small_composer(Chorale(0)).hear("S60 A- T- B-")
    assert single.arcs(0).finding() == "no head attends to another note"


def test_what_leaves_no_choice_is_read_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitches of a melody take no step of their own, and change no score behind them."""
    model = small_composer(Chorale(0))
    backend, read = model.backend, []
    step = type(backend).step

    def counted(self: Any, ids: Any, cache: Any) -> Any:
        read.append(ids.shape[1])
        return step(self, ids, cache)

    monkeypatch.setattr(type(backend), "step", counted)
    piece = model.harmonize(tune(), seed=5)
    steps = len(to_grid(piece.score))
    assert read[1:] == [2 if at % 3 == 2 else 1 for at in range(3 * steps - 1)]

    monkeypatch.undo()
    ids = [*piece.prompt_tokens, *piece.tokens]
    logits = model.logits(ids[:-1])
    for at in (6, 7, 8):  # an alto, a tenor and a bass behind a soprano that was waiting
        allowed = list(model.events.allowed(ids[1:at]))
        scores = logits[at - 1][allowed]
        right = scores[allowed.index(ids[at])] - np.log(np.exp(scores.astype(np.float64)).sum())
        assert piece.logprobs[at - len(piece.prompt_tokens)] == pytest.approx(float(right), abs=1e-4)
