"""The neurons of the feed-forward layers: when they fire, what they push, and what they have in common."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from glassformer.errors import InputError
from glassformer.explain.decoder import Array, Decoder, as_row, check_layer, look, numbers

SIZE = 128  # tokens of a passage that is searched, at most


@dataclass(frozen=True)
class Activations:
    """How strongly every neuron of some layers fired at every token."""

    layers: list[int]
    ids: list[int]
    values: Array  # (L, T, N)

    def top(self, position: int, k: int = 10) -> list[tuple[int, int, float]]:
        """(layer, neuron, activation) of the strongest at a position."""
        if not -len(self.ids) <= position < len(self.ids):
            raise InputError(
                f"position {position} is not there; the text has positions 0 to {len(self.ids) - 1}"
            )
        here = self.values[:, position]  # (L, N)
        best = np.argsort(-here, axis=None, kind="stable")[:k]
        places = (np.unravel_index(int(at), here.shape) for at in best)
        return [(self.layers[layer], int(neuron), float(here[layer, neuron])) for layer, neuron in places]

    @property
    def rows(self) -> Array:
        """(L·N, T): a row a neuron, all layers one below the other; what is below zero is no firing."""
        return np.maximum(self.values, 0).transpose(0, 2, 1).reshape(-1, len(self.ids))

    def nmf(self, factors: int, *, seed: int = 0, iterations: int = 500) -> "Factors":
        """Non-negative matrix factorisation: a few patterns over the tokens, of which every neuron is a mixture."""
        from sklearn.decomposition import NMF

        if not 1 <= factors <= len(self.ids):
            raise InputError(
                f"factors must be between 1 and the {len(self.ids)} tokens of the text, not {factors}"
            )
        rows = self.rows
        made = NMF(factors, init="nndsvdar", random_state=seed, max_iter=iterations, tol=1e-4)
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
                f"clusters must be between 1 and the {most} ways in which neurons fire on this text, not {count}"
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
def activations(model: Decoder, ids: Sequence[int], layers: Sequence[int] | None = None) -> Activations:
    """The neurons of all layers, or of some, over a text."""
    chosen = list(range(len(model.blocks)) if layers is None else layers)
    for layer in chosen:
        check_layer(model, layer)
    if not chosen:
        raise InputError("name at least one layer")
    sites = [f"blocks.{layer}.mlp.neurons" for layer in chosen]
    with look(model, *sites) as seen:
        model(as_row(model, ids), last=True)
    return Activations(chosen, list(ids), numbers(torch.stack([seen[site][0] for site in sites])))


@torch.inference_mode()
def pushed(model: Decoder, layer: int, neuron: int, k: int = 10) -> tuple[Array, Array]:
    """The tokens whose logits a neuron raises most when it fires, and by how much a unit of it (before the norm's scale)."""
    check_neuron(model, layer, neuron)
    block: Any = model.blocks[layer]
    vector = block.mlp.down.weight[:, neuron]  # (D,)
    logits = model.head((vector - vector.mean()) * model.norm.weight)  # (V,)
    best = logits.topk(min(k, len(logits)))
    return numbers(best.indices), numbers(best.values)


def check_neuron(model: Decoder, layer: int, neuron: int) -> None:
    """A neuron that is there, counted from 0."""
    check_layer(model, layer)
    if not 0 <= neuron < model.config.neurons:
        raise InputError(
            f"neuron {neuron} is not there; a layer of this model has neurons 0 to {model.config.neurons - 1}"
        )


@dataclass(order=True)
class Passage:
    """A stretch of a text in which a neuron fired."""

    activation: float
    document: int
    position: int = field(compare=False)  # of the strongest token, within the ids
    ids: list[int] = field(compare=False)


@torch.inference_mode()
def passages(
    model: Decoder,
    documents: Iterable[Sequence[int]],
    neurons: Sequence[tuple[int, int]],
    *,
    k: int = 5,
    around: int = 10,
    progress: Callable[[int], object] = lambda tokens: None,
) -> dict[tuple[int, int], list[Passage]]:
    """For each (layer, neuron), the k passages in which it fires most, with the tokens around. Memory does not grow.

    Progress is told in tokens read so far.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    for layer, neuron in neurons:
        check_neuron(model, layer, neuron)
    sites = sorted({f"blocks.{layer}.mlp.neurons" for layer, _ in neurons})
    size = min(SIZE, model.context)
    heaps: dict[tuple[int, int], list[Passage]] = {key: [] for key in neurons}
    read = 0
    for document, ids in enumerate(documents):
        for start in range(0, len(ids), size):
            piece = list(ids[start : start + size])
            with look(model, *sites) as seen:
                model(as_row(model, piece), last=True)
            for layer, neuron in neurons:
                values = seen[f"blocks.{layer}.mlp.neurons"][0, :, neuron]
                at = int(values.argmax())
                left = max(0, at - around)
                heap = heaps[layer, neuron]
                heapq.heappush(
                    heap, Passage(float(values[at]), document, at - left, piece[left : at + around + 1])
                )
                if len(heap) > k:
                    heapq.heappop(heap)
            read += len(piece)
            progress(read)
    return {key: sorted(heap, reverse=True) for key, heap in heaps.items()}
