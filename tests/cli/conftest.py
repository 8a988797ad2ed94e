"""A tiny model, and a way to run a command line in this process."""

import os
import sys

import pytest
from small import small_model, small_tokenizer

from glassformer.cli import run
from glassformer.hub.folder import save_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny model that writes nonsense quickly."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_folder(folder, small_model(3, vocab=300, context=64), tokenizer=small_tokenizer(300))
    return str(folder)


@pytest.fixture
def glass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a command line in this process, with a pipe as stdin if given: (exit code, stdout, stderr)."""

    def call(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        if stdin is None:
            reader = os.open(os.devnull, os.O_RDONLY)
        else:
            reader, writer = os.pipe()
            os.write(writer, stdin.encode())
            os.close(writer)
        with os.fdopen(reader) as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    """Run a command line: what it printed, or its message if it ends with another `code`."""

    def call(*arguments: str, code: int = 0) -> str:
        assert run(list(arguments)) == code
        caught = capsys.readouterr()
        return caught.err if code else caught.out

    return call
