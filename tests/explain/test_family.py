"""Every explanation of every kind of model: pre-norm and post-norm, dense, banded and two-sided."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient
from explain.models import KINDS, SOURCE, ToyFeedForward, our_gpt1, read, their_gpt1, toy
from small import small_model
from torch import Tensor

import glassformer as gf
from glassformer.explain.attention import (
    find_heads,
    head_statistics,
    masks,
    patterns,
    query_steps,
    rollout,
    value_weighted,
)
from glassformer.explain.cache import steps
from glassformer.explain.difference import difference
from glassformer.explain.edits import Edit, edited, sweep, values_at
from glassformer.explain.faithfulness import faithfulness
from glassformer.explain.lens import attribution, inputs, lens, residual
from glassformer.explain.neurons import activations, examples, promoted
from glassformer.explain.reading import Reading
from glassformer.explain.saliency import METHODS, Target, saliency
from glassformer.explain.stream import stages

IDS = [5, 17, 5, 17, 60, 5, 2, 96, 0, 17, 60, 31]


@pytest.fixture(params=KINDS)
def reading(request: pytest.FixtureRequest) -> Reading:
    return read(request.param, 3, IDS)


def run(net: Any) -> Tensor:
    """A plain forward pass of what the readings here read."""
    source = [torch.tensor([SOURCE])] if len(net.stacks) > 1 else []
    return net(*source, torch.tensor([IDS]))  # type: ignore[no-any-return]


def logits(net: Any) -> Tensor:
    with torch.no_grad():
        return run(net)[0]


@torch.no_grad()
def test_the_lens_ends_with_the_models_own_prediction(reading: Reading) -> None:
    """And every stage is what unembed makes of the stream there."""
    found = lens(reading, k=3)
    right = logits(reading.net).log_softmax(-1)
    np.testing.assert_allclose(found.top_logprobs[-1], right.topk(3).values.numpy(), rtol=0, atol=1e-10)
    with gf.trace(reading.net) as seen:
        run(reading.net)
    for number, stage in enumerate(stages(reading.stack())):
        there = reading.net.unembed(seen[stage][0]).log_softmax(-1)
        np.testing.assert_array_equal(found.top[number, :, 0], there.argmax(-1).numpy())
        np.testing.assert_allclose(found.logprobs[number, :-1], there[range(11), IDS[1:]].numpy(), atol=1e-10)


def test_gpt1_is_theirs() -> None:
    """Patterns and lens as in `transformers`: there is no norm between a block and the output matrix."""
    theirs = their_gpt1()
    reading = Reading(our_gpt1(theirs), IDS)
    with torch.no_grad():
        right = theirs(torch.tensor([IDS]), output_attentions=True, output_hidden_states=True)
        expected = [theirs.lm_head(state)[0].log_softmax(-1).numpy() for state in right.hidden_states]
    np.testing.assert_allclose(patterns(reading), torch.stack(right.attentions)[:, 0], rtol=0, atol=1e-12)
    found = lens(reading, k=97)
    for number, rows in enumerate(expected):  # the embedding, then a block each
        best = np.take_along_axis(rows, found.top[2 * number], -1)
        np.testing.assert_allclose(found.top_logprobs[2 * number], best, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.top_logprobs[2 * number], -np.sort(-rows), rtol=0, atol=1e-10)
    np.testing.assert_allclose(expected[-1], right.logits[0].log_softmax(-1).numpy(), atol=1e-12)


def test_gradients_of_gpt1_are_captums() -> None:
    """On their implementation."""
    theirs = their_gpt1()
    target = Target(7, 40, 3)
    words = theirs.transformer.tokens_embed(torch.tensor([IDS])).detach().requires_grad_()

    def score(given: Tensor) -> Tensor:
        out = theirs(inputs_embeds=given).logits[:, target.position]
        return out[:, target.token] - out[:, target.foil]

    right = InputXGradient(score).attribute(words)[0].norm(dim=-1).detach().numpy()
    found = saliency(Reading(our_gpt1(theirs), IDS), [target])
    np.testing.assert_allclose(found.scores[0], right, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("foil", [None, 11])
@pytest.mark.parametrize("position", [0, 6, -1])
def test_parts_add_up(reading: Reading, position: int, foil: int | None) -> None:
    """To the logit, or to the lead over another token."""
    found = attribution(reading, position=position, token=40, foil=foil)
    row = logits(reading.net)[position]
    right = float(row[40] - (0 if foil is None else row[foil]))
    assert found.logit == pytest.approx(right, abs=1e-10)
    assert abs(found.values.sum() - right) <= 1e-9 * np.abs(found.values).max()
    assert len(set(found.parts)) == len(found.parts) == len(found.values)
    assert "edits" not in found.parts
    stack = reading.stack()
    heads = [f"{part.name}.mix[{head}]" for part in stack.attention for head in range(stack.heads)]
    assert {stack.site(layer, head) for layer in range(stack.layers) for head in heads} <= set(found.parts)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_add_up_in_float32(kind: str) -> None:
    """To 1e-4."""
    text = read(kind, 3, IDS)
    text.net.float()  # type: ignore[attr-defined]
    found = attribution(text, position=6, token=40)
    assert found.values.sum() == pytest.approx(float(logits(text.net)[6, 40]), abs=1e-4)


def test_a_part_is_its_gradient(reading: Reading) -> None:
    """With the norms' scales held fixed the logit is linear in what is added: gradient times value."""
    net, stack, at = reading.net, reading.stack(), 6
    found = attribution(reading, position=at, token=40)
    part = dict(zip(found.parts, found.values, strict=True))
    with torch.no_grad(), gf.trace(net) as seen:
        run(net)

    def normed(norm: Any, x: Tensor) -> Tensor:
        if not isinstance(norm, torch.nn.LayerNorm):
            return x
        scale = (x.var(unbiased=False) + norm.eps).sqrt().detach()
        return (x - x.mean()) / scale * norm.weight + norm.bias

    first = stages(stack)[0]
    leaves = {first: seen[first][0, at].clone().requires_grad_()}
    stream = leaves[first]
    for layer in range(stack.layers):
        for part_of_block in stack.parts:
            site = stack.site(layer, part_of_block.name)
            leaves[site] = seen[f"{site}.out"][0, at].clone().requires_grad_()
            behind = stack.site(layer, part_of_block.after)
            stream = normed(net.stream_norm(behind), stream + leaves[site])
    score = net.head(normed(net.norm, stream))[40]
    assert float(score.detach()) == pytest.approx(found.logit, abs=1e-9)
    gradients = torch.autograd.grad(score, list(leaves.values()))
    for (site, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        mine = sum(value for name, value in part.items() if name == site or name.startswith(f"{site}."))
        assert mine == pytest.approx(float(gradient @ leaf.detach()), rel=1e-9, abs=1e-12), site


def test_parts_add_up_under_edits(reading: Reading) -> None:
    """What an edit puts on the stream is a part of its own, whether a norm follows it or not."""
    stack = reading.stack()
    for site in (stack.site(0, "attn"), stack.site(0, "mid"), stack.site(1, "out"), "final"):
        with edited(reading.net, [Edit(site, "add", value=np.arange(24.0))]):
            found = attribution(reading, position=-1, token=40)
            right = float(logits(reading.net)[-1, 40])
        assert "edits" in found.parts, site
        assert found.values.sum() == pytest.approx(right, abs=1e-9), site


def test_what_a_neuron_promotes(reading: Reading) -> None:
    """A little more of a neuron of the last layer raises the logits in its order."""
    net, stack = reading.net, reading.stack()
    tokens, amounts = promoted(net, layer=stack.layers - 1, neuron=13, k=97)
    site = f"{stack.site(stack.layers - 1, 'mlp.neurons')}[13]"
    raised = torch.zeros(97, dtype=torch.float64)
    for sign in (1, -1):
        with edited(net, [Edit(site, "add", by=sign * 1e-5, value=np.array(1.0))]):
            raised += sign * logits(net)[-1] / 2e-5
    # The true derivative also moves the norms' scales, which is a multiple of what the norm gave before.
    norm = net.stream_norm(stack.site(stack.layers - 1, "out")) or net.norm
    assert isinstance(norm, torch.nn.LayerNorm)
    last = values_at(reading, ["final"])["final"][-1]
    before = net.head.weight.detach() @ (last - norm.bias.detach())
    basis = torch.stack([torch.tensor(amounts)[torch.tensor(tokens).argsort()].double(), before], -1)
    fitted = torch.linalg.lstsq(basis, raised[:, None]).solution
    torch.testing.assert_close((basis @ fitted)[:, 0], raised, rtol=1e-5, atol=1e-6)
    assert fitted[0] > 0


def test_masks_are_those_of_the_model() -> None:
    """Dense, banded, two-sided; an edit of the scores does not hide them."""
    causal = np.tri(12, dtype=bool)
    band = causal & ~np.tri(12, k=-4, dtype=bool)
    right = {
        "gpt2": [causal] * 3,
        "gpt1": [causal] * 3,
        "gpt3": [causal, band, causal],
        "toy": [np.ones((12, 12), dtype=bool)] * 2,
        "translator": [causal] * 2,
        "pre-norm translator": [causal] * 2,
    }
    for kind in KINDS:
        text = read(kind, 1, IDS)
        np.testing.assert_array_equal(masks(text), right[kind])
        with edited(text.net, [Edit(text.stack().site(1, "attn.scores"), "zero")]):
            np.testing.assert_array_equal(masks(text, layers=[1])[0], right[kind][1])


@pytest.mark.parametrize("layer", [0, 1])
def test_the_five_steps(reading: Reading, layer: int) -> None:
    """The weights are the pattern's row, the mixture is what the head makes, behind any mask."""
    stack = reading.stack()
    mix = values_at(reading, [stack.site(layer, "attn.mix")])[stack.site(layer, "attn.mix")].numpy()
    pattern, visible = patterns(reading, layers=[layer])[0], masks(reading, layers=[layer])[0]
    for position in (0, 7, 11):
        found = query_steps(reading, layer=layer, head=2, position=position)
        np.testing.assert_allclose(found.weights, pattern[2, position], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.mix, mix[2, position], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(np.isneginf(found.masked), ~visible[position])


def test_cross_attention_is_rectangular() -> None:
    """Twelve queries on five sources, and no mask."""
    text = read("translator", 2, IDS)
    assert text.axes(part="cross") == (IDS, SOURCE)
    found = patterns(text, part="cross")
    assert found.shape == (2, 3, 12, 5)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)
    visible = masks(text, part="cross")
    assert visible.shape == (2, 12, 5)
    assert visible.all()
    steps_there = query_steps(text, layer=1, head=2, position=3, part="cross")
    np.testing.assert_allclose(steps_there.weights, found[1, 2, 3], rtol=0, atol=1e-12)
    assert value_weighted(text, layer=1, part="cross").shape == (3, 12, 5)

    kinds = head_statistics(found, None, mask=visible)
    np.testing.assert_allclose(kinds.first, found[..., 0].mean(-1), rtol=1e-12)
    for name in ("previous", "duplicate", "induction", "distance"):
        assert np.isnan(getattr(kinds, name)).all()
    best = find_heads(found, queries=[0, 4], sources=[2], mask=visible)[0]
    assert best.weight == pytest.approx(found[:, :, [0, 4], 2].mean(-1).max())
    with pytest.raises(gf.GlassError, match="square patterns, not 12 queries on 5 sources"):
        rollout(found)


def test_between_two_texts_of_one_length_no_position_is_the_same() -> None:
    """A square pattern of cross-attention has no previous token, and its diagonal means nothing."""
    text = replace(read("translator", 2, IDS), source=IDS[::-1])
    found = patterns(text, part="cross")
    kinds = head_statistics(found, None, mask=masks(text, part="cross"))
    assert np.isnan(kinds.previous).all()
    np.testing.assert_allclose(kinds.first, found[..., 0].mean(-1), rtol=1e-12)


@pytest.mark.parametrize("kind", ["translator", "pre-norm translator"])
@pytest.mark.parametrize(("stack", "part"), [("encoder", "attn"), ("decoder", "attn"), ("decoder", "cross")])
@torch.no_grad()
def test_every_attention_of_an_encoder_decoder(kind: str, stack: str, part: str) -> None:
    """Recomputed from the streams and the weights: queries, keys, and the mask."""
    text = read(kind, 5, IDS)
    net: Any = text.net
    with gf.trace(net) as seen:
        run(net)
    found, added = (
        patterns(text, stack=stack, part=part),
        value_weighted(text, layer=0, stack=stack, part=part),
    )
    block = net.get_submodule(f"{stack}.blocks.0")
    module = getattr(block, part)
    x = seen[f"{stack}.blocks.0.{'mid' if part == 'cross' else 'in'}"]
    if not net.post_norm:
        x = (block.norm2 if part == "cross" else block.norm1)(x)
    memory = seen["encoder.blocks.0.out"] if part == "cross" else x
    q, k, v = (
        getattr(module, name)(given)[0].view(-1, 3, 8).transpose(0, 1)
        for name, given in (("q", x), ("k", memory), ("v", memory))
    )
    scores = q @ k.mT / 8**0.5
    if (stack, part) == ("decoder", "attn"):
        scores = scores.masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
    right = scores.softmax(-1)
    np.testing.assert_allclose(found[0], right, rtol=0, atol=1e-12)
    rows = module.proj.weight.view(24, 3, 8)
    lengths = torch.stack([(rows[:, head] @ v[head].T).norm(dim=0) for head in range(3)])  # (H, S)
    np.testing.assert_allclose(added, right * lengths[:, None], rtol=1e-9, atol=1e-12)


def test_rollout_of_an_encoder() -> None:
    """Its own text and layers."""
    text = read("translator", 2, IDS)
    assert rollout(patterns(text, stack="encoder")).shape == (1, 5, 5)
    assert activations(text, stack="encoder").values.shape == (1, 5, 48)
    assert activations(text, stack="encoder").ids == SOURCE


def test_a_block_without_attention() -> None:
    """Its feed-forward layers, the embedding and the biases make the logit."""
    net = toy(3, ToyFeedForward)
    found = attribution(Reading(net, IDS), position=6, token=40)
    assert abs(found.values.sum() - float(logits(net)[6, 40])) <= 1e-9 * np.abs(found.values).max()
    assert {"encoder.embed", "encoder.blocks.0.mlp", "encoder.blocks.1.mlp"} <= set(found.parts)
    assert saliency(Reading(net, IDS), [Target(6, 40)]).scores[0, 6] > 0


def test_head_statistics_use_the_mask() -> None:
    """A share is of positions that can see such a source: in a band the first token is soon out of sight."""
    text = Reading(KINDS["gpt3"](5), IDS)
    pattern, visible = patterns(text), masks(text)
    found = head_statistics(pattern, IDS, mask=visible)
    np.testing.assert_allclose(found.first[1], pattern[1, :, 1:4, 0].mean(-1), rtol=1e-12)
    np.testing.assert_allclose(found.first[0], pattern[0, :, 1:, 0].mean(-1), rtol=1e-12)
    # Token 17 is at 1, 3 and 9: 3 sees 1 in a band of four, 9 sees none.
    heads = find_heads(pattern, queries=[3, 9], sources=[1], mask=visible)
    weights = {(one.layer, one.head): one.weight for one in heads}
    assert weights[1, 0] == pytest.approx(pattern[1, 0, 3, 1])
    assert weights[0, 0] == pytest.approx(pattern[0, 0, [3, 9], 1].mean())
    with pytest.raises(gf.GlassError, match="no query can see any of the sources"):
        find_heads(pattern, queries=[0], sources=[5], mask=visible)


def test_two_sided_statistics() -> None:
    """Nothing ahead is hidden: distances go both ways, and an earlier query counts."""
    text = Reading(toy(4), IDS)
    pattern, visible = patterns(text), masks(text)
    away = np.abs(np.arange(12)[:, None] - np.arange(12))
    for mask in (visible, None):
        found = head_statistics(pattern, IDS, mask=mask)
        np.testing.assert_allclose(found.distance, (pattern * away).sum(-1).mean(-1), rtol=1e-12)
        np.testing.assert_allclose(found.previous[0, 0], pattern[0, 0].diagonal(-1).mean(), rtol=1e-12)
        best = find_heads(pattern, queries=[0, 11], sources=[5], mask=mask)[0]
        assert best.weight == pytest.approx(pattern[:, :, [0, 11], 5].mean(-1).max())
    np.testing.assert_allclose(rollout(pattern).sum(-1), 1, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_saliency_of_every_kind(reading: Reading, method: str) -> None:
    """A causal model has no scores ahead, a two-sided one has; every method runs and can be tested."""
    steps = 24 if reading.source is None else 128
    found = saliency(reading, [Target(6, 40), Target(11, 3, 5)], method=method, steps=steps)
    ahead = found.scores[0, 7:]
    assert found.scores.shape == (2, 12)
    assert ahead.any() if not reading.stack().causal else not ahead.any()
    if found.gaps is not None:
        assert found.gaps.max() < 1e-2
    curves = faithfulness(reading, found, blank=33)
    whole = logits(reading.net)[6].softmax(-1)[40]
    assert curves.deletion[0, 0] == pytest.approx(float(whole), rel=1e-5)


@pytest.mark.parametrize("kind", ["translator", "pre-norm translator"])
def test_gradients_of_an_encoder_decoder(kind: str) -> None:
    """By the tokens of the text, as a plain backward pass has them; the source stays as it is."""
    text = read(kind, 3, IDS)
    net: Any = text.net
    words = net.embed(torch.tensor([IDS])).detach().requires_grad_()
    out = net.read_out(net.decoder(words, net.encoder(net.embed(torch.tensor([SOURCE])))), last=False)[0, 6]
    (gradient,) = torch.autograd.grad(out[40] - out[3], words)
    right = (gradient * words.detach())[0].norm(dim=-1)
    np.testing.assert_allclose(saliency(text, [Target(6, 40, 3)]).scores[0], right, rtol=1e-9, atol=1e-14)


def test_occlusion_of_every_kind(reading: Reading) -> None:
    """By hand: the token vector is taken out where it is put in."""
    found = saliency(reading, [Target(6, 40)], method="occlusion")
    net, first = reading.net, stages(reading.stack())[0]
    words = net.embed(torch.tensor([IDS])).detach()
    for away in (0, 3, 6, 9):

        def put_in(x: Tensor, away: int = away) -> Tensor:
            x = x.clone()
            x[:, away] -= words[:, away]
            return x

        with torch.no_grad(), gf.trace(net, edits={first: put_in}):
            without = run(net)[0, 6, 40]
        assert found.scores[0, away] == pytest.approx(
            float(logits(net)[6, 40] - without), rel=1e-9, abs=1e-12
        )


def test_the_other_questions(reading: Reading) -> None:
    """Each runs on every kind of model and has the shapes that it promises."""
    net, stack = reading.net, reading.stack()
    tokens, positions, whole = inputs(reading)
    np.testing.assert_allclose(tokens, net.embed(torch.tensor([IDS]))[0].detach().numpy())
    np.testing.assert_allclose(tokens + positions, whole, rtol=1e-12)
    assert residual(reading, position=-1).norm.shape == (1 + len(stack.parts) * stack.layers,)
    assert activations(reading).values.shape == (stack.layers, 12, stack.neurons)
    if reading.source is None:
        assert len(examples(net, [IDS, IDS[:3]], neurons=[(1, 7)], k=1)[1, 7]) == 1
    assert value_weighted(reading, layer=1).shape == (3, 12, 12)
    assert not difference(reading, reading).logprobs.any()
    found = sweep(
        reading,
        replace(reading, ids=IDS[::-1]),
        sites=[stack.site(stack.layers - 1, "out")],
        answer=3,
        foil=4,
    )
    assert found.restored[0, -1] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["gpt2", "gpt1", "gpt3"])
def test_the_cache_of_every_kind(kind: str) -> None:
    """Every position is computed once; the bytes are those of the cache."""
    net = KINDS[kind](3)
    found = steps(Reading(net, IDS, prompt=5))
    assert sum(step.computed[0] for step in found) == 11
    assert found[-1].bytes.sum() == net.cache_size(1, 11)


def test_the_cache_of_an_encoder_decoder() -> None:
    """The model is bound to the source first; then every position of the text is computed once."""
    text = replace(read("translator", 3, IDS), prompt=5)
    found = steps(text)
    assert [(step.computed[0], step.reused[0]) for step in found[:2]] == [(5, 0), (1, 5)]
    assert sum(step.computed[1] for step in found) == 11
    bound = text.stepper()
    cache = bound.new_cache(1, 12)
    bound.step([IDS[:5]], cache)
    np.testing.assert_allclose(bound.step([IDS[5:6]], cache)[0], logits(text.net)[5], rtol=0, atol=1e-10)


def test_models_of_different_kinds_differ() -> None:
    """Also where their stacks have the same shape."""
    one, other = Reading(KINDS["gpt2"](3), IDS), Reading(KINDS["gpt1"](3), IDS)
    found = difference(one, other)
    assert found.attention is not None
    assert found.attention.shape == (3, 3)
    translation = read("translator", 3, IDS)
    with pytest.raises(gf.GlassError, match="must read the same tokens"):
        difference(translation, replace(translation, source=SOURCE[::-1]))
    assert difference(one, Reading(small_model(3, torch.float64, layers=1), IDS)).attention is None
