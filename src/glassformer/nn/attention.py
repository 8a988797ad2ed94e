"""Attention: every position has a query (q); every source has a key (k) and a value (v)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.nn.cache import KVCache
from glassformer.trace import Tapped


def attend(
    site: Tapped,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q·kᵀ / √K)·v, by the fused kernel wherever that is possible.

    q (B, H, T, K), k and v (B, H, S, K). `mask` (…, T, S) is True where a position may look; None means
    everywhere or, with `causal`, at itself and before.
    """

    def whole_mask() -> Tensor | None:
        return causal_mask(q.shape[2], k.shape[2], device=q.device) if causal and mask is None else mask

    def fused(dropout: float) -> Tensor:
        # The kernel's own causal mode skips what lies ahead; a mask of the same meaning is read and computed.
        is_causal = causal and mask is None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal)

    return fused_unless_edited(site, q, k, v, mask=whole_mask, fused=fused, dropout=dropout)


def attend_shared(
    site: Tapped, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Attention of rows that share keys and values, as the beams of one source do.

    q (B, H, T, K), k and v (B / n, H, S, K): the first n rows of q look at the first row of k, and so on.
    `mask` (B / n, 1, 1, S) is True where a position may look.
    """
    B, H, T, K = q.shape
    rows = B // len(k)  # that share

    def fused(dropout: float) -> Tensor:
        # Rows that share become positions of one row: its keys and values are not copied, and read once.
        together = q.view(-1, rows, H, T, K).transpose(1, 2).flatten(2, 3)  # (B / n, H, n·T, K)
        mix = F.scaled_dot_product_attention(together, k, v, attn_mask=mask, dropout_p=dropout)
        return mix.view(-1, H, rows, T, K).transpose(1, 2).flatten(0, 1)  # (B, H, T, K)

    if not site.watched("scores", "pattern"):
        return fused(dropout if site.training else 0.0)

    def each(x: Tensor) -> Tensor:
        return x.repeat_interleave(rows, dim=0)

    def whole_mask() -> Tensor | None:
        return None if mask is None else each(mask)

    return fused_unless_edited(site, q, each(k), each(v), mask=whole_mask, fused=fused, dropout=dropout)


def attend_banded(
    site: Tapped,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention to the last `window` positions alone, the position itself included.

    q (B, H, T, K), k and v (B, H, S, K); the queries are the last T of the S sources. `padding` (B,) counts
    the void positions at the left of each row. Time and memory grow with T × window, not with T × S.
    """

    def whole_mask() -> Tensor:
        return band_mask(q.shape[2], k.shape[2], window=window, padding=padding, device=q.device)

    def fused(dropout: float) -> Tensor:
        return _attend_by_chunks(q, k, v, window=window, padding=padding, dropout=dropout)

    return fused_unless_edited(site, q, k, v, mask=whole_mask, fused=fused, dropout=dropout)


def fused_unless_edited(
    site: Tapped,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Callable[[], Tensor | None],
    fused: Callable[[float], Tensor],
    dropout: float,
) -> Tensor:
    """The fused kernel, or step by step where the steps are edited or differentiated: (B, H, T, K).

    Reading `scores` and `pattern` computes them beside the fused kernel, so that reading changes no bit of
    the output. In training, `dropout` is the probability that an entry of the pattern is dropped.
    """
    dropout = dropout if site.training else 0.0

    if site.altered("scores", "pattern"):
        pattern = explicit_pattern(site, q, k, mask())
        return F.dropout(pattern, dropout) @ v

    if site.watched("scores", "pattern"):
        with torch.no_grad():
            explicit_pattern(site, q, k, mask())
    return fused(dropout)


def explicit_pattern(site: Tapped, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """The attention pattern in the article's steps: score, scale, mask the future, softmax."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (B, H, T, S)
    return pattern_of(site, scores, mask)


def pattern_of(site: Tapped, scores: Tensor, mask: Tensor | None) -> Tensor:
    """The attention pattern that scores (B, H, T, S) make: mask the future, softmax."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    scores = site.tap("scores", scores)
    if mask is not None and site.altered("scores"):
        # An edit may change what a position sees; it may not let it see ahead.
        scores = scores.masked_fill(~mask, -torch.inf)
    return site.tap("pattern", scores.softmax(-1))


def causal_mask(queries: int, sources: int, *, device: torch.device | None = None) -> Tensor:
    """(T, S), True where a query may look: at itself and before. The queries are the last of the sources."""
    return torch.ones(queries, sources, dtype=torch.bool, device=device).tril(sources - queries)


def band_mask(
    queries: int,
    sources: int,
    *,
    window: int,
    padding: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """(T, S), or (B, 1, T, S) with `padding`: True at a position itself and at the `window` - 1 before it."""
    mask = causal_mask(queries, sources, device=device)
    mask = mask.triu(sources - queries - window + 1)
    return mask if padding is None else hide_padding(mask, padding)


def cache_mask(queries: int, cache: KVCache | None, *, device: torch.device) -> Tensor | None:
    """The mask of the next `queries` positions behind a cache, or None where plain causality says it all."""
    if cache is None or (cache.length == 0 and cache.padding is None):
        return None  # queries and sources are the same positions: the kernel's causal mode is right
    if cache.padding is None and queries == 1:
        return None  # the newest position sees everything, so its step needs no mask
    # Behind a cache, the first query is not the first source, which the kernel's causal mode assumes.
    mask = causal_mask(queries, cache.length + queries, device=device)  # (T, S)
    return mask if cache.padding is None else hide_padding(mask, cache.padding)


def hide_padding(mask: Tensor, padding: Tensor) -> Tensor:
    """A mask (T, S) for rows whose first `padding` (B,) positions are void: (B, 1, T, S).

    A padding position sees itself alone, which keeps its numbers finite and away from all other positions.
    """
    queries, sources = mask.shape
    places = torch.arange(sources, device=mask.device)
    real = places >= padding[:, None, None]  # (B, 1, S)
    itself = places == places[sources - queries :, None]  # (T, S)
    return (mask & real | itself)[:, None]


def _attend_by_chunks(
    q: Tensor, k: Tensor, v: Tensor, *, window: int, padding: Tensor | None, dropout: float
) -> Tensor:
    """Banded attention in chunks of `window` queries: each meets its own sources and those just before."""
    B, H, T, K = q.shape
    first = k.shape[2] - T  # the position of the first query
    chunk = min(window, T)
    count = -(-T // chunk)
    behind = window - 1
    missing = max(0, behind - first)  # sources before position 0, made of zeros and masked
    extra = count * chunk - T  # queries that fill the last chunk, cut off at the end

    def in_chunks(x: Tensor) -> Tensor:
        x = F.pad(x[:, :, max(0, first - behind) :], (0, 0, missing, extra))
        x = x.unfold(2, chunk + behind, chunk)  # (B, H, count, K, chunk + behind), a view
        return x.permute(0, 2, 1, 4, 3).flatten(0, 1)  # (B·count, H, chunk + behind, K)

    queries = F.pad(q, (0, 0, 0, extra)).view(B, H, count, chunk, K)
    queries = queries.transpose(1, 2).flatten(0, 1)  # (B·count, H, chunk, K)

    mask = None
    if T > 1 or padding is not None:
        starts = first + chunk * torch.arange(count, device=q.device)
        mask = _chunk_mask(starts, chunk=chunk, window=window, padding=padding)
        mask = mask.expand(B, -1, -1, -1).flatten(0, 1)[:, None]  # (B·count, 1, chunk, chunk + behind)

    mix = F.scaled_dot_product_attention(
        queries, in_chunks(k), in_chunks(v), attn_mask=mask, dropout_p=dropout
    )  # (B·count, H, chunk, K)
    mix = mix.view(B, count, H, chunk, K).transpose(1, 2)  # (B, H, count, chunk, K)
    return mix.flatten(2, 3)[:, :, :T]


def _chunk_mask(starts: Tensor, *, chunk: int, window: int, padding: Tensor | None) -> Tensor:
    """What the queries of chunks that begin at `starts` may see: (B or 1, count, chunk, sources of one)."""
    offsets = torch.arange(chunk, device=starts.device)
    queries = starts[:, None, None] + offsets[:, None]  # (count, chunk, 1)
    reach = torch.arange(1 - window, chunk, device=starts.device)
    sources = starts[:, None, None] + reach  # (count, 1, chunk + window - 1)

    in_band = (sources <= queries) & (sources > queries - window)
    void = 0 if padding is None else padding[:, None, None, None]
    real = sources >= void  # (B or -, count, 1, chunk + window - 1)
    mask = in_band & real | (sources == queries)
    return mask if padding is not None else mask[None]
