"""GPT-2's forward pass in plain NumPy float64, used as a test oracle.

Shapes: B batch, T tokens, D model width, H heads, K = D / H head width, F hidden width of the
MLP, V vocabulary. Vectors are rows, so a linear map is ``x @ w + b`` with ``w`` of shape (in, out).
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _activate(x: Array, kind: str) -> Array:
    if kind == "gelu_new":  # x times the tanh approximation of the normal CDF
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    if kind == "gelu":  # x times the normal CDF
        cdf: Array = 0.5 * _erfc(-x / math.sqrt(2.0))
        return x * cdf
    if kind == "relu":
        return np.maximum(x, 0.0)
    raise ValueError(f"unknown activation {kind!r}: expected 'gelu_new', 'gelu' or 'relu'")


def _layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    centred: Array = x - x.mean(axis=-1, keepdims=True)
    variance: Array = (centred**2).mean(axis=-1, keepdims=True)
    return gain * centred / np.sqrt(variance + eps) + bias


def _softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = e.sum(axis=-1, keepdims=True)
    return e / total


def _split_heads(x: Array, n_head: int) -> Array:
    b, t, d = x.shape  # head h owns columns h*K .. (h+1)*K - 1
    return x.reshape(b, t, n_head, d // n_head).transpose(0, 2, 1, 3)


def _merge_heads(x: Array) -> Array:
    b, h, t, k = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, t, h * k)


def _check(w: dict[str, Array], ids: np.ndarray, n_head: int) -> None:
    vocab, width = w["transformer.wte.weight"].shape
    n_ctx = w["transformer.wpe.weight"].shape[0]
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"ids must be a (B, T) integer array, got {ids.shape} {ids.dtype}")
    if not 1 <= ids.shape[1] <= n_ctx:
        raise ValueError(f"sequence length {ids.shape[1]} is outside 1..{n_ctx}")
    if ids.size and (ids.min() < 0 or ids.max() >= vocab):
        raise ValueError(f"token ids must lie in 0..{vocab - 1}")
    if n_head < 1 or width % n_head:
        raise ValueError(f"n_head {n_head} does not divide the model width {width}")


def gpt2_sites(
    weights: dict[str, np.ndarray],
    ids: np.ndarray,
    *,
    n_head: int,
    eps: float = 1e-5,
    activation: str = "gelu_new",
) -> dict[str, Array]:
    """Run the model on ids (B, T) and return every named intermediate value, in float64."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    ids = np.asarray(ids)
    _check(w, ids, n_head)

    def linear(x: Array, name: str) -> Array:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        return _layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], eps)

    prefix = "transformer.h."
    n_layer = 1 + max((int(n.split(".")[2]) for n in w if n.startswith(prefix)), default=-1)
    n_tokens = ids.shape[1]
    future = np.arange(n_tokens)[None, :] > np.arange(n_tokens)[:, None]  # [query, key]

    sites: dict[str, Array] = {}
    stream = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:n_tokens]
    sites["embed"] = stream

    for i in range(n_layer):
        src, dst = f"{prefix}{i}", f"blocks.{i}"
        sites[f"{dst}.in"] = stream

        joint = linear(norm(stream, f"{src}.ln_1"), f"{src}.attn.c_attn")
        q, k, v = (_split_heads(part, n_head) for part in np.split(joint, 3, axis=-1))
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        scores = np.where(future, -np.inf, scores)
        pattern = _softmax(scores)
        mix = pattern @ v
        attn_out = linear(_merge_heads(mix), f"{src}.attn.c_proj")
        stream = stream + attn_out
        sites[f"{dst}.attn.q"] = q
        sites[f"{dst}.attn.k"] = k
        sites[f"{dst}.attn.v"] = v
        sites[f"{dst}.attn.scores"] = scores
        sites[f"{dst}.attn.pattern"] = pattern
        sites[f"{dst}.attn.mix"] = mix
        sites[f"{dst}.attn.out"] = attn_out
        sites[f"{dst}.mid"] = stream

        hidden = linear(norm(stream, f"{src}.ln_2"), f"{src}.mlp.c_fc")
        neurons = _activate(hidden, activation)
        mlp_out = linear(neurons, f"{src}.mlp.c_proj")
        stream = stream + mlp_out
        sites[f"{dst}.mlp.neurons"] = neurons
        sites[f"{dst}.mlp.out"] = mlp_out
        sites[f"{dst}.out"] = stream

    sites["final"] = norm(stream, "transformer.ln_f")
    head = w.get("lm_head.weight", w["transformer.wte.weight"])  # (V, D)
    sites["logits"] = sites["final"] @ head.T
    return sites


def gpt2_logits(
    weights: dict[str, np.ndarray],
    ids: np.ndarray,
    *,
    n_head: int,
    eps: float = 1e-5,
    activation: str = "gelu_new",
) -> Array:
    """Return the next-token logits (B, T, V) for ids (B, T), in float64."""
    return gpt2_sites(weights, ids, n_head=n_head, eps=eps, activation=activation)["logits"]
