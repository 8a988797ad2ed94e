"""The losses, beside torch's own and beside the formula of the paper."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small import small_model
from torch import Tensor, nn

from glassformer.trace import trace
from glassformer.training.objectives import learned_token, next_token, target_token


class Scores(nn.Module):
    """A model whose logits are given, and which notes what it read."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        self.read = source, target
        return self.logits


def draw(smoothing: float = 0.0) -> tuple[Scores, dict[str, Tensor], Any]:
    """Three pairs of different lengths, in float64, and their loss."""
    generator = torch.Generator().manual_seed(0)
    model = Scores(torch.randn(3, 4, 7, dtype=torch.float64, generator=generator))
    target = torch.tensor([[1, 3, 4, 2, 0], [1, 5, 2, 0, 0], [1, 6, 6, 6, 2]])
    source = torch.tensor([[3, 2], [4, 2], [5, 2]])
    batch = {"source": source, "target": target, "mask": target[:, 1:] != 0}
    return model, batch, target_token(model, batch, smoothing=smoothing)


def test_targets_are_read_behind_the_start() -> None:
    """The model reads all tokens but the last, and is to predict all but the first; padding is no target."""
    model, batch, loss = draw()
    assert torch.equal(model.read[0], batch["source"])
    assert torch.equal(model.read[1], batch["target"][:, :-1])
    logp = model.logits.log_softmax(-1)
    right = 0.0
    for row, targets in enumerate(([3, 4, 2], [5, 2], [6, 6, 6, 2])):
        right -= sum(logp[row, place, token].item() for place, token in enumerate(targets))
    assert loss.item() == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_label_smoothing_is_the_papers(smoothing: float) -> None:
    """Every one-hot target gives a share to all tokens alike: its cross-entropy, and torch's own."""
    model, batch, loss = draw(smoothing)
    targets = batch["target"][:, 1:]
    spread = (1 - smoothing) * F.one_hot(targets, 7).double() + smoothing / 7  # (3, 4, 7)
    each = -(spread * model.logits.log_softmax(-1)).sum(-1)
    assert loss.item() == pytest.approx(each[batch["mask"]].sum().item(), rel=1e-12)
    kept = model.logits[batch["mask"]]
    theirs = nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="sum")(kept, targets[batch["mask"]])
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-12)
    assert loss.item() != pytest.approx(draw()[2].item(), rel=1e-3)


def test_an_evaluation_is_not_smoothed() -> None:
    """Its loss is comparable, whatever the training does."""
    model, batch, plain = draw()
    model.eval()
    assert target_token(model, batch, smoothing=0.3).item() == plain.item()
    model.train()
    assert target_token(model, batch, smoothing=0.3).item() != plain.item()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_logits_where_they_are_learned_alone(smoothing: float) -> None:
    """The same loss and the same gradients as with all logits; and no other logits are computed."""
    net = small_model(2, torch.float64)
    ids = torch.randint(0, 97, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.rand(3, 11, generator=torch.Generator().manual_seed(1)) < 0.4
    found = []
    for objective in (next_token, learned_token):
        net.zero_grad()
        with trace(net.train(), "logits") as seen:
            loss = objective(net, {"ids": ids, "mask": mask}, smoothing=smoothing)
        loss.backward()
        gradients = torch.cat([one.grad.flatten() for one in net.parameters() if one.grad is not None])
        found.append((loss.detach(), gradients, seen["logits"].shape))
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=1e-11, atol=1e-12)
    assert found[0][2] == (3, 11, 97)
    assert found[1][2] == (int(mask.sum()), 97)
