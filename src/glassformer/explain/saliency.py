"""Which tokens made a token likely: for every target, a score for each token before it, or of the source.

One forward pass serves all targets, and their backward passes run side by side. Each method has its own idea
of importance; `faithfulness.py` tests what they say by taking tokens away.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.attention import patterns, rollout
from glassformer.explain.reading import Array, Readable, Reading, layer_sites, numbers
from glassformer.explain.stream import stages, stream_end
from glassformer.trace import Edit

Progress = Callable[[int, int], object]
METHODS = ("grad_x_input", "gradient", "integrated_gradients", "occlusion", "rollout")
ROOM = 1 << 26  # numbers that one layer's attention may take while passes run side by side


@dataclass(frozen=True)
class Target:
    """A question: why this token after this position, and, if there is a foil, why not that one."""

    position: int
    token: int
    foil: int | None = None


@dataclass(frozen=True)
class Saliency:
    """N targets, T tokens; in a causal model a token has no part in what comes before it."""

    method: str
    targets: list[Target]
    scores: (
        Array  # (N, T) as the method gives them: lengths of vectors, or below 0 for tokens against the target
    )
    gaps: Array | None = None  # (N,) integrated gradients: how far the scores are from adding up, as a share
    causal: bool = True  # whether tokens behind a target have no part in it
    source: bool = False  # whether the tokens are those of the source

    @property
    def shares(self) -> Array:
        """The sizes of the scores, each target's adding up to 1, as the article has them."""
        sizes = np.abs(self.scores)
        sums = sizes.sum(-1, keepdims=True)
        shares: Array = np.divide(sizes, sums, out=np.zeros_like(sizes), where=sums > 0)
        return shares


@dataclass(frozen=True)
class Inputs:
    """The tokens that get a score: those of the text or, in a model that reads two, those of the source."""

    reading: Reading
    source: bool = False

    @property
    def site(self) -> str:
        """Where their vectors go in, with those of their positions."""
        stacks = [stack for stack in self.reading.net.stacks if stack.source == self.source]
        if not stacks:  # a recurrent network
            return "encoder.embed" if self.source else "embed"
        return stages(stacks[-1])[0]

    @property
    def causal(self) -> bool:
        """Whether tokens behind a target have no part in it."""
        stacks = self.reading.net.stacks
        return not self.source and (not stacks or stacks[-1].causal)

    @property
    def words(self) -> Tensor:
        """(T, D): the token vectors alone."""
        net, reading = self.reading.net, self.reading
        words = net.embed_source(reading.source_batch()) if self.source else net.embed(reading.batch())
        return words[0].detach()

    def blank_vector(self, blank: int | None) -> Tensor:
        """(D,): what is put in the place of a token that is taken away."""
        net = self.reading.net
        if blank is None:
            return torch.zeros_like(net.tokens.weight[0])
        ids = torch.tensor([[blank]], device=net.device)
        return (net.embed_source(ids) if self.source else net.embed(ids))[0, 0].detach()

    @property
    def square(self) -> int:
        """How many numbers one layer's attention has, of all heads: of the longer text with itself."""
        heads = max((stack.heads for stack in self.reading.net.stacks), default=1)
        longest = max(len(self.reading.ids), len(self.reading.source or ()))
        return max(1, heads) * longest**2


def saliency(
    reading: Reading,
    targets: Sequence[Target],
    *,
    method: str = "grad_x_input",
    steps: int = 32,
    blank: int | None = None,
    source: bool = False,
    progress: Progress = lambda done, total: None,
) -> Saliency:
    """Explain some tokens of a text, by those before them or by those of the `source`.

    `steps` is for integrated gradients. `blank` is the token that occlusion puts in a token's place; None: a
    vector of zeros.
    """
    known = methods_of(reading, source=source)
    if method not in known:
        lacking = ", and this model has no attention" if method in METHODS and not source else ""
        raise InputError(f"method {method!r} is none of {', '.join(known)}{lacking}")
    reading.check_ids()
    targets = check_targets(reading, targets)
    inputs = Inputs(reading, source)
    gaps = None
    if method == "rollout":
        through = rollout(patterns(reading))[-1]  # (T, T)
        scores = through[[target.position for target in targets]]
    elif method == "occlusion":
        scores = _occlusion(inputs, targets, blank, progress)
    elif method == "integrated_gradients":
        scores, gaps = _integrated(inputs, targets, steps, progress)
    else:
        scores = _lengths(inputs, targets, method == "grad_x_input", progress)
    return Saliency(method, targets, scores, gaps, inputs.causal, source)


def methods_of(reading: Reading, *, source: bool = False) -> tuple[str, ...]:
    """The methods that a model allows: rollout follows attention within one text."""
    heads = reading.net.stacks[-1].heads if reading.net.stacks else 0
    return METHODS if heads and not source else tuple(one for one in METHODS if one != "rollout")


def check_targets(reading: Reading, targets: Sequence[Target]) -> list[Target]:
    """The targets, with positions counted from 0 and every token in the vocabulary."""
    if not targets:
        raise InputError("there is no token to explain; generate at least one, or name a position")
    checked = []
    for target in targets:
        position = reading.check_position(target.position)
        reading.check_token(target.token)
        if target.foil is not None:
            reading.check_token(target.foil)
        checked.append(Target(position, target.token, target.foil))
    if all(target.token == target.foil for target in targets):
        raise InputError("the foil is the token that was generated: name another one")
    return checked


def directions(net: Readable, targets: Sequence[Target]) -> Tensor:
    """(N, D): its product with the output of the final norm is the logit, or the lead over the foil."""
    weight = net.head.weight.detach()
    none = torch.zeros_like(weight[0])
    foils = [none if target.foil is None else weight[target.foil] for target in targets]
    return weight[[target.token for target in targets]] - torch.stack(foils)


def _lengths(inputs: Inputs, targets: Sequence[Target], times_input: bool, progress: Progress) -> Array:
    """(N, T): the length of each token's gradient, or of its product with the token's vector."""
    words = inputs.words
    found: list[Tensor] = []
    for gradients in _gradients(inputs, targets):
        vectors = gradients[:, 0] * words if times_input else gradients[:, 0]  # (n, T, D)
        found.append(vectors.norm(dim=-1))
        progress(sum(map(len, found)), len(targets))
    return numbers(torch.cat(found))


def _gradients(inputs: Inputs, targets: Sequence[Target], words: Tensor | None = None) -> Iterator[Tensor]:
    """(n, B, T, D), some targets at a time: gradients of their logits by the token vectors (B, T, D)."""
    reading = inputs.reading
    net = reading.net
    ends: list[Tensor] = []

    def put_in(embedded: Tensor) -> Tensor:
        # The site holds tokens and positions together: other words are put in by what they differ from the
        # text's.
        moved = embedded if words is None else embedded + (words - inputs.words)
        ends.append(moved.detach().requires_grad_())
        return ends[0]

    def take_out(stream: Tensor) -> Tensor:
        # The stream before the output matrix: its logits would be (T, V), of which few are needed.
        ends.append(stream)
        return stream

    # An edit of the pattern that changes nothing makes attention run step by step: the fused kernel cannot be
    # differentiated side by side (is_grads_batched).
    hooks: dict[str, Edit] = {inputs.site: put_in, stream_end(net): take_out}
    for stack in net.stacks if inputs.source else net.stacks[-1:]:
        for part in stack.attention:
            sites = layer_sites(stack, f"{part.name}.pattern")
            hooks |= dict.fromkeys(sites, lambda pattern: pattern)
    with torch.enable_grad():
        reading.run(last=bool(net.stacks), edits=hooks, rows=1 if words is None else len(words))
        final = net.norm(ends[1])  # (B, T, D)

    # All targets share the forward pass. Their backward passes run side by side, as many as fit in ROOM: each
    # holds the gradient of one layer's patterns, (B, H, T, T).
    wanted = directions(net, targets)
    together = max(1, ROOM // (final.shape[0] * inputs.square))
    for start in range(0, len(targets), together):
        some = targets[start : start + together]
        pulls = final.new_zeros(len(some), *final.shape)  # (n, B, T, D)
        for number, target in enumerate(some):
            pulls[number, :, target.position] = wanted[start + number]
        (gradient,) = torch.autograd.grad(final, ends[0], pulls, retain_graph=True, is_grads_batched=True)
        yield gradient


def _integrated(
    inputs: Inputs, targets: Sequence[Target], steps: int, progress: Progress
) -> tuple[Array, Array]:
    """Gradients on the way from zeros to the words (Gauss-Legendre), times the words; and the gap left."""
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    places, weights = np.polynomial.legendre.leggauss(steps)
    words = inputs.words
    total = np.zeros((len(targets), len(words)))
    for number, (place, weight) in enumerate(zip((places + 1) / 2, weights / 2, strict=True), 1):
        gradients = _gradients(inputs, targets, float(place) * words[None])
        parts = [numbers((some[:, 0] * words).sum(-1)) for some in gradients]  # (n, T) each
        total += weight * np.concatenate(parts)  # (N, T)
        progress(number, steps)

    ends = torch.stack([words, torch.zeros_like(words)])
    end, start = numbers(logits_with(inputs, targets, words=ends))
    rise = np.float64(end) - np.float64(start)  # (N,)
    return total, np.abs(total.sum(-1) - rise) / np.maximum(np.abs(rise), 1e-12)


@torch.no_grad()
def final_with(inputs: Inputs, words: Tensor) -> Tensor:
    """(B, T, D): the output of the final norm, for B ways to put in token vectors."""
    net = inputs.reading.net
    moved, end = words - inputs.words, stream_end(net)
    edits: dict[str, Edit] = {inputs.site: lambda embedded: embedded + moved}
    seen = inputs.reading.run(end, last=bool(net.stacks), edits=edits, rows=len(words))
    final: Tensor = net.norm(seen[end])
    return final


def logits_with(inputs: Inputs, targets: Sequence[Target], *, words: Tensor) -> Tensor:
    """(B, N): each target's logit, or its lead over the foil, for B ways to put in words (B, T, D)."""
    positions = [target.position for target in targets]
    final = final_with(inputs, words)[:, positions]  # (B, N, D)
    return torch.einsum("bnd,nd->bn", final, directions(inputs.reading.net, targets))


def _occlusion(inputs: Inputs, targets: Sequence[Target], blank: int | None, progress: Progress) -> Array:
    """How far the logit falls when a token is taken away; a pass with one token away serves all targets."""
    words = inputs.words
    void = inputs.blank_vector(blank)
    full = logits_with(inputs, targets, words=words[None])[0]  # (N,)

    # In a causal model tokens behind a target change nothing: they need no pass, and their scores are exactly
    # 0.
    positions = np.array([target.position for target in targets])
    size = 1 + int(positions.max()) if inputs.causal else len(words)
    scores = np.zeros((len(targets), len(words)))
    together = max(1, ROOM // (4 * inputs.square))
    for start in range(0, size, together):
        away = torch.arange(start, min(start + together, size))
        without = words.repeat(len(away), 1, 1)  # (B, T, D)
        without[torch.arange(len(away)), away] = void
        fall = full - logits_with(inputs, targets, words=without)  # (B, N)
        scores[:, start : start + len(away)] = numbers(fall).T
        progress(start + len(away), size)

    if inputs.causal:
        scores[np.arange(len(words)) > positions[:, None]] = 0.0
    return scores
