"""The Transformer, the recurrent sequence-to-sequence model and the Music Transformer once more, in NumPy and float64.

An oracle for tests. It shares no code with the package, and it never sees padding: every row of a batch is
computed alone. Weights are (out, in), under the names of the model's own parameters.

Shapes: T target tokens, S source tokens, D width, H heads, K head width, V vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sites = dict[str, Array]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Weights:
    """The numbers of a model, and the linear layers that are made of them."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = {name: np.asarray(value, dtype=np.float64) for name, value in state.items()}

    def __getitem__(self, name: str) -> Array:
        return self.state[name]

    def linear(self, x: Array, name: str) -> Array:
        """A matrix, and a bias where there is one."""
        return x @ self.state[f"{name}.weight"].T + self.state.get(f"{name}.bias", 0.0)

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalization."""
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = (centered**2).mean(axis=-1, keepdims=True)
        return self[f"{name}.weight"] * centered / np.sqrt(variance + 1e-5) + self[f"{name}.bias"]


# The recurrent model.


def seq2seq(config: Any, state: Mapping[str, Any], source: Iterable[int], target: Iterable[int]) -> Sites:
    """One source and one target: every value on the way, steps along the first axis."""
    model = _Recurrent(config, Weights(state))
    read = model.encode(list(source))
    model.decode(list(target), *read)
    return {site: np.array(value) for site, value in model.seen.items()}


class _Recurrent:
    def __init__(self, config: Any, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.seen: dict[str, Any] = {}

    def note(self, site: str, value: Array) -> Array:
        """A value of one step."""
        self.seen.setdefault(site, []).append(value)
        return value

    def step(self, cell: str, x: Array, state: list[Array]) -> list[Array]:
        """One token: a new hidden state, and in an LSTM a new cell."""
        ours = self.weights.linear(x, f"{cell}.input")
        past = self.weights.linear(state[0], f"{cell}.hidden")
        width = len(state[0])
        gate = [slice(at * width, (at + 1) * width) for at in range(4)]
        if self.config.cell == "gru":
            reset = self.note(f"{cell}.reset", sigmoid(ours[gate[0]] + past[gate[0]]))
            update = self.note(f"{cell}.update", sigmoid(ours[gate[1]] + past[gate[1]]))
            new = self.note(f"{cell}.new", np.tanh(ours[gate[2]] + reset * past[gate[2]]))
            return [(1 - update) * new + update * state[0]]
        total = ours + past
        let_in = self.note(f"{cell}.input", sigmoid(total[gate[0]]))
        forget = self.note(f"{cell}.forget", sigmoid(total[gate[1]]))
        new = self.note(f"{cell}.new", np.tanh(total[gate[2]]))
        let_out = self.note(f"{cell}.output", sigmoid(total[gate[3]]))
        kept = self.note(f"{cell}.cell", forget * state[1] + let_in * new)
        return [let_out * np.tanh(kept), kept]

    def name(self, layer: int) -> str:
        """The last layer has the plain name."""
        return "hidden" if layer == self.config.layers - 1 else f"hidden{layer}"

    def encode(self, source: list[int]) -> tuple[Array, list[list[Array]]]:
        """The states of the last layer (S, D), and the state in which the decoder begins."""
        config = self.config
        tokens = self.weights["source_tokens.weight" if config.source_vocab else "tokens.weight"]
        x = self.seen["encoder.embed"] = tokens[source]
        count = 1 if config.cell == "gru" else 2
        last = []
        for layer in range(config.layers):
            sides, ends = [], []
            for side in ("forwards", "backwards") if config.bidirectional else ("forwards",):
                state = [np.zeros(config.width)] * count
                hidden = []
                suffix = "" if side == "forwards" else "_back"
                for vector in x if side == "forwards" else x[::-1]:
                    state = self.step(f"encoder.{side}.{layer}", vector, state)
                    hidden.append(self.note(f"encoder.{self.name(layer)}{suffix}", state[0]))
                sides.append(np.array(hidden if side == "forwards" else hidden[::-1]))
                ends.append(state)
            x = np.concatenate(sides, axis=-1)
            last.append([np.concatenate(parts) for parts in zip(*ends, strict=True)])
        self.seen["encoder.states"] = x
        if config.decoder_width != x.shape[-1]:
            last = [
                [np.tanh(self.weights.linear(part, f"decoder.bridge.{layer}")) for part in state]
                for layer, state in enumerate(last)
            ]
        return x, last

    def decode(self, target: list[int], states: Array, begin: list[list[Array]]) -> None:
        """All steps of a target."""
        config = self.config
        self.seen["embed"] = self.weights["tokens.weight"][target]
        current, finals = begin, []
        for x in self.seen["embed"]:
            asked = current[-1][0]
            context = self.context(asked, states) if config.wiring == "before" else None
            given = x if context is None else np.concatenate([x, context])
            after = []
            for layer in range(config.layers):
                after.append(self.step(f"decoder.cells.{layer}", given, current[layer]))
                given = self.note(f"decoder.{self.name(layer)}", after[-1][0])
            current = after
            if config.wiring == "after":
                context = self.context(given, states)
            if context is not None:
                parts = [given, context, x] if config.wiring == "before" else [given, context]
                joined = self.weights.linear(np.concatenate(parts), "decoder.join")
                given = self.note("decoder.out", np.tanh(joined))
            finals.append(given)
        self.seen["final"] = np.array(finals)
        self.seen["logits"] = self.weights.linear(self.seen["final"], "head")

    def context(self, asked: Array, states: Array) -> Array | None:
        """What a step gets of the source."""
        config, weights = self.config, self.weights
        if config.reads == "last":
            return None
        if config.reads == "mean":
            return self.note("decoder.context", states.mean(axis=0))
        if config.score == "dot":
            scores = states @ asked
        elif config.score == "bilinear":
            scores = states @ weights["decoder.attn.key.weight"].T @ asked
        else:
            inner = weights.linear(asked, "decoder.attn.query") + weights.linear(states, "decoder.attn.key")
            scores = np.tanh(inner) @ weights["decoder.attn.weight"]
        self.note("decoder.attn.scores", scores[None, None])
        pattern = self.note("decoder.attn.pattern", softmax(scores)[None, None])
        return self.note("decoder.attn.context", pattern[0, 0] @ states)


# The Transformer.

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "swish": lambda x: x * sigmoid(x),
    "gelu_erf": lambda x: x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2.0)),
    "gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def waves(positions: int, width: int, layout: str) -> Array:
    """The sinusoids, number by number, in float32: so the model holds them in any precision."""
    table = np.zeros((positions, width))
    for place in range(positions):
        for pair in range(width // 2):
            angle = place / 10_000.0 ** (2 * pair / width)
            at = (2 * pair, 2 * pair + 1) if layout == "alternating" else (pair, width // 2 + pair)
            table[place, at[0]], table[place, at[1]] = math.sin(angle), math.cos(angle)
    return table.astype(np.float32).astype(np.float64)


def transformer(config: Any, state: Mapping[str, Any], source: Iterable[int], target: Iterable[int]) -> Sites:
    """One source and one target: every value on the way, positions first (behind heads, where there are any)."""
    model = _Transformer(config, Weights(state))
    x = model.embed(list(source), "source_tokens" if config.source_vocab else "tokens", "encoder")
    for layer in range(config.layers):
        x = model.encoder_block(f"encoder.blocks.{layer}", x)
    memory = x
    x = model.embed(list(target), "tokens", "decoder")
    for layer in range(config.decoder_layers):
        x = model.decoder_block(f"decoder.blocks.{layer}", x, memory)
    model.seen["final"] = x
    logits = x @ model.weights["tokens.weight" if config.tied else "head.weight"].T
    model.seen["logits"] = logits + model.weights.state.get("head.bias", 0.0)
    return model.seen


class _Transformer:
    def __init__(self, config: Any, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.seen: Sites = {}

    def embed(self, ids: list[int], tokens: str, stack: str) -> Array:
        vectors = self.weights[f"{tokens}.weight"][ids]
        if self.config.scaled:
            vectors = vectors * math.sqrt(self.config.width)
        places = waves(len(ids), self.config.width, self.config.layout)
        self.seen[f"{stack}.embed"] = vectors + places
        return self.seen[f"{stack}.embed"]

    def encoder_block(self, name: str, x: Array) -> Array:
        self.seen[f"{name}.in"] = x
        x = self.add(x, self.attend(f"{name}.attn", x, x, causal=False), f"{name}.norm1", f"{name}.mid")
        return self.add(x, self.feed_forward(f"{name}.mlp", x), f"{name}.norm2", f"{name}.out")

    def decoder_block(self, name: str, x: Array, memory: Array) -> Array:
        self.seen[f"{name}.in"] = x
        x = self.add(x, self.attend(f"{name}.attn", x, x, causal=True), f"{name}.norm1", f"{name}.mid")
        x = self.add(
            x, self.attend(f"{name}.cross", x, memory, causal=False), f"{name}.norm2", f"{name}.mid2"
        )
        return self.add(x, self.feed_forward(f"{name}.mlp", x), f"{name}.norm3", f"{name}.out")

    def add(self, x: Array, part: Array, norm: str, site: str) -> Array:
        self.seen[site] = self.weights.norm(x + part, norm)
        return self.seen[site]

    def attend(self, name: str, x: Array, memory: Array, *, causal: bool) -> Array:
        heads = self.config.heads
        width = self.config.width // heads
        per_head: dict[str, list[Array]] = {}
        q, k, v = (
            self.weights.linear(of, f"{name}.{what}")
            for of, what in ((x, "query"), (memory, "key"), (memory, "value"))
        )
        for head in range(heads):
            mine = slice(head * width, (head + 1) * width)
            scores = q[:, mine] @ k[:, mine].T / math.sqrt(width)
            if causal:
                scores[np.triu_indices(len(x), 1)] = -np.inf
            pattern = softmax(scores)
            found = {"q": q[:, mine], "k": k[:, mine], "v": v[:, mine]}
            found |= {"scores": scores, "pattern": pattern, "mix": pattern @ v[:, mine]}
            for what, value in found.items():
                per_head.setdefault(what, []).append(value)
        self.seen |= {f"{name}.{what}": np.array(values) for what, values in per_head.items()}
        out = self.weights.linear(np.concatenate(per_head["mix"], axis=-1), f"{name}.proj")
        self.seen[f"{name}.out"] = out
        return out

    def feed_forward(self, name: str, x: Array) -> Array:
        activate = ACTIVATIONS[self.config.activation]
        self.seen[f"{name}.neurons"] = activate(self.weights.linear(x, f"{name}.up"))
        self.seen[f"{name}.out"] = self.weights.linear(self.seen[f"{name}.neurons"], f"{name}.down")
        return self.seen[f"{name}.out"]


# Beside a model of ours.

WHOLE = (
    "encoder.states",
    "encoder.embed",
    "decoder.embed",
)  # not met once a step, though inside of a network


# The Music Transformer.


def music(config: Any, state: Mapping[str, Any], ids: Iterable[int]) -> Sites:
    """One row: every value on the way. Distances are looked up pair by pair, in the paper's naive form."""
    weights, ids = Weights(state), list(ids)
    x = weights["tokens.weight"][ids]
    if config.positions == "learned":
        x = x + weights["positions.weight"][: len(ids)]
    if config.positions == "sinusoids":
        x = x + np.float32(0.02) * waves(len(ids), config.width, "alternating").astype(np.float32)
    seen: Sites = {"embed": x}
    for layer in range(config.layers):
        name = f"blocks.{layer}"
        seen[f"{name}.in"] = x
        x = x + _relative_attention(config, weights, f"{name}.attn", weights.norm(x, f"{name}.norm1"), seen)
        seen[f"{name}.mid"] = x
        up = weights.linear(weights.norm(x, f"{name}.norm2"), f"{name}.mlp.up")
        seen[f"{name}.mlp.neurons"] = (
            0.5 * up * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        )
        seen[f"{name}.mlp.out"] = weights.linear(seen[f"{name}.mlp.neurons"], f"{name}.mlp.down")
        x = seen[f"{name}.out"] = x + seen[f"{name}.mlp.out"]
    seen["final"] = weights.norm(x, "norm")
    seen["logits"] = seen["final"] @ weights["tokens.weight" if config.tied else "head.weight"].T
    return seen


def _relative_attention(config: Any, weights: Weights, name: str, x: Array, seen: Sites) -> Array:
    """Scores q·k, and q·e of the distance where there are distances."""
    length, width = len(x), config.width // config.heads
    q, k, v = weights.linear(x, f"{name}.qkv").reshape(length, 3, config.heads, width).transpose(1, 2, 0, 3)
    seen |= {f"{name}.q": q, f"{name}.k": k, f"{name}.v": v}
    scores = np.full((config.heads, length, length), -np.inf)
    added = np.full_like(scores, np.nan)
    for i in range(length):
        for j in range(i + 1):
            for head in range(config.heads):
                score = float(q[head, i] @ k[head, j])
                if config.positions == "relative":
                    table = weights[f"{name}.distances"][head]
                    near = i - j < len(table)
                    added[head, i, j] = float(q[head, i] @ table[len(table) - 1 - (i - j)]) if near else 0.0
                    score += added[head, i, j]
                scores[head, i, j] = score / math.sqrt(width)
    if config.positions == "relative":
        seen[f"{name}.distance"] = added
    seen[f"{name}.scores"], seen[f"{name}.pattern"] = scores, softmax(scores)
    seen[f"{name}.mix"] = seen[f"{name}.pattern"] @ v
    merged = seen[f"{name}.mix"].transpose(1, 0, 2).reshape(length, -1)
    seen[f"{name}.out"] = weights.linear(merged, f"{name}.proj")
    return seen[f"{name}.out"]


def largest_difference(seen: Mapping[str, Any], right: Sites, row: int) -> dict[str, float]:
    """Of every site, how far a row of a batch is from the same row alone; padding is left out.

    As a share of the largest number there, if that is above 1; infinite where a site is missing, or where
    other numbers are finite. A recurrent step is met many times: steps come first, rows second. A network that
    reads backwards meets the padding first.
    """
    found = dict.fromkeys(set(seen) ^ set(right), math.inf)
    for site in set(seen) & set(right):
        value, batch = right[site], np.asarray(seen[site])
        in_steps = site.startswith(("encoder.", "decoder.")) and ".blocks." not in site and site not in WHOLE
        mine = batch[:, row] if in_steps else batch[row]
        cut = [slice(0, size) for size in value.shape]
        if "back" in site:
            cut[0] = slice(len(mine) - len(value), None)
        mine, finite = mine[tuple(cut)], np.isfinite(value)
        if site.endswith(".distance"):
            mine = np.where(
                finite, mine, np.nan
            )  # what lies ahead has no distance, and numbers that mean nothing
        if np.array_equal(finite, np.isfinite(mine)):
            scale = max(1.0, float(np.abs(value[finite]).max()))
            found[site] = float(np.abs(mine[finite] - value[finite]).max()) / scale
        else:
            found[site] = math.inf
    return found
