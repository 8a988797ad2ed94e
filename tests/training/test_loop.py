"""The loop learns, step by step and reproducibly, and its numbers are right."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from counting import SHAPE, Counting
from small import small_model

from glassformer.data.batches import Batch
from glassformer.errors import InputError
from glassformer.models.gpt import GPT, Config
from glassformer.training.distributed import World
from glassformer.training.hyperparameters import EvalSchedule, Hyperparameters
from glassformer.training.loop import (
    Begun,
    Evaluated,
    Finished,
    Setup,
    Stepped,
    TrainingFailed,
    evaluate,
    fit,
    run,
)
from glassformer.training.objectives import next_token
from glassformer.training.optim import freeze, optimizer_of

PLAN = Hyperparameters(steps=60, batch=4, lr=1e-2, lr_end=1e-3, warmup=5)


def losses(model: torch.nn.Module, plan: Hyperparameters = PLAN, **how: Any) -> list[float]:
    return [
        event.loss
        for event in fit(model, Counting(), objective=next_token, hyperparameters=plan, **how)
        if isinstance(event, Stepped)
    ]


def test_it_learns_what_can_be_learned() -> None:
    """A row that repeats is known by heart after sixty steps; it began at chance."""
    found = losses(GPT(SHAPE).initialize(0))
    assert found[0] == pytest.approx(np.log(13), abs=0.1)
    assert found[-1] < 0.5


def test_the_same_seed_gives_the_same_losses() -> None:
    """To the last bit; another seed of the model gives others, and so does another seed of dropout."""
    plan = Hyperparameters(steps=8, batch=4)
    assert losses(GPT(SHAPE).initialize(0), plan) == losses(GPT(SHAPE).initialize(0), plan)
    assert losses(GPT(SHAPE).initialize(0), plan) != losses(GPT(SHAPE).initialize(1), plan)
    forgetful = Config(layers=1, heads=2, width=16, vocab=13, context=16, dropout=0.2)
    first = losses(GPT(forgetful).initialize(0), plan)
    assert first == losses(GPT(forgetful).initialize(0), plan)
    assert first != losses(GPT(forgetful).initialize(0), Hyperparameters(steps=8, batch=4, seed=1))


@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_the_cross_entropy(masked: bool) -> None:
    """Equal to the sum over the targets that count, worked out by hand in float64."""
    model = small_model(1, torch.float64)
    batch = Counting(masked=masked).read([0, 1])
    ids = batch.arrays["ids"]
    mask = batch.arrays.get("mask", np.ones((2, 16), bool))
    with torch.no_grad():
        logp = model(torch.tensor(ids[:, :-1])).numpy()
    logp = logp - np.log(np.exp(logp).sum(-1, keepdims=True))
    right = -sum(logp[b, t, ids[b, t + 1]] for b in range(2) for t in range(16) if mask[b, t])
    given = {name: torch.as_tensor(array) for name, array in batch.arrays.items()}
    assert next_token(model, given).item() == pytest.approx(right, rel=1e-12)
    assert batch.count == mask.sum()


def test_gradients_are_those_of_the_loss() -> None:
    """Autograd against finite differences, in float64."""
    model = small_model(2, torch.float64, layers=1, heads=1, width=4, vocab=7, context=5)
    ids = torch.tensor([[1, 5, 2, 6, 0, 3]])
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    names = [name for name, _ in model.named_parameters()]

    def loss(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, values, strict=True))
        call = lambda ids: torch.func.functional_call(model, given, (ids,))  # noqa: E731
        return next_token(call, {"ids": ids})  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(loss, weights, eps=1e-6, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_parts_of_a_batch_add_up(masked: bool) -> None:
    """Taken in parts of 1, 3 or all rows, a batch has the same loss and leads to the same weights: float64,
    1e-9.
    """
    ends = {}
    for size in (0, 1, 3):
        model = GPT(SHAPE).initialize(0).double()
        plan = Hyperparameters(steps=10, batch=8, micro_batch=size, lr=1e-2, warmup=2)
        found = [
            e.loss
            for e in fit(model, Counting(masked=masked), objective=next_token, hyperparameters=plan)
            if isinstance(e, Stepped)
        ]
        ends[size] = np.array(found), torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    for size in (1, 3):
        np.testing.assert_allclose(ends[size][0], ends[0][0], rtol=1e-9)
        np.testing.assert_allclose(ends[size][1], ends[0][1], rtol=0, atol=1e-9)


def test_a_step_is_adamw_with_the_clipped_gradient() -> None:
    """One step equals torch's own optimizer on the mean loss, gradient clipped by torch's own function."""
    ours, theirs = GPT(SHAPE).initialize(3).double(), GPT(SHAPE).initialize(3).double()
    plan = Hyperparameters(steps=1, batch=4, lr=1e-2, warmup=0, clip=0.1, weight_decay=0.3)
    (event,) = [
        e for e in fit(ours, Counting(), objective=next_token, hyperparameters=plan) if isinstance(e, Stepped)
    ]
    optimizer = optimizer_of(theirs, plan)
    ids = torch.as_tensor(Counting().read([0, 1, 2, 3]).arrays["ids"])
    loss = torch.nn.functional.cross_entropy(theirs(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
    assert norm > 0.2  # so that clipping does something
    optimizer.step()
    assert (event.loss, event.norm) == pytest.approx((loss.item(), norm.item()), rel=1e-12)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_only_matrices_decay() -> None:
    """Biases and gains are left alone, and nothing is left out."""
    model = small_model()
    matrices, vectors = optimizer_of(model, Hyperparameters()).param_groups
    assert {p.dim() for p in matrices["params"]} == {2}
    assert {p.dim() for p in vectors["params"]} == {1}
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert sum(p.numel() for group in (matrices, vectors) for p in group["params"]) == model.config.parameters


def test_frozen_parts_stay() -> None:
    """By the name of a module, of a parameter, or a glob; the rest moves; a name that fits nothing is an
    error.
    """
    model = GPT(Config(layers=2, heads=2, width=16, vocab=13, context=16)).initialize(0)
    names = freeze(model, ["tokens", "blocks.0.*", "norm.bias"])
    assert set(names) == {
        n for n, _ in model.named_parameters() if n.startswith(("tokens", "blocks.0.")) or n == "norm.bias"
    }
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    losses(model, Hyperparameters(steps=3, batch=4))
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == set(before) - set(names)
    with pytest.raises(InputError, match=r"'blocks\.9' fits no parameter"):
        freeze(model, ["blocks.9"])
    freeze(model, ["*"])
    with pytest.raises(InputError, match="no parameter to train"):
        losses(model, Hyperparameters(steps=1))


@pytest.mark.parametrize(
    ("schedule", "at"),
    [
        (
            "cosine",
            {0: 0.1, 9: 1.0, 10: 1.0, 55: 0.55, 99: 0.1 + 0.9 * (1 + math.cos(math.pi * 89 / 90)) / 2},
        ),
        ("linear", {0: 0.1, 9: 1.0, 10: 1.0, 55: 0.55, 99: 0.11}),
        ("constant", {0: 0.1, 9: 1.0, 10: 1.0, 99: 1.0}),
        ("slanted-triangle", {0: 0.1, 5: 0.55, 10: 1.0, 55: 0.55, 99: 0.11}),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: str, at: dict[int, float]) -> None:
    """Linear up to the peak, then the schedule of its name."""
    plan = Hyperparameters(steps=100, warmup=10, lr=1.0, lr_end=0.1, schedule=schedule)
    for step, rate in at.items():
        assert plan.rate(step) == pytest.approx(rate), step


def test_slanted_triangle_is_the_papers() -> None:
    """ULMFiT's formula, with its cut of 0.1 and its ratio of 32."""
    plan = Hyperparameters(steps=1000, warmup=100, lr=0.01, lr_end=0.01 / 32, schedule="slanted-triangle")
    for t in range(0, 1000, 37):
        cut = 100
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert plan.rate(t) == pytest.approx(0.01 * (1 + p * 31) / 32)


@pytest.mark.parametrize(("width", "warmup"), [(512, 4000), (64, 7), (8, 1)])
def test_inverse_sqrt_is_the_papers(width: int, warmup: int) -> None:
    """Attention Is All You Need: width^-0.5 × min(n^-0.5, n × warmup^-1.5), for step n counted from 1."""
    peak = (width * warmup) ** -0.5
    plan = Hyperparameters(steps=100_000, warmup=warmup, lr=peak, lr_end=0.0, schedule="inverse-sqrt")
    for n in (1, 2, warmup - 1, warmup, warmup + 1, 3 * warmup, 90_000):
        if n:
            assert plan.rate(n - 1) == pytest.approx(width**-0.5 * min(n**-0.5, n * warmup**-1.5)), n


def test_the_rate_of_the_plan_is_the_rate_of_the_step() -> None:
    """What is reported is what the optimizer used."""
    plan = Hyperparameters(steps=6, batch=2, lr=1e-2, warmup=3)
    events = [
        event
        for event in fit(GPT(SHAPE).initialize(0), Counting(), objective=next_token, hyperparameters=plan)
        if isinstance(event, Stepped)
    ]
    assert [event.lr for event in events] == [plan.rate(step) for step in range(6)]
    assert [event.tokens for event in events] == [32 * (step + 1) for step in range(6)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_looking_changes_nothing(dropout: float) -> None:
    """Evaluated or not, and whatever the caller does with random numbers in between: the same losses, bit by
    bit.
    """
    shape = Config(layers=1, heads=2, width=16, vocab=13, context=16, dropout=dropout)
    plan = Hyperparameters(steps=12, batch=4)
    plain = losses(GPT(shape).initialize(0), plan)
    held_out = lambda: [Counting().read([50, 51]), Counting().read([52])]  # noqa: E731
    watched = []
    model = GPT(shape).initialize(0)
    for event in fit(
        model,
        Counting(),
        objective=next_token,
        hyperparameters=plan,
        schedule=EvalSchedule(eval_every=3),
        held_out=held_out,
    ):
        torch.rand(7), np.random.rand()
        model(torch.zeros(1, 3, dtype=torch.long))
        if isinstance(event, Stepped):
            watched.append(event.loss)
    assert watched == plain


def test_a_measurement_is_the_mean_over_all_targets() -> None:
    """Batches of different sizes weigh by their targets; dropout is off."""
    shape = Config(layers=1, heads=2, width=16, vocab=13, context=16, dropout=0.5)
    model = GPT(shape).initialize(0).double()
    parts = [Counting(masked=True).read([1, 2, 3]), Counting(length=5).read([7])]
    found = evaluate(model, parts, objective=next_token, hyperparameters=Hyperparameters())
    with torch.no_grad():
        sums = [
            next_token(model, {n: torch.as_tensor(a) for n, a in part.arrays.items()}).item()
            for part in parts
        ]
    assert found == pytest.approx(sum(sums) / sum(part.count for part in parts), rel=1e-12)
    assert not model.training


def test_it_stops_when_nothing_gets_better() -> None:
    """After `patience` measurements without a better one, and that is reported."""
    truth = iter([1.5, 3.0, 2.0, 2.5, 2.0, 2.1])  # the first is before training

    def score(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (
            next_token(model, batch)
            if model.training
            else torch.tensor(next(truth)) * batch["ids"][:, 1:].numel()
        )

    events = list(
        fit(
            GPT(SHAPE).initialize(0),
            Counting(),
            objective=score,
            hyperparameters=Hyperparameters(steps=50, batch=2),
            schedule=EvalSchedule(eval_every=2, patience=3),
            held_out=lambda: [Counting().read([1])],
        )
    )
    assert [event.best for event in events if isinstance(event, Evaluated)] == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert events[-1] == Finished(step=10, tokens=320, start=1.5, best=2.0, best_step=4, early=True)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_wrong_numbers_stop_it_before_the_update(what: str) -> None:
    """NaN in the loss or in the gradient: an error that names the step, and weights as they were."""
    model = GPT(SHAPE).initialize(0)
    calls = 0

    def broken(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        loss = next_token(model, batch)
        if calls < 3:
            return loss
        if what == "loss":
            return loss * math.nan
        return loss + (loss - loss.detach()).sqrt()  # the loss itself stays finite: its slope is infinite

    kept = {}
    with pytest.raises(TrainingFailed, match=f"step 3: the {what} is"):  # noqa: PT012
        for _ in fit(model, Counting(), objective=broken, hyperparameters=Hyperparameters(steps=9, batch=2)):
            kept = {name: value.clone() for name, value in model.state_dict().items()}
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_the_model_trains_while_it_trains_and_rests_after() -> None:
    """Training mode at every step, evaluation mode at a measurement and when the caller leaves."""
    model = GPT(SHAPE).initialize(0)
    events = fit(
        model,
        Counting(),
        objective=next_token,
        hyperparameters=PLAN,
        schedule=EvalSchedule(eval_every=2),
        held_out=lambda: [Counting().read([1])],
    )
    for event in events:
        assert model.training == isinstance(event, Begun | Stepped)
        if event.step == 4 and isinstance(event, Evaluated):
            break
    events.close()  # type: ignore[attr-defined]
    assert not model.training


def test_all_masked() -> None:
    """A batch in which nothing is to be learned is an error, not a division by zero."""

    class Silent(Counting):
        def read(self, rows: Sequence[int]) -> Batch:
            batch = super().read(rows)
            return Batch(batch.arrays | {"mask": np.zeros_like(batch.arrays["ids"][:, 1:], dtype=bool)}, 0)

    with pytest.raises(TrainingFailed, match="no token of the batch is to be learned"):
        list(fit(GPT(SHAPE).initialize(0), Silent(), objective=next_token, hyperparameters=PLAN))


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": math.nan}, {"lr": 1e-5}, {"clip": -1.0}, {"warmup": -1}, {"beta2": 1.0},
     {"schedule": "cosin"}, {"precision": "fp8"}, {"parallel": "pipeline"}, {"seed": -1}],
)  # fmt: skip
def test_a_plan_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    """Is refused, and the field is named."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        Hyperparameters(**wrong)


class Wrapped(World):
    """A world that puts something around the model, as DDP does."""

    def wrap(self, model: torch.nn.Module, parallel: str) -> torch.nn.Module:
        return torch.nn.Sequential(model)


def test_after_an_evaluation_the_model_is_trained_on_as_before() -> None:
    """Also by what is around it: an objective asks whether it is in training."""
    asked: list[bool] = []

    def objective(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        asked.append(model.training)
        return next_token(model, batch)

    held = Counting().read([0, 1])
    plan = Hyperparameters(steps=4, batch=4)
    setup = Setup(
        model=GPT(SHAPE).initialize(0),
        batches=Counting(),
        objective=objective,
        hyperparameters=plan,
        schedule=EvalSchedule(eval_every=2),
        held_out=lambda: [held],
        world=Wrapped(),
    )
    list(run(setup))
    assert asked == [False, True, True, False, True, True, False]
