"""Muon: what it does to a matrix, beside torch's own, and that the rest is AdamW."""

from pathlib import Path

import crash
import pytest
import torch
from torch import nn

from glassformer.models.gpt import GPT, Config
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.optim import Muon, optimizer_of, orthogonal

SHAPE = Config(layers=2, heads=2, width=16, vocab=13, context=16)
PLAN = Hyperparameters(optimizer="muon", lr=3e-3, weight_decay=0.3)


def with_gradients(seed: int) -> GPT:
    """A model that has just gone backwards."""
    model = GPT(SHAPE).initialize(0)
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw)
    return model


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16), (1, 5), (48, 47)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    """The singular vectors stay and the singular values come near 1, whatever they were."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    matrix = u @ torch.diag(torch.logspace(0, -1.5, len(values), dtype=torch.float64)) @ v
    found = u.T @ orthogonal(1e-3 * matrix) @ v.T
    torch.testing.assert_close(found, torch.diag(found.diagonal()), rtol=0, atol=1e-9)
    assert 0.6 < found.diagonal().min() <= found.diagonal().max() < 1.3


def test_a_gradient_of_zero() -> None:
    """Zero stays zero."""
    assert orthogonal(torch.zeros(3, 4)).eq(0).all()


def test_every_parameter_is_moved_by_one_of_the_two() -> None:
    """Matrices of the blocks are turned, q, k and v each by itself; embeddings, biases and gains are AdamW's."""
    model = with_gradients(0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = optimizer_of(model, PLAN).param_groups
    found = {names[p]: (group["parts"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert found.keys() == set(names.values())
    for name, how in found.items():
        vector = name.endswith("bias") or "norm" in name
        turned = name.startswith("blocks") and not vector
        assert how == ((3 if ".qkv." in name else 1) if turned else 0, 0.0 if vector else 0.3), name


def test_as_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps equal torch.optim.Muon, once it does not round to bf16, q, k and v as three; for the rest
    they equal AdamW.
    """
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    ours, theirs = GPT(SHAPE).initialize(0), GPT(SHAPE).initialize(0)
    muon = optimizer_of(ours, PLAN)
    assert isinstance(muon, Muon)
    single: dict[nn.Parameter, nn.Parameter] = {}  # each matrix in torch's form -> its origin
    rest = []
    for name, parameter in theirs.named_parameters():
        if not name.startswith("blocks") or parameter.dim() < 2:
            rest.append(parameter)
        else:
            single |= {
                nn.Parameter(part.clone()): parameter
                for part in parameter.data.chunk(3 if ".qkv." in name else 1)
            }
    adamw = torch.optim.AdamW(
        [{"params": [p for p in rest if p.dim() == d], "weight_decay": 0.3 * (d - 1)} for d in (1, 2)],
        lr=3e-3,
        betas=(0.9, 0.95),
    )
    peer = torch.optim.Muon(single, lr=3e-3, weight_decay=0.3, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for seed in range(3):
        for mine, its, other in zip(
            ours.parameters(), theirs.parameters(), with_gradients(seed).parameters(), strict=True
        ):
            mine.grad = its.grad = other.grad
        gradients = {
            p: list(p.grad.chunk(sum(of is p for of in single.values())))
            for p in single.values()
            if p.grad is not None
        }
        for part, of in single.items():
            part.grad = gradients[of].pop(0)
        for optimizer in (muon, adamw, peer):
            optimizer.step()
    start = GPT(SHAPE).initialize(0)
    for (name, mine), its, first in zip(
        ours.named_parameters(), theirs.parameters(), start.parameters(), strict=True
    ):
        parts = [part for part, of in single.items() if of is its]
        if parts:
            moved, right = mine - first, torch.cat(parts) - first
            assert (moved - right).norm() < 1e-5 * right.norm(), name
        else:
            torch.testing.assert_close(mine, its, rtol=0, atol=1e-7)
        assert not torch.equal(mine, first), name


def test_killed_and_resumed(tmp_path: Path, text: str) -> None:
    """With Muon too, every loss after a kill has the bits it would have had."""
    how = {"optimizer": "muon", "steps": 8, "data": [text]}
    assert crash.run(tmp_path / "whole", **how) == 0
    assert crash.run(tmp_path / "run", crash="saved:2", **how) != 0
    assert crash.run(tmp_path / "run", **how) == 0
    assert crash.results(tmp_path / "run") == crash.results(tmp_path / "whole")
    lines, _ = crash.results(tmp_path / "whole")
    losses = [line["loss"] for line in lines if "loss" in line]
    assert min(losses) < losses[0] - 0.2
