"""The verbs that look inside: tables for people, numbers for programs, one sentence for mistakes."""

import json
from pathlib import Path

import pytest

from glassformer.cli import run

TEXT = "The cat sat. The cat"


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    caught = capsys.readouterr()
    return caught.err if code else caught.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", TEXT], ["layer", "previous", "induction"]),
        (["attention", "-l", "1", TEXT], ["mean of all heads", "looks at 1"]),
        (["attention", "-l", "1", "--head", "0", "--words", TEXT], ["layer 1, head 0", "␣sat"]),
        (["attention", "-l", "1", "--head", "0", "--query", "sat", TEXT], ["q·k", "softmax", "−∞"]),
        (["attention", "--from", "sat", "--to", "cat", TEXT], ["from 'sat' to 'cat'"]),
        (["attention", "--robot"], ["obey", "0.481"]),
        (["lens", TEXT], ["embed", "blocks.0.mid", "divergence"]),
        (["lens", "-p", "all", "-w", " mat", TEXT], ["rank of ' mat'"]),
        (["saliency", "-n", "1", TEXT], ["because of", "deletion"]),
        (["saliency", "-n", "1", "--method", "occlusion", "--not", " dog", "--no-test", TEXT], ["occlusion"]),
        (["neurons", "-k", "1", TEXT], ["activation"]),
        (["neurons", "--factors", "2", "-l", "0", TEXT], ["2 factors"]),
        (["diff", "storyteller", "storyteller", TEXT], ["difference", "0.000"]),
    ],
)
def test_tables(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each says what it shows, and cuts nothing in a pipe."""
    shown = said(capsys, *arguments)
    for word in words:
        assert word in shown
    assert "…" not in shown


def test_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON on stdout, as JSON or CSV in a file."""
    found = json.loads(said(capsys, "lens", "--json", TEXT))
    assert len(found["numbers"]["ranks"][0]) == len(found["tokens"])
    said(capsys, "lens", TEXT, "-o", str(tmp_path / "lens.json"))
    assert json.loads((tmp_path / "lens.json").read_text()) == found
    said(capsys, "lens", TEXT, "-o", str(tmp_path / "lens.csv"))
    lines = (tmp_path / "lens.csv").read_text().splitlines()
    assert len(lines) == 1 + len(found["tokens"]) * len(found["numbers"]["stages"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", "--head", "1", TEXT], "--head needs --layer"),
        (["attention", "--query", "cat", TEXT], "--query needs --layer and --head"),
        (["attention", "--from", "cat", TEXT], "--from and --to belong together"),
        (["attention", "-l", "99", TEXT], "layer 99 is not there"),
        (["lens", ""], "the text is empty"),
        (["lens", "-p", "dragon", TEXT], "the word 'dragon' is not in the text"),
        (["lens", TEXT, "-o", "x.png"], "x.png: numbers are written as .json or .csv"),
        (["lens", TEXT, "-o", "/nowhere/x.csv"], "cannot be written"),
        (["saliency", "--method", "magic", TEXT], "method 'magic' is none of"),
        (["saliency", "-n", "0", TEXT], "there is no token to explain"),
        (["neurons", "--factors", "99", TEXT], "factors must be between 1 and the"),
    ],
)
def test_mistakes(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit code 2."""
    shown = said(capsys, *arguments, code=2)
    assert words in shown
    assert shown.count("\n") <= 2
