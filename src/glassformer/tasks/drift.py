"""How far a model that translates drifts: its loss when it reads its own tokens, beside that on true ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.data.pairs import Pair, Pairs, Rows
from glassformer.errors import InputError
from glassformer.tasks.translate import Translator
from glassformer.training.forcing import free_running
from glassformer.training.hyperparameters import Hyperparameters
from glassformer.training.loop import evaluate
from glassformer.training.objectives import target_token

ROWS = 32  # pairs that are computed at once


@dataclass(frozen=True)
class Drift:
    """The loss of the true targets, in nats a token, by what the decoder read before each of them."""

    tokens: int
    true_loss: float  # after true tokens, as in teacher forcing
    own_loss: float  # after the likeliest tokens by its own scores, as when it translates

    @property
    def drift(self) -> float:
        """What reading its own tokens costs, in nats a token."""
        return self.own_loss - self.true_loss

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {**vars(self), "drift": self.drift}


def drift(model: Translator, pairs: Sequence[Pair], *, to: str | None = None) -> Drift:
    """Measure it on pairs that the model has not learned from."""
    if not pairs:
        raise InputError("drift is measured on at least one pair")
    if model.tokenizer is None or model.tokenizer.end is None:
        raise InputError(f"{model.name} has no vocabulary, so it cannot read text")
    net, tokenizer, end = model.net, model.tokenizer, model.tokenizer.end
    sources = Rows.of([model.encode_source(pair.source, to=to) for pair in pairs])
    targets = Rows.of([[net.config.start, *tokenizer.encode(pair.target), end] for pair in pairs])
    encoded = Pairs(sources, targets, net.config.pad)
    with model.lock, torch.inference_mode():
        true_loss, own_loss = (
            evaluate(
                net, encoded.in_order(batch=ROWS), objective=objective, hyperparameters=Hyperparameters()
            )
            for objective in (target_token, free_running)
        )
    return Drift(len(targets.ids) - len(pairs), true_loss, own_loss)
