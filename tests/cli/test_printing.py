"""How answers are printed: tables in parts, cells by format, drawings on a terminal."""

import os
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from glassformer.answers.answer import Column
from glassformer.cli.printing import cell, parts

TEXT = "The cat sat. The cat"


def test_a_wide_table_in_parts() -> None:
    """Every part names its rows, and groups stay together."""
    columns = [Column("position", "count", key=True), Column("token", "token", key=True)]
    for n in (1, 2):
        columns += [Column(f"attends to {n}", "token", group=n), Column(f"weight {n}", "share", group=n)]
    assert parts(columns, [10] * 6, room=60) == [[0, 1, 2, 3, 4, 5]]
    assert parts(columns, [10] * 6, room=59) == [[0, 1, 2, 3], [0, 1, 4, 5]]
    assert parts(columns, [10] * 6, room=10) == [[0, 1, 2, 3], [0, 1, 4, 5]]
    heads = [Column("layer", key=True), Column("head", key=True), Column("previous"), Column("first")]
    assert parts(heads, [8] * 4, room=24) == [[0, 1, 2], [0, 1, 3]]
    assert parts(heads[:2], [8] * 2, room=10) == [[0, 1]]


def test_cells_are_shown_in_the_form_of_their_column() -> None:
    """By the column's format, not by its name or by what type a number happens to have."""
    shown = {
        "number": cell(0.25, Column("x", "number")),
        "nan": cell(float("nan"), Column("x", "share")),
        "none": cell(None, Column("x", "count")),
        "low": cell(float("-inf"), Column("x", "number")),
        "rank": cell(1, Column("x", "rank")),
        "count": cell(12345, Column("rank of words", "count")),
        "token": cell(" cat", Column("x", "token")),
        "bool": cell(True, Column("x", "bool")),
    }
    assert {name: one.plain for name, one in shown.items()} == {
        "number": "0.250", "nan": "–", "none": "–", "low": "−∞", "rank": "1", "count": "12,345", "token": "␣cat",
        "bool": "True",
    }  # fmt: skip
    assert shown["rank"].style == "bold cyan"
    assert not shown["count"].style
    assert not shown["number"].style
    styles = [cell(value, Column("x", "share")).style for value in (0.6, 0.2, 0.05, 0.001)]
    assert styles == ["bold cyan", "cyan", "", "dim"]
    styles = [cell(value, Column("x", "signed")).style for value in (0.2, -0.2, 0.0001)]
    assert styles == ["blue", "dark_orange", "dim"]


def test_a_terminal_without_unicode() -> None:
    """What it cannot show becomes a question mark."""
    command = [sys.executable, "-m", "glassformer.cli", "lens", "The cat"]
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert b"?cat" in done.stdout


def test_drawn_on_a_terminal(printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture first, then the table, unless the picture shows everything; at the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = printed("attention", "-l", "1", TEXT)
    assert "\x1b[" in shown
    assert "attends to 1" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(cell_len, plain.splitlines())) <= 60
    assert "█" in printed("lens", "--attribution", TEXT)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = printed("attention", "-l", "1", TEXT)
    assert "48;" not in shown
    assert re.search(r"0 +The +9", shown)


def test_no_escape_code_of_a_text_reaches_the_terminal(printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a caption nor in an error."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    evil = "A \x1b]0;PWNED\x07 cat"
    assert "\x1b]0" not in printed("edit", "--zero", "blocks.0.attn", "-n", "2", evil)
    assert "\x1b" not in printed("lens", "-p", "dog", evil, code=2)


def test_a_picture_that_is_not_all_leaves_the_table(printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of a logit, and all tokens that were ranked, are there on a narrow terminal too."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert "blocks.0.attn.mix[0]" in printed("lens", "--attribution", TEXT)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", printed("lens", "--rankings", "20", TEXT))
    assert len(re.findall(r"^blocks\.5\.out", shown, re.M)) > 1
