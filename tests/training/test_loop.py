"""The loop learns, step by step and reproducibly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small import small_model

from glassformer.data.corpus import Windows
from glassformer.errors import InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.models.gpt import GPT, Config
from glassformer.training.loop import Schedule, fit
from glassformer.training.objectives import next_token
from glassformer.training.optim import adamw, warmup_cosine

TOKENS = np.tile(np.arange(13, dtype=np.uint16), 60)
SHAPE = Config(layers=1, heads=2, width=16, vocab=13, context=16)


def losses(model: GPT, steps: int = 60) -> list[float]:
    windows = Windows(TOKENS, context=16, batch=4, seed=3)
    return [at.loss for at in fit(model, windows, next_token, Schedule(steps=steps, lr=1e-2, warmup=5))]


def test_it_learns_what_can_be_learned() -> None:
    """A row that repeats is known by heart after sixty steps; it began at chance."""
    found = losses(GPT(SHAPE).initialise(0))
    assert found[0] == pytest.approx(np.log(13), abs=0.1)
    assert found[-1] < 0.5


def test_the_same_seed_gives_the_same_losses() -> None:
    """To the last bit; another seed of the model gives others."""
    first = losses(GPT(SHAPE).initialise(0), 8)
    assert first == losses(GPT(SHAPE).initialise(0), 8)
    assert first != losses(GPT(SHAPE).initialise(1), 8)


def test_the_loss_is_the_mean_cross_entropy() -> None:
    """Equal to the sum over positions, worked out by hand in float64."""
    model = small_model(1, torch.float64)
    batch = torch.randint(0, 97, (2, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logp = model(batch[:, :-1]).numpy()
    logp = logp - np.log(np.exp(logp).sum(-1, keepdims=True))
    right = -np.mean([logp[b, t, batch[b, t + 1]] for b in range(2) for t in range(6)])
    assert next_token(model, batch).item() == pytest.approx(right, rel=1e-12)


def test_a_loaded_model_trains_like_the_one_that_was_saved(tmp_path: Path) -> None:
    """How a matrix lies in memory changes nothing."""
    model = GPT(SHAPE).initialise(0)
    save_folder(tmp_path / "m", model, None)
    assert losses(load_folder(tmp_path / "m").model, 10) == pytest.approx(losses(model, 10), rel=1e-4)


def test_only_matrices_decay() -> None:
    """Biases and gains are left alone, and nothing is left out."""
    model = small_model()
    matrices, vectors = adamw(model, lr=1e-3).param_groups
    assert {p.dim() for p in matrices["params"]} == {2}
    assert {p.dim() for p in vectors["params"]} == {1}
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert sum(p.numel() for group in (matrices, vectors) for p in group["params"]) == model.config.parameters


def test_the_learning_rate_rises_and_falls() -> None:
    """In a line to the peak, along a cosine to the floor."""
    rates = [warmup_cosine(step, steps=100, warmup=10, peak=1.0, floor=0.1) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.55)
    assert rates[99] == pytest.approx(0.1, abs=1e-3)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_training_leaves_the_model_ready_to_be_used() -> None:
    """Also when the caller stops early."""
    model = GPT(SHAPE).initialise(0)
    for at in fit(model, Windows(TOKENS, context=16, batch=2, seed=0), next_token, Schedule(steps=50)):
        assert model.training
        if at.step == 2:
            break
    del at
    assert not model.training


def test_windows_depend_on_seed_and_step_alone() -> None:
    """Any step can be asked for, in any order; inputs and targets are one row."""
    windows = Windows(TOKENS, context=16, batch=4, seed=3)
    fifth = windows[5]
    assert fifth.shape == (4, 17)
    assert (np.diff(fifth.astype(int)) % 13 == 1).all()
    assert (windows[5] == fifth).all()
    assert (windows[6] != fifth).any()
    assert (Windows(TOKENS, context=16, batch=4, seed=4)[5] != fifth).any()
    with pytest.raises(InputError, match="too few"):
        Windows(TOKENS[:16], context=16, batch=1, seed=0)
