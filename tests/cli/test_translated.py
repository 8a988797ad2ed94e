"""glass translate with a question: the same numbers as in Python, and one sentence for flags that do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest
from translators import small_translator

import glassformer as gf
from glassformer.tasks.translate import Translator

SOURCE = "She liked to play."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("translators") / "small"
    small_translator(seed=1, layout="halves", head_bias=True).save(path)
    return str(path)


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("translators") / "recurrent"
    small_translator("seq2seq", seed=1).save(path)
    return str(path)


def asked(folder: str, *flags: str) -> list[str]:
    return ["translate", "-m", folder, "--to", "fr", "-n", "4", *flags, SOURCE]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (["--alignment", "--head", "1.2"], "alignment"),
        (["--alignment", "--words"], "alignment"),
        (["--attention"], "heads"),
        (["--attention", "-l", "0", "--cross"], "attention"),
        (["--attention", "-l", "0", "--stack", "encoder"], "attention"),
        (["--steps", "play", "-l", "0", "--head", "1", "--stack", "encoder"], "steps"),
        (["--find-heads", "play", "liked", "--stack", "encoder"], "find_heads"),
        (["--lens"], "lens"),
        (["--saliency"], "saliency"),
        (["--saliency", "--of", "1"], "saliency"),
        (["--beams", "--num-beams", "3"], "beams"),
        (["--journey", "0"], "journey"),
        (["--targets", "--target", "a park", "--also", " Lily"], "targets"),
    ],
)
def test_a_flag_for_every_question(printed, folder: str, flags: list[str], kind: str) -> None:
    """The answer as JSON is of the kind that the question has."""
    found = json.loads(printed(*asked(folder, *flags, "--json")))
    assert found["kind"] == kind
    assert found["rows"]


def test_the_numbers_are_those_of_python(printed, folder: str) -> None:
    """The translation is made by the options of the command line, and asked about."""
    model = gf.load(folder)
    assert isinstance(model, Translator)
    right = model.translate(SOURCE, to="fr", max_new_tokens=4).alignment(1, 2)
    found = json.loads(printed(*asked(folder, "--alignment", "-l", "1", "--head", "2", "--json")))
    np.testing.assert_allclose(found["values"]["weights"], right.weights, rtol=1e-5)
    steps = json.loads(
        printed(*asked(folder, "--steps", "play", "-l", "0", "--head", "1", "--stack", "encoder", "--json"))
    )
    assert steps["tokens"][steps["values"]["position"]].strip() in "play"


def test_a_recurrent_network(printed, recurrent: str, tmp_path: Path) -> None:
    """Step by step, as a picture; and what it lacks."""
    picture = tmp_path / "unroll.svg"
    assert printed(*asked(recurrent, "--unroll", "-o", str(picture))) == ""
    assert "attends: how much" in picture.read_text()
    assert "has no stack of layers" in printed(*asked(recurrent, "--lens"), code=2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--alignment", "--beams"], "--alignment and --beams are 2 questions; ask one at a time"),
        (["-o", "x.svg"], "--output is for the answer to a question, such as --alignment or --beams"),
        (["--layer", "1"], "--layer goes with --alignment or --attention or --steps"),
        (["--lens", "--words"], "--words goes with --alignment or --attention or --saliency"),
        (["--lens", "--of", "1"], "--of goes with --saliency"),
        (["--beams", "--target", "x"], "--target goes with --targets"),
        (["--steps", "play", "-l", "0"], "--steps needs --layer and --head"),
        (["--attention", "--head", "0"], "--head needs --layer"),
        (["--alignment", "--split"], "--alignment is about one text, without --split"),
        (["--journey", "zebra"], "the word 'zebra' is not in the text"),
        (["--alignment", "-o", "x.txt"], "a picture is saved as .svg"),
    ],
)
def test_what_does_not_go_together(printed, folder: str, flags: list[str], words: str) -> None:
    """Exit code 2, one sentence."""
    assert words in printed(*asked(folder, *flags), code=2)


def test_other_verbs_say_where_to_ask(printed, folder: str) -> None:
    """A text alone is no translation."""
    words = printed("attention", "-m", folder, SOURCE, code=2)
    assert "writes from a source: ask about a translation, as in glass translate --attention" in words
    assert "sinusoidal positions, width 128" in printed("attention", "--positions")
    assert "TEXT does not go with --positions" in printed("attention", "--positions", "a", code=2)


def edited(folder: str, *flags: str) -> list[str]:
    return ["translate", "-m", folder, "--to", "fr", "-n", "6", *flags, SOURCE]


def test_edits_side_by_side(printed, recurrent: str, tmp_path: Path) -> None:
    """The same edits as flags, as JSON and as a file give the answer that Python gives."""
    kept = tmp_path / "edits.json"
    flags = ["--patch", "decoder.attn.context", "--from", "Lily was a girl.", "--scale", "decoder.out=-3"]
    found = json.loads(printed(*edited(recurrent, *flags, "--save", str(kept), "--json")))
    listed = [
        {"site": "decoder.out", "do": "scale", "by": -3},
        {"site": "decoder.attn.context", "do": "patch", "from": "Lily was a girl."},
    ]
    assert json.loads(kept.read_text()) == listed
    assert found["kind"] == "edited"
    assert found["values"]["text"] != found["values"]["edited"]
    for given in (str(kept), json.dumps(listed)):
        assert json.loads(printed(*edited(recurrent, "--edit", given, "--json"))) == found

    single = printed(*edited(recurrent, "--edit", json.dumps(listed[0]), "--json"))
    assert "decoder.attn" not in json.loads(single)["caption"]

    model = gf.load(recurrent)
    assert isinstance(model, Translator)
    right = model.translate(SOURCE, to="fr", max_new_tokens=6, edits=listed)
    assert found["values"]["edited"] == right.text.strip()
    shown = printed(*edited(recurrent, "--edit", str(kept)))
    assert "\nplain: " in shown
    assert "\nedited: " in shown


def test_a_question_about_an_edited_translation(printed, folder: str, tmp_path: Path) -> None:
    """It is replayed with its edits; without a question both are drawn."""
    flags = ["--zero", "decoder.blocks.1.cross.scores", "--at", "1"]
    found = json.loads(printed(*edited(folder, *flags, "--alignment", "--head", "1.2", "--json")))
    weights = np.array(found["values"]["weights"])
    np.testing.assert_allclose(weights[1], 1 / weights.shape[1], atol=1e-6)
    picture = tmp_path / "edited.svg"
    assert printed(*edited(folder, "--zero", "encoder.blocks.0.attn.mix[1]", "-o", str(picture))) == ""
    assert "the same tokens, with the edits" in picture.read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--patch", "embed"], "--patch needs --from"),
        (["--from", "x"], "--from needs --patch"),
        (["--save", "x.json"], "--save needs an edit"),
        (["--edit", "[{]"], "--edit: is not JSON"),
        (["--zero", "encoder.blocks.0.attn", "--split"], "an edit is about one text, without --split"),
        (["--zero", "encoder.blocks.9.attn"], "no site matches 'encoder.blocks.9.attn'"),
    ],
)
def test_edits_that_do_not_fit(printed, folder: str, flags: list[str], words: str) -> None:
    """Exit code 2, one sentence."""
    assert words in printed(*edited(folder, *flags), code=2)
