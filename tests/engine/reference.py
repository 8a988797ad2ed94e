"""The engine's arithmetic once more, in NumPy and float64: int8 weights and activations, half keys and
values, all else exact.
"""

import math
from typing import Any

import numpy as np
import torch

from glassformer.engine.quantize import quantize
from glassformer.models.gpt import GPT

Array = np.ndarray[Any, Any]


def linear(x: Array, weights: Array, bias: Array | None) -> Array:
    """Rows through a matrix, both in eight bits."""
    whole, scales = quantize(weights)
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


def through(x: Array, layer: torch.nn.Linear) -> Array:
    return linear(x, layer.weight.detach().numpy(), None if layer.bias is None else numbers(layer.bias))


def logits(model: GPT, ids: Array) -> Array:
    """Scores of every next token after every position: (T,) -> (T, V)."""
    config, length = model.config, len(ids)
    whole, scales = quantize(model.tokens.weight.detach().numpy())
    x = whole[ids] * scales[ids, None].astype(np.float64) + numbers(model.positions.weight)[:length]
    ahead = np.triu(np.ones((length, length), dtype=bool), 1)
    for block in model.blocks:
        qkv = through(norm(x, block.norm1), block.attn.qkv).reshape(length, 3, config.heads, -1)
        query, (key, value) = qkv[:, 0], qkv[:, 1:].astype(np.float16).astype(np.float64).swapaxes(0, 1)
        scores = np.einsum("thk,shk->hts", query, key) / math.sqrt(query.shape[-1])
        scores[:, ahead] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        mix = np.einsum("hts,shk->thk", weights / weights.sum(axis=2, keepdims=True), value)
        x = x + through(mix.reshape(length, -1), block.attn.proj)
        x = x + through(
            activate(through(norm(x, block.norm2), block.mlp.up), config.activation), block.mlp.down
        )
    return through(norm(x, model.norm), model.head)
