"""New tokens for a trained model: one more row of the token matrix for each, and of the output matrix."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

NOISE = 0.02  # tells new tokens apart, as in the paper's initialization


@torch.no_grad()
def add_tokens(net: Any, vocab: int, *, seed: int, like: int | None = None) -> None:
    """Give a model rows for `vocab` tokens, if it has fewer; the same seed gives the same rows.

    A new row is that of the token `like`, or else the mean of all rows, with a little noise. Beside the rows
    of a trained model a row of zeros would stand out: the logits of GPT-2 are far below 0, and a logit of 0
    would be the likeliest of all.
    """
    if net.vocab >= vocab:
        return  # some models have more rows than tokens
    generator = torch.Generator().manual_seed(seed)
    rows = _longer(net.tokens.weight, vocab, generator, like)
    head = net.head.weight if net.config.tied else _longer(net.head.weight, vocab, generator, like)

    net.config = replace(net.config, vocab=vocab)
    net.tokens.weight, net.tokens.num_embeddings = nn.Parameter(rows), vocab
    net.head.weight, net.head.out_features = nn.Parameter(head), vocab
    net.tie()


def _longer(rows: Tensor, count: int, generator: torch.Generator, like: int | None) -> Tensor:
    """(V, D) -> (count, D)."""
    noise = torch.randn(count - len(rows), rows.shape[1], generator=generator, dtype=torch.float32)
    near = rows.mean(0) if like is None else rows[like]
    new = near + NOISE * noise.to(rows)
    return torch.cat([rows, new])
