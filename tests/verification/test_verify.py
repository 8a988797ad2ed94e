"""The whole: on a small model, in every form of output, and what is refused."""

import json
from pathlib import Path

import pytest
from small import small_model

import glassformer as gf
from glassformer.cli import run
from glassformer.errors import CheckpointError, InputError, NetworkError
from glassformer.hub.folder import save_folder
from glassformer.verification import hostile

OF_MODEL = [
    "parity",
    "parity inside",
    "cache, torch float32",
    "batch, torch float32",
    "cache, native int8",
    "batch, native int8",
    "engines",
    "tokenizer",
]
OF_PACKAGE = [
    "crash and resume",
    "malicious pickle",
    "truncated weights",
    "headers that lie",
    "wrong shapes",
    "non-finite weights",
]


def test_the_whole_verb_on_a_small_model(
    folders: dict[str, Path], home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check holds and catches its mutant; nothing is left behind.

    The converter's own process, which takes long to start, is met in tests/hub and in the slow test below.
    """

    def refuse(source: Path, target: Path) -> None:
        raise CheckpointError(f"{source}: not a checkpoint of plain weights")

    monkeypatch.setattr(hostile, "convert", refuse)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    code = run(["verify", str(folders["gpt2"]), "--json"])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    found = json.loads(printed.out)
    checks = found["values"]["checks"]
    assert [check["name"] for check in checks] == OF_MODEL + OF_PACKAGE
    for check in checks:
        assert check["measured"] <= check["limit"] < check["mutant_measured"], check
    assert found["values"]["passed"] is True
    assert {row[-1] for row in found["rows"]} == {"holds"}
    assert found["values"]["notes"] == [
        f"published figures were not compared: there are some for gpt2, not for {folders['gpt2']}"
    ]
    assert sorted(path.name for path in home.iterdir()) == ["engine"]  # the quantized model; no training


@pytest.mark.usefixtures("only_the_model")
@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_the_rest_of_the_family(folders: dict[str, Path], kind: str) -> None:
    """In torch alone, and that is reported."""
    found = gf.verify(str(folders[kind]))
    assert found.passed
    assert [check.name for check in found.checks] == [*OF_MODEL[:4], "tokenizer"]
    assert f"the native engine runs GPT-2, and this is {kind}" in found.notes[0]


@pytest.mark.usefixtures("only_the_model")
def test_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    """It is verified on ids; progress begins at 0 and ends with all."""
    save_folder(tmp_path / "bare", small_model())
    seen: list[tuple[int, int]] = []
    found = gf.verify(str(tmp_path / "bare"), progress=lambda done, total: seen.append((done, total)))
    assert found.passed
    assert (seen[0], seen[-1]) == ((0, 8), (8, 8))
    assert [check.name for check in found.checks] == OF_MODEL[:-1]
    assert "the tokenizer was not checked: the model has none" in found.notes


def test_what_cannot_be_verified(folders: dict[str, Path], tmp_path: Path) -> None:
    """Each in one sentence: a context that is too short, a LoRA folder, a model that is not here."""
    save_folder(tmp_path / "short", small_model(context=7))
    with pytest.raises(InputError, match="a context of 7 tokens is too short; 8 are needed"):
        gf.verify(str(tmp_path / "short"))
    adapter = tmp_path / "lora"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(InputError, match=r"is a LoRA folder; merge it first, by gf\.load"):
        gf.verify(str(adapter))
    with pytest.raises(NetworkError, match="downloads are switched off"):
        gf.verify("gpt2")


@pytest.mark.slow
def test_the_whole_verb_on_the_storyteller(capsys: pytest.CaptureFixture[str]) -> None:
    """As a user runs it."""
    code = run(["verify"])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    assert printed.out.count("  holds") == len(OF_MODEL + OF_PACKAGE)
