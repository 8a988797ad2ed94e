"""ULM-FiT: blocks that learn at rates of their own, and that begin to learn one after the other."""

from typing import Any

import pytest
import torch
from small import small_model, small_net

from glassformer.data.pairs import PairStream
from glassformer.data.transformations import Examples
from glassformer.errors import InputError
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.loop import Stepped, fit
from glassformer.training.objectives import answers
from glassformer.training.optim import depth_of, optimizer_of

EXAMPLES = Examples.of([[[n, 90 - n, 3]] for n in range(8)], [n % 2 for n in range(8)], pad=0)


def depths(model: Any) -> dict[str, int]:
    found = depth_of(model)
    return {name: found[parameter] for name, parameter in model.named_parameters()}


def test_depth_is_counted_from_the_output() -> None:
    """The head and the final norm, then the blocks from the last to the first, and the embeddings."""
    found = depths(small_net("gpt2-classifier", layers=3))
    assert found["head.weight"] == found["norm.weight"] == 0
    assert {found[f"blocks.{n}.mlp.up.weight"] for n in (2, 1, 0)} == {1, 2, 3}
    assert found["blocks.2.norm1.bias"] == 1
    assert found["tokens.weight"] == found["positions.weight"] == 4
    assert depths(small_model(layers=3))["tokens.weight"] == 4  # tied to the output: still an embedding


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_block_learns_slower_than_the_one_above(optimizer: str) -> None:
    """2.6 times; without it there are as many groups as ever."""
    net = small_net("gpt2-classifier", layers=3)
    plan = Hyperparameters(layer_decay=2.6, optimizer=optimizer)
    names = {parameter: name for name, parameter in net.named_parameters()}
    groups = optimizer_of(net, plan).param_groups
    slower = {names[one]: group["slower"] for group in groups for one in group["params"]}
    assert slower == pytest.approx({name: 2.6**depth for name, depth in depths(net).items()})
    assert len(optimizer_of(net, Hyperparameters()).param_groups) == 2


def test_a_step_is_as_long_as_its_depth_allows() -> None:
    """AdamW's first step is the learning rate, wherever there is a gradient: in the loop, by depth."""
    net = small_net("gpt2-classifier", layers=2)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    plan = Hyperparameters(
        steps=1, batch=8, lr=1e-3, lr_end=1e-3, warmup=0, weight_decay=0.0, clip=0.0, layer_decay=2.6
    )
    list(fit(net, PairStream(EXAMPLES, batch=8, seed=0), objective=answers, hyperparameters=plan))
    for name, depth in depths(net).items():
        moved = (dict(net.named_parameters())[name] - before[name]).abs().max().item()
        assert moved == pytest.approx(1e-3 / 2.6**depth, rel=0.05), name


def test_one_more_block_learns_every_epoch() -> None:
    """From the top: first the head alone, at last the embeddings; what waits keeps every bit."""
    net = small_net("gpt2-classifier", layers=2)
    plan = Hyperparameters(steps=8, batch=4, lr=1e-3, warmup=0, unfreeze=1.0)
    moving: list[set[int]] = []
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for event in fit(net, PairStream(EXAMPLES, batch=4, seed=0), objective=answers, hyperparameters=plan):
        if isinstance(event, Stepped):
            now = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
            changed = [name for name in now if not torch.equal(now[name], before[name])]
            moving.append({depths(net)[name] for name in changed})
            before = now
    assert moving == [{0}, {0}, {0, 1}, {0, 1}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}]


def test_bad_numbers_are_one_sentence() -> None:
    """And epochs need something that has them."""
    with pytest.raises(InputError, match=r"layer_decay must be at least 1, not 0.5"):
        Hyperparameters(layer_decay=0.5)
    with pytest.raises(InputError, match="unfreeze must be at least 0, not -1"):
        Hyperparameters(unfreeze=-1)

    class Plain:
        cursor = ()

    plan = Hyperparameters(unfreeze=1.0)
    with pytest.raises(InputError, match="unfreeze counts epochs, which a plain text has not"):
        list(fit(small_model(), Plain(), objective=answers, hyperparameters=plan))  # type: ignore[arg-type]
