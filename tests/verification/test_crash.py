"""The comparison of two trainings. The trainings themselves: test_verify.py."""

from pathlib import Path

import pytest

from glassformer.errors import GlassError
from glassformer.verification import crash


def test_differing() -> None:
    """Every place counts, also what one of them lacks."""
    right = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, "hash"]
    assert crash.differing(right, right) == 0
    assert crash.differing([right[0], {"step": 2, "loss": 1.0000001}, "other"], right) == 2
    assert crash.differing(right[:1], right) == 2


def test_a_training_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own message is passed on."""
    monkeypatch.setattr(crash.sys, "executable", "false")
    with pytest.raises(GlassError, match="the training to be killed failed"):
        list(crash.crash_and_resume(tmp_path))


def test_a_training_that_ends_otherwise() -> None:
    with pytest.raises(SystemExit, match="ended with 0, not -9"):
        crash.expect(-9, 0)
