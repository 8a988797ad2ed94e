"""What the matrices of a model read on its own texts, and what four bits are by it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from engine.conftest import engine_of, random_model

from glassformer.cli import run
from glassformer.engine import native, store
from glassformer.engine.quantize import shape_of
from glassformer.engine.reading import kept_size
from glassformer.errors import InputError
from glassformer.hub.folder import save_folder
from glassformer.models.gpt import GPT
from glassformer.tasks import calibration
from glassformer.tasks.calibration import Calibration
from glassformer.tasks.load import load
from glassformer.trace import trace

pytestmark = pytest.mark.skipif(not native.ways(), reason="the native engine was not built")


@pytest.fixture(autouse=True)
def _few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "TEXTS", 4)
    monkeypatch.setattr(calibration, "LENGTH", 24)


def names(model: GPT) -> list[str]:
    return list(shape_of(vars(model.config)))


@pytest.mark.parametrize("tied", [True, False])
def test_moments_are_those_of_a_whole_run(tied: bool) -> None:
    """Of what a trace sees in front of each matrix, on the texts that the engine generates."""
    model = random_model(tied=tied)
    engine = engine_of(model)
    ids = torch.from_numpy(calibration._own_texts(engine, start=7))
    assert ids.shape == (4, 24)
    assert (ids[:, 0] == 7).all()
    assert len({tuple(row) for row in ids.tolist()}) == 4
    found = Calibration(model, engine, start=7)
    with torch.no_grad(), trace(model, "*") as seen:
        model(ids)
    inputs = {"tokens" if tied else "head": seen["final"]}
    for layer, block in enumerate(model.blocks):
        with torch.no_grad():
            mix = seen[f"blocks.{layer}.attn.mix"].transpose(1, 2).flatten(2)
            inputs |= {
                f"blocks.{layer}.attn.qkv": block.norm1(seen[f"blocks.{layer}.in"]),
                f"blocks.{layer}.attn.proj": mix,
                f"blocks.{layer}.mlp.up": block.norm2(seen[f"blocks.{layer}.mid"]),
                f"blocks.{layer}.mlp.down": seen[f"blocks.{layer}.mlp.neurons"],
            }
    for name in names(model):
        moments = found.moments(name)
        if name not in inputs:
            assert name == "tokens"
            assert moments is None
            continue
        rows = inputs[name].flatten(0, -2).double().numpy()
        assert moments is not None
        np.testing.assert_allclose(moments, rows.T @ rows, rtol=1e-3, atol=1e-3)


def test_the_model_is_left_as_it_was() -> None:
    """No hook stays, and torch has its threads again."""
    model, threads = random_model(), torch.get_num_threads()
    made = Calibration(model, engine_of(model), start=0)
    for name in names(model):
        made.moments(name)
    assert torch.get_num_threads() == threads
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_four_bits_are_loaded_kept_and_found_again(tmp_path: Path) -> None:
    """Beside eight bits, each in a folder of its own; both are removed together."""
    folder = tmp_path / "model"
    save_folder(folder, random_model())
    ids = np.arange(30)
    eight, four = (load(str(folder), quantize=name).engine for name in ("int8", "int4"))
    assert eight is not None
    assert four is not None
    assert (eight.name, four.name) == ("native int8", "native int4")
    want = four.logits(ids)
    assert not np.array_equal(want, eight.logits(ids))
    assert 0 < kept_size(folder, bits=4) < kept_size(folder, bits=8)
    assert store.whole_size(folder) == kept_size(folder, bits=4) + kept_size(folder, bits=8)
    again = load(str(folder), quantize="int4").engine
    assert again is not None
    np.testing.assert_array_equal(again.logits(ids), want)
    assert store.find(folder, bits=4) is not None
    store.forget(folder)
    assert store.whole_size(folder) == 0


def test_a_note_on_eight_bits_is_none_on_four(tmp_path: Path) -> None:
    """The kept folder of the one in the place of the other counts as missing."""
    folder = tmp_path / "model"
    save_folder(folder, random_model())
    load(str(folder))
    store.place(folder).rename(store.place(folder, bits=4))
    assert store.find(folder, bits=4) is None
    assert store.find(folder) is None


def test_what_is_wrong_with_quantize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that names it."""
    with pytest.raises(InputError, match="quantize 'int3' is none of int8, int4"):
        load("storyteller", quantize="int3")
    with pytest.raises(InputError, match="quantize int4 is for engine native"):
        load("storyteller", engine="torch", quantize="int4")
    assert run(["generate", "--quantize", "four", "Once"]) == 2
    assert capsys.readouterr().err.strip().endswith("quantize 'four' is none of int8, int4")
    assert run(["eval", "storyteller", "x.txt", "--quantize", "int4"]) == 2
    assert "quantize int4 is for engine native" in capsys.readouterr().err
