"""The engine's arithmetic once more, in NumPy and float64: weights of eight bits or four, int8 activations,
half keys and values, all else exact.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from glassformer.engine.quantize import quantize
from glassformer.models.gpt import GPT

Array = np.ndarray[Any, Any]


Weights = Callable[[str, Array], tuple[Array, Array]]  # a matrix by its name -> integers, and scales of rows


def eight_bits(name: str, weights: Array) -> tuple[Array, Array]:
    """As `quantize` rounds them."""
    return quantize(weights)


def packed(arrays: Mapping[str, Array]) -> Weights:
    """The weights of a packed model, unpacked one by one by their definition."""

    def unpack(name: str, weights: Array) -> tuple[Array, Array]:
        outputs, inputs = weights.shape
        both = arrays[f"{name}.weights"].view(np.uint8)
        multipliers = arrays[f"{name}.multipliers"]
        found = np.empty((outputs, inputs), dtype=np.int64)
        for row in range(outputs):
            for column in range(inputs):
                byte = int(both[row // 16, column // 8, row % 16, column % 4])
                half = byte >> 4 if column // 4 % 2 else byte & 15
                found[row, column] = (half - 8) * int(multipliers[row // 16, column // 32, row % 16])
        return found, arrays[f"{name}.scales"][:outputs]

    return unpack


def linear(x: Array, name: str, layer: Any, weights: Weights) -> Array:
    """Rows through a matrix, both in integers."""
    whole, scales = weights(name, layer.weight.detach().numpy())
    bias = None if getattr(layer, "bias", None) is None else numbers(layer.bias)
    most = np.abs(x).max(axis=1, keepdims=True)
    rows = np.rint(np.divide(x * 127, most, out=np.zeros_like(x), where=most > 0))
    out = (rows @ whole.T.astype(np.float64)) * (most / 127) * scales.astype(np.float64)
    return out if bias is None else out + bias


def norm(x: Array, layer: torch.nn.LayerNorm) -> Array:
    """Layer normalization."""
    away = x - x.mean(axis=1, keepdims=True)
    out = away / np.sqrt((away**2).mean(axis=1, keepdims=True) + layer.eps) * numbers(layer.weight)
    return np.asarray(out if layer.bias is None else out + numbers(layer.bias))


def numbers(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().double().numpy())


def activate(x: Array, kind: str) -> Array:
    """What the neurons do."""
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "gelu_erf":
        return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def logits(model: GPT, ids: Array, weights: Weights = eight_bits) -> Array:
    """Scores of every next token after every position: (T,) -> (T, V)."""
    config, length = model.config, len(ids)
    whole, scales = weights("tokens", model.tokens.weight.detach().numpy())
    x = whole[ids] * scales[ids, None].astype(np.float64) + numbers(model.positions.weight)[:length]
    ahead = np.triu(np.ones((length, length), dtype=bool), 1)
    for layer, block in enumerate(model.blocks):

        def through(x: Array, name: str, *, of: Any = block, layer: int = layer) -> Array:
            return linear(x, f"blocks.{layer}.{name}", of.get_submodule(name), weights)

        qkv = through(norm(x, block.norm1), "attn.qkv").reshape(length, 3, config.heads, -1)
        query, (key, value) = qkv[:, 0], qkv[:, 1:].astype(np.float16).astype(np.float64).swapaxes(0, 1)
        scores = np.einsum("thk,shk->hts", query, key) / math.sqrt(query.shape[-1])
        scores[:, ahead] = -np.inf
        exps = np.exp(scores - scores.max(axis=2, keepdims=True))
        mix = np.einsum("hts,shk->thk", exps / exps.sum(axis=2, keepdims=True), value)
        x = x + through(mix.reshape(length, -1), "attn.proj")
        x = x + through(activate(through(norm(x, block.norm2), "mlp.up"), config.activation), "mlp.down")
    return linear(norm(x, model.norm), "tokens" if config.tied else "head", model.head, weights)
