"""bf16 is used only where it is safe, and only where it was measured to be faster."""

import time

import pytest
import torch
from counting import SHAPE, Counting

from glassformer import machine
from glassformer.models.gpt import GPT
from glassformer.models.seq2seq import READS, SCORES, Config, Seq2Seq
from glassformer.nn.recurrent import CELLS
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.loop import Stepped, fit
from glassformer.training.objectives import next_token, target_token
from glassformer.training.precision import autocast, choose_precision

CPU = torch.device("cpu")


def worker(float32: float, bf16: float) -> object:
    """Work that takes this many seconds."""
    return lambda plan: time.sleep(bf16 if plan.precision == "bf16" else float32)


@pytest.mark.parametrize("wish", ["auto", "bf16"])
@pytest.mark.parametrize(
    ("verdict", "seconds", "chosen"),
    [("safe", (0.02, 0.01), "bf16"), ("safe", (0.01, 0.02), "float32"), ("safe", (0.0100, 0.0098), "float32"),
     ("safe without AMX", (0.02, 0.01), "bf16"), ("crashes", (0.02, 0.01), "float32")],
)  # fmt: skip
def test_bf16_must_be_safe_and_faster(
    wish: str, verdict: str, seconds: tuple[float, float], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requested or automatic, it is tried first, and the result is reported."""
    monkeypatch.setattr(machine, "bf16", lambda: verdict)
    plan, why = choose_precision(Hyperparameters(precision=wish), CPU, rehearse=worker(*seconds))  # type: ignore[arg-type]
    assert plan.precision == chosen
    assert why.startswith(chosen)


def test_nothing_is_tried_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 and float64 are used as named."""
    for precision in ("float32", "float64"):
        assert choose_precision(Hyperparameters(precision=precision), CPU, rehearse=lambda plan: 1 / 0) == (
            Hyperparameters(precision=precision),
            "",
        )


def test_bf16_products_in_a_float32_model() -> None:
    """Under bf16 the losses are near those of float32, and not the same; the weights stay float32."""
    found = {}
    for precision in ("float32", "bf16"):
        model = GPT(SHAPE).initialize(0)
        plan = Hyperparameters(steps=8, batch=4, precision=precision)
        found[precision] = [
            event.loss
            for event in fit(model, Counting(), objective=next_token, hyperparameters=plan)
            if isinstance(event, Stepped)
        ]
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert found["bf16"] == pytest.approx(found["float32"], abs=0.05)
    assert found["bf16"] != found["float32"]
    with autocast(Hyperparameters(), CPU):
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("score", SCORES)
def test_recurrent_networks_learn_in_bf16(cell: str, reads: str, score: str) -> None:
    """Every cell and every way to read a source: products are in bf16, states and gradients are not."""
    config = Config(cell=cell, reads=reads, score=score, width=8, decoder_width=8, vocab=11)
    found = {}
    for precision in ("float32", "bf16"):
        net = Seq2Seq(config).initialize(0)
        rows = torch.arange(2, 10).view(2, 4)
        batch = {"source": rows, "target": rows, "mask": torch.ones(2, 3, dtype=torch.bool)}
        with autocast(Hyperparameters(precision=precision), CPU):
            loss = target_token(net, batch)
        loss.backward()
        assert {one.grad.dtype for one in net.parameters() if one.grad is not None} == {torch.float32}
        found[precision] = loss.item()
    assert found["bf16"] == pytest.approx(found["float32"], rel=0.02)
    assert found["bf16"] != found["float32"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # inside torch
def test_a_compiled_model_trains_the_same() -> None:
    """torch.compile changes the speed, and the losses by rounding only."""
    losses = {}
    for compiled in (False, True):
        model = GPT(SHAPE).initialize(0)
        plan = Hyperparameters(steps=10, batch=4, lr=1e-2, warmup=2, compile=compiled)
        losses[compiled] = [
            event.loss
            for event in fit(model, Counting(), objective=next_token, hyperparameters=plan)
            if isinstance(event, Stepped)
        ]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
