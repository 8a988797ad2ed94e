"""What a model is trained to do: batch -> loss."""

import torch.nn.functional as F
from torch import Tensor, nn


def next_token(model: nn.Module, batch: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of every next token of (B, T + 1)."""
    logits = model(batch[:, :-1])  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
