"""What the matrices of a model read, on text that it generates itself: by this, four-bit weights are rounded.

No text is needed, and nothing is fetched: what a model writes is what it was trained on, near enough.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.engine import native
from glassformer.engine.quantize import Array
from glassformer.errors import warn
from glassformer.generation.decode import generate
from glassformer.generation.options import Options

if TYPE_CHECKING:
    from torch import Tensor, nn

TEXTS, LENGTH = 32, 256
SECONDS = 15  # between two messages


class Calibration:
    """The second moments Σ x xᵀ of the inputs of every matrix, layer after layer.

    Those of one layer are in memory at a time: for all of GPT-2 XL they would take 10 GB.
    """

    def __init__(self, net: Any, engine: native.Engine, *, start: int) -> None:
        """`engine` generates the texts, from the token `start` on."""
        import torch

        self._net = net
        ids = torch.from_numpy(_own_texts(engine, start=start))
        with torch.inference_mode():
            self._stream: Tensor = net.tokens(ids) + net.positions(torch.arange(ids.shape[1]))
        self._layer = -1
        self._found: dict[str, Array] = {}
        self._said = time.monotonic()

    def moments(self, name: str) -> Array | None:
        """Those of a matrix, asked for in the order of the layers; None for rows that are only looked up."""
        config = self._net.config
        if name == "head" or (name == "tokens" and config.tied):
            return self._of_head()
        if name == "tokens":
            return None
        layer = int(name.split(".")[1])
        if layer != self._layer:
            self._run(layer)
            self._report(layer, config.layers)
        return self._found[name]

    def _run(self, layer: int) -> None:
        """One block, with a look at what its matrices read."""
        import torch

        self._layer, self._found = layer, {}
        block = self._net.blocks[layer]
        with ExitStack() as stack, torch.inference_mode():
            stack.enter_context(_one_thread())
            for name, module in block.named_modules():
                if isinstance(module, torch.nn.Linear):
                    hook = module.register_forward_pre_hook(self._keep(f"blocks.{layer}.{name}"))
                    stack.callback(hook.remove)
            self._stream = block(self._stream, None, None)

    def _keep(self, name: str) -> "Callable[[nn.Module, tuple[Tensor]], None]":
        def keep(module: "nn.Module", given: "tuple[Tensor]") -> None:
            self._found[name] = _moments(given[0])

        return keep

    def _of_head(self) -> Array:
        import torch

        with torch.inference_mode(), _one_thread():
            return _moments(self._net.norm(self._stream))

    def _report(self, layer: int, layers: int) -> None:
        if time.monotonic() - self._said > SECONDS:
            self._said = time.monotonic()
            warn(f"… layer {layer + 1} of {layers}")


def _own_texts(engine: native.Engine, *, start: int) -> Array:
    """Ids (texts, length) that a model generates: drawn as it predicts them, beyond the ends of texts."""
    length = min(LENGTH, engine.context)
    options = Options(temperature=1.0, top_k=0, seed=0, max_new_tokens=length - 1, num_return_sequences=TEXTS)
    ids = np.full((TEXTS, length), start, dtype=np.int64)
    for event in generate(engine, [[start]], options=options):
        if event.token is not None:
            ids[event.choice, len(event.continuation.tokens)] = event.token
    return ids


def _moments(x: "Tensor") -> Array:
    rows = x.flatten(0, -2)
    found: Array = (rows.T @ rows).numpy()
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread: several may add up in another order each time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
