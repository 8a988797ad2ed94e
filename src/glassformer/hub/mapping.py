"""Tensors in files <-> parameters of our models, for every family: by templates of names.

Files differ in prefixes (`transformer.`), in buffers that they carry along (a mask is no weight), and in
orientation: OpenAI stored projections as (in, out), torch stores them as (out, in).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from glassformer.errors import CheckpointError
from glassformer.files import MAX_TENSORS
from glassformer.hub.families import Family
from glassformer.hub.tensors import Entry
from glassformer.nn.net import Net

MAX_PARAMETERS = 1 << 50
MAX_FAULTS = 40  # that one message lists
NUMBER = re.compile(r"(?<=\.)([0-9]{1,9})\.")  # of a block, in a tensor's name
WRAPPERS = r"^(_orig_mod\.|module\.)*"  # what torch.compile and DataParallel put before a name


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of a family's tensors in files, and which of its matrices are stored the other way round."""

    tensors: Mapping[
        str, str | None
    ]  # theirs -> ours; {} is the block's number, None means: no weight, drop it
    prefix: str = ""  # before all of their names; may be missing when read, is written
    unprefixed: tuple[str, ...] = ()  # their names that never have it
    transposed: tuple[str, ...] = ()  # of ours: stored (in, out)
    tied: tuple[str, str] | None = None  # of ours: the second stands for the first where weights are tied

    def ours(self, theirs: str) -> str | None:
        """Our name of one of their tensors; None for what is no weight; KeyError for an unknown name."""
        template, number = _template(self._bare(theirs))
        ours = self.tensors[template]
        return None if ours is None else ours.format(number)

    def theirs(self, ours: str) -> str:
        """Their name of one of our tensors, as a file of theirs has it."""
        template, number = _template(ours)
        theirs = self._theirs[template].format(number)
        return theirs if theirs in self.unprefixed else f"{self.prefix}{theirs}"

    def is_transposed(self, ours: str) -> bool:
        """Whether their files store this matrix of ours as (in, out)."""
        return _template(ours)[0] in self.transposed

    def is_adaptable(self, ours: str) -> bool:
        """Whether this is the matrix of a linear layer inside a block, beside which LoRA may put its own."""
        return ours.endswith(".weight") and "norm" not in ours and NUMBER.search(ours) is not None

    def label(self, theirs: str) -> tuple[int | None, str]:
        """The block that a tensor of theirs belongs to, if any, and its name there."""
        bare = self._bare(theirs)
        number = NUMBER.search(bare)
        return (None, bare) if number is None else (int(number[1]), bare[number.end() :])

    def _bare(self, theirs: str) -> str:
        return self._prefixes.sub("", theirs)

    @cached_property
    def _prefixes(self) -> re.Pattern[str]:
        return re.compile(f"{WRAPPERS}({re.escape(self.prefix)})?")

    @cached_property
    def _theirs(self) -> dict[str, str]:
        return {ours: theirs for theirs, ours in self.tensors.items() if ours is not None}


class Place(NamedTuple):
    """One of our parameters, and where its numbers are."""

    name: str
    entry: Entry
    transpose: bool  # stored the other way round
    by_columns: bool  # how it shall lie in memory
    label: tuple[int | None, str]  # the block it belongs to, if any, and what the file calls it there

    def read(self) -> Tensor:
        """The numbers, (out, in); a matrix lies in memory along its longer side.

        Reading along the longer side is what a product with a single row, as in decoding, does fastest.
        """
        if self.transpose:
            return self.entry.read().t() if self.by_columns else self.entry.read_transposed()
        return self.entry.read_transposed().t() if self.by_columns else self.entry.read()


def blank(family: Family, config: Any, *, path: Path) -> Net:
    """The model without numbers: every parameter has its name and shape, none has memory."""
    layers = getattr(config, "layers", 1)
    tensors = layers * len(family.names.tensors)
    if tensors > MAX_TENSORS or config.parameters > MAX_PARAMETERS:
        sizes = f"{layers:,} layers and {config.parameters:,} parameters"
        raise CheckpointError(f"{path}: {sizes} are more than can be loaded")
    with torch.device("meta"), _Undrawn():
        return family.build(config)


class _Undrawn(TorchFunctionMode):
    """Modules that are made here draw no random weights.

    Without memory there is nothing to draw; and on the device "meta", torch takes a second to find that out,
    because it loads its compiler for it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def place_tensors(entries: Iterable[Entry], model: Net, *, family: Family, path: Path) -> list[Place]:
    """Find every parameter of the model in the files; one error that lists everything that does not fit."""
    names, config = family.names, model.config
    faults: list[str] = []
    found = _recognize(entries, family, faults)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.state_dict().items()}
    stored_in_out = _stored_in_out(found, shapes, names)
    tied = tied_names(family, config)

    places = []
    for name, shape in shapes.items():
        transpose = stored_in_out and names.is_transposed(name)
        stored = shape[::-1] if transpose else shape
        entry = found.pop(name, None)
        if entry is None:
            if tied is None or name != tied[0]:
                faults.append(f"{names.theirs(name)} {list(stored)} is missing")
            continue
        faults += _misfits(entry, stored)
        product = names.is_transposed(name) or name == (tied[1] if tied else "head.weight")
        by_columns = product and shape[0] >= shape[1]
        places.append(Place(name, entry, transpose, by_columns, names.label(entry.name)))

    places += _zero_biases(found, family, config, path)
    left = found.values()
    faults += [f"{_shown(entry)} {list(entry.shape)} has no place in this configuration" for entry in left]
    if faults:
        listed = "; ".join(faults[:MAX_FAULTS])
        more = f" and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise CheckpointError(f"{path}: the weights do not fit the configuration: {listed}{more}")
    return places


def export_tensors(family: Family, model: Net) -> dict[str, Tensor]:
    """The weights under their names and in their orientation."""
    names, config = family.names, model.config
    state = {name: value.detach() for name, value in model.state_dict().items()}
    tied = tied_names(family, config)
    if tied is not None:
        state.pop(tied[0])
    for name, shape in _absent_biases(family, config, Path()).items():
        state[name] = model.tokens.weight.detach().new_zeros(shape)

    tensors = {}
    for name, value in state.items():
        stored = value.t() if names.is_transposed(name) else value
        tensors[names.theirs(name)] = stored.contiguous()
    return tensors


def tied_names(family: Family, config: Any) -> tuple[str, str] | None:
    """Our names of the two matrices that are one in this configuration, if there are such."""
    return family.names.tied if getattr(config, "tied", False) else None


def _recognize(entries: Iterable[Entry], family: Family, faults: list[str]) -> dict[str, Entry]:
    """Entries by our names; what has no name, or has it twice, is added to the faults."""
    found: dict[str, Entry] = {}
    for entry in entries:
        try:
            ours = family.names.ours(entry.name)
        except KeyError:
            faults.append(f"{_shown(entry)} is not a tensor of {family.title}")
            continue
        if ours in found:
            faults.append(f"{_shown(entry)} is a duplicate")
        elif ours is not None:
            found[ours] = entry
    return found


def _misfits(entry: Entry, stored: tuple[int, ...]) -> list[str]:
    if entry.shape != stored:
        return [f"{_shown(entry)} is {list(entry.shape)}, should be {list(stored)}"]
    if not entry.dtype.is_floating_point:
        return [f"{_shown(entry)} holds {entry.dtype}, should hold floating-point numbers"]
    return []


def _zero_biases(found: dict[str, Entry], family: Family, config: Any, path: Path) -> list[Place]:
    """The zeros that a model without biases has in its file, for readers that expect biases."""
    could = _absent_biases(family, config, path)
    fitting = [name for name, entry in found.items() if entry.shape == could.get(name)]
    entries = [(name, found.pop(name)) for name in fitting]
    return [Place(name, entry, False, False, family.names.label(entry.name)) for name, entry in entries]


def _absent_biases(family: Family, config: Any, path: Path) -> dict[str, tuple[int, ...]]:
    """The biases, with their shapes, that the model would have if its configuration asked for biases."""
    if getattr(config, "bias", True):
        return {}
    full = blank(family, replace(config, bias=True), path=path)
    return {name: tuple(p.shape) for name, p in full.named_parameters() if name.endswith(".bias")}


def _stored_in_out(found: dict[str, Entry], shapes: dict[str, tuple[int, ...]], names: Names) -> bool:
    """Whether the projections are stored (in, out): the first that is not square decides."""
    for name, shape in shapes.items():
        if name in found and names.is_transposed(name) and shape != shape[::-1]:
            return found[name].shape != shape
    return True


def _template(name: str) -> tuple[str, int | None]:
    """A name with {} for the number of its block, and that number."""
    number = NUMBER.search(name)
    if number is None:
        return name, None
    return f"{name[: number.start()]}{{}}.{name[number.end() :]}", int(number[1])


def _shown(entry: Entry) -> str:
    """A tensor's name for a message: not too long, and without control characters for a terminal."""
    name = entry.name[:100]
    return name if entry.name.isprintable() else name.encode("unicode_escape").decode()
