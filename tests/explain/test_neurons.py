"""Neurons: when they fire, what they promote, what they share; beside scikit-learn and a brute search."""

import numpy as np
import pytest
import torch
from explain.readings import reading
from sklearn.decomposition import NMF
from small import Pair

from glassformer.errors import InputError
from glassformer.explain.neurons import activations, examples, promoted


def fired(pair: Pair, ids: list[int]) -> np.ndarray:
    """(L, T, N) by `transformers`."""
    caught: list[torch.Tensor] = []
    hooks = [
        block.mlp.act.register_forward_hook(lambda *made: caught.append(made[2][0]))
        for block in pair.theirs.transformer.h
    ]
    with torch.no_grad():
        pair.theirs(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return torch.stack(caught).numpy()


def test_activations_are_those_of_transformers(pair: Pair) -> None:
    """All layers, or some; and the strongest at a token."""
    right = fired(pair, pair.ids)
    found = activations(reading(pair))
    np.testing.assert_allclose(found.values, right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(activations(reading(pair), layers=[1]).values, right[1:], rtol=0, atol=1e-12)
    best = found.top(4, 3)
    assert [value for *_, value in best] == pytest.approx(
        sorted(right[:, 4].ravel().tolist(), reverse=True)[:3], rel=1e-5
    )
    assert all(right[layer, 4, neuron] == pytest.approx(value, rel=1e-5) for layer, neuron, value in best)


def test_what_a_neuron_promotes(pair: Pair) -> None:
    """A little more of it raises the logits of the tokens that it names, the first one most."""
    tokens, values = promoted(pair.ours, layer=1, neuron=13, k=97)
    down = pair.theirs.transformer.h[1].mlp.c_proj.weight.detach()[13]
    gain, table = pair.theirs.transformer.ln_f.weight.detach(), pair.theirs.lm_head.weight.detach()
    right = (table @ ((down - down.mean()) * gain)).numpy()
    np.testing.assert_allclose(values, right[tokens], rtol=1e-5, atol=1e-6)
    assert (np.diff(values) <= 0).all()
    assert promoted(pair.ours, layer=1, neuron=13, k=3)[0].tolist() == tokens[:3].tolist()


def test_factors_are_scikit_learns(pair: Pair) -> None:
    """One layer, or all; the same seed, the same factors; the largest first."""
    for layers in ([0], None):
        found = activations(reading(pair), layers=layers)
        made = found.nmf(3, seed=5)
        rows = np.maximum(np.concatenate([layer.T for layer in found.values]), 0)
        oracle = NMF(3, init="nndsvdar", random_state=5, max_iter=500, tol=1e-4)
        weights = oracle.fit_transform(rows)
        order = np.argsort(-weights.sum(0) * oracle.components_.sum(1))
        np.testing.assert_allclose(made.patterns, oracle.components_[order], rtol=1e-4)
        np.testing.assert_allclose(made.weights.reshape(-1, 3), weights[:, order], rtol=1e-4, atol=1e-12)
        again = made.weights.reshape(-1, 3) @ made.patterns
        assert made.error == pytest.approx(np.linalg.norm(rows - again) / np.linalg.norm(rows), rel=1e-4)
        np.testing.assert_array_equal(found.nmf(3, seed=5).patterns, made.patterns)
    assert made.weights.shape == (2, 96, 3)


def test_clusters(pair: Pair) -> None:
    """Neurons that fire alike are together, whatever their strength; those that never fire are nowhere."""
    found = activations(reading(pair))
    found.values[:] = 0
    found.values[0, 3, :10] = np.arange(1, 11)
    found.values[1, 7, :20] = 2.0
    numbers = found.clusters(2)
    assert len(set(numbers[0, :10].tolist())) == 1
    assert len(set(numbers[1, :20].tolist())) == 1
    assert numbers[0, 0] != numbers[1, 0]
    assert (numbers[0, 10:] == -1).all()


def test_examples(pair: Pair) -> None:
    """Where a neuron fires most, found by a brute search; what is around the token comes with it."""
    draw = np.random.default_rng(1)
    documents = [draw.integers(0, 97, size).tolist() for size in (5, 39, 90, 1, 12, 40, 41)]
    wanted = [(0, 4), (1, 50), (0, 5)]
    seen = []
    found = examples(pair.ours, documents, neurons=wanted, k=3, around=2, progress=seen.append)
    assert seen[-1] == sum(map(len, documents))
    assert seen == sorted(seen)
    for layer, neuron in wanted:
        best = []
        for number, document in enumerate(documents):
            pieces = [document[start : start + 40] for start in range(0, len(document), 40)]
            for piece in pieces:
                values = fired(pair, piece)[layer, :, neuron]
                at = int(values.argmax())
                best.append((float(values[at]), number, piece[max(0, at - 2) : at + 3], piece[at]))
        best.sort(reverse=True)
        for example, (value, number, shown, token) in zip(found[layer, neuron], best[:3], strict=True):
            assert example.activation == pytest.approx(value, abs=1e-9)
            assert (example.document, example.ids) == (number, shown)
            assert example.ids[example.position] == token


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda pair: activations(reading(pair), layers=[7]),
            r"layer 7 is out of range \(0 to 1\)",
        ),
        (lambda pair: activations(reading(pair), layers=[]), "name at least one layer"),
        (
            lambda pair: activations(reading(pair)).nmf(13),
            "between 1 and the 12 tokens of the text, not 13",
        ),
        (lambda pair: activations(reading(pair)).clusters(0), "clusters must be between 1 and the"),
        (lambda pair: activations(reading(pair)).top(12), "position 12 is out of range"),
        (
            lambda pair: promoted(pair.ours, layer=0, neuron=96),
            r"neuron 96 is out of range \(0 to 95\)",
        ),
        (lambda pair: examples(pair.ours, [], neurons=[(2, 0)]), "layer 2 is out of range"),
    ],
)
def test_what_is_not_there(pair: Pair, call: object, words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        call(pair)  # type: ignore[operator]
