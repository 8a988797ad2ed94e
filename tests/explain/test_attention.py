"""Attention in numbers: the steps and the kinds of heads, beside `transformers` and by hand."""

import numpy as np
import pytest
import torch
from explain.readings import reading
from small import Pair

from glassformer.errors import InputError
from glassformer.explain.attention import (
    find_heads,
    head_statistics,
    patterns,
    query_steps,
    rollout,
    softmax_table,
    value_weighted,
)


def test_patterns_are_those_of_transformers(pair: Pair) -> None:
    """All layers, or some in any order."""
    with torch.no_grad():
        right = torch.stack(pair.theirs(torch.tensor([pair.ids]), output_attentions=True).attentions)[
            :, 0
        ].numpy()
    np.testing.assert_allclose(patterns(reading(pair)), right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(patterns(reading(pair), layers=[1]), right[1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layer", "head", "position"), [(0, 0, 0), (1, 2, 7), (0, 1, -1)])
def test_the_five_steps(pair: Pair, layer: int, head: int, position: int) -> None:
    """Each follows from the one before; weights are the pattern's row, the mixture is what the head makes."""
    import glassformer as gf

    steps = query_steps(reading(pair), layer=layer, head=head, position=position)
    with torch.no_grad(), gf.trace(pair.ours, "*.q", "*.k", "*.mix") as seen:
        pair.ours(torch.tensor([pair.ids]))
    q, k, mix = (seen[f"blocks.{layer}.attn.{name}[{head}]"][0].numpy() for name in ("q", "k", "mix"))
    at = position % len(pair.ids)
    np.testing.assert_allclose(steps.dots, [q[at] @ key for key in k], rtol=1e-12)
    np.testing.assert_allclose(steps.scaled, steps.dots / 8**0.5, rtol=1e-12)
    assert np.isneginf(steps.masked[at + 1 :]).all()
    assert (steps.masked[: at + 1] == steps.scaled[: at + 1]).all()
    np.testing.assert_allclose(steps.weights, patterns(reading(pair))[layer, head, at], rtol=0, atol=1e-12)
    np.testing.assert_allclose(steps.weighted.sum(0), mix[at], rtol=0, atol=1e-12)
    np.testing.assert_allclose(steps.mix, mix[at], rtol=0, atol=1e-12)


def test_the_table_of_the_article() -> None:
    """Its scores give its percentages only with the scaling that its picture leaves out."""
    scores = [
        [0.11, 0.00, 0.81, 0.79],
        [0.19, 0.50, 0.30, 0.48],
        [0.53, 0.98, 0.95, 0.14],
        [0.81, 0.86, 0.38, 0.90],
    ]
    table = softmax_table(scores, width=16)
    right = [[1, 0, 0, 0], [0.48, 0.52, 0, 0], [0.31, 0.35, 0.34, 0], [0.25, 0.26, 0.23, 0.26]]
    np.testing.assert_array_equal(table["weights"].round(2), right)
    assert np.isneginf(table["masked"][0, 1:]).all()
    assert softmax_table(scores)["weights"][1].round(2).tolist() == [0.42, 0.58, 0, 0]


def pattern_of(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows)[None, None]


def test_kinds_of_heads() -> None:
    """A head that always looks at the token before is that and nothing else; so are the others."""
    ids = [7, 8, 9, 7, 8]
    previous = np.eye(5, k=-1) + np.eye(5)[0][:, None] * np.eye(5)[0]
    first = np.zeros((5, 5)) + np.eye(5)[0]
    duplicate = np.eye(5)
    duplicate[3], duplicate[4] = np.eye(5)[0], np.eye(5)[1]
    induction = np.eye(5)
    induction[3], induction[4] = np.eye(5)[1], np.eye(5)[2]
    found = head_statistics(np.stack([previous, first, duplicate, induction])[None], ids)
    assert found.previous.tolist() == [[1.0, 0.25, 0.0, 0.0]]
    assert found.first.tolist() == [[0.25, 1.0, 0.25, 0.0]]
    assert found.duplicate.tolist() == [[0.0, 0.5, 1.0, 0.0]]
    assert found.induction.tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert found.entropy.tolist() == [[0.0] * 4]
    assert found.distance.tolist() == [[0.8, 2.0, 1.2, 0.8]]
    even = head_statistics(pattern_of((np.tri(4) / np.arange(1, 5)[:, None]).tolist()), [1, 2, 3, 4])
    assert even.entropy[0, 0] == pytest.approx(np.log([1, 2, 3, 4]).mean())
    assert np.isnan(even.duplicate[0, 0])
    assert np.isnan(even.induction[0, 0])


def test_no_token_follows_itself() -> None:
    """In "no no no" a place that looks at itself is no induction."""
    found = head_statistics(np.eye(3)[None, None], [5, 5, 5])
    assert found.induction.tolist() == [[0.0]]


def test_heads_that_attend_from_one_position_to_another() -> None:
    """All heads, the one that looks most first."""
    pattern = np.zeros((2, 2, 3, 3))
    pattern[1, 0, 2] = [0.2, 0.7, 0.1]
    pattern[0, 1, 2] = [0.4, 0.5, 0.1]
    found = find_heads(pattern, queries=[2], sources=[0, 1])
    assert [(one.layer, one.head) for one in found[:2]] in ([(1, 0), (0, 1)], [(0, 1), (1, 0)])
    assert [one.weight for one in found] == pytest.approx([0.9, 0.9, 0, 0])
    assert find_heads(pattern, queries=[0, 2], sources=[1])[0].weight == 0.7  # the first cannot look there
    most = find_heads(pattern, queries=[2], sources=[1])[0]
    assert (most.layer, most.head, most.weight) == (1, 0, 0.7)


def test_rollout(pair: Pair) -> None:
    """Rows stay distributions, and two layers are the product of what each passes on."""
    pattern = patterns(reading(pair))
    found = rollout(pattern)
    one, two = ((layer.mean(0) + np.eye(len(pair.ids))) / 2 for layer in pattern)
    np.testing.assert_allclose(found[0], one, atol=1e-15)
    np.testing.assert_allclose(found[1], two @ one, atol=1e-15)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-12)


def test_value_weighted(pair: Pair) -> None:
    """By hand: weight × value × the head's part of the projection, and its length."""
    found = value_weighted(reading(pair), layer=1)
    with torch.no_grad():
        block = pair.theirs.transformer.h[1]
        hidden = pair.theirs(torch.tensor([pair.ids]), output_hidden_states=True).hidden_states[1]
        values = block.attn.c_attn(block.ln_1(hidden))[0, :, 48:].numpy()  # (T, D)
        project = block.attn.c_proj.weight.numpy()  # (D in, D out)
    pattern = patterns(reading(pair))[1]
    for head in range(3):
        part = slice(8 * head, 8 * head + 8)
        for query, source in ((0, 0), (5, 3), (11, 11)):
            right = np.linalg.norm(pattern[head, query, source] * values[source, part] @ project[part])
            assert found[head, query, source] == pytest.approx(right, rel=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda pair: patterns(reading(pair), layers=[2]),
            r"layer 2 is out of range \(0 to 1\)",
        ),
        (
            lambda pair: query_steps(reading(pair), layer=0, head=3, position=0),
            r"head 3 is out of range \(0 to 2\)",
        ),
        (
            lambda pair: query_steps(reading(pair), layer=0, head=0, position=12),
            r"position 12 is out of range \(the text has positions 0 to 11\)",
        ),
        (lambda pair: patterns(reading(pair, [])), "the text is empty"),
        (
            lambda pair: patterns(reading(pair, [1] * 41)),
            "41 tokens are 1 more than the model's context of 40",
        ),
    ],
)
def test_what_is_not_there(pair: Pair, call: object, words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        call(pair)  # type: ignore[operator]
