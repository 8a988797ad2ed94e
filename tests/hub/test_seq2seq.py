"""The files of recurrent encoder-decoders: whole, exact, and checked field by field."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small import shake

from glassformer.errors import CheckpointError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.seq2seq import read_config, write_config
from glassformer.models.seq2seq import Config, Seq2Seq
from glassformer.tokenizers.train import train_separate_tokenizers

SMALL = Config(layers=2, width=6, token_width=5, vocab=11, pad=9, start=3)
VARIANTS: list[dict[str, Any]] = [
    {"reads": "last"},
    {"reads": "mean", "cell": "lstm"},
    {"score": "dot", "wiring": "after", "bidirectional": True},
    {"score": "bilinear", "decoder_width": 7, "wiring": "after"},
    {"score": "additive", "decoder_width": 7, "cell": "lstm", "bidirectional": True},
    {"source_vocab": 13, "pad": 12},
]


def make(**choices: Any) -> Seq2Seq:
    sizes = {name: value for name, value in vars(SMALL).items() if name != "decoder_width"}
    net = Seq2Seq(Config(**sizes | choices)).initialize(0)
    shake(net, 0)
    return net.eval()


@pytest.mark.parametrize("choices", VARIANTS, ids=str)
def test_every_variant_comes_back(tmp_path: Path, choices: dict[str, Any]) -> None:
    """Configuration and every number, bit by bit; sums over them may run in another order."""
    net = make(**choices)
    save_folder(tmp_path / "m", net)
    back = load_folder(tmp_path / "m").model
    assert back.config == net.config
    state = back.state_dict()
    assert list(state) == list(net.state_dict())
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    source, target = torch.tensor([[1, 2, 4]]), torch.tensor([[3, 5]])
    assert torch.allclose(back(source, target), net(source, target), rtol=0, atol=1e-5)
    written = json.loads((tmp_path / "m" / "config.json").read_text())
    assert written["model_type"] == "glass-seq2seq"
    assert "Only Glassformer reads this folder" in (tmp_path / "m" / "card.md").read_text()


def test_two_vocabularies_come_back(tmp_path: Path) -> None:
    """Each in a file of its own, each as it was."""
    tokenizer = train_separate_tokenizers(["xx xx xx"] * 9, ["yy yy yy"] * 9, vocab_size=260)
    assert tokenizer.source is not None
    sizes = {
        "vocab": len(tokenizer),
        "source_vocab": len(tokenizer.source),
        "pad": tokenizer.special["<pad>"],
    }
    save_folder(tmp_path / "m", make(**sizes, start=tokenizer.end), tokenizer=tokenizer)
    back = load_folder(tmp_path / "m").tokenizer
    assert back is not None
    assert back.source is not None
    assert back.to_json() == tokenizer.to_json()
    assert back.source.to_json() == tokenizer.source.to_json() != tokenizer.to_json()
    (tmp_path / "m" / "source_tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"source_tokenizer\.json: 'model' should be an object"):
        load_folder(tmp_path / "m")
    (tmp_path / "m" / "source_tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"source_tokenizer\.json is missing"):
        load_folder(tmp_path / "m")


@pytest.mark.parametrize(("changes", "words"), [
    ({"cell": "rnn"}, "cell 'rnn' is none of gru, lstm"),
    ({"cell": None}, "cell is missing"),
    ({"width": "wide"}, "width is 'wide', which is no int"),
    ({"width": True}, "width is 'True', which is no int"),
    ({"width": 0}, "width must be at least 1, not 0"),
    ({"bidirectional": 1}, "bidirectional is '1', which is no bool"),
    ({"pad": 11}, "pad 11 is not a token id of the source's vocabulary"),
    ({"start": 11}, "start 11 is not a token id of the target's vocabulary"),
])  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    """One sentence that names the file and the field."""
    assert read_config(write_config(SMALL), Path("config.json")) == SMALL
    with pytest.raises(CheckpointError, match=rf"^config\.json: .*{words}"):
        read_config(write_config(SMALL) | changes, Path("config.json"))


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    """Configuration and weights must agree."""
    save_folder(tmp_path / "m", make())
    other = replace(SMALL, token_width=6)
    (tmp_path / "m" / "config.json").write_text(json.dumps(write_config(other)))
    with pytest.raises(CheckpointError, match=r"tokens\.weight"):
        load_folder(tmp_path / "m")
