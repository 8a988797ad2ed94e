"""Tensors in files <-> parameters of our models, for every family: by templates of names.

Files differ in prefixes (`transformer.`), in buffers that they carry along (a mask is no weight), in how
often they store a tied matrix, and in orientation: OpenAI stored projections as (in, out), torch stores them
as (out, in).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.errors import CheckpointError
from glassformer.files import MAX_TENSORS
from glassformer.hub.families import Family
from glassformer.hub.tensors import StoredTensor
from glassformer.nn.net import Net

MAX_PARAMETERS = 1 << 50
MAX_FAULTS = 40  # that one message lists
NUMBER = re.compile(r"(?<=\.)([0-9]{1,9})\.")  # of a block, in a tensor's name
BLOCK = re.compile(r"(^|\.)blocks\.[0-9]{1,9}\.")  # in a name of ours
WRAPPERS = r"^(_orig_mod\.|module\.)*"  # what torch.compile and DataParallel put before a name


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of a family's tensors in files, and which of its matrices are stored the other way round.

    `{}` is the block's number; every stack has templates of its own. Where several of their names lead to one
    of ours, the first is written; a file may have any of them, and several if they hold the same numbers.
    None drops a tensor that a file may have and that is no weight: a mask, a table that is computed here.
    """

    tensors: Mapping[str, str | None]  # theirs -> ours
    prefix: str = ""  # before all of their names; may be missing when read, is written
    unprefixed: tuple[str, ...] = ()  # their names that never have it
    transposed: tuple[str, ...] = ()  # of ours: stored (in, out)
    rows: tuple[str, ...] = ()  # of ours: vectors (N,) that are stored as (1, N)
    # Of ours: another matrix once more. Where the configuration ties the output matrix, readers know that;
    # where it does not, they look for this one under its own name, so that it is written again.
    again: tuple[str, ...] = ()

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
        return ours.endswith(".weight") and "norm" not in ours and BLOCK.search(ours) is not None

    def label(self, theirs: str) -> str:
        """A name of theirs for a table: without their prefix, and in a block without the block's path."""
        bare = self._bare(theirs)
        number = NUMBER.search(bare)
        return bare if number is None else bare[number.end() :]

    def rank(self, theirs: str) -> tuple[int, int]:
        """The place of a name of theirs in `tensors`, and its block; two names of one rank are duplicates."""
        template, number = _template(self._bare(theirs))
        return list(self.tensors).index(template), number or 0

    def _bare(self, theirs: str) -> str:
        return self._prefixes.sub("", theirs)

    @cached_property
    def _prefixes(self) -> re.Pattern[str]:
        return re.compile(f"{WRAPPERS}({re.escape(self.prefix)})?")

    @cached_property
    def _theirs(self) -> dict[str, str]:
        pairs = [(ours, theirs) for theirs, ours in self.tensors.items() if ours is not None]
        return dict(reversed(pairs))  # of several names the first counts


class Place(NamedTuple):
    """One of our parameters, and where its numbers are."""

    name: str
    entry: StoredTensor
    transpose: bool  # stored the other way round
    by_columns: bool  # how it shall lie in memory
    label: str  # what a table calls it
    copies: tuple[StoredTensor, ...] = ()  # the same matrix once more: it is tied, or has several names
    row: bool = False  # a vector, stored as a matrix of one row

    def read(self) -> Tensor:
        """The numbers, (out, in); a matrix lies in memory along its longer side.

        Reading along the longer side is what a product with a single row, as in decoding, does fastest.
        """
        if self.row:
            return self.entry.read()[0]
        if self.transpose:
            return self.entry.read().t() if self.by_columns else self.entry.read_transposed()
        return self.entry.read_transposed().t() if self.by_columns else self.entry.read()


def blank(family: Family, config: Any, *, path: Path) -> Net:
    """The model without numbers: every parameter has its name and shape, none has memory."""
    layers = _count_layers(config)
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


def tied_names(model: Net) -> dict[str, str]:
    """Parameters that are another one once more -> that one, which comes first in the model."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), name)
        if owner != name:
            tied[name] = owner
    return tied


def recognize(
    entries: Iterable[StoredTensor], family: Family, *, tied: Mapping[str, str], faults: list[str]
) -> dict[str, list[StoredTensor]]:
    """Tensors by our names, those of a tied matrix together; unknown and duplicate ones are faults."""
    names = family.names
    found: dict[str, dict[tuple[int, int], StoredTensor]] = {}
    for entry in entries:
        try:
            ours = names.ours(entry.name)
        except KeyError:
            faults.append(f"{_shown(entry)} is not a tensor of {family.title}")
            continue
        if ours is None:
            continue
        same = found.setdefault(tied.get(ours, ours), {})
        rank = names.rank(entry.name)
        if rank in same:
            faults.append(f"{_shown(entry)} is a duplicate")
        else:
            same[rank] = entry
    return {ours: [same[rank] for rank in sorted(same)] for ours, same in found.items()}


def place_tensors(entries: Iterable[StoredTensor], model: Net, *, family: Family, path: Path) -> list[Place]:
    """Find every parameter of the model in the files; one error that lists everything that does not fit."""
    names, tied = _written_names(family, model.config), tied_names(model)
    faults: list[str] = []
    found = recognize(entries, family, tied=tied, faults=faults)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in tied}
    stored_in_out = _stored_in_out(found, shapes, names)
    products = _products(model, tied)

    places = []
    for name, shape in shapes.items():
        transpose = stored_in_out and names.is_transposed(name)
        row = name in names.rows
        stored = (1, *shape) if row else shape[::-1] if transpose else shape
        same = found.pop(name, [])
        if not same:
            faults.append(f"{names.theirs(name)} {list(stored)} is missing")
            continue
        faults += [fault for entry in same for fault in _misfits(entry, stored)]
        by_columns = name in products and shape[0] >= shape[1]
        place = _place(name, same, names, transpose=transpose, by_columns=by_columns)
        places.append(place._replace(row=row))

    places += _zero_biases(found, family, model.config, path)
    left = [entry for same in found.values() for entry in same]
    faults += [f"{_shown(entry)} {list(entry.shape)} has no place in this configuration" for entry in left]
    if faults:
        listed = "; ".join(faults[:MAX_FAULTS])
        more = f" and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise CheckpointError(f"{path}: the weights do not fit the configuration: {listed}{more}")
    return places


def export_tensors(family: Family, model: Net) -> dict[str, Tensor]:
    """The weights under their names and in their orientation, a tied matrix once where readers know of it."""
    names, tied = _written_names(family, model.config), tied_names(model)
    state = {name: value.detach() for name, value in model.state_dict().items() if name not in tied}
    if not getattr(model.config, "tied", True):
        state |= {name: state[tied[name]].clone() for name in names.again if name in tied}
    for name, shape in _absent_biases(family, model.config, Path()).items():
        state[name] = model.tokens.weight.detach().new_zeros(shape)

    tensors = {}
    for name, value in state.items():
        stored = value[None] if name in names.rows else value.t() if names.is_transposed(name) else value
        tensors[names.theirs(name)] = stored.contiguous()
    return tensors


def _written_names(family: Family, config: Any) -> Names:
    return family.names if family.written_names is None else family.written_names(config)


def _count_layers(config: Any) -> int:
    """The layers of all stacks together: `layers`, or `encoder_layers` and `decoder_layers`."""
    counts = [getattr(config, field.name) for field in fields(config) if field.name.endswith("layers")]
    return sum(counts) or 1


def _products(model: Net, tied: Mapping[str, str]) -> set[str]:
    """The matrices of linear layers: those that vectors are multiplied with."""
    linear = (f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return {tied.get(name, name) for name in linear}


def _place(
    name: str, same: list[StoredTensor], names: Names, *, transpose: bool = False, by_columns: bool = False
) -> Place:
    entry, *copies = same
    return Place(name, entry, transpose, by_columns, names.label(entry.name), tuple(copies))


def _misfits(entry: StoredTensor, stored: tuple[int, ...]) -> list[str]:
    if entry.shape != stored:
        return [f"{_shown(entry)} is {list(entry.shape)}, should be {list(stored)}"]
    if not entry.dtype.is_floating_point:
        return [f"{_shown(entry)} holds {entry.dtype}, should hold floating-point numbers"]
    return []


def _zero_biases(
    found: dict[str, list[StoredTensor]], family: Family, config: Any, path: Path
) -> list[Place]:
    """The zeros that a model without biases has in its file, for readers that expect biases."""
    could = _absent_biases(family, config, path)
    fitting = [name for name, same in found.items() if {entry.shape for entry in same} == {could.get(name)}]
    return [_place(name, found.pop(name), family.names) for name in fitting]


def _absent_biases(family: Family, config: Any, path: Path) -> dict[str, tuple[int, ...]]:
    """The biases, with their shapes, that the model would have if its configuration asked for biases."""
    if getattr(config, "bias", True):
        return {}
    full = blank(family, replace(config, bias=True), path=path)
    return {name: tuple(p.shape) for name, p in full.named_parameters() if name.endswith(".bias")}


def _stored_in_out(
    found: dict[str, list[StoredTensor]], shapes: dict[str, tuple[int, ...]], names: Names
) -> bool:
    """Whether the projections are stored (in, out): the first that is not square decides."""
    for name, shape in shapes.items():
        if name in found and names.is_transposed(name) and shape != shape[::-1]:
            return found[name][0].shape != shape
    return True


def _template(name: str) -> tuple[str, int | None]:
    """A name with {} for the number of its block, and that number."""
    number = NUMBER.search(name)
    if number is None:
        return name, None
    return f"{name[: number.start()]}{{}}.{name[number.end() :]}", int(number[1])


def _shown(entry: StoredTensor) -> str:
    """A tensor's name for a message: not too long, and without control characters for a terminal."""
    name = entry.name[:100]
    return name if entry.name.isprintable() else name.encode("unicode_escape").decode()
