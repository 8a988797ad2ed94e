"""GPT-1, GPT-2 and GPT-3 once more: from the files of a folder to logits, in plain NumPy and float64.

An oracle for verification and for tests. It shares no code with the package, not even the reading of files,
so an error would have to be made twice, in two ways, to go unseen.

Shapes: B batch, T tokens, D model width, H heads, K head width, V vocabulary. Vectors are rows, so a linear
map is `x @ w + b` with `w` of shape (in, out).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


class Files(NamedTuple):
    """What a folder holds: the content of its `config.json`, and its tensors by their names."""

    settings: Mapping[str, Any]
    weights: Mapping[str, NDArray[Any]]

    @property
    def is_gpt1(self) -> bool:
        """GPT-1 has other names for its embeddings, and its norms after the additions."""
        return bool(self.settings.get("model_type") == "openai-gpt")


def read_folder(folder: Path) -> Files:
    """The files of a folder; the tensors stay on the disk until they are used."""
    weights: dict[str, NDArray[Any]] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        content = np.memmap(path, mode="r", offset=8 + size)
        for name, entry in header.items():
            if entry["dtype"] in TYPES:  # others are masks that some files hold
                begin, end = entry["data_offsets"]
                numbers = content[begin:end].view(TYPES[entry["dtype"]])
                weights[name] = numbers.reshape(entry["shape"])
    return Files(json.loads((folder / "config.json").read_text(encoding="utf-8")), weights)


def logits(files: Files, ids: NDArray[Any]) -> Array:
    """The next-token logits (B, T, V) for ids (B, T)."""
    return sites(files, ids)["logits"]


def sites(files: Files, ids: NDArray[Any], *, causal: bool = True) -> dict[str, Array]:
    """Run the model on ids (B, T): every value on the way, by name. `causal=False`, a mutant, has no mask."""
    model = _Model(files)
    embeddings = ("tokens_embed", "positions_embed") if files.is_gpt1 else ("wte", "wpe")
    tokens, positions = (model.number(f"{name}.weight") for name in embeddings)
    _check(ids, tokens, positions)

    found: dict[str, Array] = {}
    stream = tokens[ids] + positions[: ids.shape[1]]
    found["embed"] = stream
    for layer in range(files.settings["n_layer"]):
        here = {"in": stream}
        hidden = model.mask(layer, ids.shape[1], causal=causal)
        block = model.post_norm_block if files.is_gpt1 else model.block
        stream = block(f"h.{layer}", stream, hidden, here)
        found |= {f"blocks.{layer}.{name}": value for name, value in here.items()}
    found["final"] = stream if files.is_gpt1 else model.norm(stream, "ln_f")
    head = model.number("lm_head.weight") if "lm_head.weight" in model.weights else tokens  # (V, D)
    found["logits"] = found["final"] @ head.T
    return found


class _Model:
    """The parts of a block, by the names of their tensors."""

    def __init__(self, files: Files) -> None:
        self.settings, self.is_gpt1 = files.settings, files.is_gpt1
        # Some files have this prefix, some do not.
        self.weights = {name.removeprefix("transformer."): value for name, value in files.weights.items()}
        self.eps = self.settings.get("layer_norm_epsilon", 1e-5)
        joint = self.weights["h.0.attn.c_attn.weight"].shape
        self.transposed = joint[0] != self.settings["n_embd"]  # (out, in), as in nanoGPT

    def block(self, name: str, stream: Array, hidden: NDArray[np.bool_], here: dict[str, Array]) -> Array:
        """GPT-2's and GPT-3's: norm, attention, add, norm, feed-forward, add."""
        normed = self.norm(stream, f"{name}.ln_1")
        here["mid"] = stream + self.attention(name, normed, hidden, here)
        normed = self.norm(here["mid"], f"{name}.ln_2")
        here["out"] = here["mid"] + self.feed_forward(name, normed, here)
        return here["out"]

    def post_norm_block(
        self, name: str, stream: Array, hidden: NDArray[np.bool_], here: dict[str, Array]
    ) -> Array:
        """GPT-1's: attention, add, norm, feed-forward, add, norm."""
        added = stream + self.attention(name, stream, hidden, here)
        here["mid"] = self.norm(added, f"{name}.ln_1")
        added = here["mid"] + self.feed_forward(name, here["mid"], here)
        here["out"] = self.norm(added, f"{name}.ln_2")
        return here["out"]

    def attention(self, name: str, x: Array, hidden: NDArray[np.bool_], here: dict[str, Array]) -> Array:
        """Scaled dot-product attention of all heads."""
        joint = self.linear(x, f"{name}.attn.c_attn")
        q, k, v = (self.split(part) for part in np.split(joint, 3, axis=-1))  # each (B, H, T, K)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        scores = np.where(hidden, -np.inf, scores)
        pattern = _softmax(scores)
        mix = pattern @ v
        merged = mix.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
        out = self.linear(merged, f"{name}.attn.c_proj")
        here |= {"attn.q": q, "attn.k": k, "attn.v": v}
        here |= {"attn.scores": scores, "attn.pattern": pattern, "attn.mix": mix, "attn.out": out}
        return out

    def feed_forward(self, name: str, x: Array, here: dict[str, Array]) -> Array:
        """Two linear maps with an activation between them."""
        here["mlp.neurons"] = self.activate(self.linear(x, f"{name}.mlp.c_fc"))
        here["mlp.out"] = self.linear(here["mlp.neurons"], f"{name}.mlp.c_proj")
        return here["mlp.out"]

    def activate(self, x: Array) -> Array:
        """What the configuration names; GPT-1's `gelu` is the form with tanh."""
        name, usual = ("afn", "gelu") if self.is_gpt1 else ("activation_function", "gelu_new")
        kind = self.settings.get(name, usual)
        if kind == "relu":
            return np.maximum(x, 0.0)
        if kind in TANH or (self.is_gpt1 and kind == "gelu"):
            # x times the tanh approximation of the normal CDF
            inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
            return 0.5 * x * (1.0 + np.tanh(inner))
        if kind != "gelu":
            raise ValueError(f"unknown activation {kind!r}")
        # x times the normal CDF itself
        cdf: Array = 0.5 * _erfc(-x / math.sqrt(2.0))
        return x * cdf

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalization."""
        centered: Array = x - x.mean(axis=-1, keepdims=True)
        variance: Array = (centered**2).mean(axis=-1, keepdims=True)
        scaled: Array = self.number(f"{name}.weight") * centered / np.sqrt(variance + self.eps)
        return scaled + self.bias(name)

    def linear(self, x: Array, name: str) -> Array:
        """A matrix and a bias."""
        matrix = self.number(f"{name}.weight")
        product: Array = x @ (matrix.T if self.transposed else matrix)
        return product + self.bias(name)

    def bias(self, name: str) -> Array | float:
        """A bias, or 0 in a model that has none."""
        return self.number(f"{name}.bias") if f"{name}.bias" in self.weights else 0.0

    def mask(self, layer: int, length: int, *, causal: bool) -> NDArray[np.bool_]:
        """[query, key]: which keys are hidden; in some layers of GPT-3, also those beyond the window."""
        back = np.arange(length)[:, None] - np.arange(length)[None, :]
        hidden: NDArray[np.bool_] = (back < 0) & causal  # the future
        if "window_size" in self.settings and layer % self.settings["stride"]:
            hidden = hidden | (back >= self.settings["window_size"])
        return hidden

    def split(self, x: Array) -> Array:
        """(B, T, H·K) -> (B, H, T, K): head h owns the columns h·K … (h + 1)·K - 1."""
        b, t, _ = x.shape
        return x.reshape(b, t, self.settings["n_head"], -1).transpose(0, 2, 1, 3)

    def number(self, name: str) -> Array:
        """A tensor in float64. NumPy has no bfloat16: it is the upper half of a float32."""
        value = self.weights[name]
        if value.dtype == np.uint16:
            value = (value.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(value, dtype=np.float64)


def _softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = e.sum(axis=-1, keepdims=True)
    return e / total


def _check(ids: NDArray[Any], tokens: Array, positions: Array) -> None:
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"ids must be a (B, T) integer array, got {ids.shape} {ids.dtype}")
    if not 1 <= ids.shape[1] <= len(positions):
        raise ValueError(f"sequence length {ids.shape[1]} is outside 1..{len(positions)}")
    if ids.min() < 0 or ids.max() >= len(tokens):
        raise ValueError(f"token ids must lie in 0..{len(tokens) - 1}")
