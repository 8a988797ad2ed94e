"""Long texts work, memory stays flat, and nothing is held that was not asked for."""

import gc
from pathlib import Path

import pytest
import torch
from small import Pair, small_model

import glassformer as gf
from glassformer.explain.attention import head_statistics, masks, patterns
from glassformer.explain.edits import Edit, edited, sweep
from glassformer.explain.lens import attribution, lens
from glassformer.explain.neurons import activations
from glassformer.explain.reading import Readable, Reading
from glassformer.explain.saliency import METHODS, Target, saliency

STATUS = Path("/proc/self/status")


def explain(net: Readable, ids: list[int]) -> None:
    """Every kind of explanation once."""
    text = Reading(net, ids)
    target = [Target(len(ids) - 1, 3)]
    for method in METHODS:
        saliency(text, target, method=method, steps=2)
    lens(text)
    attribution(text, position=-1, token=3)
    head_statistics(patterns(text), ids, mask=masks(text))
    activations(text)
    with edited(net, [Edit("blocks.0.attn", "zero")]):
        sweep(text, Reading(net, ids[::-1]), sites=["blocks.1.out"], answer=3, foil=4)


def resident() -> float:
    """Megabytes of this process that are in memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def count() -> int:
    """Tensors that are referenced."""
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.skipif(not STATUS.exists(), reason="there is no /proc here to read memory from")
@pytest.mark.slow
def test_memory_stays_flat(pair: Pair) -> None:
    """Two hundred explanations leave no tensor behind, and the process does not grow."""
    for _ in range(2):
        explain(pair.ours, pair.ids)
    tensors, before = count(), resident()
    for _ in range(20):  # of ten kinds each
        explain(pair.ours, pair.ids)
    assert count() <= tensors
    assert resident() - before < 24
    assert all(parameter.grad is None for parameter in pair.ours.parameters())


def test_long_texts() -> None:
    """All of a context of 1,024 tokens; one more is refused."""
    model = small_model(1, context=1024)
    ids = [(7 * at) % 97 for at in range(1024)]
    text = Reading(model, ids)
    assert lens(text).ranks.shape == (5, 1024)
    assert patterns(text, layers=[1]).shape == (1, 3, 1024, 1024)
    found = saliency(text, [Target(1023, 3), Target(500, 4)])
    assert found.shares.sum(-1) == pytest.approx([1, 1])
    assert activations(text, layers=[0]).values.shape == (1, 1024, 96)
    parts = attribution(text, position=-1, token=3)
    assert parts.values.sum() == pytest.approx(parts.logit, abs=1e-3)
    with pytest.raises(gf.GlassError, match="1025 tokens are 1 more than the model's context of 1024"):
        lens(Reading(model, [*ids, 1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Every explanation of a model in few bits, too."""
    model = small_model(1).to(dtype)
    explain(model, [5, 17, 5, 17, 60])


def test_a_glob_keeps_only_what_was_asked_for(pair: Pair) -> None:
    """The values of other sites are not even computed where that costs something."""
    with gf.trace(pair.ours, "blocks.1.attn.pattern") as seen:
        pair.ours(torch.tensor([pair.ids]))
    assert list(seen) == ["blocks.1.attn.pattern"]
    assert set(seen._values) == {"blocks.1.attn.pattern"}
