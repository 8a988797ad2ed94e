"""The logit lens: what a model would predict after every part of a block, and which parts raised a logit.

The residual stream is read where it is after attention (`mid`) and after the feed-forward layer (`out`), and
put through the final norm and the output matrix as if it were the last. Of several stacks it is the last one
whose stream is read: the output matrix knows no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.reading import Array, Readable, Reading, layer_sites, numbers, output_matrix
from glassformer.explain.stream import final_norm, name_of, pass_norm, scale_of, stages
from glassformer.nn.stack import Stack
from glassformer.trace import Tracer

CHUNK = 32  # positions whose logits, of all stages, are in memory at a time
BLOCK = 2048  # tokens of the vocabulary whose rows of the output matrix are read at a time; see _unembed
EDITED = 1e-3  # share of the stream that no part accounts for, from which it is an edit and not rounding


@dataclass(frozen=True)
class Lens:
    """What each stage would predict at each position: S stages, T positions, k candidates, W watched."""

    stages: list[str]  # sites, from the embedding to the last block
    ids: list[int]
    chosen: Array  # (T,) the token that came next; at the last position `then`, or the likeliest one
    top: Array  # (S, T, k) the likeliest tokens
    top_logprobs: Array  # (S, T, k)
    ranks: Array  # (S, T) of the chosen token; 1 is the likeliest
    logprobs: Array  # (S, T) of the chosen token
    entropy: Array  # (S, T) nats
    divergence: Array  # (S, T) Kullback-Leibler, from the last stage to this one, nats
    watched: list[int]
    watched_ranks: Array  # (S, T, W)
    watched_logprobs: Array  # (S, T, W)


@torch.inference_mode()
def lens(reading: Reading, *, k: int = 5, watch: Sequence[int] = (), then: int | None = None) -> Lens:
    """Read every stage of the residual stream at every position.

    `then` is the token after the last one, if it is known.
    """
    vocab = reading.net.vocab
    watched = [reading.check_token(token) for token in watch]
    after = -1 if then is None else reading.check_token(then)
    if not 1 <= k <= vocab:
        raise InputError(f"k must be between 1 and {vocab:,}, not {k}")

    names = stages(reading.stack())
    seen = reading.run(*names)
    streams = [seen[name][0] for name in names]
    return _read_out(reading, streams, [*reading.ids[1:], after], k=k, watched=watched)


class SteppedLens:
    """The lens of a text that grows, at its last position: only what is new is read, behind a cache."""

    def __init__(self, net: Readable, *, capacity: int, k: int) -> None:
        """`capacity` is how many tokens the text may have."""
        self.k = k
        self.cache = net.new_cache(1, capacity)
        self.read = 0  # tokens

    @torch.inference_mode()
    def step(self, reading: Reading, then: int) -> Lens:
        """Of the text so far, after whose last token `then` came."""
        names = stages(reading.stack())
        new = np.array([reading.ids[self.read :]], dtype=np.int64)
        with reading.tracing(*names) as seen:
            reading.net.step(new, self.cache)
        self.read = len(reading.ids)
        last = [seen[name][0, -1:] for name in names]
        return _read_out(reading, last, [reading.check_token(then)], k=self.k, watched=[])


def _read_out(
    reading: Reading, streams: list[Tensor], following: list[int], *, k: int, watched: list[int]
) -> Lens:
    """What every stage, a stream (T, D) each, predicts in place of the tokens that came."""
    net, names = reading.net, stages(reading.stack())
    chosen = torch.tensor(following, device=net.device)

    readout = _Readout(net, streams, k, watched)
    starts = range(0, len(chosen), CHUNK)
    parts = [readout.read(slice(start, start + CHUNK), chosen) for start in starts]
    joined = {name: numbers(torch.cat([part[name] for part in parts], 1)) for name in parts[0]}
    first_row = joined.pop("chosen")[0]  # it is the same at every stage
    return Lens(stages=names, ids=list(reading.ids), chosen=first_row, watched=watched, **joined)


class _Readout:
    """Reads the stages of the stream, some positions at a time."""

    def __init__(self, net: Readable, streams: list[Tensor], k: int, watched: list[int]) -> None:
        self.net, self.streams, self.k = net, streams, k
        self.watched = torch.tensor(watched, device=net.device, dtype=torch.long)
        # Memory for the logits of all stages and three more of the size, taken once: writing where pages are
        # mapped already is faster than asking for new memory in every chunk.
        self.count = len(streams) + 3
        kind = torch.promote_types(net.head.weight.dtype, torch.float32)
        room = self.count * min(CHUNK, len(streams[0])) * net.vocab
        self.room = torch.empty(room, dtype=kind, device=net.device)

    def read(self, where: slice, chosen: Tensor) -> dict[str, Tensor]:
        """Some positions at every stage: (S, t, …). The last is read first: others are compared with it."""
        chosen = chosen[where].clone()
        positions = len(chosen)
        room = self.room[: self.count * positions * self.net.vocab]
        *logits, kept, weights, work = room.view(self.count, positions, -1)  # each (t, V)

        states = torch.cat([stream[where] for stream in self.streams])  # (S·t, D)
        _unembed(self.net, states, room[: len(states) * self.net.vocab].view(len(states), -1))
        final = _Prediction(logits[-1], kept, work)
        unknown = chosen < 0
        chosen[unknown] = final.logits.argmax(-1)[unknown]

        rows: dict[str, list[Tensor]] = {}
        for stage in logits:
            prediction = final if stage is logits[-1] else _Prediction(stage, weights, work)
            for name, value in self.row(prediction, final, chosen).items():
                rows.setdefault(name, []).append(value)
        return {name: torch.stack(values) for name, values in rows.items()}

    def row(self, stage: "_Prediction", final: "_Prediction", chosen: Tensor) -> dict[str, Tensor]:
        """What is reported of one stage: (t, …) each."""
        best = stage.logits.topk(self.k)
        watched = self.watched.expand(len(chosen), -1)  # (t, W)
        return {
            "chosen": chosen,
            "top": best.indices,
            "top_logprobs": best.values - stage.norm,
            "ranks": stage.ranks(chosen[:, None])[:, 0],
            "logprobs": stage.logprobs(chosen[:, None])[:, 0],
            "entropy": stage.entropy,
            "divergence": stage.divergence(final),
            "watched_ranks": stage.ranks(watched),
            "watched_logprobs": stage.logprobs(watched),
        }


class _Prediction:
    """What a stage predicts at some positions, logits (t, V), and what follows from them.

    Every pass over the vocabulary counts here, so that softmax, entropy and divergence share one exponential
    and write into memory that is given.
    """

    def __init__(self, logits: Tensor, weights: Tensor, work: Tensor) -> None:
        self.logits, self.work = logits, work
        # The likeliest is 0: nothing overflows, and little is rounded.
        self.logits -= logits.amax(-1, keepdim=True)
        self.weights = torch.exp(logits, out=weights)  # probability × total
        self.total = self.weights.sum(-1)  # (t,)
        self.norm = self.total.log()[:, None]  # (t, 1): log-probability = logit - norm
        self.entropy = self.norm[:, 0] - self.mean(self)

    def mean(self, of: "_Prediction") -> Tensor:
        """(t,): the mean of these logits under another prediction."""
        return torch.mul(of.weights, self.logits, out=self.work).sum(-1) / of.total

    def logprobs(self, tokens: Tensor) -> Tensor:
        """(t, n) of n tokens each."""
        return self.logits.gather(1, tokens) - self.norm

    def ranks(self, tokens: Tensor) -> Tensor:
        """(t, n), 1 for the likeliest."""
        mine = self.logits.gather(1, tokens).T  # (n, t)
        # Counted, not sorted. The comparison writes ones and zeros as floats, which sum faster than booleans.
        better = [torch.gt(self.logits, one[:, None], out=self.work).sum(-1) for one in mine]
        return 1 + torch.stack(better, -1).long() if better else tokens

    def divergence(self, final: "_Prediction") -> Tensor:
        """(t,) from the last stage to this one; of the last stage itself exactly 0."""
        cross_entropy = self.norm[:, 0] - self.mean(final)
        return (cross_entropy - final.entropy).clamp(min=0)  # rounding can make a 0 negative


def _unembed(net: Readable, states: Tensor, logits: Tensor) -> None:
    """`net.unembed` of many states (n, D), written into logits (n, V)."""
    states, weight, bias = net.norm(states), net.head.weight, net.head.bias
    # A block of the output matrix at a time stays in the processor's cache while all states pass it: nearly
    # twice as fast as the whole matrix at once.
    for start in range(0, len(weight), BLOCK):
        part = slice(start, start + BLOCK)
        some = None if bias is None else bias[part]
        logits[:, part] = nn.functional.linear(states, weight[part], some)


@dataclass(frozen=True)
class Residual:
    """The residual stream of one position, stage by stage: S stages.

    In a post-norm model a stage is read behind its norm, so `added` is what the addition and the norm changed
    together.
    """

    norm: Array  # (S,) of the vector
    added: Array  # (S,) norm of what this stage added
    cosine: Array  # (S,) between the vector and the one before; nan for the embedding, which is the first


@torch.inference_mode()
def residual(reading: Reading, *, position: int, stack: str = "") -> Residual:
    """How a position's vector changes on its way up a stack."""
    position = reading.check_position(position, stack=stack)
    names = stages(reading.stack(stack))
    seen = reading.run(*names)
    way = torch.stack([seen[name][0, position].double() for name in names])  # (S, D)
    before = torch.cat([torch.zeros_like(way[:1]), way[:-1]])
    alike = torch.cosine_similarity(way, before, dim=-1)
    alike[0] = torch.nan
    return Residual(numbers(way.norm(dim=-1)), numbers((way - before).norm(dim=-1)), numbers(alike))


@torch.inference_mode()
def inputs(reading: Reading) -> tuple[Array, Array, Array]:
    """(T, D) each: the vectors of the tokens, those of their positions, and their sum, which goes in."""
    site = stages(reading.stack())[0]
    seen = reading.run(site)
    tokens, whole = reading.net.embed(reading.batch())[0], seen[site][0]
    return numbers(tokens), numbers(whole - tokens), numbers(whole)


@torch.inference_mode()
def likeliest(reading: Reading, *, position: int) -> int:
    """The token that the model predicts after a position."""
    at = reading.check_position(position)
    seen = reading.until(at).run("logits")
    return int(seen["logits"][0, -1].argmax())


@dataclass(frozen=True)
class Attribution:
    """The parts of a token's logit. With the scales of all norms held fixed, they add up to it."""

    position: int
    token: int
    # embed, blocks.0.attn.mix[0], …, blocks.0.attn.bias, blocks.0.mlp, …, norm.bias, the biases of other
    # norms on the stream, and `edits` where there are any.
    parts: list[str]
    values: Array  # one a part
    logit: float


@torch.inference_mode()
def attribution(reading: Reading, *, position: int, token: int, foil: int | None = None) -> Attribution:
    """Direct logit attribution of a token after a position, or of its lead over another one."""
    net, stack = reading.net, reading.stack()
    position = reading.check_position(position)
    for one in (token, foil):
        if one is not None:
            reading.check_token(one)
    if token == foil:
        raise InputError("the foil is the token itself: name another one")

    # Positions behind this one change nothing in a causal model, and are not computed.
    text = reading.until(position) if stack.causal else reading
    names = [*stages(stack), "final", "logits"]
    for part in stack.parts:
        names += layer_sites(stack, f"{part.name}.out")
    for part in stack.attention:
        names += layer_sites(stack, f"{part.name}.mix")
    seen = text.run(*names, last=stack.causal)

    weight, bias = net.head.weight, net.head.bias
    direction = weight[token] - (0 if foil is None else weight[foil])  # (D,)
    vectors = _parts(net, stack, seen, position)
    parts = {name: float(vector @ direction.to(vector.dtype)) for name, vector in vectors.items()}
    if bias is not None:
        parts["head.bias"] = float(bias[token] - (0 if foil is None else bias[foil]))

    logits = seen["logits"][0, -1 if stack.causal else position]
    logit = logits[token] - (0 if foil is None else logits[foil])
    return Attribution(position, token, list(parts), np.array(list(parts.values())), float(logit))


def _parts(net: Readable, stack: Stack, seen: Tracer, position: int) -> dict[str, Tensor]:
    """The vector that the output matrix reads at a position, as a sum of named vectors (D,)."""

    def at(site: str) -> Tensor:
        return seen[site][0, position]

    embed = stages(stack)[0]
    stream = at(embed)
    parts = _Parts(net, {embed: stream})
    for layer in range(stack.layers):
        for part in stack.parts:
            site, behind = stack.site(layer, part.name), stack.site(layer, part.after)
            added = at(f"{site}.out")
            vectors = {site: added}
            if part.values == "mix":
                matrix = output_matrix(net, stack, layer=layer, part=part)
                vectors = _heads(matrix, site, seen[f"{site}.mix"][0, :, position])
            parts.add(vectors)
            norm = net.stream_norm(behind)
            if norm is not None:
                parts.pass_norm(norm, stream + added)
            stream = at(behind)

    norm = final_norm(net)
    if norm is not None:
        parts.pass_norm(norm, stream)
    parts.settle(seen["final"][0, -1 if stack.causal else position])
    return parts.named()


def _heads(projection: nn.Linear, site: str, mix: Tensor) -> dict[str, Tensor]:
    """What attention adds to the stream at a position: every head's share of the projection, and its bias."""
    weight = projection.weight.view(-1, *mix.shape)  # (D, H, K)
    heads = torch.einsum("dhk,hk->hd", weight, mix)  # (H, D)
    vectors = {f"{site}.mix[{head}]": vector for head, vector in enumerate(heads)}
    if projection.bias is not None:
        vectors[f"{site}.bias"] = projection.bias
    return vectors


class _Parts:
    """The stream as a sum of parts (P, D), carried through its norms."""

    def __init__(self, net: Readable, first: dict[str, Tensor]) -> None:
        self.net = net
        self.names = list(first)
        vectors = torch.stack(list(first.values()))
        self.vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        self.edits = torch.zeros_like(self.vectors[0])  # what no part accounts for
        self.edited = False

    def add(self, vectors: dict[str, Tensor]) -> None:
        """More parts, of the stream as it is here."""
        self.names += vectors
        new = torch.stack(list(vectors.values())).to(self.vectors.dtype)
        self.vectors = torch.cat([self.vectors, new])

    def settle(self, stream: Tensor) -> None:
        """What the parts lack of the true stream was put there by an edit, or is rounding."""
        self.edits = stream - self.vectors.sum(0)
        self.edited |= bool(self.edits.norm() > EDITED * stream.norm())

    def pass_norm(self, norm: nn.LayerNorm, stream: Tensor) -> None:
        """All parts through a norm, with its scale for the whole stream; its bias is a part of its own."""
        self.settle(stream)  # before the norm: what is not settled here would be lost in its mean and scale
        scale = scale_of(norm, stream.to(self.vectors.dtype))
        self.vectors = pass_norm(norm, self.vectors, scale=scale)
        self.edits = pass_norm(norm, self.edits, scale=scale)
        if norm.bias is not None:
            self.add({f"{name_of(self.net, norm)}.bias": norm.bias})

    def named(self) -> dict[str, Tensor]:
        """Name -> vector, with `edits` where the stream was changed on its way."""
        named = dict(zip(self.names, self.vectors, strict=True))
        return named | ({"edits": self.edits} if self.edited else {})
