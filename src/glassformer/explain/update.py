"""One training step: predict, compare with the token that came, change the weights, predict again."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.reading import Array, Reading, module_of, numbers


@dataclass(frozen=True)
class Update:
    """The numbers of one step of gradient descent: the last token is the label of those before it."""

    label: int
    learning_rate: float
    before: Array  # (V,) logits of the label's place
    after: Array  # (V,) with the changed weights
    loss: float  # cross-entropy in nats: −log of the label's probability
    loss_after: float
    gradient_norm: float  # of all weights together
    step_norm: float  # how far the weights moved: learning rate × gradient norm


def update(reading: Reading, *, lr: float = 0.001) -> Update:
    """One step of plain gradient descent toward the last token of a text, on a copy of the model."""
    if len(reading.ids) < 2:
        raise InputError(
            "an update needs a text of at least two tokens: some to read, and the label after them"
        )
    if not lr > 0:
        raise InputError(f"lr must be above 0, not {lr!r}")
    reading.check_ids()

    # The copy is what is trained: a model that other threads read keeps its weights, to the last bit.
    with reading.lock:
        given = replace(reading, net=copy.deepcopy(reading.net), ids=reading.ids[:-1])
    net = module_of(given.net)
    net.eval()  # without dropout the same text gives the same update
    label = torch.tensor([reading.ids[-1]], device=given.net.device)

    with torch.enable_grad():
        net.requires_grad_(True)
        before = _logits(given)  # (1, V)
        loss = nn.functional.cross_entropy(before, label)
        weights = list(net.parameters())
        gradients = torch.autograd.grad(loss, weights, materialize_grads=True)

    norm = torch.linalg.vector_norm(torch.stack([gradient.float().norm() for gradient in gradients]))
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(lr * gradient)
        after = _logits(given)
        loss_after = nn.functional.cross_entropy(after, label)

    return Update(
        label=reading.ids[-1],
        learning_rate=lr,
        before=numbers(before[0]),
        after=numbers(after[0]),
        loss=float(loss.detach()),
        loss_after=float(loss_after),
        gradient_norm=float(norm),
        step_norm=lr * float(norm),
    )


def _logits(given: Reading) -> Tensor:
    """(1, V) after the last token."""
    return given.logits()[:, -1].float()
