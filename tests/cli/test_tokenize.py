"""glass tokenize: tokens, ids, merges, and a new vocabulary."""

import json
from pathlib import Path


def test_tokenize(glass, model: str) -> None:
    """Tokens, ids, merges, data."""
    code, out, _ = glass("tokenize", "-m", model, "--ids", "Once upon a time")
    assert code == 0
    ids = [int(id) for id in out.split()]
    data = json.loads(glass("tokenize", "-m", model, "--json", "--merges", "Once upon a time")[1])
    assert [row["id"] for row in data["tokens"]] == ids
    assert "".join(row["text"] for row in data["tokens"]) == "Once upon a time"
    assert [id for word in data["merges"] for id in word["ids"]] == ids
    assert all(word["steps"][-1]["pieces"] == word["pieces"] for word in data["merges"] if word["steps"])
    merges = glass("tokenize", "-m", model, "--merges", "Once upon a time")[1]
    assert merges.count("rank") == sum(len(word["steps"]) for word in data["merges"])


def test_tokenize_trains(glass, tmp_path: Path) -> None:
    """A new vocabulary from a text, ready to be used."""
    (tmp_path / "text.txt").write_text(
        "the little cat sat on the mat and dreamt of another, larger mat. " * 50
    )
    code, out, _ = glass(
        "tokenize", "--train", str(tmp_path / "text.txt"), "--vocab-size", "270", "-o", str(tmp_path / "v")
    )
    assert code == 0
    assert "270 tokens" in out
    assert glass("tokenize", "-m", str(tmp_path / "v"), "--ids", "the cat")[0] == 0


def test_a_file_and_a_pipe_are_read_alike(glass, model: str, tmp_path: Path) -> None:
    """Line ends stay what they are."""
    (tmp_path / "dos.txt").write_bytes(b"a\r\nb")
    piped = glass("tokenize", "-m", model, "--ids", stdin="a\r\nb")
    assert piped == glass("tokenize", "-m", model, "--ids", "-f", str(tmp_path / "dos.txt"))
    assert len(piped[1].split()) == 4


def test_a_place_that_cannot_be_written_to(glass, tmp_path: Path) -> None:
    """A failure, in one sentence that names the place."""
    (tmp_path / "text.txt").write_text("some text " * 50)
    code, _, err = glass(
        "tokenize",
        "--train",
        str(tmp_path / "text.txt"),
        "--vocab-size",
        "260",
        "-o",
        str(tmp_path / "text.txt"),
    )
    assert code == 1
    assert err.splitlines()[-1].startswith("glass: ")
    assert "text.txt" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_bytes_of_a_character_are_explained(printed) -> None:
    """Behind the id and the bytes: which part of which character."""
    assert printed("tokenize", "a😀").splitlines()[2:4] == ["     64  a", "    172  \\xf0  1/4 😀"]
