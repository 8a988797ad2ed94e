"""The recurrent network that labels texts: equal to torch's own networks, and padding changes nothing."""

from typing import Any

import pytest
import torch
from mutants import mutated
from small import shake
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.models import rnn
from glassformer.models.rnn import Config

PAD = 3
ROWS = [[12, 7], [1, 2, 5, 0], [4]]


def make(module: Any = rnn, **choices: Any) -> Any:
    """A model in float64 whose every number is random."""
    sizes: dict[str, Any] = {"width": 6, "token_width": 5, "vocab": 13, "pad": PAD, "labels": ("a", "b", "c")}
    model = module.RNN(module.Config(**sizes | choices)).initialize(1)
    shake(model, 2)
    return model.double().eval()


def expected(model: Any, row: list[int]) -> Tensor:
    """The logits of one row, by torch's networks and the head's matrix."""
    config = model.config
    make_theirs = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell]
    theirs = make_theirs(
        config.token_width, config.width, config.layers, bidirectional=config.bidirectional, batch_first=True
    ).double()
    sides = [("forwards", ""), ("backwards", "_reverse")][: 1 + config.bidirectional]
    with torch.no_grad():
        for layer in range(config.layers):
            for side, suffix in sides:
                for part, name in (("input", "ih"), ("hidden", "hh")):
                    ours = model.get_submodule(f"encoder.{side}.{layer}.{part}")
                    getattr(theirs, f"weight_{name}_l{layer}{suffix}").copy_(ours.weight)
                    getattr(theirs, f"bias_{name}_l{layer}{suffix}").copy_(ours.bias)
        states = theirs(model.tokens.weight[row][None])[0][0]  # (T, D)
    if config.shape == "classify":  # forwards the state after the last token, backwards that after the first
        states = torch.cat([states[-1, : config.width], states[0, config.width :]])[None]
    return states @ model.head.weight.detach().T + model.head.bias.detach()


def error(model: Any) -> float:
    """The largest difference, over the rows of a padded batch."""
    longest = max(map(len, ROWS))
    with torch.no_grad():
        found = model(torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in ROWS]))
    wrong = 0.0
    for row, ids in enumerate(ROWS):
        right = expected(model, ids)
        wrong = max(wrong, (found[row, : len(right)] - right).abs().max().item())
    return wrong


@pytest.mark.parametrize("shape", ["classify", "tag"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_it_is_torchs_network(shape: str, cell: str, bidirectional: bool, layers: int) -> None:
    """In every variant, alone and in a padded batch."""
    model = make(shape=shape, cell=cell, bidirectional=bidirectional, layers=layers)
    assert error(model) < 1e-12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("last[-1][0][:, None]", "states[:, -1:]"),
        ("last[-1][0][:, None]", "last[0][0][:, None]"),
        ("ids != self.config.pad", "ids >= 0"),
    ],
)
def test_one_broken_line_is_noticed(old: str, new: str) -> None:
    """By a classifier of two layers."""
    file = "models/rnn.py"
    assert error(make(mutated(file, file, old=old, new=new), layers=2)) > 1e-3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shape": "paint"}, "shape 'paint' is none of classify, tag"),
        ({"cell": "rnn"}, "cell 'rnn' is none of gru, lstm"),
        ({"labels": ("a",)}, "at least two different ones, not a"),
        ({"labels": ("a", "a")}, "at least two different ones"),
        ({"pad": 4000}, "pad 4000 is not a token id"),
        ({"width": 0}, "width must be at least 1"),
        ({"token_width": -1}, "token_width must be at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    """By a sentence that names the field."""
    with pytest.raises(InputError, match=message):
        Config(**values)
