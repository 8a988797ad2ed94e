"""What the tests of training share."""

from pathlib import Path

import crash
import pytest


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(autouse=True)
def one_home(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is tokenized once for all of these."""
    monkeypatch.setenv("GLASSFORMER_HOME", str(shared / "home"))


@pytest.fixture(scope="module")
def text(shared: Path) -> str:
    return str(crash.write_text(shared))
