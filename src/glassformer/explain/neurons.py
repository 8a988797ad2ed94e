"""Neurons of the feed-forward layers: when they fire, what they promote, what they have in common."""

import heapq
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from glassformer.errors import InputError, check_position
from glassformer.explain.reading import (
    Array,
    Readable,
    Reading,
    check_layer,
    check_neuron,
    layer_sites,
    numbers,
    output_matrix,
    stack_of,
)
from glassformer.explain.stream import norms_behind, pass_norm

SIZE = 128  # tokens that are read at once while examples are searched, at most

Neuron = tuple[int, int]  # (layer, neuron)


@dataclass(frozen=True)
class Activations:
    """How strongly every neuron of some layers fired at every token."""

    layers: list[int]
    ids: list[int]
    values: Array  # (L, T, N)

    def top(self, position: int, k: int = 10) -> list[tuple[int, int, float]]:
        """(layer, neuron, activation) of the strongest at a position."""
        here = self.values[:, check_position(len(self.ids), position)]  # (L, N)
        best = np.argsort(-here, axis=None, kind="stable")[:k]
        places = (np.unravel_index(int(at), here.shape) for at in best)
        return [(self.layers[layer], int(neuron), float(here[layer, neuron])) for layer, neuron in places]

    @property
    def rows(self) -> Array:
        """(L·N, T): a row a neuron, all layers one below the other; values below zero count as no firing."""
        return np.maximum(self.values, 0).transpose(0, 2, 1).reshape(-1, len(self.ids))

    def nmf(self, factors: int, *, seed: int = 0, iterations: int = 500) -> "Factors":
        """Non-negative matrix factorization: patterns over the tokens, of which every neuron is a mixture."""
        from sklearn.decomposition import NMF
        from sklearn.exceptions import ConvergenceWarning

        if not 1 <= factors <= len(self.ids):
            raise InputError(
                f"factors must be between 1 and the {len(self.ids)} tokens of the text, not {factors}"
            )
        rows = self.rows
        made = NMF(factors, init="nndsvdar", random_state=seed, max_iter=iterations, tol=1e-4)
        with warnings.catch_warnings():
            # How much the factors leave unexplained is part of the answer.
            warnings.simplefilter("ignore", ConvergenceWarning)
            weights = made.fit_transform(rows)  # (L·N, F)

        order = np.argsort(-(weights.sum(0) * made.components_.sum(1)), kind="stable")  # the largest first
        shape = (len(self.layers), -1, factors)
        error = float(made.reconstruction_err_ / max(np.linalg.norm(rows), 1e-30))
        return Factors(self.layers, made.components_[order], weights[:, order].reshape(shape), error)

    def clusters(self, count: int, *, seed: int = 0) -> Array:
        """(L, N): neurons that fire at the same tokens have the same number (k-means on rows of length 1)."""
        from sklearn.cluster import KMeans

        rows = self.rows
        alive = np.linalg.norm(rows, axis=1) > 0
        found = np.full(len(rows), -1)
        rows = rows[alive] / np.linalg.norm(rows[alive], axis=1, keepdims=True)

        most = len(np.unique(rows.round(6), axis=0))
        if not 1 <= count <= most:
            raise InputError(
                f"clusters must be between 1 and the {most} ways in which neurons fire here, not {count}"
            )
        found[alive] = KMeans(count, random_state=seed, n_init=4).fit_predict(rows)
        return found.reshape(len(self.layers), -1)


@dataclass(frozen=True)
class Factors:
    """F patterns over T tokens, and how much of each every neuron is."""

    layers: list[int]
    patterns: Array  # (F, T)
    weights: Array  # (L, N, F)
    error: float  # what the factors leave out, as a share of the whole


@torch.inference_mode()
def activations(
    reading: Reading, *, layers: int | Sequence[int] | None = None, stack: str = ""
) -> Activations:
    """The neurons of all layers, or of some, over a text."""
    chosen = reading.check_layers(layers, stack=stack)
    sites = layer_sites(reading.stack(stack), "mlp.neurons", layers=chosen)
    seen = reading.run(*sites)
    values = torch.stack([seen[site][0] for site in sites])  # (L, T, N)
    return Activations(chosen, list(reading.ids_of(stack)), numbers(values))


@torch.inference_mode()
def promoted(net: Readable, *, layer: int, neuron: int, k: int = 10) -> tuple[Array, Array]:
    """The tokens whose logits a neuron raises most when it fires, and by how much per unit of activation.

    Every norm on the way counts with its gain, but not with its scale, which depends on the text.
    """
    stack = stack_of(net)
    check_layer(stack, layer)
    check_neuron(stack, neuron)
    part = next(part for part in stack.parts if part.values == "neurons")
    vector = output_matrix(net, stack, layer=layer, part=part).weight[:, neuron]  # (D,)
    for norm in norms_behind(net, stack, site=stack.site(layer, part.after)):
        vector = pass_norm(norm, vector)
    logits = net.head.weight @ vector  # (V,)
    best = logits.topk(min(k, len(logits)))
    return numbers(best.indices), numbers(best.values)


@dataclass(order=True)
class Example:
    """A stretch of a text in which a neuron fired."""

    activation: float
    document: int
    position: int = field(compare=False)  # of the strongest token, within the ids
    ids: list[int] = field(compare=False)


@torch.inference_mode()
def examples(
    net: Readable,
    documents: Iterable[Sequence[int]],
    *,
    neurons: Sequence[Neuron],
    k: int = 5,
    around: int = 10,
    progress: Callable[[int], object] = lambda tokens: None,
    lock: AbstractContextManager[Any] | None = None,
) -> dict[Neuron, list[Example]]:
    """For each (layer, neuron), the k stretches of text in which it fires most, with the tokens around.

    Memory does not grow with the documents. Progress is reported in tokens read so far. The lock is held for
    one forward pass at a time, so that other users of the model need not wait for all documents.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    stack = stack_of(net)
    for layer, neuron in neurons:
        check_layer(stack, layer)
        check_neuron(stack, neuron)
    sites = layer_sites(stack, "mlp.neurons", layers=sorted({layer for layer, _ in neurons}))

    # A heap of k per neuron: its smallest entry is at the front, so that a better example replaces it at
    # once, and no more than k are ever held.
    heaps: dict[Neuron, list[Example]] = {key: [] for key in neurons}
    read = 0
    for document, piece in _pieces(documents, min(SIZE, net.context or SIZE)):
        seen = Reading(net, piece, lock=lock or nullcontext()).run(*sites)
        for layer, neuron in neurons:
            values = seen[stack.site(layer, "mlp.neurons")][0, :, neuron]  # (T,)
            at = int(values.argmax())
            left = max(0, at - around)
            shown = piece[left : at + around + 1]
            heap = heaps[layer, neuron]
            heapq.heappush(heap, Example(float(values[at]), document, at - left, shown))
            if len(heap) > k:
                heapq.heappop(heap)
        read += len(piece)
        progress(read)
    return {key: sorted(heap, reverse=True) for key, heap in heaps.items()}


def _pieces(documents: Iterable[Sequence[int]], size: int) -> Iterator[tuple[int, list[int]]]:
    """The documents, cut into pieces that the model can read at once, with the number of the document."""
    for number, ids in enumerate(documents):
        for start in range(0, len(ids), size):
            yield number, list(ids[start : start + size])
