"""The loss of a head, and of the language model beside it, once more in NumPy, row by row."""

from typing import Any

import numpy as np
import pytest
import torch
from small import small_net

from glassformer.data.transformations import Examples
from glassformer.training.objectives import answers, read_out

ROWS = [[[1, 2, 3, 4], [5, 6]], [[7, 8, 9]], [[10, 11], [12, 13, 14], [15, 16]]]
VOCAB = 97


def softmax_log(row: Any) -> Any:
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def one_by_one(net: Any, rows: list[list[int]]) -> tuple[list[Any], list[float]]:
    """What the head says at the end of each row, and the mean loss of its tokens; every row alone."""
    said, losses = [], []
    for row in rows:
        with torch.no_grad():
            scores, written = net(torch.tensor([row]), write=True)
        said.append(scores[0, -1].double().numpy())
        logits = written[0].double().numpy()
        losses.append(-np.mean([softmax_log(logits[at])[token] for at, token in enumerate(row[1:])]))
    return said, losses


def batch_of(targets: list[Any]) -> dict[str, Any]:
    batch = Examples.of(ROWS, targets, pad=0).batch([0, 1, 2])
    return {name: torch.as_tensor(array) for name, array in batch.arrays.items()}


@pytest.mark.parametrize("task", ["classify", "similar", "choose"])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss_is_the_papers(task: str, weight: float) -> None:
    """The task, plus a weight times what a token costs on average: of a row's tokens, of an example's rows."""
    labels = ("a", "b", "c") if task == "classify" else ()
    net: Any = small_net("gpt2-classifier", 3, task=task, labels=labels).double().train()
    targets: list[Any] = {"classify": [2, 0, 1], "similar": [1.5, 0.0, 4.0], "choose": [1, 0, 2]}[task]
    right = 0.0
    for rows, target in zip(ROWS, targets, strict=True):
        said, losses = one_by_one(net, rows)
        if task == "classify":
            right -= softmax_log(sum(said))[target]
        elif task == "similar":
            right += (sum(said)[0] - target) ** 2
        else:
            right -= softmax_log(np.array([one[0] for one in said]))[target]
        right += weight * float(np.mean(losses))
    found = answers(net, batch_of(targets), choose=task == "choose", lm_weight=weight)
    assert found.item() == pytest.approx(right, rel=1e-6)


def test_an_evaluation_is_of_the_task_alone() -> None:
    """What is held out decides which model is the best: at its task."""
    net: Any = small_net("gpt2-classifier", 3, labels=("a", "b", "c")).eval()
    batch = batch_of([2, 0, 1])
    assert torch.equal(answers(net, batch, lm_weight=5.0), answers(net, batch))
    net.train()
    assert answers(net, batch, lm_weight=5.0) > answers(net, batch) + 1


def test_an_answer_that_is_not_there_has_no_probability() -> None:
    """Examples of one, two and three answers in one batch."""
    scores = torch.arange(12.0).view(6, 2, 1)
    rows = torch.tensor([[0, 1, -1], [2, -1, -1], [3, 4, 5]])
    at = torch.tensor([1, 0, 0, 1, 1, 0])
    said = read_out(scores, {"rows": rows, "at": at}, choose=True)
    assert said.tolist() == [[1.0, 2.0, -np.inf], [4.0, -np.inf, -np.inf], [7.0, 9.0, 10.0]]
    added = read_out(scores, {"rows": rows, "at": at}, choose=False)
    assert added.tolist() == [[3.0], [4.0], [26.0]]
