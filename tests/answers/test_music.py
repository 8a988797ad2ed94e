"""Questions about music: notes, events, arcs and saliency, beside the numbers that they are made of."""

from pathlib import Path

import numpy as np
import pytest
import torch
from composers import performer, small_composer, tune

from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.answers.music import piece_of
from glassformer.errors import InputError
from glassformer.explain.saliency import Target, saliency
from glassformer.figures.view import View
from glassformer.tasks.compose import Composition
from glassformer.tokenizers.music import Chorale
from glassformer.tokenizers.score import Note, Score
from glassformer.trace import trace

PRIME = Score.of(
    [Note(0, 0.5, 60, 81), Note(0.25, 1.0, 64, 90), Note(1.0, 1.5, 60, 90), Note(1.5, 2, 67, 90)]
)


@pytest.fixture(scope="module")
def played() -> Composition:
    return performer().compose(PRIME, seconds=0)


@pytest.fixture(scope="module")
def sung() -> Composition:
    return small_composer(Chorale(3)).harmonize(tune(), seed=5)


def test_a_roll_has_every_note(sung: Composition) -> None:
    """As the score has them; the drawing too, with velocities and voices."""
    found = sung.roll()
    assert found.notes.tolist() == [list(note) for note in sung.score.notes]
    assert len(found.rows) == len(sung.score.notes)
    spec = found.view().spec
    assert spec["kind"] == "roll"
    assert np.allclose(np.array(spec["notes"])[:, :3], found.notes[:, :3], atol=1e-4)
    assert spec["series"] == ["soprano", "alto", "tenor", "bass"]
    assert spec["velocities"] == [80] * len(sung.score.notes)
    assert f"{len(sung.score.notes)} notes in 1.8 seconds" in found.sentence()


def test_what_was_given_is_marked(played: Composition) -> None:
    """Gray in the picture, and said."""
    found = played.roll()
    assert found.given == 2.0
    assert "gray: given" in found.caption
    assert 'fill="#595959"' in found.view().to_svg()


def test_events_have_their_slots_and_notes(played: Composition) -> None:
    """One row an event; a column is filled where the id is."""
    found = played.events()
    assert [row[1] for row in found.rows] == played.text.split()
    assert [row[2] for row in found.rows] == played.prompt_tokens[1:]
    assert [row[4] for row in found.rows if str(row[1]).startswith("NOTE_ON")] == [0, 1, 2, 3]
    spec = found.view("one_hot").spec
    assert spec["columns"] == played.prompt_tokens[1:]
    assert [count for _, count in spec["groups"]] == [128, 128, 100, 32, 1]
    assert found.view().spec["tokens"] == played.text.split()
    assert "of 389 slots" in found.sentence()


def test_arcs_are_the_pattern_of_a_note(played: Composition) -> None:
    """The row of its own event, events of a note together, the note itself left out; of every head the strongest."""
    lm = played._lm()
    ids = [*played.prompt_tokens, *played.tokens]
    note = 3
    position = ids.index(lm.events.encode("NOTE_ON<67>")[0])
    found = played.arcs(note, layer=1, k=2)
    with torch.no_grad(), trace(lm.net, "blocks.1.attn.pattern") as seen:
        lm.net(torch.tensor([ids]))
    row = seen["blocks.1.attn.pattern"][0, :, position].numpy()  # (H, T)
    owners = piece_of(Text(lm, ids)).heard.owners
    for number in range(3):
        events = [1 + at for at, owner in enumerate(owners) if owner == number and 1 + at <= position]
        assert len(events) == 2
        np.testing.assert_allclose(found.weights[:, number], row[:, events].sum(1), atol=1e-5)
    assert not found.weights[:, note].any()
    assert len(found.rows) == 3 * 2
    weights = [row[-1] for row in found.rows]
    assert weights == sorted(weights, reverse=True)
    spec = found.view().spec
    assert {tuple(arc[:2]) for arc in spec["arcs"]} <= {(3, 0), (3, 1), (3, 2)}
    assert spec["chosen"] == 3
    assert spec["series"] == ["head 0", "head 1", "head 2"]
    assert "<path" in found.view().to_svg()


def test_without_a_layer_the_busiest_is_taken(played: Composition) -> None:
    """The one whose heads attend most to single notes."""
    each = [played.arcs(-1, layer=layer) for layer in range(2)]
    busiest = max(each, key=lambda one: one.weights.max(1).sum())
    assert played.arcs().layer == busiest.layer
    assert "the layer whose heads" in played.arcs().caption


def test_a_soprano_that_runs_ahead_is_heard_before_it_sounds(sung: Composition) -> None:
    """Notes that begin later get arcs, if they were written before; those that were not get none."""
    notes = sung.score.notes
    bass = next(number for number, note in enumerate(notes) if note.voice == 3)  # of the first step
    weights = sung.arcs(bass, k=50).weights.max(0)
    assert notes[bass].start == 0
    soprano = {number: note.start for number, note in enumerate(notes) if note.voice == 0}
    assert [start for number, start in soprano.items() if weights[number] > 0] == [
        0.0,
        0.3,
    ]  # of steps 0 to 3
    assert not any(weights[number] for number, note in enumerate(notes) if note.voice and note.start)


def test_saliency_of_notes_is_that_of_their_events(played: Composition) -> None:
    """Shares of the events before it, those of one note together."""
    lm = played._lm()
    ids = [*played.prompt_tokens, *played.tokens]
    position = ids.index(lm.events.encode("NOTE_ON<67>")[0])
    for method in ("grad_x_input", "occlusion"):
        found = played.note_saliency(3, method=method)
        target = Target(position - 1, ids[position])
        right = saliency(lm.reading(ids[:position]), [target], method=method, blank=lm.events.end)
        owners = piece_of(Text(lm, ids)).heard.owners[: position - 1]
        for number in range(4):
            events = [1 + at for at, owner in enumerate(owners) if owner == number]
            assert found.shares[number] == pytest.approx(right.shares[0, events].sum(), abs=1e-6)
        assert found.shares[3] == 0
        assert 0 < found.shares.sum() <= 1 + 1e-9
    assert found.view().spec["chosen"] == 3


def test_everything_is_drawn_and_kept(sung: Composition, tmp_path: Path) -> None:
    """As text, as a picture, as a page, as numbers; a saved view is drawn again."""
    answers = [sung.roll(), sung.events(), sung.arcs(4), sung.note_saliency(9)]
    for number, one in enumerate(answers):
        for drawing in one.views:
            view = one.view(drawing)
            assert view.to_text(80)
            assert view.to_svg(width=360).startswith("<svg")
            path = tmp_path / f"{number}.json"
            one.save(path, drawing=drawing)
            assert View.load(path).to_svg() == view.to_svg()
            assert view.to_numpy().size


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("arcs", {"note": 99}, r"note 99 is out of range \(there are 0 to 3\)"),
        ("arcs", {"note": -9}, "note -9 is out of range"),
        ("arcs", {"layer": 7}, "layer 7 is out of range"),
        ("arcs", {"k": 0}, "k must be at least 1, not 0"),
        ("note_saliency", {"method": "guess"}, "guess"),
    ],
)
def test_what_cannot_be_answered(
    played: Composition, name: str, how: dict[str, object], message: str
) -> None:
    """In one sentence."""
    with pytest.raises(InputError, match=message):
        played._ask(name, **how)


def test_a_piece_without_notes() -> None:
    """Can be drawn, but has no note to ask about."""
    empty = performer().compose(seconds=0)
    assert "no notes" in empty.roll().view().to_svg()
    with pytest.raises(InputError, match="the piece has no notes"):
        empty.arcs()


def test_a_model_of_texts_has_no_roll() -> None:
    """It says what it lacks."""
    asked = type("Asked", (), {"capabilities": frozenset({"writes"}), "name": "storyteller"})()
    with pytest.raises(InputError, match="roll: storyteller writes no music"):
        ask("roll", asked)
