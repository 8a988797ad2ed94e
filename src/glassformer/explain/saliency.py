"""Which earlier tokens made a token likely: for every token asked about, a score for each token before it.

One forward pass serves all tokens asked about, and their backward passes run side by side. Each method has its own idea of
importance; `faithfulness.py` tests what they say by taking words away.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.attention import patterns, rollout
from glassformer.explain.decoder import Array, Decoder, as_row, look, numbers

Progress = Callable[[int, int], object]
METHODS = ("grad_x_input", "gradient", "integrated_gradients", "occlusion", "rollout")
ROOM = 1 << 26  # numbers that one layer's attention may take while passes run side by side
EXPLICIT = "blocks.*.attn.pattern"  # attention step by step, which can be differentiated side by side; the fused one cannot


@dataclass(frozen=True)
class Target:
    """A question: why this token after this position, and, if there is a foil, why not that one."""

    position: int
    token: int
    foil: int | None = None


@dataclass(frozen=True)
class Saliency:
    """N questions, T tokens; a token has no part in what comes before it."""

    method: str
    targets: list[Target]
    scores: Array  # (N, T) as the method gives them: lengths of vectors, or numbers below 0 for what speaks against the token
    gaps: Array | None = None  # (N,) integrated gradients: how far the scores are from adding up, as a share

    @property
    def shares(self) -> Array:
        """The sizes of the scores, each question's adding up to 1, as the article has them."""
        sizes = np.abs(self.scores)
        sums = sizes.sum(-1, keepdims=True)
        shares: Array = np.divide(sizes, sums, out=np.zeros_like(sizes), where=sums > 0)
        return shares


def saliency(
    model: Decoder,
    ids: Sequence[int],
    targets: Sequence[Target],
    method: str = "grad_x_input",
    *,
    steps: int = 32,
    blank: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Saliency:
    """Explain some tokens of a text.

    `steps` is for integrated gradients. `blank` is the token that occlusion puts in a token's place; None: no word at all.
    """
    if method not in METHODS:
        raise InputError(f"method {method!r} is none of {', '.join(METHODS)}")
    targets = check_targets(model, ids, targets)
    row = as_row(model, ids)
    if method == "rollout":
        through = rollout(patterns(model, ids))[-1]
        return Saliency(method, targets, np.stack([through[target.position] for target in targets]))
    if method == "occlusion":
        return Saliency(method, targets, _occlusion(model, row, targets, blank, progress))
    if method == "integrated_gradients":
        return Saliency(method, targets, *_integrated(model, row, targets, steps, progress))
    words = model.tokens(row).detach()  # (1, T, D)
    found = []
    for gradients in _gradients(model, row, targets):
        found.append((gradients[:, 0] * words if method == "grad_x_input" else gradients[:, 0]).norm(dim=-1))
        progress(sum(map(len, found)), len(targets))
    return Saliency(method, targets, numbers(torch.cat(found)))


def check_targets(model: Decoder, ids: Sequence[int], targets: Sequence[Target]) -> list[Target]:
    """The questions, with positions counted from 0; one about what is not there is refused."""
    if not targets:
        raise InputError("there is no token to explain; generate at least one, or name a position")
    for target in targets:
        if not -len(ids) <= target.position < len(ids):
            raise InputError(
                f"position {target.position} is not there; the text has positions 0 to {len(ids) - 1}"
            )
        for token in (target.token, target.foil):
            if token is not None and not 0 <= token < model.vocab:
                raise InputError(f"token {token} is not there; the vocabulary has {model.vocab:,}")
    if all(target.token == target.foil for target in targets):
        raise InputError("the foil is the token that was written: name another one")
    return [Target(target.position % len(ids), target.token, target.foil) for target in targets]


def directions(model: Decoder, targets: Sequence[Target]) -> Tensor:
    """(N, D): what to look for behind the final norm. Its product with that is the logit, or the lead over the foil."""
    weight = model.head.weight.detach()
    foils = [
        torch.zeros_like(weight[0]) if target.foil is None else weight[target.foil] for target in targets
    ]
    return weight[[target.token for target in targets]] - torch.stack(foils)


def _gradients(
    model: Decoder, row: Tensor, targets: Sequence[Target], words: Tensor | None = None
) -> Iterator[Tensor]:
    """(n, B, T, D), some questions at a time: the gradient of the logit asked for by what is put in as words (B, T, D)."""
    ends: list[Tensor] = []

    def put_in(embedded: Tensor) -> Tensor:
        """Words and positions; the words may be others than those of the text."""
        moved = embedded if words is None else embedded + (words - model.tokens(row))
        ends.append(moved.detach().requires_grad_())
        return ends[0]

    def take_out(stream: Tensor) -> Tensor:
        ends.append(stream)
        return stream

    hands = {"embed": put_in, EXPLICIT: lambda pattern: pattern, _last(model): take_out}
    with torch.enable_grad(), look(model, edits=hands):
        model(row if words is None else row.expand(len(words), -1), last=True)
        final = model.norm(ends[1])  # (B, T, D)
    wanted = directions(model, targets)
    together = max(1, ROOM // (final.shape[0] * model.config.heads * row.shape[1] ** 2))
    for start in range(0, len(targets), together):
        some = targets[start : start + together]
        pulls = final.new_zeros(len(some), *final.shape)  # (n, B, T, D)
        for number, target in enumerate(some):
            pulls[number, :, target.position] = wanted[start + number]
        (gradient,) = torch.autograd.grad(final, ends[0], pulls, retain_graph=True, is_grads_batched=True)
        yield gradient


def _last(model: Decoder) -> str:
    """Where the residual stream ends: behind it are the final norm and the output matrix, which few positions need."""
    return f"blocks.{len(model.blocks) - 1}.out"


def _integrated(
    model: Decoder, row: Tensor, targets: Sequence[Target], steps: int, progress: Progress
) -> tuple[Array, Array]:
    """Gradients along the way from no words to the words, by Gauss and Legendre, times the words; and what is missing."""
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    places, weights = np.polynomial.legendre.leggauss(steps)
    words = model.tokens(row).detach()[0]  # (T, D)
    total = np.zeros((len(targets), len(words)))
    for number, (place, weight) in enumerate(zip((places + 1) / 2, weights / 2, strict=True), 1):
        parts = [
            numbers((part[:, 0] * words).sum(-1))
            for part in _gradients(model, row, targets, float(place) * words[None])
        ]
        total += weight * np.concatenate(parts)  # (N, T)
        progress(number, steps)
    end, start = numbers(logits_with(model, row, targets, torch.stack([words, torch.zeros_like(words)])))
    rise = np.float64(end) - np.float64(start)  # (N,)
    return total, np.abs(total.sum(-1) - rise) / np.maximum(np.abs(rise), 1e-12)


@torch.no_grad()
def final_with(model: Decoder, row: Tensor, words: Tensor) -> Tensor:
    """(B, T, D): what comes out of the final norm, for B ways to put in words (B, T, D)."""
    edits = {"embed": lambda embedded: embedded + (words - model.tokens(row))}
    with look(model, _last(model), edits=edits) as seen:
        model(row.expand(len(words), -1), last=True)
    final: Tensor = model.norm(seen[_last(model)])
    return final


def logits_with(model: Decoder, row: Tensor, targets: Sequence[Target], words: Tensor) -> Tensor:
    """(B, N): the logit, or the lead over the foil, asked for by each question, for B ways to put in words."""
    places = [target.position for target in targets]
    return torch.einsum("bnd,nd->bn", final_with(model, row, words)[:, places], directions(model, targets))


def _occlusion(
    model: Decoder, row: Tensor, targets: Sequence[Target], blank: int | None, progress: Progress
) -> Array:
    """How far the logit falls when a token is taken away; a pass with one token away serves all questions."""
    words = model.tokens(row).detach()[0]  # (T, D)
    void = torch.zeros_like(words[0]) if blank is None else model.tokens.weight.detach()[blank]
    full = logits_with(model, row, targets, words[None])[0]  # (N,)
    size = 1 + max(target.position for target in targets)
    scores = np.zeros((len(targets), len(words)))
    together = max(1, ROOM // (4 * model.config.heads * len(words) ** 2))
    for start in range(0, size, together):
        away = torch.arange(start, min(start + together, size))
        without = words.repeat(len(away), 1, 1)
        without[torch.arange(len(away)), away] = void
        fall = full - logits_with(model, row, targets, without)  # (B, N)
        scores[:, start : start + len(away)] = numbers(fall).T
        progress(start + len(away), size)
    behind = np.arange(len(words)) > np.array([target.position for target in targets])[:, None]
    scores[behind] = 0.0
    return scores
