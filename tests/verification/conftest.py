"""Folders of small models, one of every kind."""

from pathlib import Path

import pytest
from small import small_net, small_tokenizer

from glassformer.hub.folder import save_folder
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.load import load
from glassformer.verification import verify as module


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a small model of every kind."""
    root = tmp_path_factory.mktemp("verified")
    changes = {"gpt2": {"context": 64}, "gpt1": {}, "gpt3": {"window": 4, "stride": 2}}
    for kind, own in changes.items():
        save_folder(root / kind, small_net(kind, 3, vocab=300, **own), tokenizer=small_tokenizer(300))
    return {kind: root / kind for kind in changes}


@pytest.fixture
def lm(folders: dict[str, Path]) -> LanguageModel:
    """A small GPT-2, by the native engine."""
    found = load(str(folders["gpt2"]))
    assert found.engine is not None
    return found


@pytest.fixture
def only_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of the package, which take longer and are the same for all models."""
    monkeypatch.setattr(module, "crash_and_resume", lambda work: iter(()))
    monkeypatch.setattr(module, "hostile_files", lambda work: iter(()))
