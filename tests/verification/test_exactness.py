"""Each check of the model: it holds, its mutant is caught, and a real defect makes it fail."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.engine.native import KVCache as NativeCache
from glassformer.nn import attention
from glassformer.nn.cache import KVCache
from glassformer.tasks.backends import Backend, TorchBackend
from glassformer.tasks.complete import LanguageModel
from glassformer.verification.exactness import batch, cache, distance, engines, farthest, nudged, parity

IDS = [(7 * place + 3) % 300 for place in range(24)]


def backend(lm: LanguageModel, kind: str) -> tuple[Backend, float]:
    """A backend, and the limit that it must keep."""
    if kind == "torch":
        return TorchBackend(lm.net, "torch float32"), 1e-5
    assert lm.engine is not None
    return lm.engine, 0


@pytest.mark.parametrize("kind", ["gpt2", "gpt1", "gpt3"])
def test_parity(folders: dict[str, Path], kind: str) -> None:
    """In every model of the family, logits and sites agree, and both mutants are far off."""
    logits, inside = parity(folders[kind], IDS)
    assert logits.verdict == inside.verdict == "holds"
    assert 0 < logits.measured < 1e-12
    assert logits.mutant_measured > 1e-6
    assert inside.mutant_measured >= 1


def test_parity_sees_a_defect(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that is scaled a little differently fails both."""
    right = torch.nn.functional.scaled_dot_product_attention

    def wrong(q, *others, **how):
        return right(1.001 * q, *others, **how)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", wrong)
    assert [check.verdict for check in parity(folders["gpt2"], IDS)] == ["fails", "fails"]


@pytest.mark.parametrize("kind", ["torch", "native"])
def test_cache_and_batch(lm: LanguageModel, kind: str) -> None:
    """Within the limit, which is no bit for the native engine; the mutants are far off."""
    computes, limit = backend(lm, kind)
    for check in (*cache(computes, IDS, limit=limit), *batch(computes, IDS, limit=limit)):
        assert check.verdict == "holds", check
        assert check.mutant_measured > 0.01


@pytest.mark.parametrize(("kind", "owner"), [("torch", KVCache), ("native", NativeCache)])
def test_cache_sees_a_defect(
    lm: LanguageModel, kind: str, owner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is not rewound hides the mutant, and a check without a mutant fails."""
    computes, limit = backend(lm, kind)
    monkeypatch.setattr(owner, "rewind", lambda self, length: None)
    (check,) = cache(computes, IDS, limit=limit)
    assert (check.holds, check.passed, check.verdict) == (True, False, "fails: the mutant passes too")


def test_batch_sees_a_defect(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding that is not hidden fails."""
    monkeypatch.setattr(attention, "hide_padding", lambda mask, padding: mask)
    (check,) = batch(TorchBackend(lm.net, "torch float32"), IDS, limit=1e-5)
    assert check.verdict == "fails"


def test_engines(lm: LanguageModel) -> None:
    """A small gap; with another model behind the engine a large one."""
    assert lm.engine is not None
    (check,) = engines(lm, IDS, engine=lm.engine)
    assert check.verdict == "holds"
    assert 0 < check.measured < 0.15 < check.mutant_measured
    with torch.no_grad():
        lm.net.blocks[1].mlp.down.weight.mul_(3)
    (check,) = engines(lm, IDS, engine=lm.engine)
    assert check.verdict == "fails"


def test_distance() -> None:
    """A share of the largest; infinite places must be the same ones; nan is far."""
    right = np.array([1.0, -4.0, -np.inf])
    assert distance(right, right) == 0
    assert distance(np.array([1.0, -4.4, -np.inf]), right) == pytest.approx(0.1)
    assert distance(np.array([1.0, -4.0, 0.0]), right) == 1
    assert distance(np.array([np.nan, -4.0, -np.inf]), right) == 1
    assert distance(np.zeros(2), np.zeros(2)) == 0
    assert farthest({"a": right, "b": right}, {"a": right}) == 1


def test_nudged_puts_the_weight_back() -> None:
    weight = torch.tensor([[0.1, 0.2]])
    before = weight.clone()
    with nudged(weight):
        assert weight[0, 0] > before[0, 0]
    assert torch.equal(weight, before)
