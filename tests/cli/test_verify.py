"""glass verify: what it prints, and how it ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.answers.verification import Check, Verification
from glassformer.verification import verify as module

GOOD = Check(
    name="parity",
    compared="one with another",
    unit="of the largest",
    measured=3e-15,
    limit=1e-9,
    mutant="no mask",
    mutant_measured=0.5,
)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch):
    """Let the verb find some checks, and note what it was asked for."""
    asked: dict[str, object] = {}

    def let(*checks: Check) -> dict[str, object]:
        def verify(model: str, **how: object) -> Verification:
            asked.update(how, model=model)
            about = {"caption": f"{model}: checks", "tokens": [], "model": model, "seconds": 1.0}
            passed = all(check.passed for check in checks)
            return Verification(checks=list(checks), passed=passed, notes=["no figures"], **about)

        monkeypatch.setattr(module, "verify", verify)
        return asked

    return let


def test_all_hold(glass, found) -> None:
    """A table with small numbers as they are, and the notes; nothing on stderr."""
    asked = found(GOOD, replace(GOOD, name="cache", measured=0, limit=0, mutant_measured=3))
    code, out, err = glass("verify")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "storyteller: checks"
    assert lines[2] == "parity one with another 3e−15 1e−9 of the largest no mask 0.500 holds"
    assert lines[3] == "cache one with another 0 0 of the largest no mask 3 holds"
    assert lines[4] == "Note: no figures."
    assert (asked["model"], asked["data"], asked["pull"]) == ("storyteller", None, False)


def test_one_fails(glass, found, tmp_path: Path) -> None:
    """Exit code 1, in every form of output, and the check is named."""
    asked = found(GOOD, replace(GOOD, name="cache", measured=0.25))
    printed = "glass: cache fails: 0.25, limit 1e-09, mutant 0.5 of the largest\n"
    assert glass("verify", "gpt2", "--data", "sets", "--pull")[::2] == (1, printed)
    assert (asked["model"], asked["data"], asked["pull"]) == ("gpt2", Path("sets"), True)
    assert glass("verify", "--json")[::2] == (1, printed)
    file = tmp_path / "x.csv"
    assert glass("verify", "-o", str(file))[::2] == (1, f"{file}\n{printed}")
    assert file.read_text().count("\n") == 3


@pytest.mark.parametrize(("arguments", "words"), [
    (["-o", "x.docx"], "x.docx"), (["--json", "-o", "x.csv"], "give one of them"), (["no/such/model"], "no/such/model"),
    (["--dat", "x"], "--data"),
])  # fmt: skip
def test_bad_input(glass, arguments: list[str], words: str) -> None:
    """Exit code 2 before anything is computed, but for a model that could be on the hub."""
    code, out, err = glass("verify", *arguments)
    assert (code, out) == (2, "")
    assert words in err
