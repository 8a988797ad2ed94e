"""Attention: every position asks a question (q), every source answers with a key (k) and hands over a value (v)."""

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
    """softmax(q·kᵀ / √K)·v: the fused kernel, or step by step where somebody edits or differentiates the steps.

    q (B, H, T, K), k and v (B, H, S, K); `mask` (…, T, S) is True where a position may look, None where it may look
    everywhere or, with `causal`, at itself and before. Merely reading `scores` and `pattern` computes them beside
    the fused kernel, so that reading changes no bit of the output. In training, `dropout` forgets this share of the pattern.
    """
    dropout = dropout if site.training else 0.0
    if site.altered("scores", "pattern"):
        return F.dropout(explicit_pattern(site, q, k, mask, causal), dropout) @ v  # (B, H, T, K)
    if site.watched("scores", "pattern"):
        with torch.no_grad():
            explicit_pattern(site, q, k, mask, causal)
    causal = causal and mask is None
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )  # (B, H, T, K)


def explicit_pattern(site: Tapped, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The attention pattern in the article's steps: score, scale, mask the future, softmax."""
    if causal and mask is None:
        mask = causal_mask(q.shape[2], k.shape[2], device=q.device)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    scores = site.tap("scores", scores)
    if mask is not None and site.altered("scores"):
        scores = scores.masked_fill(
            ~mask, -torch.inf
        )  # an edit may change what a position sees, not let it see ahead
    return site.tap("pattern", scores.softmax(-1))


def causal_mask(queries: int, sources: int, *, device: torch.device | None = None) -> Tensor:
    """(T, S), True where a position may look: at itself and before; the queries are the last of the sources."""
    return torch.ones(queries, sources, dtype=torch.bool, device=device).tril(sources - queries)


def cache_mask(queries: int, cache: KVCache | None, *, device: torch.device) -> Tensor | None:
    """The mask of the next `queries` positions behind a cache, or None where plain causality says it all.

    Rows that are padded on the left must not see their padding; a padding position sees itself alone, which keeps
    its numbers finite and away from everybody else's.
    """
    if cache is None or (cache.length == 0 and cache.padding is None):
        return None
    if cache.padding is None:
        return None if queries == 1 else causal_mask(queries, cache.length + queries, device=device)
    mask = causal_mask(queries, cache.length + queries, device=device)  # (T, S)
    sources = torch.arange(cache.length + queries, device=device)
    seen = sources >= cache.padding[:, None, None]  # (B, 1, S)
    itself = sources == sources[cache.length :, None]  # (T, S)
    return (mask & seen | itself)[:, None]  # (B, 1, T, S)
