"""The logit lens: what the model would say if it stopped after every half block, and who spoke for a word.

The residual stream is read where it is after attention (`mid`) and after the feed-forward layer (`out`), put through
the final norm and the output matrix as if it were the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.decoder import Array, Decoder, as_row, look, numbers
from glassformer.trace import Tracer

CHUNK = 32  # positions whose logits, of all stages, are in memory at a time
BLOCK = 2048  # of the vocabulary
EDITED = 1e-3  # share of the stream that no part put there, from which it is not rounding


@dataclass(frozen=True)
class Lens:
    """What each stage would say at each position. S stages, T positions, k candidates, W watched tokens."""

    stages: list[str]  # sites, from the embedding to the last block
    ids: list[int]
    chosen: (
        Array  # (T,) the token that came next; at the last position the likeliest one, unless one was given
    )
    top: Array  # (S, T, k) the likeliest tokens
    top_logprobs: Array  # (S, T, k)
    ranks: Array  # (S, T) of the chosen token; 1 is the likeliest
    logprobs: Array  # (S, T) of the chosen token
    entropy: Array  # (S, T) nats
    divergence: Array  # (S, T) Kullback-Leibler, from the last stage to this one, nats
    watched: list[int]
    watched_ranks: Array  # (S, T, W)
    watched_logprobs: Array  # (S, T, W)


def stages_of(model: Decoder) -> list[str]:
    """The sites of the residual stream, from the embedding to the last block."""
    return [
        "embed",
        *(f"blocks.{layer}.{half}" for layer in range(len(model.blocks)) for half in ("mid", "out")),
    ]


@torch.inference_mode()
def lens(
    model: Decoder, ids: Sequence[int], *, k: int = 5, watch: Sequence[int] = (), then: int | None = None
) -> Lens:
    """Read every stage of the residual stream at every position. `then` is the token after the last one, if it is known."""
    for token in [*watch, *([] if then is None else [then])]:
        if not 0 <= token < model.vocab:
            raise InputError(f"token {token} is not there; the vocabulary has {model.vocab:,}")
    if not 1 <= k <= model.vocab:
        raise InputError(f"k must be between 1 and {model.vocab:,}, not {k}")
    row = as_row(model, ids)
    stages = stages_of(model)
    with look(model, *stages) as seen:
        model(row, last=True)
    chosen = torch.cat([row[0, 1:], row.new_tensor([-1 if then is None else then])])
    kind = torch.promote_types(model.head.weight.dtype, torch.float32)
    room = torch.empty((len(stages) + 3) * min(CHUNK, len(ids)) * model.vocab, dtype=kind, device=row.device)
    parts = [
        _read(model, seen, stages, slice(at, at + CHUNK), chosen, k, list(watch), room)
        for at in range(0, len(ids), CHUNK)
    ]
    joined = {name: numbers(torch.cat([part[name] for part in parts], 1)) for name in parts[0]}
    return Lens(stages=stages, ids=list(ids), chosen=joined.pop("chosen")[0], watched=list(watch), **joined)


@dataclass(frozen=True)
class Path:
    """The residual stream of one position, stage by stage: S stages."""

    length: Array  # (S,) of the vector
    added: Array  # (S,) length of what this stage added
    kept: Array  # (S,) cosine between the vector and the one before


@torch.inference_mode()
def path(model: Decoder, ids: Sequence[int], position: int) -> Path:
    """How a position's vector changes on its way up."""
    names = stages_of(model)
    with look(model, *names) as seen:
        model(as_row(model, ids), last=True)
    way = torch.stack([seen[name][0, position].double() for name in names])  # (S, D)
    before = torch.cat([torch.zeros_like(way[:1]), way[:-1]])
    alike = torch.cosine_similarity(way, before, dim=-1)
    return Path(numbers(way.norm(dim=-1)), numbers((way - before).norm(dim=-1)), numbers(alike))


@torch.inference_mode()
def inputs(model: Decoder, ids: Sequence[int]) -> tuple[Array, Array, Array]:
    """(T, D) each: the rows of the tokens, those of their positions, and what goes in."""
    row = as_row(model, ids)
    with look(model, "embed") as seen:
        model(row, last=True)
    tokens = model.tokens(row)[0]
    return numbers(tokens), numbers(seen["embed"][0] - tokens), numbers(seen["embed"][0])


class _Said:
    """What a stage says at some positions, logits (t, V), and what follows from them. Every pass over so many numbers counts."""

    def __init__(self, logits: Tensor, weights: Tensor, room: Tensor) -> None:
        self.logits, self.room = logits, room
        self.logits -= logits.amax(
            -1, keepdim=True
        )  # the likeliest is 0: nothing overflows, little is rounded
        self.weights = torch.exp(logits, out=weights)  # probability × total
        self.total = self.weights.sum(-1)  # (t,)
        self.norm = self.total.log()[:, None]  # (t, 1): log-probability = logit - norm
        self.entropy = self.norm[:, 0] - self.mean(self)

    def mean(self, of: "_Said") -> Tensor:
        """(t,): the mean of the logits as somebody else weighs them."""
        return torch.mul(of.weights, self.logits, out=self.room).sum(-1) / of.total

    def logprobs(self, tokens: Tensor) -> Tensor:
        """(t, n) of n tokens each."""
        return self.logits.gather(1, tokens) - self.norm

    def ranks(self, tokens: Tensor) -> Tensor:
        """(t, n), 1 for the likeliest."""
        mine = self.logits.gather(1, tokens).T  # (n, t)
        better = [
            torch.gt(self.logits, one[:, None], out=self.room).sum(-1) for one in mine
        ]  # ones and noughts, as floats
        return 1 + torch.stack(better, -1).long() if better else tokens

    def divergence(self, final: "_Said") -> Tensor:
        """(t,) from the last stage to this one."""
        return -final.entropy - self.mean(final) + self.norm[:, 0]


def _read(
    model: Decoder,
    seen: Tracer,
    stages: list[str],
    where: slice,
    chosen: Tensor,
    k: int,
    watch: list[int],
    room: Tensor,
) -> dict[str, Tensor]:
    """Some positions at every stage: (S, t, …). The last stage comes first: the others are compared with it.

    `room` is memory for the logits of all stages and for work: what is there already is faster than new memory.
    """
    chosen = chosen[where].clone()
    size = len(chosen) * model.vocab
    *logits, kept, weights, work = room[: (len(stages) + 3) * size].view(
        len(stages) + 3, len(chosen), -1
    )  # each (t, V)
    states = torch.cat([seen[stage][0, where] for stage in stages])  # (S·t, D)
    _say(model, states, room[: len(stages) * size].view(len(states), -1))
    final = _Said(logits[-1], kept, work)
    chosen[chosen < 0] = final.logits.argmax(-1)[chosen < 0]
    watched = torch.tensor(watch, device=chosen.device, dtype=chosen.dtype).expand(len(chosen), -1)  # (t, W)
    rows: dict[str, list[Tensor]] = {}
    for number in range(len(stages)):
        said = final if number == len(stages) - 1 else _Said(logits[number], weights, work)
        best = said.logits.topk(k)
        found = {
            "chosen": chosen,
            "top": best.indices,
            "top_logprobs": best.values - said.norm,
            "ranks": said.ranks(chosen[:, None])[:, 0],
            "logprobs": said.logprobs(chosen[:, None])[:, 0],
            "entropy": said.entropy,
            "divergence": said.divergence(final),
            "watched_ranks": said.ranks(watched),
            "watched_logprobs": said.logprobs(watched),
        }
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in rows.items()}


def _say(model: Decoder, states: Tensor, logits: Tensor) -> None:
    """Write the logits (n, V) of many states, some of the vocabulary at a time: nearly twice as fast as all of it at once."""
    states, weight, bias = model.norm(states), model.head.weight, model.head.bias
    for start in range(0, len(weight), BLOCK):
        part = slice(start, start + BLOCK)
        logits[:, part] = nn.functional.linear(states, weight[part], None if bias is None else bias[part])


@dataclass(frozen=True)
class Contributions:
    """Who spoke for a token: the parts of its logit. With the final norm's scale held fast, they add up to it."""

    position: int
    token: int
    parts: list[
        str
    ]  # embed, blocks.0.attn.mix[0], …, blocks.0.attn.bias, blocks.0.mlp, …, norm.bias; edits, if there are any
    values: Array  # one a part
    logit: float


@torch.inference_mode()
def contributions(
    model: Decoder, ids: Sequence[int], position: int, token: int, *, against: int | None = None
) -> Contributions:
    """Direct logit attribution of a token after a position, or of its lead over another one."""
    if not -len(ids) <= position < len(ids):
        raise InputError(f"position {position} is not there; the text has positions 0 to {len(ids) - 1}")
    for one in (token, against):
        if one is not None and not 0 <= one < model.vocab:
            raise InputError(f"token {one} is not there; the vocabulary has {model.vocab:,}")
    if token == against:
        raise InputError("a token has no lead over itself: name another one")
    position %= len(ids)
    row = as_row(model, ids)[:, : position + 1]
    with look(model, "embed", "blocks.*.attn.mix", "blocks.*.mlp.out", "blocks.*.out", "logits") as seen:
        model(row, last=True)
    direction = model.head.weight[token] - (0 if against is None else model.head.weight[against])  # (D,)
    norm = model.norm
    last = seen[f"blocks.{len(model.blocks) - 1}.out"][0, -1]
    scale = (last.var(unbiased=False) + norm.eps).rsqrt()

    def spoken(part: Tensor) -> float:
        """What a vector of the residual stream adds to the logit."""
        return float((part - part.mean()) * scale * norm.weight @ direction)

    vectors = {"embed": seen["embed"][0, -1], **_added(model, seen)}
    rest = last - torch.stack(list(vectors.values())).sum(0)
    if rest.norm() > EDITED * last.norm():  # somebody changed the stream on the way
        vectors["edits"] = rest
    parts = {name: spoken(vector) for name, vector in vectors.items()}
    if norm.bias is not None:
        parts["norm.bias"] = float(norm.bias @ direction)
    logits = seen["logits"][0, -1]
    logit = logits[token] - (0 if against is None else logits[against])
    return Contributions(position, token, list(parts), np.array(list(parts.values())), float(logit))


def _added(model: Decoder, seen: Tracer) -> dict[str, Tensor]:
    """What each block adds to the residual stream at the last position: every head, their bias, the feed-forward layer."""
    vectors: dict[str, Tensor] = {}
    for layer, block in enumerate(model.blocks):
        mix = seen[f"blocks.{layer}.attn.mix"][0, :, -1]  # (H, K)
        project: Any = block.attn.proj  # type: ignore[union-attr]
        weight = project.weight.view(-1, *mix.shape)  # (D, H, K)
        heads = torch.einsum("dhk,hk->hd", weight, mix)  # (H, D)
        vectors |= {f"blocks.{layer}.attn.mix[{head}]": vector for head, vector in enumerate(heads)}
        if project.bias is not None:
            vectors[f"blocks.{layer}.attn.bias"] = project.bias
        vectors[f"blocks.{layer}.mlp"] = seen[f"blocks.{layer}.mlp.out"][0, -1]
    return vectors
