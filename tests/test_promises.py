"""The list of promises names tests that exist, and says of each whether it is slow."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS / "server" / "promises.md").read_text()
TEST = re.compile(r"((?:^@.*\n(?:^[ \])}].*\n)*)*)^def (test_\w+)\(", re.MULTILINE)


def test_every_promise_has_its_tests() -> None:
    """A test that is renamed or removed is missed here."""
    found: dict[str, bool] = {}
    for file in TESTS.rglob("test_*.py"):
        for marks, name in TEST.findall(file.read_text()):
            found[name] = found.get(name, False) or "pytest.mark.slow" in marks
    named = dict(re.findall(r"`(test_\w+)`( \(\*slow\*)?", PAGE))
    assert len(named) > 80
    assert not named.keys() - found.keys()
    assert {name: bool(slow) for name, slow in named.items()} == {name: found[name] for name in named}
