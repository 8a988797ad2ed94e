"""Every model keeps the same promises. A new model joins by a line in MODELS."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from small import small_model

from glassformer.models.gpt import GPT
from glassformer.trace import trace

MODELS: dict[str, Callable[[int], GPT]] = {"gpt2": small_model}
EVERY_MODEL_HAS = {
    "embed",
    "final",
    "logits",
    "blocks.0.in",
    "blocks.0.out",
    "blocks.0.attn.pattern",
    "blocks.0.mlp.neurons",
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> GPT:
    return MODELS[request.param](7)


@pytest.fixture
def ids(model: GPT) -> torch.Tensor:
    return torch.randint(0, model.vocab, (3, 12), generator=torch.Generator().manual_seed(0))


def test_sites_have_the_common_names(model: GPT, ids: torch.Tensor) -> None:
    """The same value has the same name in every model."""
    with trace(model) as seen:
        model(ids)
    assert set(seen) >= EVERY_MODEL_HAS


def test_reading_changes_no_bit(model: GPT, ids: torch.Tensor) -> None:
    """Watched or not, the output is the same."""
    with trace(model):
        watched = model(ids)
    assert torch.equal(model(ids), watched)


def test_the_residual_stream_adds_up(model: GPT, ids: torch.Tensor) -> None:
    """What the parts write is what the stream holds at the end."""
    model = model.double()
    with trace(model) as seen:
        model(ids)
    parts = [seen["embed"]] + [
        value for site, value in seen.items() if site.endswith(("attn.out", "mlp.out"))
    ]
    last = [
        site for site in seen if site.startswith("blocks.") and site.count(".") == 2 and site.endswith(".out")
    ][-1]
    assert torch.allclose(
        torch.stack(parts).sum(0), seen[last], rtol=0, atol=1e-9 * seen[last].abs().max().item()
    )


def test_the_future_cannot_be_seen(model: GPT, ids: torch.Tensor) -> None:
    """Changing a token changes nothing before it, and something at it."""
    other = ids.clone()
    other[:, 7] = (other[:, 7] + 1) % model.vocab
    before, after = model(ids), model(other)
    assert torch.allclose(before[:, :7], after[:, :7], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, 7], after[:, 7])


def test_step_is_the_last_row_of_forward(model: GPT, ids: torch.Tensor) -> None:
    """What generation sees is what the model says: float32 NumPy, one row per sequence."""
    logits = model.step(ids.numpy(), model.new_cache(3, 12))
    assert isinstance(logits, np.ndarray)
    assert logits.dtype == np.float32
    assert logits.shape == (3, model.vocab)
    np.testing.assert_allclose(logits, model(ids)[:, -1].detach().numpy(), rtol=1e-4, atol=1e-4)


def test_rows_of_a_batch_do_not_mix(model: GPT, ids: torch.Tensor) -> None:
    """A row alone and in company says the same."""
    together = model(ids)
    for row in range(3):
        assert torch.allclose(model(ids[row : row + 1]), together[row : row + 1], rtol=1e-4, atol=1e-4)


def test_nothing_of_the_trace_is_stored(model: GPT) -> None:
    """The state is weights and nothing else."""
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters(remove_duplicate=False)}
