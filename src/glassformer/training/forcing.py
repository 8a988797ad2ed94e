"""What a decoder reads while it learns: the true tokens (teacher forcing), or also its own.

A model that only ever read true tokens drifts when it has to read what it wrote. Against that:
scheduled   ever more inputs are the model's own tokens, written one by one (Bengio et al., 2015)
parallel    the same in two passes: own tokens are what it predicts after true ones (Duckworth et al., 2019)
professor   a discriminator tells states after true tokens from states after own ones, and the model learns to
            deceive it (Lamb et al., 2016)

A model's own token is its likeliest one. Gradients do not pass through the choice of a token, so own tokens
are written first, without gradients, and one common pass over them follows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from glassformer.nn.recurrent import GRU, read
from glassformer.trace import trace
from glassformer.training.objectives import target_token

DISCRIMINATOR = "discriminator"  # its name in the model while it is trained; it is not exported
STATES = "decoder.hidden"  # the site that the discriminator looks at


@torch.no_grad()
def written(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The decoder's inputs (B, T): where `own` (B, T) says so, what the model writes after those before."""
    source, own = batch["source"], batch["own"]
    inputs = batch["target"][:, :-1].clone()
    places = own.any(0).nonzero()  # those at which some row reads its own token
    last = int(places[-1]) if len(places) else 0
    net: Any = bare(model)
    cache = net.new_cache(len(inputs), last)
    for place in range(1, last + 1):
        logits = net(source, inputs[:, place - 1 : place], cache, last=True)  # (B, 1, V)
        inputs[:, place] = torch.where(own[:, place], logits[:, 0].argmax(-1), inputs[:, place])
    return inputs


@torch.no_grad()
def predicted(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The decoder's inputs (B, T): where `own` (B, T) says so, what the model predicts after true tokens."""
    inputs, own = batch["target"][:, :-1], batch["own"]
    if not own.any():
        return inputs
    guesses = model(batch["source"], inputs[:, :-1]).argmax(-1)  # (B, T - 1)
    return torch.cat([inputs[:, :1], torch.where(own[:, 1:], guesses, inputs[:, 1:])], 1)


def scheduled_sampling(model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the true tokens; the model reads its own where the batch says so."""
    inputs = written(model, batch) if "own" in batch else None
    return target_token(model, batch, smoothing=smoothing, inputs=inputs)


def parallel_sampling(model: nn.Module, batch: dict[str, Tensor], *, smoothing: float = 0.0) -> Tensor:
    """The same in two passes, with what the model predicts after true tokens."""
    inputs = predicted(model, batch) if "own" in batch else None
    return target_token(model, batch, smoothing=smoothing, inputs=inputs)


def free_running(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy of the true tokens when the model reads nothing but its own, after the start token."""
    return scheduled_sampling(model, batch | {"own": _all_own(batch)})


class Discriminator(nn.Module):
    """Tells from a decoder's hidden states whether it read true tokens: a logit for each row.

    A GRU reads them in both directions; of its last states a small network makes the answer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.forwards = GRU(width, width)
        self.backwards = GRU(width, width)
        self.join = nn.Linear(2 * width, width)
        self.answer = nn.Linear(width, 1)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states (B, T, D), mask (B, T), True at tokens -> (B,)."""
        _, (ahead,) = read(self.forwards, states, mask=mask)
        _, (back,) = read(self.backwards, states, mask=mask, backward=True)
        joined = torch.relu(self.join(torch.cat([ahead, back], -1)))
        return self.answer(joined)[:, 0]  # type: ignore[no-any-return]

    @torch.no_grad()
    def initialize(self, seed: int) -> "Discriminator":
        """As torch initializes recurrent networks: uniform within 1/√width."""
        generator = torch.Generator().manual_seed(seed)
        bound = self.join.out_features**-0.5
        for parameter in self.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
        return self


def professor_forcing(
    model: nn.Module, batch: dict[str, Tensor], *, weight: float, smoothing: float = 0.0
) -> Tensor:
    """Teacher forcing, while the discriminator learns to tell its states from those of a free run.

    The value is the cross-entropy alone, to be compared with that of other trainings. Its gradient is that of
    all three: the cross-entropy; `weight` times the loss of a model that is found out in its free run; and
    the discriminator's own loss. Every row counts by its tokens, as in the cross-entropy.
    """
    if not model.training:
        return target_token(model, batch)
    net: Any = bare(model)
    own = written(model, batch | {"own": _all_own(batch)})
    with trace(net, STATES, grad=True) as taught:
        loss = target_token(model, batch, smoothing=smoothing)
    with trace(net, STATES, grad=True) as free:
        model(batch["source"], own)
    true_states, free_states = taught[STATES].transpose(0, 1), free[STATES].transpose(0, 1)  # (B, T, D)

    judge, mask = net.get_submodule(DISCRIMINATOR), batch["mask"]
    fixed = {name: parameter.detach() for name, parameter in judge.named_parameters()}
    deceived = -F.logsigmoid(functional_call(judge, fixed, (free_states, mask)))  # (B,)
    judged = -F.logsigmoid(judge(true_states.detach(), mask))
    judged = judged - F.logsigmoid(-judge(free_states.detach(), mask))
    others = (mask.sum(1) * (weight * deceived + judged)).sum()
    return loss + (others - others.detach())


def bare(model: nn.Module) -> nn.Module:
    """The model itself, inside of what compiles it and what spreads it over processes."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


@contextmanager
def without_discriminator(net: nn.Module) -> Iterator[None]:
    """Inside, the model is what it is without its training."""
    judge = net._modules.pop(DISCRIMINATOR, None)
    try:
        yield
    finally:
        if judge is not None:
            net.add_module(DISCRIMINATOR, judge)


def _all_own(batch: dict[str, Tensor]) -> Tensor:
    """Own tokens everywhere but at the start."""
    own = torch.ones_like(batch["mask"])
    own[:, 0] = False
    return own
