"""Attention in numbers: the steps of one query, what kind of head a head is, and who looks from here to there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.decoder import Array, Decoder, as_row, check_head, check_layer, look, numbers


@dataclass(frozen=True)
class Steps:
    """How one query became one mixture of values. S sources, K numbers in a head."""

    dots: Array  # (S,) 1 q·k
    scaled: Array  # (S,) 2 ÷ √K
    masked: Array  # (S,) 3 what lies ahead is −∞
    weights: Array  # (S,) 4 softmax
    values: Array  # (S, K) 5 the values
    weighted: Array  # (S, K) each by its weight
    mix: Array  # (K,) and their sum


def steps_of(q: Array, k: Array, v: Array, position: int) -> Steps:
    """The five steps, in float64, of a query (K,) on keys and values (S, K), for somebody who stands at `position`."""
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (q, k, v))
    dots = k @ q
    scaled = dots / np.sqrt(len(q))
    masked = np.where(np.arange(len(k)) <= position, scaled, -np.inf)
    weights = np.exp(masked - masked.max())
    weights /= weights.sum()
    weighted = weights[:, None] * v
    return Steps(dots, scaled, masked, weights, v, weighted, weighted.sum(0))


@torch.inference_mode()
def query_steps(model: Decoder, ids: Sequence[int], layer: int, head: int, position: int) -> Steps:
    """The five steps of one position in one head, ahead of the mask as behind it."""
    check_layer(model, layer)
    check_head(model, head)
    if not -len(ids) <= position < len(ids):
        raise InputError(f"position {position} is not there; the text has positions 0 to {len(ids) - 1}")
    sites = [f"blocks.{layer}.attn.{name}" for name in "qkv"]
    with look(model, *sites) as seen:
        model(as_row(model, ids), last=True)
    q, k, v = (numbers(seen[site][0, head]) for site in sites)
    return steps_of(q[position], k, v, position % len(ids))


def softmax_table(scores: Sequence[Sequence[float]], width: int = 0) -> dict[str, Array]:
    """A table of raw scores (T, T) through scaling (by √width; 0: none), mask and softmax: the article's picture."""
    raw = np.asarray(scores, dtype=np.float64)
    scaled = raw / np.sqrt(width) if width else raw
    masked = np.where(np.tri(len(raw), dtype=bool), scaled, -np.inf)
    weights = np.exp(masked - masked.max(-1, keepdims=True))
    return {
        "raw": raw,
        "scaled": scaled,
        "masked": masked,
        "weights": weights / weights.sum(-1, keepdims=True),
    }


@torch.inference_mode()
def patterns(model: Decoder, ids: Sequence[int], layers: Sequence[int] | None = None) -> Array:
    """Who looked at whom: (L, H, T, T), of all layers or some."""
    layers = range(len(model.blocks)) if layers is None else layers
    for layer in layers:
        check_layer(model, layer)
    sites = [f"blocks.{layer}.attn.pattern" for layer in layers]
    with look(model, *sites) as seen:
        model(as_row(model, ids), last=True)
    return numbers(torch.stack([seen[site][0] for site in sites]))


@dataclass(frozen=True)
class HeadStatistics:
    """What kind of head each is: (L, H) each. Shares are of the attention of those positions that have such a source."""

    previous: Array  # on the token before
    first: Array  # on the first token
    duplicate: Array  # on the same token, earlier
    induction: Array  # on what followed the same token, earlier
    entropy: Array  # nats; log of how many tokens it looks at
    distance: Array  # how far back, on average


def head_statistics(pattern: Array, ids: Sequence[int]) -> HeadStatistics:
    """Kinds of heads, from their patterns (L, H, T, T) on a text. Where no position has such a source, the share is nan."""
    size = len(ids)
    tokens = np.asarray(ids)
    same = (tokens[:, None] == tokens) & np.tri(
        size, k=-1, dtype=bool
    )  # (T, T): an earlier place of the same token
    after = np.zeros_like(same)
    after[:, 1:] = (
        same[:, :-1] & np.tri(size, k=-1, dtype=bool)[:, 1:]
    )  # also earlier: "no no" does not look back at itself
    back = np.arange(size)[:, None] - np.arange(size)

    def share(sources: Array) -> Array:
        """Mean over the positions that have a source of the kind, of the attention that they give it."""
        asked = sources.any(-1)
        if not asked.any():
            return np.full(pattern.shape[:2], np.nan)
        given: Array = (pattern * sources).sum(-1)[..., asked].mean(-1)
        return given

    logs = np.log(np.where(pattern > 0, pattern, 1.0))
    return HeadStatistics(
        previous=share(back == 1),
        first=share((np.arange(size) == 0) & (back > 0)),
        duplicate=share(same),
        induction=share(after),
        entropy=-(pattern * logs).sum(-1).mean(-1),
        distance=(pattern * np.maximum(back, 0)).sum(-1).mean(-1),
    )


@dataclass(frozen=True)
class Found:
    """A head that looks from one place to another."""

    layer: int
    head: int
    weight: float


def find_heads(pattern: Array, queries: Sequence[int], sources: Sequence[int]) -> list[Found]:
    """All heads by how much the queries (places of one word) give to the sources (places of another), most first.

    A query that stands before all sources cannot look at them, and does not count.
    """
    able = [query for query in queries if query >= min(sources)]
    given = pattern[:, :, able][..., list(sources)].sum(-1).mean(-1)  # (L, H)
    order = np.argsort(-given, axis=None, kind="stable")
    places = (np.unravel_index(int(at), given.shape) for at in order)
    return [Found(int(layer), int(head), float(given[layer, head])) for layer, head in places]


def rollout(pattern: Array) -> Array:
    """Attention through all layers (Abnar and Zuidema, 2020): (L, H, T, T) -> (L, T, T), after each layer.

    Heads are averaged, and half of what a position has is what it had before.
    """
    size = pattern.shape[-1]
    through: list[Array] = []
    for layer in (pattern.mean(1) + np.eye(size)) / 2:
        through.append(layer @ through[-1] if through else layer)
    return np.stack(through)


@torch.inference_mode()
def value_weighted(model: Decoder, ids: Sequence[int], layer: int) -> Array:
    """(H, T, T): the length of what each source truly hands over, weight × value × projection (Kobayashi et al., 2020)."""
    check_layer(model, layer)
    site = f"blocks.{layer}.attn"
    with look(model, f"{site}.pattern", f"{site}.v") as seen:
        model(as_row(model, ids), last=True)
    values = seen[f"{site}.v"][0]  # (H, S, K)
    block: Any = model.blocks[layer]
    weight = block.attn.proj.weight.view(-1, values.shape[0], values.shape[2])  # (D, H, K)
    lengths: Tensor = torch.einsum("dhk,hsk->hsd", weight, values).norm(dim=-1)  # (H, S)
    return numbers(seen[f"{site}.pattern"][0] * lengths[:, None])
