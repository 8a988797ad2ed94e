"""Backends: what computes logits. The native int8 engine where it runs the model, torch elsewhere."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from glassformer.engine import native
from glassformer.errors import InputError
from glassformer.generation.stepper import Ids, Logits, Stepper

if TYPE_CHECKING:
    from torch import nn

ENGINES = ("auto", "native", "torch")


class Backend(Stepper, Protocol):
    """A `Stepper` with a name, which also scores every position of a text."""

    @property
    def name(self) -> str:
        """What computes, in a few words: `native int8`, `torch float32`."""

    @property
    def threads(self) -> int:
        """The number of threads that compute."""

    def logits(self, ids: Ids) -> Logits:
        """Scores of the next token after every position: (B, T) -> (B, T, V)."""


class TorchBackend:
    """A torch model. Every run holds the model's lock, so that it never meets the edits of another thread."""

    def __init__(
        self,
        net: Any,
        *,
        lock: AbstractContextManager[Any] | None = None,
        edits: AbstractContextManager[Any] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`edits` is entered around every run; `check` may refuse one."""
        self.net = net
        self._lock, self._edits, self._check = lock or nullcontext(), edits or nullcontext(), check

    @property
    def name(self) -> str:
        """`torch`, and the type of the weights."""
        return str(self.net.tokens.weight.dtype).replace(".", " ")

    @property
    def threads(self) -> int:
        """The threads that torch computes with."""
        import torch

        return torch.get_num_threads()

    @property
    def context(self) -> int | None:
        """The number of tokens that the model can attend to."""
        context: int | None = self.net.context
        return context

    @property
    def vocab(self) -> int:
        return int(self.net.vocab)

    def new_cache(self, rows: int, capacity: int, *, padding: Ids | None = None) -> Any:
        """An empty cache."""
        return self.net.new_cache(rows, capacity, padding=padding)

    def cache_size(self, rows: int, capacity: int) -> int:
        """The bytes of such a cache."""
        return int(self.net.cache_size(rows, capacity))

    def step(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the next token."""
        with self._lock:
            self._check()
            with self._edits:
                logits: Logits = self.net.step(ids, cache)
        return logits

    def log_sums(self, logits: Logits) -> list[float]:
        """For each row of logits, log Σ exp(logit)."""
        sums: list[float] = self.net.log_sums(logits)
        return sums

    def logits(self, ids: Ids) -> Logits:
        """Scores of the next token after every position: (B, T) -> (B, T, V)."""
        import torch

        rows = torch.as_tensor(np.asarray(ids), device=self.net.device)
        with self._lock:
            self._check()
            with self._edits, torch.inference_mode():
                return np.asarray(self.net(rows).float().cpu().numpy())


def status() -> str:
    """Which backend `auto` takes here, and why."""
    return native.status()


def wants_native(engine: str, *, device: str = "cpu", dtype: str = "float32") -> bool:
    """Whether to try the native engine; raises where it is asked for and cannot be had on this machine."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is none of {', '.join(ENGINES)}")
    fits = device == "cpu" and dtype in ("float32", "fp32", "auto")
    if engine == "native" and not fits:
        raise InputError(
            f"the native engine computes in int8 on the cpu; device {device} and dtype {dtype}"
            " need engine torch"
        )
    if engine == "native" and not native.ways():
        raise InputError(f"engine native is not available; this machine has {native.status()}")
    return engine != "torch" and fits and bool(native.ways())


def fingerprint(net: "nn.Module") -> str:
    """A hash that changes with any weight, however it was changed.

    torch's version counters do not see `parameter.data.mul_(0)`, so the numbers themselves are read: sums of
    the bits along both axes of every matrix, which takes about 60 ms for GPT-2 small where sha256 takes 300.
    """
    import torch

    digest = hashlib.sha256()
    for name, parameter in net.named_parameters():
        values = parameter.detach()
        bits = values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.itemsize])
        sums = [bits] if bits.dim() < 2 else [bits.sum(axis, dtype=bits.dtype) for axis in (0, 1)]
        digest.update(f"{name} {tuple(bits.shape)} {values.dtype}".encode())
        for part in sums:
            digest.update(part.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def has_hooks(net: "nn.Module") -> bool:
    """Whether torch hooks were registered on any module: the native engine would not call them."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
