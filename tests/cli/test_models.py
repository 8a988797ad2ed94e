"""glass models, pull, rm, convert."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest


def test_models_lists_what_ships(glass) -> None:
    """The storyteller is listed; what could be pulled is named."""
    code, out, err = glass("models")
    assert code == 0
    header, *rows = out.splitlines()
    assert header.split()[:3] == ["name", "size", "where"]
    assert header.index("where") == next(row for row in rows if "storyteller" in row).index("shipped")
    assert "gpt2-xl" in err
    assert "gpt2-xl" not in out


def test_convert_keeps_under_a_name(
    glass, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name the folder's own is taken; it is listed and removed by it. A shipped one is refused."""
    import torch
    from small import hugging_face

    (tmp_path / "gem").mkdir()
    monkeypatch.chdir(tmp_path / "gem")
    source = hugging_face()
    source.config.save_pretrained(".")
    torch.save(source.state_dict(), "pytorch_model.bin")
    for name in ("storyteller", "gpt2", "gpt2@main"):
        code, _, err = glass("convert", "pytorch_model.bin", name)
        assert (code, "is a model of that name already; give another" in err) == (2, True)
    for name in ("x.gguf", "./x.safetensors"):
        assert "TARGET is a folder or a name" in glass("convert", "pytorch_model.bin", name)[2]
    code, out, err = glass("convert", "pytorch_model.bin", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"folder": str(home / "models" / "gem")}
    assert glass("convert", "pytorch_model.bin")[0] == 2  # it exists already
    monkeypatch.chdir(tmp_path)
    assert "gem" in glass("models")[1]
    assert glass("generate", "-m", "gem", "x")[0] == 2  # it has no vocabulary
    assert glass("rm", "gem", "-y")[0] == 0
    assert not (home / "models" / "gem").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("w.gguf", "is a GGUF file"), ("w.safetensors", "give the folder")]
)
def test_files_that_are_no_model(
    glass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    """They are refused by their format, wherever a model is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"GGUF")
    for arguments in (["convert", name, "new"], ["generate", "-m", name, "x"]):
        code, _, err = glass(*arguments)
        assert code == 2
        assert why in err


@pytest.mark.parametrize(("answer", "code", "said"), [
    (b"n\n", 1, "glass: nothing removed\n"), (b"\x04", 130, "glass: stopped\n"), (b"y\n", 0, ""),
])  # fmt: skip
def test_an_answer_to_rm(
    printed, home: Path, model: str, monkeypatch: pytest.MonkeyPatch, answer: bytes, code: int, said: str
) -> None:
    """No removes nothing and fails, without being an interruption; the terminal is a real one."""
    folder = home / "models" / "gem"
    shutil.copytree(model, folder)
    person, terminal = os.openpty()
    os.write(person, answer)
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert said in printed("rm", "gem", code=code)
    os.close(person)
    assert folder.exists() == bool(code)


def test_a_copy_that_fails_is_one_sentence(
    home: Path, model: str, glass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files ends the copy; nothing is kept."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code, out, err = glass("convert", model, "gem")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, out) == (1, "")
    assert err.endswith(" could not be copied ([Errno 27] File too large)\n")
    assert not (home / "models" / "gem").exists()


def test_a_run_is_kept_under_a_name(home: Path, model: str, tmp_path: Path, glass) -> None:
    """Its model is copied as it is, and loads by its name; a mistyped name is answered by it."""
    run = tmp_path / "runs" / "mine"
    shutil.copytree(model, run / "model")
    (run / "recipe.toml").write_text("")
    code, out, err = glass("convert", str(run), "--dtype", "float16")
    assert (code, out) == (2, "")
    assert "--dtype is for a pickled checkpoint" in err
    assert glass("convert", str(run)) == (0, f"{home}/models/mine\n", "")
    assert glass("convert", str(run / "model"), "other")[0] == 0
    for name in ("mine", "other"):
        copied = {path.name: path.read_bytes() for path in (home / "models" / name).iterdir()}
        assert copied == {path.name: path.read_bytes() for path in Path(model).iterdir()}
    assert glass("generate", "-m", "mine", "-n", "2", "--engine", "torch", "a")[0] == 0
    code, _, err = glass("generate", "-m", "othr", "a")
    assert (code, err) == (2, "glass: there is no model 'othr' on this machine; did you mean other?\n")
    code, _, err = glass("rm", "othr", "-y")
    assert (code, err) == (2, "glass: there is no model othr on this machine; did you mean other?\n")


def test_a_folder_is_not_removed(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, glass) -> None:
    """`glass rm` removes what `glass models` lists, and says so."""
    shutil.copytree(model, tmp_path / "runs" / "mine" / "model")
    monkeypatch.chdir(tmp_path)
    code, _, err = glass("rm", "runs/mine", "-y")
    assert code == 2
    assert "runs/mine is a folder, not a name from `glass models`; delete the folder yourself" in err
    assert (tmp_path / "runs" / "mine" / "model").is_dir()
