"""The answer of a verification: verdicts, table, JSON and drawing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.answers.verification import Check, Verification

HOLDS = Check(
    name="parity",
    compared="one with another",
    unit="of the largest",
    measured=1e-12,
    limit=1e-9,
    mutant="broken",
    mutant_measured=0.5,
)


def verification(*checks: Check) -> Verification:
    """An answer of some checks."""
    passed = all(check.passed for check in checks)
    about = {"caption": "small: checks", "tokens": [], "model": "small", "seconds": 1.5, "notes": ["a note"]}
    return Verification(checks=list(checks), passed=passed, **about)


@pytest.mark.parametrize(("change", "verdict", "passed"), [
    ({}, "holds", True), ({"measured": 1e-9}, "holds", True), ({"measured": 2e-9}, "fails", False),
    ({"measured": float("nan")}, "fails", False), ({"mutant_measured": 1e-9}, "fails: the mutant passes too", False),
    ({"mutant_measured": float("nan")}, "holds", True),
    ({"measured": 0.3, "other_weights": True}, "differs: other weights", True),
    ({"measured": 0.3, "mutant_measured": 0.0, "other_weights": True}, "fails: the mutant passes too", False),
])  # fmt: skip
def test_verdicts(change: dict, verdict: str, passed: bool) -> None:
    """At the limit it still holds; a mutant must be above it; nan is never right."""
    check = replace(HOLDS, **change)
    assert (check.verdict, check.passed) == (verdict, passed)


def test_table_and_data(tmp_path: Path) -> None:
    """Every number in full, in JSON and in CSV; and a picture."""
    found = verification(HOLDS, replace(HOLDS, name="cache", measured=1.0))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["kind"] == "verification"
    assert data["values"]["checks"][0]["mutant_measured"] == 0.5
    assert [row[-1] for row in data["rows"]] == ["holds", "fails"]
    assert "parity,one with another,1e-12,1e-09,of the largest,broken,0.5,holds" in found.to_csv()
    assert (found.passed, [check.name for check in found.failed]) == (False, ["cache"])
    assert found.sentence() == "small: checks: cache failed."
    assert verification(HOLDS).sentence().endswith("all 1 checks passed, and each caught its mutant.")
    found.save(tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text()
    assert (drawn.count(">within<"), drawn.count(">exceeds<")) == (1, 3)
