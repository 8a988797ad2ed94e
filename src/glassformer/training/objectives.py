"""What a model is trained to do: batch -> loss, summed over the targets. The loop divides by their number."""

import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100  # the target that cross_entropy leaves out


def next_token(model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy, in nats, of every next token of `ids` (B, T + 1) that `mask` (B, T) selects.

    In training, a share `smoothing` of every one-hot target is spread over the whole vocabulary.
    """
    ids = batch["ids"]
    targets = ids[:, 1:]  # (B, T)
    if "mask" in batch:
        targets = targets.masked_fill(~batch["mask"], IGNORED)
    return _cross_entropy(model(ids[:, :-1]), targets, smoothing=_in_training(model, smoothing))


def learned_token(model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0) -> Tensor:
    """The same as `next_token`, for a model that computes logits where they are asked for alone.

    Of rows that are mostly read and not learned, such as a text with its summary, the others would take most
    of the memory.
    """
    ids, mask = batch["ids"], batch["mask"]
    places = mask.flatten().nonzero()[:, 0]  # (N,)
    logits = model(ids[:, :-1], only=places)  # (N, V)
    targets = ids[:, 1:].flatten()[places]
    return _cross_entropy(logits, targets, smoothing=_in_training(model, smoothing))


def target_token(
    model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0, inputs: Tensor | None = None
) -> Tensor:
    """Cross-entropy of every next token of `target` (B, T + 1), read with `source` (B, S): teacher forcing.

    With `inputs` (B, T) the decoder reads those instead of the true tokens: see `training/forcing.py`. In
    training, a share `smoothing` of every one-hot target is spread over the whole vocabulary.
    """
    target = batch["target"]
    targets = target[:, 1:].masked_fill(~batch["mask"], IGNORED)
    logits = model(batch["source"], target[:, :-1] if inputs is None else inputs)
    return _cross_entropy(logits, targets, smoothing=_in_training(model, smoothing))


def labels(model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the labels in `target` (B, T + 1), behind its first column; texts are in `source`."""
    targets = batch["target"][:, 1:].masked_fill(~batch["mask"], IGNORED)
    return _cross_entropy(model(batch["source"]), targets, smoothing=_in_training(model, smoothing))


def _in_training(model: nn.Module, smoothing: float) -> float:
    """The share that is spread: none where a model is only evaluated."""
    return smoothing if smoothing and model.training else 0.0


def _cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """logits (…, V), targets (…) -> nats, summed over all targets that are not ignored."""
    if logits.dtype.itemsize < 4:
        logits = logits.float()  # under bf16: sums of exponentials need more digits than it has
    return F.cross_entropy(
        logits.flatten(0, -2),
        targets.flatten(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
        reduction="sum",
    )
