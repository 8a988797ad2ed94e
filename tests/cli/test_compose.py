"""glass compose, as a person meets it."""

import json
from pathlib import Path

import pytest
from composers import small_composer, tune

from glassformer.hub.folder import save_folder
from glassformer.tasks.compose import Composer
from glassformer.tasks.load import load
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import to_grid


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    model, path = small_composer(), tmp_path_factory.mktemp("composers") / "small"
    save_folder(path, model.net, tokenizer=model.events)
    return str(path)


@pytest.fixture
def melody(tmp_path: Path) -> str:
    write_midi(tune(), tmp_path / "tune.mid")
    return str(tmp_path / "tune.mid")


def test_files_of_every_kind(glass, folder: str, tmp_path: Path) -> None:
    """Several at once; their names, the time and the seed are messages, and stdout is empty."""
    names = ["a.mid", "a.wav", "a.html", "a.svg", "a.json", "a.csv"]
    outputs = [part for name in names for part in ("-o", str(tmp_path / name))]
    code, out, err = glass("compose", "-m", folder, "--seconds", "2", "-s", "3", *outputs)
    assert (code, out) == (0, "")
    assert all(str(tmp_path / name) in err for name in names)
    assert "seconds of music in" in err
    assert "seed 3" in err
    right = load(folder).expect(Composer).compose(seconds=2, seed=3)
    assert to_grid(read_midi(tmp_path / "a.mid", steady=True)) == to_grid(right.score)


def test_notes_are_printed(glass, folder: str) -> None:
    """As a table, or as JSON with everything."""
    right = load(folder).expect(Composer).compose(seconds=1, seed=1)
    code, out, _ = glass("compose", "-m", folder, "--seconds", "1", "-s", "1")
    assert code == 0
    assert len(out.splitlines()) == 2 + len(right.score.notes)
    code, out, _ = glass("compose", "-m", folder, "--seconds", "1", "-s", "1", "--json")
    assert json.loads(out) == right.to_dict()


def test_a_melody_and_questions(glass, folder: str, melody: str, tmp_path: Path) -> None:
    """Harmonized; then asked about."""
    code, out, _ = glass("compose", "-m", folder, "--melody", melody, "-s", "5", "--json")
    assert code == 0
    assert json.loads(out)["finish_reason"] == "stop"
    for flags in (
        ["--arcs", "4", "--layer", "1"],
        ["--saliency", "-1"],
        ["--events"],
        ["--events", "--as", "one_hot"],
    ):
        path = tmp_path / "x.svg"
        code, out, _ = glass("compose", "-m", folder, "--melody", melody, "-s", "5", *flags, "-o", str(path))
        assert (code, out) == (0, "")
        assert path.read_text().startswith("<svg")
    code, out, _ = glass(
        "compose", "-m", folder, "--prime", melody, "--seconds", "0", "--arcs", "2", "--json"
    )
    assert json.loads(out)["values"]["note"] == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prime", "nothing.mid"], "nothing.mid: there is no such file"),
        (["-o", "x.mp3"], "x.mp3: music is saved as .mid, .midi, .wav, .html; its roll as .svg"),
        (["-o", "no/x.mid"], "-o no/x.mid: cannot be written (there is no folder no)"),
        (["--arcs", "1", "-o", "x.wav"], "x.wav: a picture is saved as .svg"),
        (["--arcs", "1", "--events"], "--arcs and --events are 2 questions; ask one at a time"),
        (["--layer", "1"], "--layer is for --arcs"),
        (["--seconds", "-1"], "seconds must be from 0 to 3,600, not -1.0"),
        (["--temperature", "-1"], "temperature must be a number from 0 to 100, not -1.0"),
        (["--prime", __file__], "is not a MIDI file"),
    ],
)
def test_what_is_wrong_is_one_sentence(glass, folder: str, flags: list[str], message: str) -> None:
    """With exit code 2."""
    code, out, err = glass("compose", "-m", folder, *flags)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_model_of_texts_composes_nothing(glass, model: str) -> None:
    """It says so, and how to make one that does."""
    code, _, err = glass("compose", "-m", model)
    assert code == 2
    assert "cannot compose music" in err
    assert "glass train --kind music" in err


def test_a_piece_in_events_is_heard(glass, folder: str, tmp_path: Path) -> None:
    """Nothing is written: what is asked is about the events as they are, in the tempo that is said."""
    model = load(folder).expect(Composer)
    text = model.compose(seconds=2, seed=3).text
    out = tmp_path / "arcs.json"
    asked = ("--hear", text, "--quarter", "1.2", "--arcs", "3")
    code, _, err = glass("compose", "-m", folder, *asked, "-o", str(out))
    assert code == 0, err
    assert json.loads(out.read_text())["rows"] == model.hear(text, quarter=1.2).arcs(3).to_dict()["rows"]
    assert "--seed does not go with --hear" in glass("compose", "-m", folder, "--hear", text, "-s", "1")[2]
    assert "--quarter is for --hear" in glass("compose", "-m", folder, "--quarter", "1", "--seconds", "0")[2]
