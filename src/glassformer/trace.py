"""The one way to see inside: name a value where it is made; read, edit or differentiate it from outside.

In a model:     mix = self.tap("mix", pattern @ v)                          # (B, H, T, K)
Outside of it:  with trace(model, "blocks.*.attn.mix") as seen: model(ids)
                seen["blocks.3.attn.mix"]

Shapes, the same letters in every model:
    B batch   T positions   S source positions   D width   H heads   K head width
    N neurons   V vocabulary   L layers

An **address** is a site with, where one is meant, an index on its head or neuron axis:
`blocks.5.attn.mix[1]` is head 1, `blocks.3.mlp.neurons[17]` one neuron, `blocks.2.attn` the whole sub-layer.
In a list of places to edit or to patch, `blocks.*.attn.mix[*]` is every head of every layer, one by one.
"""

import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache, wraps
from types import ModuleType
from typing import ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from glassformer.errors import InputError, UnknownSite

Edit = Callable[[Tensor], Tensor]
Edits = Mapping[str, Edit] | Sequence[tuple[str, Edit]]  # done in their order

# Where the head or neuron axis of an indexable site sits, counted from the right: (…, H, T, K), (…, H, T, S),
# (…, T, N). Counted so, a site that was met many times, and has one axis more at the left, needs no rule of
# its own.
AXES = {"q": -3, "k": -3, "v": -3, "scores": -3, "pattern": -3, "mix": -3, "distance": -3, "neurons": -1}
SUBLAYERS = ("attn", "mlp", "cross")

P = ParamSpec("P")
R = TypeVar("R")


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Keep torch.compile out of a method, from the first call on that finds the compiler loaded.

    `torch.compiler.disable` loads the compiler, which takes a second: too long for a process that compiles
    nothing.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **named)
        disabled: Callable[P, R] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        setattr(Tracer, function.__name__, disabled)  # in place of this one
        return disabled(*arguments, **named)

    return call


class Tapped(nn.Module):
    """A module whose inner values can be named."""

    # None on the class: no listener. trace() sets it on instances for a while. It must stay an ordinary
    # attribute: torch.compile guards it, so that a compiled model notices a listener; reading __dict__ would
    # not be guarded, and a compiled model would go on without being seen.
    tracer: ClassVar["Tracer | None"] = None

    def tap(self, site: str, value: Tensor) -> Tensor:
        """Name `value`; it comes back untouched unless a trace edits it."""
        return value if self.tracer is None else self.tracer.see(self, site, value=value)

    def watched(self, *sites: str) -> bool:
        """Whether a trace reads or edits one of these sites."""
        return self.tracer is not None and self.tracer.asks(self, sites)

    def altered(self, *sites: str) -> bool:
        """Whether a trace edits one of these sites, or wants its gradient."""
        return self.tracer is not None and self.tracer.alters(self, sites)


class Tracer(dict[str, Tensor]):
    """What one trace saw: site -> value, once its `with` block has ended.

    A site met by N forward passes has the shape (N, …). Where passes differ in a size (the prompt, then one
    token at a time), each axis is as long as the longest, and shorter values have zeros at the end of it;
    `each(site)` has them as they were.
    """

    def __init__(self, model: nn.Module, sites: Iterable[str], *, edits: Edits, grad: bool = False) -> None:
        super().__init__()
        self.grad = grad
        self.keep: Callable[[Tensor], Tensor] = Tensor.detach  # what is kept of a value
        self.thread = 0  # the one that listens
        # Traces nest: a module has one tracer, the innermost, which passes every value to the one around it
        # first. The outer one is kept for each module, because the two may cover different parts of a model.
        self.outer: dict[nn.Module, Tracer] = {}
        self.met: dict[str, None] = {}  # an ordered set
        self._names = {module: name for name, module in model.named_modules()}
        self._tapped = [module for module in self._names if isinstance(module, Tapped)]
        self._sites = [parse_address(site) for site in sites]
        pairs = edits.items() if isinstance(edits, Mapping) else edits
        self._edits = [(*parse_address(site), _checked(edit, site)) for site, edit in pairs]
        self._values: dict[str, list[Tensor]] = {}

    def __missing__(self, address: str) -> Tensor:
        """Look up a full address: `seen["blocks.5.attn.mix[1]"]`."""
        if "*" in address:
            raise UnknownSite(
                f"{address!r} is a pattern, which may name several values: ask for one by its name"
            )
        site, index = parse_address(address)
        if site in self:
            return _slice(self[site], site, index)
        if site in self._values:
            raise UnknownSite(f"{address!r} can be read after the `with` block of its trace, not inside")
        raise UnknownSite(
            f"the trace holds no site {address!r}{_similar(site, self)}; it holds {self.listed()}"
        )

    def listed(self) -> str:
        """The sites held, in a few words: `embed, blocks.0…11.in, …`."""
        return _listed(self) or "nothing"

    def each(self, address: str) -> list[Tensor]:
        """The values of a site pass by pass, each in its own shape."""
        site, index = parse_address(address)
        self[site]  # raises where there is none
        return [_slice(value, site, index) for value in self._values[site]]

    def take(self, site: str) -> Tensor:
        """The value of a site, which the trace holds no longer: all heads of a long text are large."""
        value = self.pop(site)
        del self._values[site]
        return value

    @_uncompiled
    def asks(self, module: nn.Module, sites: tuple[str, ...]) -> bool:
        outside = module in self.outer and self.outer[module].asks(module, sites)
        return (
            outside
            or self.alters(module, sites)
            or any(self._read(self._path(module, site)) for site in sites)
        )

    @_uncompiled
    def alters(self, module: nn.Module, sites: tuple[str, ...]) -> bool:
        paths = [self._path(module, site) for site in sites]
        # Fused attention never computes these sites; they count as met, or a typing error in another site
        # would be answered with a list that leaves them out.
        self.met |= dict.fromkeys(paths)
        edited = any(_matches(path, glob) for path in paths for glob, _, _ in self._edits)
        outside = module in self.outer and self.outer[module].alters(module, sites)
        return outside or edited or (self.grad and any(self._read(path) for path in paths))

    @_uncompiled
    def see(self, module: nn.Module, site: str, *, value: Tensor) -> Tensor:
        """One tap with a listener. A traced run of a compiled model falls back to eager here."""
        # Outer edits first: an inner trace looks at the model as it runs inside the outer block.
        if module in self.outer:
            value = self.outer[module].see(module, site, value=value)
        path = self._path(module, site)
        self.met[path] = None
        for glob, index, edit in self._edits:
            if _matches(path, glob):
                value = _edited(value, path, index, edit)
        if self._read(path):
            if self.grad and value.requires_grad:
                value.retain_grad()
            self._values.setdefault(path, []).append(value if self.grad else self.keep(value))
        return value

    def attach(self) -> None:
        """Begin to listen, inside of the traces that listen already."""
        self.thread = threading.get_ident()
        self.outer = {module: module.tracer for module in self._tapped if module.tracer is not None}
        for module in self._tapped:
            module.tracer = self  # type: ignore[misc]

    def detach(self) -> None:
        """Listen no longer; what was seen stays."""
        for module in self._tapped:
            self.leave(module)

    def leave(self, module: Tapped) -> None:
        """Listen to a module no longer. A trace that began later and is open goes on without this one."""
        inner, outer = module.tracer, self.outer.get(module)
        # Traces may end in any order. The tracers of a module are a linked list from the innermost outwards:
        # walk to the one just inside of this one, if there is one, and take this one out between its
        # neighbors.
        while inner is not None and inner is not self and inner.outer.get(module) is not self:
            inner = inner.outer.get(module)
        if inner is not None and inner is not self:
            inner.outer = {one: tracer for one, tracer in inner.outer.items() if one is not module}
            inner.outer |= {} if outer is None else {module: outer}
        elif outer is not None:
            module.tracer = outer  # type: ignore[misc]
        else:
            del module.tracer

    def close(self) -> None:
        """Check that all requested sites were met, if the model ran at all, and stack the repeated ones."""
        asked = [site for site, _ in self._sites] + [site for site, _, _ in self._edits]
        for glob in asked:
            if self.met and not any(_matches(path, glob) for path in self.met):
                raise _no_match(glob, self.met)
        read = [value for values in self._values.values() for value in values]
        if self.grad and read and not any(value.requires_grad for value in read):
            raise InputError(
                "grad=True, but no value has a gradient: run the torch module itself (lm.net),"
                " with gradients enabled"
            )
        for path, values in self._values.items():
            self[path] = _stacked(values)

    def addresses(self, glob: str) -> list[str]:
        """The addresses of the sites met that a glob matches: `blocks.*.mlp`, `blocks.*.attn.mix[*]`."""
        every = glob.endswith("[*]")
        site, index = parse_address(glob.replace("[*]", "[0]") if every else glob)
        met = [path for path in self if _matches(path, site)]
        if not met:
            raise _no_match(glob, self)
        for path in met:
            _slice(self[path], path, index)  # raises where the index is out of range
        if every:
            axis = AXES[site.rpartition(".")[2]]
            return [f"{path}[{n}]" for path in met for n in range(self[path].shape[axis])]
        return [path if index is None else f"{path}[{index}]" for path in met]

    def gradient(self, address: str) -> Tensor:
        """The gradient that reached a site, after `backward()`; stacked like the site itself."""
        site, index = parse_address(address)
        grads = [value.grad for value in self._values.get(site, [])]
        if not grads or any(grad is None for grad in grads):
            raise UnknownSite(
                f"no gradient reached {address!r}: trace it with grad=True and call backward() first"
            )
        return _slice(_stacked([grad for grad in grads if grad is not None]), site, index)

    def _path(self, module: nn.Module, site: str) -> str:
        name = self._names[module]
        return f"{name}.{site}" if name else site

    def _read(self, path: str) -> bool:
        return any(_matches(path, glob) for glob, _ in self._sites)


@contextmanager
def trace(model: nn.Module, *sites: str, edits: Edits | None = None, grad: bool = False) -> Iterator[Tracer]:
    """Listen to a torch module inside the block: read `sites`, apply `edits`, keep gradients.

    Sites are globs; all are read if none is named and nothing is edited. The values can be read when the
    block has ended; see `Tracer` for their shapes. An edit is a function from the value of a site to its new
    value, of the same shape and dtype.
    With `grad=True` the values stay in the graph: after `loss.backward()` each has its `.grad`.
    The tracer hangs on the module: whatever another thread runs on it meanwhile is seen and edited as well.
    `lm.trace(…)` does the same and holds the lock of the handle, so that other threads wait.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"trace() takes a torch module, not {type(model).__name__}; of a loaded model: lm.trace(…)"
        )
    seen = Tracer(model, sites or ("*",) * (not edits), edits=edits or {}, grad=grad)
    seen.attach()
    try:
        yield seen
    finally:
        seen.detach()
    seen.close()


@contextmanager
def muted(
    model: nn.Module, *sites: str, keep: Callable[[Tensor], Tensor] = Tensor.detach
) -> Iterator[Tracer]:
    """Like `trace`, but the traces around the block see nothing of it, and their edits rest.

    `keep` says what is kept of each value.
    """
    with trace(model, *sites) as seen:
        outer, seen.outer, seen.keep = seen.outer, {}, keep
        try:
            yield seen
        finally:
            seen.outer = outer  # leave() needs it to hand the modules back


def sites_of(model: nn.Module, *inputs: Tensor, **named: Tensor) -> Tracer:
    """All sites of one run, which no trace around it sees or edits."""
    with torch.inference_mode(), muted(model) as seen:
        model(*inputs, **named)
    return seen


def parse_address(address: str) -> tuple[str, int | None]:
    """Split `blocks.5.attn.mix[1]` into its site (or glob) and the index on its head or neuron axis."""
    if address.endswith("[*]"):
        raise UnknownSite(
            f"{address!r}: leave [*] out: {address[:-3]!r} is the value of all together;"
            f" {address[:-3]}[0] is the first alone. [*] lists places for lm.edit and sweeps"
        )
    match = re.fullmatch(r"([^\[\]]+)(?:\[([0-9]{1,9})\])?", address)
    if match is None:
        raise UnknownSite(f"{address[:100]!r} is not an address; it should look like 'blocks.5.attn.mix[1]'")
    site, index = match[1], match[2]
    last = site.rpartition(".")[2]
    if last in SUBLAYERS:
        site, last = f"{site}.out", "out"
    if index is not None and last not in AXES:
        raise UnknownSite(f"{address!r}: only {', '.join(AXES)} take an index")
    return site, None if index is None else int(index)


@lru_cache(maxsize=4096)
def _matches(path: str, glob: str) -> bool:
    """`*` is one name between dots; at the beginning or the end of a glob, any number of names."""
    glob = re.sub(r"\*+", "*", glob)  # several in a row match the same, in exponential time
    form = re.sub(r"(?<=.)\\\*(?=.)", "[^.]*", re.escape(glob)).replace(r"\*", ".*")
    return re.fullmatch(form, path) is not None


def _no_match(glob: str, met: Iterable[str]) -> UnknownSite:
    """The error for a glob that matches none of the sites met."""
    met = list(met)
    return UnknownSite(f"no site matches {glob!r}{_similar(glob, met)}; this run met {_listed(met)}")


def _similar(glob: str, sites: Iterable[str]) -> str:
    """The site that was probably meant, as part of a sentence; with a `*` where the glob has one."""
    every = [re.sub(r"\d+", "*", site) if "*" in glob else site for site in sites]
    close = get_close_matches(glob, every, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _listed(sites: Iterable[str]) -> str:
    """Sites in a few words: `embed, blocks.0…11.in, …`."""
    alike: dict[str, list[int]] = {}
    for site in sites:
        numbers = alike.setdefault(re.sub(r"\d+", "{}", site, count=1), [])
        numbers += map(int, re.findall(r"\d+", site)[:1])
    return ", ".join(
        form.format("…".join(map(str, sorted({min(n), max(n)}))) if n else "") for form, n in alike.items()
    )


def _slice(value: Tensor, site: str, index: int | None) -> Tensor:
    if index is None:
        return value
    axis = AXES[site.rpartition(".")[2]]
    if index >= value.shape[axis]:
        raise UnknownSite(f"{site}[{index}]: this axis has {value.shape[axis]} entries, counted from 0")
    return value.select(axis, index)


def _checked(edit: Edit, site: str) -> Edit:
    """An edit that can be called with one value; a hook of another library takes more."""
    try:
        inspect.signature(edit).bind(None)
    except TypeError:
        raise InputError(
            f"the edit of {site} must be a function of one argument, the value of the site"
        ) from None
    except ValueError:  # some functions of C do not say what they take
        pass
    return edit


def _edited(value: Tensor, path: str, index: int | None, edit: Edit) -> Tensor:
    part = _slice(value, path, index)
    new = edit(part)
    if not isinstance(new, Tensor):
        returned = "None" if new is None else type(new).__name__
        raise InputError(f"the edit of {path} returned {returned}; it must return the new value, a tensor")
    if new.dtype != part.dtype:
        raise InputError(f"the edit of {path} made {new.dtype} out of {part.dtype}; the dtype must stay")
    if new.shape != part.shape:
        raise InputError(
            f"the edit of {path} made {tuple(new.shape)} out of {tuple(part.shape)}; shapes must stay"
        )
    if index is None:
        return new
    whole = value.clone()
    _slice(whole, path, index).copy_(new)
    return whole


def _stacked(values: list[Tensor]) -> Tensor:
    """Repeated values with a leading axis, padded to one shape; a single value stays as it is."""
    if len(values) == 1:
        return values[0]
    shape = [max(sizes) for sizes in zip(*(value.shape for value in values), strict=True)]
    return torch.stack([_padded(value, shape) for value in values])


def _padded(value: Tensor, shape: list[int]) -> Tensor:
    """A value with zeros at the end of every axis, up to a shape."""
    missing: list[int] = []
    for size, full in zip(
        reversed(value.shape), reversed(shape), strict=True
    ):  # pad() counts axes from the last
        missing += [0, full - size]
    return nn.functional.pad(value, missing)


class _CallableModule(ModuleType):
    """`glassformer.trace` is this file and, once it is imported, would hide the function of the same name."""

    __call__ = staticmethod(trace)


sys.modules[__name__].__class__ = _CallableModule
