"""Hostile files: a loader that takes them makes the checks fail. That they are refused: test_verify.py."""

from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.verification import hostile


def test_a_careless_loader_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes anything, one that crashes, and one that refuses everything."""
    monkeypatch.setattr(hostile, "pickles", lambda work: iter(()))

    def verdicts(load, work: Path) -> set[str]:
        monkeypatch.setattr(hostile, "load_torch", load)
        work.mkdir()
        return {check.verdict for check in hostile.hostile_files(work)}

    def crash(folder: Path) -> None:
        raise MemoryError

    def refuse(folder: Path) -> None:
        raise CheckpointError("no")

    assert verdicts(lambda folder: None, tmp_path / "takes") == {"fails"}
    assert verdicts(crash, tmp_path / "crashes") == {"fails"}
    assert verdicts(refuse, tmp_path / "refuses") == {"fails: the mutant passes too"}


def test_a_converter_that_runs_the_pickle_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary is seen, even if the converter complains afterwards."""

    def careless(source: Path, target: Path) -> None:
        (tmp_path / "canary").touch()
        raise CheckpointError("too late")

    monkeypatch.setattr(hostile, "convert", careless)
    (check,) = hostile.pickles(tmp_path)
    assert (check.measured, check.mutant_measured, check.verdict) == (1, 1, "fails")
