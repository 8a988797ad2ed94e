"""Attention in numbers: the steps of one query, kinds of heads, and which heads attend from here to there.

A pattern is (L, H, T, S): layers, heads, queries, sources. Within one text S = T; in cross-attention
(`part="cross"`) the sources are another text. Which sources a query may see is taken from the trace, so that
causal, banded, two-sided and rectangular patterns are treated alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.reading import Array, Reading, attention_of, layer_sites, numbers, output_matrix


@dataclass(frozen=True)
class Steps:
    """How one query became one mixture of values. S sources, K numbers in a head."""

    query: Array  # (K,)
    keys: Array  # (S, K)
    dots: Array  # (S,) 1 q·k, and what the distance adds where attention is relative
    scaled: Array  # (S,) 2 ÷ √K
    masked: Array  # (S,) 3 −∞ where the query may not see
    weights: Array  # (S,) 4 softmax
    values: Array  # (S, K) 5 the values
    weighted: Array  # (S, K) each by its weight
    mix: Array  # (K,) and their sum


def steps_of(
    query: Array, *, keys: Array, values: Array, visible: Array, distance: Array | None = None
) -> Steps:
    """The five steps, in float64, of a query (K,) on keys and values (S, K) of which some are `visible`.

    `distance` (S,) is what relative attention adds to q·k.
    """
    query, keys, values = (np.asarray(array, dtype=np.float64) for array in (query, keys, values))
    dots = keys @ query + (0.0 if distance is None else np.where(visible, distance, 0.0))
    scaled = dots / np.sqrt(len(query))
    masked = np.where(visible, scaled, -np.inf)

    weights = np.exp(masked - masked.max())
    weights /= weights.sum()
    weighted = weights[:, None] * values
    return Steps(query, keys, dots, scaled, masked, weights, values, weighted, weighted.sum(0))


@torch.inference_mode()
def query_steps(
    reading: Reading, *, layer: int, head: int, position: int, stack: str = "", part: str = "attn"
) -> Steps:
    """The five steps of one position in one head, masked sources included."""
    reading.check_layer(layer, stack=stack)
    reading.check_head(head, stack=stack)
    position = reading.check_position(position, stack=stack)

    visible = masks(reading, layers=[layer], stack=stack, part=part)[0, position]  # (S,)
    here = reading.stack(stack).site(layer, part)
    seen = reading.run(f"{here}.*")
    q, k, v = (numbers(seen[f"{here}.{name}"][0, head]) for name in "qkv")
    relative = seen.get(f"{here}.distance")
    distance = None if relative is None else numbers(relative[0, head, position])
    return steps_of(q[position], keys=k, values=v, visible=visible, distance=distance)


def softmax_table(scores: Sequence[Sequence[float]], width: int = 0) -> dict[str, Array]:
    """The article's picture: raw scores (T, T) through scaling (by √width; 0: none), mask and softmax."""
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


def _sites(reading: Reading, name: str, *, stack: str, part: str, layers: Sequence[int]) -> list[str]:
    """A site of attention in some layers of a stack."""
    chosen = reading.stack(stack)
    return layer_sites(chosen, f"{attention_of(chosen, part).name}.{name}", layers=layers)


@torch.inference_mode()
def patterns(
    reading: Reading, *, layers: Sequence[int] | None = None, stack: str = "", part: str = "attn"
) -> Array:
    """How much every query attends to every source: (L, H, T, S), of all layers or some."""
    chosen = reading.check_layers(layers, stack=stack)
    sites = _sites(reading, "pattern", stack=stack, part=part, layers=chosen)
    seen = reading.run(*sites)
    first = numbers(seen[sites[0]][0])
    found = np.empty((len(sites), *first.shape), first.dtype)
    for at, site in enumerate(sites):  # one by one: all heads of a long text are large
        found[at] = numbers(seen.take(site)[0])
    return found


@torch.inference_mode()
def masks(
    reading: Reading, *, layers: Sequence[int] | None = None, stack: str = "", part: str = "attn"
) -> Array:
    """Which sources every query may see: (L, T, S), True where a score is not −∞.

    Read in a run without edits: a mask is the model's own, and an edit of the scores would hide it.
    """
    chosen = reading.check_layers(layers, stack=stack)
    sites = _sites(reading, "scores", stack=stack, part=part, layers=chosen)
    seen = reading.run_unedited(*sites, keep=lambda scores: ~scores.isneginf().all(1))
    return np.stack([numbers(seen[site][0]) for site in sites])


@dataclass(frozen=True)
class HeadStatistics:
    """What kind of head each is: (L, H) each.

    Shares are of the attention of those positions that have such a source.
    `previous`, `duplicate`, `induction` and `distance` compare positions of one text: between two texts they
    are nan. The first three look back only; in a two-sided model, sources ahead count as none of these kinds.
    """

    previous: Array  # on the token before
    first: Array  # on the first token
    duplicate: Array  # on the same token, earlier
    induction: Array  # on what followed the same token, earlier
    entropy: Array  # nats; log of how many tokens it attends to
    distance: Array  # how far away, on average


def head_statistics(
    pattern: Array, ids: Sequence[int] | None, *, mask: Array | None = None
) -> HeadStatistics:
    """Kinds of heads, from their patterns (L, H, T, S) on a text; `ids` is None between two texts.

    Where no position has a source of a kind, its share is nan.
    `mask` (L, T, S) says which sources a query may see; without it, see `assumed_mask`.
    """
    visible = assumed_mask(pattern) if mask is None else np.broadcast_to(mask, _mask_shape(pattern))
    unknown = np.full(pattern.shape[:2], np.nan)
    shares = dict.fromkeys(("previous", "duplicate", "induction"), unknown)
    for name, places in _places(pattern.shape[-2:], ids).items():
        shares[name] = _share(pattern, places, visible)

    away = np.abs(_back(pattern.shape[-2:]))
    return HeadStatistics(
        entropy=np.stack([_entropy(layer) for layer in pattern]),
        distance=unknown if ids is None else np.stack([(layer * away).sum(-1).mean(-1) for layer in pattern]),
        **shares,
    )


def _entropy(layer: Array) -> Array:
    """(H,): of each head of a layer (H, T, S), in nats, mean over its queries."""
    logs = np.log(np.where(layer > 0, layer, 1.0))
    found: Array = -(layer * logs).sum(-1).mean(-1)
    return found


def queries_of_kinds(mask: Array, ids: Sequence[int] | None) -> dict[str, Array]:
    """(L,) by kind of head: how many queries can see such a source; arguments as in `head_statistics`."""
    kinds = _places(mask.shape[-2:], ids)
    return {name: (places & mask).any(-1).sum(-1) for name, places in kinds.items()}


def _places(shape: tuple[int, ...], ids: Sequence[int] | None) -> dict[str, Array]:
    """(T, S) by kind of head: which sources it attends to."""
    start = np.arange(shape[1]) == 0
    if ids is None:
        return {"first": np.broadcast_to(start, shape)}

    back = _back(shape)
    earlier = back > 0
    tokens = np.asarray(ids)
    same = (tokens[:, None] == tokens) & earlier  # an earlier place of the same token
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    after &= earlier  # in "no no" a position does not follow itself
    return {"previous": back == 1, "first": start & (back != 0), "duplicate": same, "induction": after}


def _back(shape: tuple[int, ...]) -> Array:
    """(T, S): how far each source is behind each query."""
    queries, sources = shape
    distances: Array = np.arange(queries)[:, None] - np.arange(sources)
    return distances


def assumed_mask(pattern: Array) -> Array:
    """The mask (L, T, S) of patterns that come without one: causal where no weight lies ahead, else none."""
    queries, sources = pattern.shape[-2:]
    behind = np.tri(queries, sources, dtype=bool)
    causal = queries == sources and not (pattern * ~behind).any()
    visible = behind if causal else np.ones_like(behind)
    return np.broadcast_to(visible, _mask_shape(pattern))


def _mask_shape(pattern: Array) -> tuple[int, int, int]:
    layers, _, queries, sources = pattern.shape
    return layers, queries, sources


def _share(pattern: Array, kind: Array, visible: Array) -> Array:
    """(L, H): attention on sources of a kind (T, S), mean over the positions that can see such a source."""
    shares = np.full(pattern.shape[:2], np.nan)
    for layer, mask in enumerate(visible):
        able = (kind & mask).any(-1)  # (T,)
        if able.any():
            shares[layer] = (pattern[layer] * kind).sum(-1)[:, able].mean(-1)
    return shares


@dataclass(frozen=True)
class Found:
    """A head that attends from one place to another."""

    layer: int
    head: int
    weight: float


def find_heads(
    pattern: Array, *, queries: Sequence[int], sources: Sequence[int], mask: Array | None = None
) -> list[Found]:
    """All heads by how much the queries attend to the sources, most first.

    Queries and sources are positions, of one word and of another.
    A query that can see none of the sources does not count. `mask` is as in `head_statistics`.
    """
    visible = assumed_mask(pattern) if mask is None else np.broadcast_to(mask, _mask_shape(pattern))
    kind = np.zeros(pattern.shape[-2:], dtype=bool)
    kind[np.ix_(queries, sources)] = True
    given = _share(pattern, kind, visible)  # (L, H); nan in a layer where no query can see a source
    if np.isnan(given).all():
        raise InputError("no query can see any of the sources")

    given = np.nan_to_num(given)
    order = np.argsort(-given, axis=None, kind="stable")
    places = (np.unravel_index(int(at), given.shape) for at in order)
    return [Found(int(layer), int(head), float(given[layer, head])) for layer, head in places]


def rollout(pattern: Array) -> Array:
    """Attention through all layers (Abnar and Zuidema, 2020): (L, H, T, T) -> (L, T, T), after each layer.

    Heads are averaged, and half of what a position has is what it had before. Any mask will do; a rectangular
    pattern will not: its queries are not the sources of the next layer.
    """
    queries, sources = pattern.shape[-2:]
    if queries != sources:
        raise InputError(f"rollout needs square patterns, not {queries} queries on {sources} sources")
    through: list[Array] = []
    for layer in (pattern.mean(1) + np.eye(queries)) / 2:
        through.append(layer @ through[-1] if through else layer)
    return np.stack(through)


@torch.inference_mode()
def value_weighted(reading: Reading, *, layer: int, stack: str = "", part: str = "attn") -> Array:
    """(H, T, S): length of what each source adds, weight × value × projection (Kobayashi et al., 2020)."""
    reading.check_layer(layer, stack=stack)
    blocks = reading.stack(stack)
    matrix = output_matrix(reading.net, blocks, layer=layer, part=attention_of(blocks, part))
    site = blocks.site(layer, part)
    seen = reading.run(f"{site}.pattern", f"{site}.v")

    values = seen[f"{site}.v"][0]  # (H, S, K)
    heads, _, width = values.shape
    weight = matrix.weight.view(-1, heads, width)  # (D, H, K)
    added: Tensor = torch.einsum("dhk,hsk->hsd", weight, values)  # (H, S, D)
    lengths = added.norm(dim=-1)  # (H, S)
    return numbers(seen[f"{site}.pattern"][0] * lengths[:, None])
