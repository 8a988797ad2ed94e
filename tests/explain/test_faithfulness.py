"""Deletion and insertion by hand on another implementation; agreement as scipy has it."""

import numpy as np
import pytest
import torch
from explain.readings import reading
from explain.test_saliency import TARGETS
from small import Pair

from glassformer.explain.faithfulness import ORDERS, agreement, faithfulness
from glassformer.explain.saliency import Saliency, Target, saliency


@pytest.mark.parametrize("blank", [None, 33])
def test_deletion_and_insertion(pair: Pair, words: torch.Tensor, blank: int | None) -> None:
    """By hand on the other implementation, for every fraction; the ends are the whole text and none of it."""
    found = saliency(reading(pair), TARGETS)
    curves = faithfulness(reading(pair), found, blank=blank)
    table = pair.theirs.transformer.wte.weight.detach()
    for number, target in enumerate(TARGETS):
        size = target.position + 1
        order = np.argsort(-found.shares[number, :size], kind="stable")
        for which, fraction in enumerate(curves.fractions):
            gone = order[: round(float(fraction) * size)]
            for curve, blanks in (
                (curves.deletion, gone),
                (curves.insertion, np.setdiff1d(np.arange(size), gone)),
            ):
                some = words.detach()[:, :size].clone()
                some[0, blanks] = 0 if blank is None else table[blank]
                with torch.no_grad():
                    right = pair.theirs(inputs_embeds=some).logits[0, -1].softmax(-1)[target.token]
                assert curve[number, which] == pytest.approx(float(right), rel=1e-5)
    np.testing.assert_allclose(curves.deletion[:, 0], curves.insertion[:, -1], rtol=1e-6)
    np.testing.assert_allclose(curves.deletion[:, -1], curves.insertion[:, 0], rtol=1e-6)
    ratio = curves.deletion / curves.deletion[:, :1]
    np.testing.assert_allclose(curves.deletion_area, np.trapezoid(ratio, curves.fractions, axis=-1))


def test_random_orders_are_the_baseline(pair: Pair) -> None:
    """Of two tokens one is blank in half of the points: the mean is a mixture of both, always the same one."""
    target = Target(1, 7)
    found = saliency(reading(pair), [target])
    one, other = (
        faithfulness(reading(pair), Saliency("", [target], np.array([scores])), fractions=(0, 0.5, 1))
        for scores in ([2.0, 1.0], [1.0, 2.0])
    )
    curves = faithfulness(reading(pair), found, fractions=(0, 0.5, 1))
    np.testing.assert_allclose(curves.random[:, [0, 2]], curves.deletion[:, [0, 2]], rtol=1e-6)
    part = (curves.random[0, 1] - one.deletion[0, 1]) / (other.deletion[0, 1] - one.deletion[0, 1])
    assert part * ORDERS == pytest.approx(round(part * ORDERS), abs=1e-4)
    assert 0 < round(part * ORDERS) < ORDERS
    np.testing.assert_array_equal(curves.random, one.random)
    ratio = curves.random / curves.random[:, :1]
    np.testing.assert_allclose(curves.random_area, np.trapezoid(ratio, curves.fractions, axis=-1))


def test_agreement() -> None:
    """Spearman's correlation, as scipy has it; an order turned round is its opposite."""
    from scipy.stats import spearmanr

    draw = np.random.default_rng(0)
    targets = [Target(9, 1), Target(5, 1)]
    found = {name: Saliency(name, targets, draw.random((2, 10)).round(1)) for name in ("a", "b", "c")}
    agreed = agreement(found)
    assert set(agreed) == {("a", "b"), ("a", "c"), ("b", "c")}
    for (one, other), value in agreed.items():
        each = [
            spearmanr(found[one].shares[n][:size], found[other].shares[n][:size])[0]
            for n, size in ((0, 10), (1, 6))
        ]
        assert value == pytest.approx(np.mean(each))
    rising = Saliency("up", [Target(3, 1)], np.array([[1.0, 2, 3, 4]]))
    falling = Saliency("down", [Target(3, 1)], np.array([[4.0, 3, 2, 1]]))
    assert agreement({"up": rising, "down": falling}) == {("up", "down"): pytest.approx(-1.0)}
