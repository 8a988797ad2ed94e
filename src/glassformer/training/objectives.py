"""What a model is trained to do: batch -> loss, summed over the targets. The loop divides by their number."""

import torch.nn.functional as F
from torch import Tensor, nn


def next_token(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy, in nats, of every next token of `ids` (B, T + 1), where `mask` (B, T) does not take it out."""
    ids = batch["ids"]
    logits = model(ids[:, :-1])  # (B, T, V)
    targets = ids[:, 1:]  # (B, T)
    if "mask" in batch:
        targets = targets.masked_fill(~batch["mask"], -100)  # which cross_entropy leaves out
    return F.cross_entropy(logits.flatten(0, 1).float() if logits.dtype.itemsize < 4 else logits.flatten(0, 1),
                           targets.flatten(), reduction="sum")  # fmt: skip
