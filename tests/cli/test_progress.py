"""The one progress bar: on a terminal alone."""

import pytest

from glassformer.cli.progress import progress_bar


def test_a_pipe_gets_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does stdout, ever."""
    with progress_bar("patching") as progress:
        progress(1, 2)
        progress(3, 0)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_does(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is done, as a share or, where no total is known, as a number."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar("patching") as progress:
        progress(1, 2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "patching" in shown.err
    assert "50%" in shown.err
    with progress_bar("tokens read") as progress:
        progress(1234, 0)
    assert "1,234" in capsys.readouterr().err
