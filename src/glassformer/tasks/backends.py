"""Backends: what computes logits. The native engine where it runs the model, torch elsewhere."""

import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from glassformer.engine import native
from glassformer.engine.quantize import BITS
from glassformer.errors import InputError
from glassformer.generation.stepper import Ids, Logits, Scorer

if TYPE_CHECKING:
    from torch import Tensor, nn

ENGINES = ("auto", "native", "torch")


class Backend(Scorer, Protocol):
    """What computes logits, under a name."""

    @property
    def name(self) -> str:
        """What computes, in a few words: `native int8`, `native int4`, `torch float32`."""

    @property
    def threads(self) -> int:
        """The number of threads that compute."""


class TorchBackend:
    """A torch model, or a view of one that is bound to a source (`net.given(source)`).

    Every run holds the model's lock, so that it never meets the edits of another thread.
    """

    def __init__(
        self,
        model: Scorer,
        name: str,
        *,
        lock: AbstractContextManager[Any] | None = None,
        edits: AbstractContextManager[Any] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`edits` is entered around every run; `check` may refuse one."""
        self.name = name
        self._model = model
        self._lock, self._edits, self._check = lock or nullcontext(), edits or nullcontext(), check

    @property
    def threads(self) -> int:
        """The threads that torch computes with."""
        import torch

        return torch.get_num_threads()

    @property
    def context(self) -> int | None:
        """The number of tokens that the model can attend to."""
        return self._model.context

    @property
    def vocab(self) -> int:
        return self._model.vocab

    def new_cache(self, rows: int, capacity: int, *, padding: Ids | None = None) -> Any:
        """An empty cache; one that is bound to a source is filled with it, by a run of the model."""
        with self._running():
            return self._model.new_cache(rows, capacity, padding=padding)

    def cache_size(self, rows: int, capacity: int) -> int:
        """The bytes of such a cache."""
        return self._model.cache_size(rows, capacity)

    def step(self, ids: Ids, cache: Any) -> Logits:
        """Read ids (B, T) behind the cache; float32 logits (B, V) of the next token."""
        with self._running():
            return self._model.step(ids, cache)

    def log_sums(self, logits: Logits) -> Sequence[float]:
        """For each row of logits, log Σ exp(logit)."""
        return self._model.log_sums(logits)

    def logits(self, ids: Ids) -> Logits:
        """Scores of the next token after every position: (B, T) -> (B, T, V)."""
        with self._running():
            return self._model.logits(ids)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Inside, the model runs for this backend alone, with its edits."""
        with self._lock:
            self._check()
            with self._edits:
                yield


def status() -> str:
    """Which backend `auto` takes here, and why."""
    return native.status()


def wants_native(engine: str, *, device: str = "cpu", dtype: str = "float32") -> bool:
    """Whether to try the native engine; raises where it is asked for and cannot be had on this machine."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is none of {', '.join(ENGINES)}")
    fits = device == "cpu" and dtype in ("float32", "fp32", "auto")
    if engine == "native" and not fits:
        which = f"dtype {dtype}" if device == "cpu" else f"device {device}"
        raise InputError(f"the native engine computes in integers on the cpu; {which} needs engine torch")
    if engine == "native" and not native.ways():
        raise InputError(f"engine native is not available; this machine has {native.status()}")
    return engine != "torch" and fits and bool(native.ways())


def bits_named(quantize: str, *, engine: str) -> int:
    """How many bits a weight of the native engine has; torch's have none to choose."""
    if quantize not in BITS:
        raise InputError(f"quantize {quantize!r:.50} is none of {', '.join(BITS)}")
    if engine == "torch" and quantize != "int8":
        raise InputError(f"quantize {quantize} is for engine native; engine torch computes with its dtype")
    return BITS[quantize]


def fingerprint(net: "nn.Module") -> str:
    """A checksum of all weights and settings of a model, however they were changed.

    torch's version counters do not see `parameter.data.mul_(0)`, so the numbers themselves are read. CRC-32
    takes 0.15 s for GPT-2 small, half of what sha256 does. Sums of the bits would be faster still, but
    signs that are flipped in an even number of places would cancel out.
    """
    sums = [f"{name} {_checksum(tensor)}" for name, tensor in net.named_parameters()]
    sums += [f"{name} {_checksum(tensor)}" for name, tensor in net.named_buffers()]
    whole = "\n".join([repr(net), *sums])  # repr() has the settings of modules, such as the epsilon of a norm
    return hashlib.sha256(whole.encode()).hexdigest()


def _checksum(tensor: "Tensor") -> str:
    import torch

    values = tensor.detach()
    if values.dim() == 2 and not values.is_contiguous():
        values = values.t()  # loaded matrices lie by columns: in this order nothing is copied
    raw = (
        values.contiguous().cpu().view(torch.uint8)
        if values.dim()
        else values.cpu().reshape(1).view(torch.uint8)
    )
    return f"{tuple(tensor.shape)} {tensor.dtype} {zlib.crc32(raw.numpy().data):08x}"


def is_observed(net: "nn.Module") -> bool:
    """Whether this thread traces the model, or it has hooks: the native engine would call neither.

    Traces and hooks of our own edits do not count. They come and go while another thread holds the model's
    lock, and must not decide by which backend this thread generates.
    """
    thread = threading.get_ident()
    for module in net.modules():
        tracer = getattr(module, "tracer", None)
        if tracer is not None and tracer.thread == thread:
            return True
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        if any(not getattr(hook, "of_edits", False) for hook in hooks):
            return True
    return False
