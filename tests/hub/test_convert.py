"""Pickled checkpoints of nanoGPT, minGPT and Hugging Face become folders with the same numbers."""

import json
from pathlib import Path

import encoder_decoder
import pytest
import torch
from small import hugging_face

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.convert import convert
from glassformer.hub.folder import load_folder
from glassformer.hub.generation_config import read_generation_config
from glassformer.hub.unpickle import unpickle

IDS = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(2))
PROJECTIONS = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def torch_orientation(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights as nanoGPT and minGPT store them: (out, in)."""
    return {
        name: value.t().contiguous() if name.endswith(PROJECTIONS) else value
        for name, value in model.state_dict().items()
    }


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the child does, without the two seconds that starting it takes; nanoGPT's test goes the whole way."""
    monkeypatch.setattr("glassformer.hub.convert._unpickle", unpickle)


def assert_same(folder: Path, theirs: torch.nn.Module) -> None:
    with torch.no_grad():
        right = theirs(IDS).logits
        assert (load_folder(folder).model(IDS) - right).abs().max() <= 1e-4 * right.abs().max()


def test_nanogpt(tmp_path: Path) -> None:
    """A compiled nanoGPT's checkpoint: prefix, optimizer and all; GELU in its erf form; the vocabulary
    padded.
    """
    theirs = hugging_face(activation_function="gelu", vocab_size=128)
    state = {f"_orig_mod.{name}": value for name, value in torch_orientation(theirs).items()}
    args = {
        "n_layer": 2,
        "n_head": 3,
        "n_embd": 24,
        "block_size": 40,
        "bias": True,
        "vocab_size": 128,
        "dropout": 0.0,
    }
    optimizer = {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}
    torch.save(
        {
            "model": state,
            "optimizer": optimizer,
            "model_args": args,
            "iter_num": 9,
            "config": {"out_dir": "x"},
        },
        tmp_path / "ckpt.pt",
    )
    convert(tmp_path / "ckpt.pt", tmp_path / "m")
    assert_same(tmp_path / "m", theirs)


def test_nanogpt_without_biases(tmp_path: Path, in_this_process: None) -> None:
    """`bias=False` stays a model without biases."""
    theirs = hugging_face(activation_function="gelu")
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
    state = {name: value for name, value in torch_orientation(theirs).items() if not name.endswith(".bias")}
    args = {"n_layer": 2, "n_head": 3, "n_embd": 24, "block_size": 40, "bias": False, "vocab_size": 97}
    torch.save({"model": state, "model_args": args}, tmp_path / "ckpt.pt")
    convert(tmp_path / "ckpt.pt", tmp_path / "m")
    assert_same(tmp_path / "m", theirs)
    assert not load_folder(tmp_path / "m").model.config.bias


def test_mingpt(tmp_path: Path, in_this_process: None) -> None:
    """A bare state, masks and an output matrix of its own; what it lacks is in the config beside
    it.
    """
    theirs = hugging_face(tie_word_embeddings=False)
    state = torch_orientation(theirs)
    state |= {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(2)}
    torch.save(state, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps({"model": {"n_head": 3}}))
    convert(tmp_path, tmp_path / "b")
    assert_same(tmp_path / "b", theirs)


def test_heads_that_must_be_given(tmp_path: Path, in_this_process: None) -> None:
    """Without a config beside it the heads of a bare state are unknown; the error asks for --heads."""
    theirs = hugging_face()
    torch.save(torch_orientation(theirs), tmp_path / "model.pt")
    with pytest.raises(InputError, match="--heads"):
        convert(tmp_path / "model.pt", tmp_path / "m")
    convert(tmp_path / "model.pt", tmp_path / "m", heads=3)
    assert_same(tmp_path / "m", theirs)


def test_pytorch_model_bin(tmp_path: Path, in_this_process: None) -> None:
    """An old Hugging Face folder, in half precision, with its settings of generation."""
    theirs = hugging_face().half().float()
    (tmp_path / "generation_config.json").write_text('{"top_k": 7, "eos_token_id": [3, 4]}')
    theirs.config.save_pretrained(tmp_path)
    torch.save(
        {name: value.half() for name, value in theirs.state_dict().items()}, tmp_path / "pytorch_model.bin"
    )
    with pytest.raises(CheckpointError, match="glass convert"):
        load_folder(tmp_path)
    convert(tmp_path, tmp_path / "m", heads=3, dtype=torch.float32)
    assert_same(tmp_path / "m", theirs)
    assert read_generation_config(tmp_path / "m") == ({"top_k": 7}, {3, 4})


def test_a_family_that_needs_no_options(
    tmp_path: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `config.json` is complete: the pickle is converted as it is, and an option is refused."""
    encoder_decoder.only_the_toy(monkeypatch)
    theirs = encoder_decoder.hugging_face_marian()
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"--heads: the config\.json of a toy says it"):
        convert(tmp_path, tmp_path / "m", heads=2)
    convert(tmp_path, tmp_path / "m")
    back = load_folder(tmp_path / "m").model
    assert torch.equal(back.tokens.weight, theirs.model.shared.weight)
    assert torch.equal(back.get_buffer("logits_bias"), theirs.final_logits_bias)
    qkv = back.get_parameter("decoder.blocks.2.cross.k.weight")
    assert torch.equal(qkv, theirs.model.decoder.layers[2].encoder_attn.k_proj.weight)


def test_what_is_not_a_checkpoint(tmp_path: Path) -> None:
    """Text, an empty folder, nothing at all: one sentence each."""
    (tmp_path / "a.pt").write_text("hello")
    for source, word in ((tmp_path / "a.pt", "a.pt"), (tmp_path, "none of"), (tmp_path / "b.pt", "no file")):
        with pytest.raises(InputError, match=word):
            convert(source, tmp_path / "m")
    assert not (tmp_path / "m").exists()
