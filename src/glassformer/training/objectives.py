"""What a model is trained to do: batch -> loss, summed over the targets. The loop divides by their number."""

import torch
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


def answers(
    model: nn.Module,
    batch: dict[str, Tensor],
    *,
    choose: bool = False,
    lm_weight: float = 0.0,
    smoothing: float = 0.0,
) -> Tensor:
    """What a head says of examples: cross-entropy of a class or an answer, squared error of a number.

    In training the decoder may go on learning to write the texts: `lm_weight` times the loss of a token, on
    average over the tokens of a row and the rows of an example (Radford et al., 2018).
    """
    writes = model.training and lm_weight > 0
    found = model(batch["ids"], write=True) if writes else (model(batch["ids"]), None)
    scores, written = found
    said, target = read_out(scores, batch, choose=choose), batch["target"]
    if target.is_floating_point():
        loss = (said[:, 0].float() - target).square().sum()
    else:
        smooth = smoothing if model.training else 0.0
        loss = _cross_entropy(said[:, None], target[:, None], smoothing=smooth)
    return loss if written is None else loss + lm_weight * _writing(written, batch)


def read_out(scores: Tensor, batch: dict[str, Tensor], *, choose: bool) -> Tensor:
    """scores (R, T, C) of all rows -> what is said of each example: (B, C), or (B, K) of its K answers.

    The rows of an example are added, or are answers side by side; an answer that another example lacks is −∞.
    """
    at = batch["at"]
    ends = scores[torch.arange(len(at), device=at.device), at]  # (R, C)
    rows = batch["rows"]  # (B, K)
    missing = rows < 0
    every = ends[rows.clamp(min=0)]  # (B, K, C)
    if choose:
        return every[..., 0].masked_fill(missing, float("-inf"))
    return every.masked_fill(missing[..., None], 0.0).sum(1)


def _writing(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The loss of the language model: logits (R, T, V) -> nats a token, summed over examples."""
    ids, at, rows = batch["ids"], batch["at"], batch["rows"]
    real = torch.arange(1, ids.shape[1], device=ids.device) <= at[:, None]  # (R, T − 1)
    targets = ids[:, 1:].masked_fill(~real, IGNORED)
    logits = logits[:, :-1].float() if logits.dtype.itemsize < 4 else logits[:, :-1]
    nats = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    by_row = nats.sum(1) / real.sum(1).clamp(min=1)  # (R,)
    own = (rows >= 0).sum(1)  # (B,)
    return (by_row / own.repeat_interleave(own)).sum()


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
