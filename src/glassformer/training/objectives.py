"""What a model is trained to do: batch -> loss, summed over the targets. The loop divides by their number."""

import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100  # the target that cross_entropy leaves out


def next_token(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy, in nats, of every next token of `ids` (B, T + 1) that `mask` (B, T) selects."""
    ids = batch["ids"]
    targets = ids[:, 1:]  # (B, T)
    if "mask" in batch:
        targets = targets.masked_fill(~batch["mask"], IGNORED)

    logits = model(ids[:, :-1]).flatten(0, 1)  # (B * T, V)
    if logits.dtype.itemsize < 4:
        logits = logits.float()  # under bf16: sums of exponentials need more digits than it has
    return F.cross_entropy(logits, targets.flatten(), reduction="sum")
