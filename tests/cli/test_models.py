"""glass models, pull, rm, convert."""

import json
import shutil
from pathlib import Path

import pytest


def test_models_lists_what_ships(glass) -> None:
    """The storyteller is listed; what could be pulled is named."""
    code, out, _ = glass("models")
    assert code == 0
    assert "storyteller" in out
    assert "gpt2-xl" in out


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
    code, _, err = glass("convert", "pytorch_model.bin", "storyteller")
    assert (code, err) == (2, "glass: storyteller is the name of a shipped model; choose another\n")
    code, out, err = glass("convert", "pytorch_model.bin", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"folder": str(home / "models" / "gem")}
    assert glass("convert", "pytorch_model.bin")[0] == 2  # it exists already
    monkeypatch.chdir(tmp_path)
    assert "gem" in glass("models")[1]
    assert glass("generate", "-m", "gem", "x")[0] == 2  # it has no vocabulary
    assert glass("rm", "gem", "-y")[0] == 0
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
