"""LoRA: the update is the paper's, begins as nothing, learns alone, and can be merged, taken out and folded
away.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_model
from torch import nn

from glassformer.data.batches import Batch
from glassformer.errors import InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.models.gpt import GPT
from glassformer.trace import trace
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.loop import Stepped, fit
from glassformer.training.lora import LoraLinear, adapted_layers, attach, fold, insert, merge, unmerge
from glassformer.training.objectives import next_token

IDS = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(2))
KINDS = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")


def adapted(
    targets: Sequence[str] = KINDS, *, dtype: torch.dtype = torch.float64, learned: bool = True, **how: Any
) -> GPT:
    """A small model with LoRA weights that have learned something."""
    model = small_model(1, dtype)
    attach(model, targets, **{"rank": 3, "scale": 0.7} | how)
    if learned:
        learn(model)
    return model


@torch.no_grad()
def learn(model: nn.Module) -> None:
    """Every B is random, so that the LoRA weights do something."""
    generator = torch.Generator().manual_seed(5)
    for _, layer in adapted_layers(model):
        layer.lora_b.copy_(torch.randn(layer.lora_b.shape, generator=generator))


@torch.no_grad()
def logits(model: nn.Module) -> torch.Tensor:
    return torch.as_tensor(model(IDS))


def modules(model: nn.Module) -> list[tuple[str, type]]:
    return [(name, type(module)) for name, module in model.named_modules()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_begins_as_the_model_it_adapts(dtype: torch.dtype) -> None:
    """Not a bit differs before the first step; with a B that is not zero much does."""
    plain = logits(small_model(1, dtype))
    model = adapted(dtype=dtype, learned=False)
    assert torch.equal(logits(model), plain)
    assert all(layer.lora_b.dtype is layer.lora_a.dtype is dtype for _, layer in adapted_layers(model))
    learn(model)
    assert (logits(model) - plain).abs().max() > 0.1


def test_only_the_thin_matrices_are_trainable() -> None:
    """A and B of each adapted layer, and nothing else; the layer's own weight is the very tensor it was."""
    model = small_model()
    weight = model.blocks[1].attn.qkv.weight
    assert attach(model, ["attn.qkv"], rank=3, scale=1.0) == ["blocks.0.attn.qkv", "blocks.1.attn.qkv"]
    trainable = {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}
    assert trainable == {
        f"blocks.{block}.attn.qkv.lora_{side}": shape
        for block in (0, 1)
        for side, shape in (("a", (3, 24)), ("b", (72, 3)))
    }
    assert model.blocks[1].attn.qkv.weight is weight


def test_a_is_drawn_as_peft_draws_it() -> None:
    """Evenly within 1/√in, another for every layer and every seed, the same for the same seed; B is zero."""
    model = adapted(learned=False, rank=40)
    drawn = {name: layer.lora_a.detach() for name, layer in adapted_layers(model)}
    for name, layer in adapted_layers(model):
        bound = layer.in_features**-0.5
        assert 0.95 * bound < drawn[name].abs().max() <= bound
        assert drawn[name].std() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert not layer.lora_b.any()
    assert not torch.equal(drawn["blocks.0.attn.qkv"], drawn["blocks.1.attn.qkv"])
    again = dict(adapted_layers(adapted(learned=False, rank=40)))
    other = dict(adapted_layers(adapted(learned=False, rank=40, seed=1)))
    assert all(torch.equal(value, again[name].lora_a) for name, value in drawn.items())
    assert not any(torch.equal(value, other[name].lora_a) for name, value in drawn.items())


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        (["attn.qkv"], ["blocks.0.attn.qkv", "blocks.1.attn.qkv"]),
        (["proj"], ["blocks.0.attn.proj", "blocks.1.attn.proj"]),
        (["blocks.1.mlp.up"], ["blocks.1.mlp.up"]),
        (["blocks.1.*"], ["blocks.1.attn.proj", "blocks.1.attn.qkv", "blocks.1.mlp.down", "blocks.1.mlp.up"]),
        (["blocks.[01].mlp.d*"], ["blocks.0.mlp.down", "blocks.1.mlp.down"]),
        (["mlp.up", "blocks.0.mlp.*"], ["blocks.0.mlp.down", "blocks.0.mlp.up", "blocks.1.mlp.up"]),
        (("blocks.*.attn.qkv", "attn.qkv"), ["blocks.0.attn.qkv", "blocks.1.attn.qkv"]),
    ],
    ids=str,
)
def test_targets_are_ends_or_globs(targets: Sequence[str], found: list[str]) -> None:
    """By how a name ends, by a glob of whole names, or several of these; each layer once."""
    model = small_model()
    assert attach(model, targets, rank=2, scale=1.0) == found
    assert sorted(name for name, _ in adapted_layers(model)) == found


@pytest.mark.parametrize(
    ("targets", "how", "words"),
    [
        (
            ["attn.kqv"],
            {},
            r"targets: 'attn\.kqv' fits no linear layer; there are attn\.proj, attn\.qkv, .*mlp\.down, mlp\.up",
        ),
        (["kv"], {}, "'kv' fits no linear layer"),
        (["attn.qkv", "blocks.2.*"], {}, r"'blocks\.2\.\*' fits no linear layer"),
        (["tokens"], {}, "'tokens' fits no linear layer"),
        (["head"], {}, "'head' fits the output matrix"),
        (["*"], {}, r"'\*' fits the output matrix"),
        (["attn.qkv"], {"rank": 0}, "rank must be at least 1, not 0"),
        (["attn.qkv"], {"dropout": 1.0}, r"dropout must be at least 0 and less than 1, not 1\.0"),
        (["attn.qkv"], {"dropout": -0.1}, "dropout must be"),
    ],
    ids=str,
)
def test_what_cannot_be_adapted_is_refused(targets: list[str], how: dict[str, Any], words: str) -> None:
    """With the layers that there are, and before anything is changed."""
    model = small_model()
    before = modules(model)
    with pytest.raises(InputError, match=words):
        attach(model, targets, **{"rank": 2, "scale": 1.0} | how)
    assert modules(model) == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_no_lora_beside_lora() -> None:
    """It would take the place of the first: refused, and the first stays."""
    model = adapted(["attn.qkv"])
    right = logits(model)
    with pytest.raises(InputError, match="adapted already"):
        attach(model, ["mlp.up"], rank=2, scale=1.0)
    with pytest.raises(InputError, match="fit no layer"):
        insert(model, {name: (layer.lora_a, layer.lora_b, 1.0) for name, layer in adapted_layers(model)})
    assert torch.equal(logits(model), right)


@pytest.mark.parametrize("bias", [True, False])
def test_forward_is_the_papers_formula(bias: bool) -> None:
    """W·x + b + scale · B·A·x, worked out by hand in float64."""
    model = small_model(3, torch.float64, bias=bias)
    attach(model, ["mlp.up"], rank=5, scale=0.3)
    learn(model)
    layer = model.blocks[1].mlp.up
    assert isinstance(layer, LoraLinear)
    x = torch.randn(2, 4, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    W, A, B = (value.detach().numpy() for value in (layer.weight, layer.lora_a, layer.lora_b))
    plain = np.einsum("oi,bti->bto", W, x.numpy()) + (layer.bias.detach().numpy() if bias else 0)
    right = plain + 0.3 * np.einsum("or,ri,bti->bto", B, A, x.numpy())
    np.testing.assert_allclose(layer(x).detach().numpy(), right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.delta().numpy(), 0.3 * B @ A, rtol=0, atol=1e-12)
    assert np.abs(right - plain).max() > 0.1
    assert (layer.bias is not None) == bias


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_merged_it_is_the_same_without_lora(dtype: torch.dtype, tolerance: float) -> None:
    """Equal to rounding; no LoRA product is computed any more; a second merge adds nothing."""
    model = adapted(dtype=dtype)
    right = logits(model)
    merge(model)
    once = logits(model)
    assert (once - right).abs().max() <= tolerance * right.abs().max()
    merge(model)
    for _, layer in adapted_layers(model):
        layer.lora_a.data.fill_(torch.nan)  # reading it would give NaN
    assert torch.equal(logits(model), once)


def test_unmerged_every_weight_has_its_bits() -> None:
    """Though sum and difference would round; and the LoRA weights are at work again."""
    model = adapted(dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    right = logits(model)
    merge(model)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {f"{name}.weight" for name, _ in adapted_layers(model)}
    assert model.state_dict().keys() == before.keys()
    unmerge(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(logits(model), right)
    unmerge(model)
    assert torch.equal(logits(model), right)


@pytest.mark.parametrize("merged", [False, True])
def test_folded_it_is_a_plain_model(tmp_path: Path, merged: bool) -> None:
    """The modules and names that it had before LoRA, all to be trained, the same outputs; and it is saved as
    any other.
    """
    plain = small_model(1)
    model = adapted(dtype=torch.float32)
    right = logits(model)
    if merged:
        merge(model)
    fold(model)
    assert modules(model) == modules(plain)
    assert [(name, value.shape) for name, value in model.state_dict().items()] == [
        (name, value.shape) for name, value in plain.state_dict().items()
    ]
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())
    assert (logits(model) - right).abs().max() <= 1e-5 * right.abs().max()
    assert (logits(model) - logits(plain)).abs().max() > 0.1
    save_folder(tmp_path / "folded", model, tokenizer=None)
    assert torch.equal(logits(load_folder(tmp_path / "folded").model), logits(model))


def test_dropout_only_in_training() -> None:
    """It drops inputs of the LoRA weights, not of the layer; a model that rests or is attached at rest drops
    nothing.
    """
    model = adapted(["attn.qkv"], dropout=0.5)
    plain = adapted(["attn.qkv"])
    assert torch.equal(logits(model), logits(plain))
    layer, calm = model.blocks[0].attn.qkv, plain.blocks[0].attn.qkv
    x = torch.ones(4, 24, dtype=torch.float64)
    model.train()
    torch.manual_seed(0)
    drops = layer(x).detach()
    assert not torch.equal(drops, layer(x).detach())
    assert not torch.equal(drops[0], drops[1])
    layer.lora_b.data.zero_()  # what the layer itself sees is not dropped
    calm.lora_b.data.zero_()
    assert torch.equal(layer(x), calm(x))
    model.eval()
    assert torch.equal(layer(x), layer(x))
    busy = small_model().train()
    attach(busy, ["attn.qkv"], rank=2, scale=1.0, dropout=0.5)
    assert all(module.training for module in busy.modules())


@pytest.mark.parametrize("merged", [False, True])
def test_an_adapted_model_can_be_seen_through(merged: bool) -> None:
    """The same sites as before; what is read holds what LoRA adds, and an edit works as in the folded model."""
    model, folded = adapted(), adapted()
    fold(folded)
    if merged:
        merge(model)
    edits = {"blocks.0.mlp.neurons[7]": torch.zeros_like}
    with trace(model, edits=edits) as seen:
        logits(model)
    with trace(model) as unedited:
        logits(model)
    with trace(model, "*", edits=edits) as ours, trace(folded, "*", edits=edits) as right:
        ends = logits(model), logits(folded)
    assert not seen  # only edits were asked for
    assert list(ours) == list(right) == list(unedited)
    assert {"blocks.1.attn.mix", "blocks.0.mlp.neurons", "logits"} <= ours.keys()
    for site, value in right.items():
        torch.testing.assert_close(ours[site], value, rtol=0, atol=1e-10)
    assert not torch.equal(ends[0], unedited["logits"])


def test_lora_weights_are_inserted() -> None:
    """By name, of any rank and scale each; nothing else changes; a name or a shape that fits no layer is
    refused.
    """
    donor = adapted(["attn.qkv", "blocks.1.mlp.down"])
    given = {
        name: (layer.lora_a.detach(), layer.lora_b.detach(), layer.scale)
        for name, layer in adapted_layers(donor)
    }
    a, b, scale = given["blocks.1.attn.qkv"]
    given["blocks.1.attn.qkv"] = (a[:1], b[:, :1], 2 * scale)
    model = small_model(1, torch.float64)
    insert(model, given)
    assert {name: (layer.rank, layer.scale) for name, layer in adapted_layers(model)} == {
        "blocks.0.attn.qkv": (3, 0.7), "blocks.1.attn.qkv": (1, 1.4), "blocks.1.mlp.down": (3, 0.7),
    }  # fmt: skip
    hand = small_model(1, torch.float64)
    with torch.no_grad():
        for name, (a, b, scale) in given.items():
            hand.get_submodule(name).weight += scale * b @ a
    torch.testing.assert_close(logits(model), logits(hand), rtol=0, atol=1e-10)
    for name, pair in {
        "blocks.2.attn.qkv": (a, b),
        "blocks.0": (a, b),
        "tokens": (a, b),
        "blocks.0.mlp.down": (a[:, :-1], b),
        "blocks.0.mlp.up": (a, b[:-1]),
    }.items():
        with pytest.raises(
            InputError, match=rf"{name}: LoRA weights of {len(pair[1])} × {pair[0].shape[1]} fit no layer"
        ):
            insert(small_model(1, torch.float64), {name: (*pair, 1.0)})


class Rows:
    """The same few rows, again and again."""

    def draw(self, count: int) -> list[int]:
        return list(range(count))

    def read(self, rows: Sequence[int]) -> Batch:
        ids = np.stack([(np.arange(12) * 7 + 5 * row) % 97 for row in rows])
        return Batch({"ids": ids}, ids[:, 1:].size)


def test_training_moves_the_thin_matrices_alone() -> None:
    """And the loss falls; every other number keeps its bits."""
    model = adapted(["attn.qkv", "mlp.up"], dtype=torch.float32, learned=False, dropout=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = Hyperparameters(steps=12, batch=4, lr=3e-2, warmup=2)
    losses = [
        event.loss
        for event in fit(model, Rows(), objective=next_token, hyperparameters=plan)
        if isinstance(event, Stepped)
    ]
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {f"{name}.lora_{side}" for name, _ in adapted_layers(model) for side in "ab"}
    assert len(moved) == 8
    assert losses[-1] < 0.8 * losses[0]
