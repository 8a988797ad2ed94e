"""Edits: switch parts of a model off, put in what it computed for another text, steer it in a direction.

An edit says where (an address), what to do, and at which positions of the text, if not at all of them:

    {"site": "blocks.5.attn.mix[1]", "do": "zero"}

Of attention scores and patterns it can name the keys, too: the positions that are attended to.
It is plain data; inside `with edited(net, edits):` the model runs with them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.reading import (
    SCORED,
    Array,
    Readable,
    Reading,
    attends_to_source,
    holds_source,
    module_of,
    numbers,
    prompt_length,
    reads_source,
    stepped_sites,
)
from glassformer.nn.recurrent import is_backward
from glassformer.trace import Tracer, parse_address, sites_of

DOINGS = ("zero", "mean", "scale", "add", "patch")
ROWS = 16  # patched runs side by side
ENDS = ("final", "logits")  # sites that hold the last position alone unless all of them are computed


@dataclass(frozen=True, eq=False)
class Edit:
    """One change; `value` is for mean, add and patch: one for all positions, or one each (an axis more)."""

    site: str
    do: str
    by: float = 1.0
    at: tuple[int, ...] | None = None  # positions of the text, also of those still to be generated; None: all
    value: Array | None = None
    keys: tuple[int, ...] | None = None  # of scores and patterns: the attended positions, from 0; None: all

    def __post_init__(self) -> None:
        if self.do not in DOINGS:
            raise InputError(f"{self.site}: do {self.do!r} is none of {', '.join(DOINGS)}")
        if self.do in ("mean", "add", "patch") and self.value is None:
            raise InputError(f"{self.site}: {self.do} needs a value")
        if self.keys is not None and not parse_address(self.site)[0].endswith(SCORED):
            raise InputError(f"{self.site}: only {' and '.join(SCORED)} of attention have keys")


@dataclass(eq=False)
class Place:
    """What the positions of a site are, and which of them have been met."""

    source: bool = False  # of the source text
    keys_source: bool = False  # so are those that are attended to
    stepped: bool = False  # a recurrent network, which meets the site once for every position …
    backward: bool = False  # … from the last to the first
    met: int = 0  # how often in this pass
    most_keys: int = 0  # the most keys that there were

    @classmethod
    def of(cls, net: Readable, address: str, *, stepped: Collection[str]) -> Self:
        """The place of an address; `stepped` are the sites that are met once for every position."""
        site, _ = parse_address(address)
        return cls(
            source=holds_source(net, address),
            keys_source=attends_to_source(net, address),
            stepped=site in stepped,
            backward=site in stepped and is_backward(site),
        )


class Positions:
    """Which positions of the text a pass reads; a hook that runs before each pass.

    A source has no cache: whenever it is read, it is read as a whole.
    """

    of_edits = True  # distinguishes this hook from those that a user registers

    def __init__(self) -> None:
        self.now = torch.zeros(0, 0)  # (B or 1, T); padding lies below 0
        # (B or 1, 1) where prompts end; None in the steps of a generation, which lie behind its prompt.
        self.ends: Tensor | None = None
        self.sources = torch.zeros(
            0, 0
        )  # (B, 1) where sources end, and the length that they are filled up to
        self.filled = 0
        self.places: list[Place] = []
        self.longest = {False: 0, True: 0}  # the most positions that a text had, and that a source had

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        texts = [one for one in given if isinstance(one, Tensor)]
        ids = texts[-1]  # a source, if there is one, comes first
        if len(texts) > 1:
            self.filled = texts[0].shape[1]
            pad = getattr(cast(Any, module).config, "pad", -1)  # -1 is no token: nothing is filled up
            self.sources = (texts[0] != pad).sum(1, keepdim=True)
        for place in self.places:
            place.met = 0
        others = [one for one in given if not isinstance(one, Tensor)]
        cache = others[0] if others else named.get("cache")
        start = 0 if cache is None else cache.length
        self.now = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        if cache is not None and cache.padding is not None:
            self.now = self.now - cache.padding[:, None]

        length = self.now[:, -1:] + 1  # padding is at the left, so that all texts of a batch end together
        self.longest[False] = max(self.longest[False], int(length.max()))
        if start:
            self.ends = None
        elif cache is None and prompt_length():
            # A finished text is read at once: its prompt ended where it did while the text was generated.
            self.ends = torch.full_like(length, prompt_length())
        else:
            self.ends = length

    def of(self, size: int, place: Place) -> tuple[Tensor, Tensor | None]:
        """The `size` positions (B or 1, T) that a value has, and where their prompts end."""
        if place.source:
            here = torch.arange(self.filled, device=self.sources.device).expand(len(self.sources), -1)
            ends: Tensor | None = self.sources
            self.longest[True] = max(self.longest[True], int(self.sources.max()))
        else:
            here, ends = self.now, self.ends
        if not place.stepped:
            return here[:, -size:], ends  # `final` may hold the last position alone
        step = here.shape[1] - 1 - place.met if place.backward else place.met
        place.met += 1
        return here[:, step : step + 1], ends

    def keys(self, size: int, place: Place) -> Tensor:
        """The positions (B or 1, S) that are attended to."""
        place.most_keys = max(place.most_keys, size)
        every = torch.arange(size, device=self.now.device)[None]
        if place.keys_source:
            return every
        return every + (self.now[:, -1:] + 1 - size)  # the last query is the last key


class EditSession:
    """Edits of one model, to be entered around every run that they are for, once or many times.

    Sites are resolved once, here. The session remembers the positions of all its runs, because a generation
    enters it once for each step; `finish` reports an edit whose positions none of them had.
    """

    def __init__(self, net: Readable, edits: Sequence[Edit]) -> None:
        self.net, self.edits = net, list(edits)
        self.positions = Positions()
        known = sites(net) if self.edits else None
        stepped = stepped_sites(net) if self.edits else frozenset()
        self.resolved = [
            (edit, address, Place.of(net, address, stepped=stepped))
            for edit in self.edits
            for address in (known.addresses(edit.site) if known is not None else ())
        ]
        self.positions.places = [place for _, _, place in self.resolved]
        hooks = [
            (address, partial(_apply, edit, self.positions, place)) for edit, address, place in self.resolved
        ]
        # One tracer for all runs: to find the sites of a model anew would cost a tenth of a generation's
        # step.
        self.tracer = Tracer(module_of(net), (), edits=hooks) if hooks else None
        self.depth = 0  # entered inside of itself, it must not apply its edits twice
        self.open = ExitStack()

    def __enter__(self) -> Self:
        if self.depth == 0 and self.tracer is not None:
            hook = module_of(self.net).register_forward_pre_hook(self.positions, with_kwargs=True)
            self.open.callback(hook.remove)
            self.tracer.attach()
            self.open.callback(self.tracer.detach)
        self.depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.open.close()

    def finish(self) -> None:
        """Raise if an edit's positions never occurred: it was a mistake, and changed nothing."""
        for edit, _, place in self.resolved:
            longest = self.positions.longest[place.source]
            # Where it is 0, the model never ran.
            if longest and edit.at is not None:
                _check_met(edit, edit.at, longest, text="source text" if place.source else "text")
            if place.most_keys and edit.keys is not None:
                text = "source text" if place.keys_source else "text"
                _check_met(edit, edit.keys, place.most_keys, text=text)


def _check_met(edit: Edit, wanted: Sequence[int], longest: int, *, text: str) -> None:
    """Refuse positions of which no text had any."""
    if not any(-longest <= position < longest for position in wanted):
        raise InputError(
            f"{edit.site}: no {text} had a position {wanted[0]}; the longest had 0 to {longest - 1}"
        )


@contextmanager
def edited(net: Readable, edits: Sequence[Edit]) -> Iterator[EditSession]:
    """Inside, the model runs with the edits, in their order; a site that does not exist is refused at once.

    An edit at positions that no text had is a mistake, and is reported at the end.
    """
    session = EditSession(net, edits)
    with session:
        yield session
    session.finish()


def sites(net: Readable) -> Tracer:
    """All sites of a model, as one token meets them."""
    one = torch.tensor([[0]], device=net.device)
    return sites_of(module_of(net), *[one, one] if reads_source(net) else [one])


def _apply(edit: Edit, positions: Positions, place: Place, value: Tensor) -> Tensor:
    """The new value of a site, (B, T, …), or (B, H, T, …) where all heads are meant."""
    if place.stepped and value.dim() == 2:  # (B, D) of one position
        return _apply(edit, positions, place, value[:, None])[:, 0]
    axis = max(1, value.dim() - 2)  # of the positions: before the last axis, except where one neuron is meant
    here, ends = positions.of(value.shape[axis], place)
    given = None
    if edit.value is not None:
        given = torch.as_tensor(edit.value, dtype=value.dtype, device=value.device)
    each = given is not None and given.dim() == value.dim() - 1  # a value for each position
    size = given.shape[axis - 1] if given is not None and each else 0
    which = _which(edit, here, ends, size)  # (B or 1, T): the position to take it from, -1 for none

    chosen = which >= 0
    if not chosen.any():
        return value
    if given is not None and each:
        given = torch.stack([given.index_select(axis - 1, row) for row in which.clamp(min=0)])
    elif given is not None and given.dim() == value.dim() - 2:
        given = given.unsqueeze(axis - 1)
    new = _changed(edit, value, given)
    if edit.keys is not None:
        keys = positions.keys(value.shape[-1], place)  # (B or 1, S)
        named = torch.isin(keys, torch.tensor(edit.keys, device=keys.device))
        new = torch.where(named.view(len(keys), *[1] * (value.dim() - 2), -1), new, value)
    if chosen.all():
        return new

    shape = [len(chosen)] + [1] * (value.dim() - 1)
    shape[axis] = -1
    return torch.where(chosen.view(shape), new, value)


def _which(edit: Edit, here: Tensor, ends: Tensor | None, size: int) -> Tensor:
    """Which position of the given values each of these positions takes; -1 where the edit is not for it.

    Values of another text are taken from the same position, and those counted from the end from the same
    place there.
    """
    if edit.at is None:
        return here.masked_fill(here >= size, -1) if size else here
    which = torch.full_like(here, -1)
    for position in edit.at:
        source = position if position >= 0 else position + size
        if size and not 0 <= source < size:
            raise InputError(
                f"{edit.site}: position {position} is out of range (the other text has 0 to {size - 1})"
            )
        if position >= 0:
            which[here == position] = source
        elif ends is not None:
            which[(here == ends + position) & (here >= 0)] = max(source, 0)
    return which


def _changed(edit: Edit, value: Tensor, given: Tensor | None) -> Tensor:
    """The value as if the edit were for every position."""
    if edit.do == "zero":
        return torch.zeros_like(value)
    if edit.do == "scale":
        return value * edit.by
    assert given is not None
    try:
        given = given.expand_as(value)
    except RuntimeError:
        shape, has = tuple(value.shape[1:]), np.asarray(edit.value).shape
        raise InputError(
            f"{edit.site}: a value of shape {has} does not fit the site's shape {shape}"
        ) from None
    return value + edit.by * given if edit.do == "add" else given


@torch.inference_mode()
def values_at(reading: Reading, sites: Sequence[str]) -> dict[str, Tensor]:
    """What some sites hold on a text: (T, …), or (H, T, K), without the batch."""
    last = not any(parse_address(site)[0] in ENDS for site in sites)
    seen = reading.run(*sites, last=last)
    stepped = stepped_sites(reading.net)
    return {
        site: _joined(seen, site) if parse_address(site)[0] in stepped else seen[site][0] for site in sites
    }


def _joined(seen: Tracer, address: str) -> Tensor:
    """The values of a site that was met once for every position, in the order of positions: (T, …)."""
    steps = [value[0] for value in seen.each(address)]
    if is_backward(parse_address(address)[0]):
        steps.reverse()
    return torch.stack(steps) if steps[0].dim() == 1 else torch.cat(steps, -2)


@torch.inference_mode()
def log_probabilities(reading: Reading) -> Array:
    """(T, V): of the token that follows each position, with the edits that are in force."""
    return numbers(reading.run("logits", last=False)["logits"][0].log_softmax(-1))


def direction(pairs: Sequence[tuple[Reading, Reading]], site: str) -> Array:
    """A steering vector: the mean way from the second text of a pair to the first, at their last tokens."""
    if not pairs:
        raise InputError("a direction needs at least one pair of texts")
    _check_alike(site)
    ways = [_along(one, site)[-1] - _along(other, site)[-1] for one, other in pairs]
    return numbers(torch.stack(ways).mean(0))


def mean_over(
    readings: Sequence[Reading],
    site: str,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Array:
    """The mean of a site over all tokens of some texts."""
    if not readings:
        raise InputError("a mean needs at least one text")
    _check_alike(site)
    values = []
    for number, reading in enumerate(readings, 1):
        values.append(_along(reading, site))
        progress(number, len(readings))
    return numbers(torch.cat(values).mean(0))


def _check_alike(site: str) -> None:
    if parse_address(site)[0].endswith((".scores", ".pattern")):
        raise InputError(
            f"{site}: attention has another shape for every text; it has no mean and no direction"
        )


def _along(reading: Reading, site: str) -> Tensor:
    """(T, …): a site's values on a text, positions first, also where heads were."""
    value = values_at(reading, [site])[site]
    return value.transpose(0, 1) if value.dim() == 3 else value


@dataclass(frozen=True)
class Sweep:
    """Which places carry the difference of two texts: patch one at a time, see how much of it is restored."""

    sites: list[str]
    clean: float  # the answer's lead on the clean text
    corrupted: float  # and on the corrupted one
    patched: Array  # (S, T) the lead on the corrupted text, with one place as in the clean one

    @property
    def restored(self) -> Array:
        """(S, T): 0 nothing, 1 all of the difference."""
        restored: Array = (self.patched - self.corrupted) / (self.clean - self.corrupted)
        return restored


@torch.inference_mode()
def sweep(
    clean: Reading,
    corrupted: Reading,
    *,
    sites: Sequence[str],
    answer: int,
    foil: int,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Sweep:
    """Patch every site at every position from the clean text into the corrupted one.

    Measured is the lead of the answer's logit over the foil's, after the last token.
    """
    size = len(corrupted.ids)
    if len(clean.ids) != size:
        raise InputError(f"the texts must have as many tokens as each other, not {len(clean.ids)} and {size}")
    for token in (answer, foil):
        corrupted.check_token(token)
    stepped = stepped_sites(corrupted.net)
    for site in sites:
        if parse_address(site)[0] in stepped:
            raise InputError(f"{site}: is met step by step; a sweep patches sites that hold every position")

    def lead(seen: Tracer) -> Array:
        logits = seen["logits"][:, -1]  # (B, V)
        return numbers(logits[:, answer] - logits[:, foil])

    ends = [lead(reading.run("logits")).item() for reading in (clean, corrupted)]
    if ends[0] == ends[1]:
        raise InputError(f"both texts have the logit difference {ends[0]:.4g}: there is nothing to restore")

    given = values_at(clean, sites)
    patched = np.zeros((len(sites), size))
    for number, site in enumerate(sites):
        last = parse_address(site)[0] not in ENDS
        for start in range(0, size, ROWS):
            where = range(start, min(start + ROWS, size))
            edits = {site: partial(_put_in, given[site], where)}
            seen = corrupted.run("logits", edits=edits, rows=len(where), last=last)
            patched[number, where.start : where.stop] = lead(seen)
        progress(number + 1, len(sites))

    return Sweep(list(sites), ends[0], ends[1], patched)


def _put_in(given: Tensor, where: range, value: Tensor) -> Tensor:
    """Patch one position of each row of a batch, a different one in every row."""
    new = value.clone()
    axis = max(0, given.dim() - 2)  # of the positions, as in _apply
    for row, position in enumerate(where):
        new[row].select(axis, position).copy_(given.select(axis, position))
    return new
