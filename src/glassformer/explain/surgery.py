"""Surgery: switch parts of a model off, put in what it thought of another text, push it in a direction.

An edit says where (an address), what to do, and at which positions of the text, if not at all:

    {"site": "blocks.5.attn.mix[1]", "do": "zero"}

It is plain data; inside `with edited(model, edits):` the model runs with them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.decoder import Decoder, as_row, look
from glassformer.trace import Tracer, sites_of

Array = np.ndarray[Any, Any]
DOINGS = ("zero", "mean", "scale", "add", "patch")
ROWS = 16  # patched runs side by side


@dataclass(frozen=True, eq=False)
class Edit:
    """One change. `value` is what mean, add and patch put in: one for every position, or, with one axis more, one each."""

    site: str
    do: str
    by: float = 1.0
    at: tuple[int, ...] | None = None  # positions of the text, those still to be written too; None: everywhere
    value: Array | None = None

    def __post_init__(self) -> None:
        if self.do not in DOINGS:
            raise InputError(f"{self.site}: do {self.do!r} is none of {', '.join(DOINGS)}")
        if self.do in ("mean", "add", "patch") and self.value is None:
            raise InputError(f"{self.site}: {self.do} needs a value")


class Places:
    """Which positions of the text a pass reads: (B or 1, T), what is padding below 0. A hook tells before each pass."""

    def __init__(self) -> None:
        self.now = torch.zeros(0, 0)
        self.first = True  # nothing was read before
        self.last = True  # nothing will be read after: there is no cache

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids, cache = given[0], given[1] if len(given) > 1 else named.get("cache")
        start = 0 if cache is None else cache.length
        self.now = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        if cache is not None and cache.padding is not None:
            self.now = self.now - cache.padding[:, None]
        self.first, self.last = start == 0, cache is None


def sites(model: Decoder) -> Tracer:
    """All sites of a model, as one token meets them."""
    return sites_of(cast(nn.Module, model), as_row(model, [0]))


@contextmanager
def edited(model: Decoder, edits: Sequence[Edit]) -> Iterator[None]:
    """Inside, the model runs with the edits, done in their order; a site that is not there is refused at once."""
    places, seen = Places(), sites(model)
    hands: dict[str, Callable[[Tensor], Tensor]] = {}
    for edit in edits:
        for address in seen.addresses(edit.site):
            hands[address] = _after(hands.get(address), edit, places)
    if not hands:
        yield
        return
    hook = cast(nn.Module, model).register_forward_pre_hook(places, with_kwargs=True)
    try:
        with look(model, edits=hands):
            yield
    finally:
        hook.remove()


def _after(before: Callable[[Tensor], Tensor] | None, edit: Edit, places: Places) -> Callable[[Tensor], Tensor]:
    return lambda value: _apply(edit, value if before is None else before(value), places)


def _apply(edit: Edit, value: Tensor, places: Places) -> Tensor:
    """The new value of a site: (B, T, …), or (B, H, T, …) where all heads are meant."""
    axis = 2 if value.dim() == 4 else 1  # where positions run
    here = places.now[:, -value.shape[axis] :]  # the last one alone behind the final norm, while text is written
    given = None if edit.value is None else torch.as_tensor(edit.value, dtype=value.dtype, device=value.device)
    chosen = _chosen(edit, here, places)  # (B or 1, T)
    if given is not None and given.dim() == value.dim() - 1:  # one a position
        given, there = _placed(edit, given, axis - 1, here, places)
        chosen = chosen & there
    elif given is not None and given.dim() == value.dim() - 2:  # one for all
        given = given.unsqueeze(axis - 1)
    if not chosen.any():
        return value
    new = _changed(edit, value, given)
    if chosen.all():
        return new
    return torch.where(chosen.view(chosen.shape[0], *(1,) * (axis - 1), -1, *(1,) * (value.dim() - axis - 1)), new, value)


def _chosen(edit: Edit, here: Tensor, places: Places) -> Tensor:
    """Which of these positions the edit is for. Below 0 counts from the end of the text, or of the prompt."""
    if edit.at is None:
        return here >= 0
    sizes = here[:, -1:] + 1  # (B or 1, 1): all texts end together
    for position in edit.at:
        size = int(sizes.max())
        if places.last and not -size <= position < size:
            raise InputError(f"{edit.site}: position {position} is not there; the text has positions 0 to {size - 1}")
    chosen = torch.zeros_like(here, dtype=torch.bool)
    for position in edit.at:
        if position >= 0 or places.first:
            chosen |= here == (position if position >= 0 else sizes + position)
    return chosen & (here >= 0)


def _placed(edit: Edit, given: Tensor, axis: int, here: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """What was given for these positions, and for which of them something was."""
    size = given.shape[axis]
    if places.last and edit.at is None and size != here.shape[1]:
        raise InputError(f"{edit.site}: values for {size} positions do not fit a text of {here.shape[1]}; name some by 'at'")
    there = (here >= 0) & (here < size)
    rows = [given.index_select(axis, row) for row in here.clamp(0, size - 1)]
    return torch.stack(rows), there


def _changed(edit: Edit, value: Tensor, given: Tensor | None) -> Tensor:
    if edit.do == "zero":
        return torch.zeros_like(value)
    if edit.do == "scale":
        return value * edit.by
    assert given is not None
    try:
        given = given.expand_as(value)
    except RuntimeError:
        shape, has = tuple(value.shape[1:]), np.asarray(edit.value).shape
        raise InputError(f"{edit.site}: a value of shape {has} does not fit the {shape} that is there") from None
    return value + edit.by * given if edit.do == "add" else given


@torch.inference_mode()
def values_at(model: Decoder, ids: Sequence[int], sites: Sequence[str]) -> dict[str, Tensor]:
    """What some sites hold on a text: (T, …), or (H, T, K), without the batch."""
    with look(model, *sites) as seen:
        model(as_row(model, ids))
    return {site: seen[site][0] for site in sites}


def direction(model: Decoder, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], site: str) -> Array:
    """A steering vector: the mean way from the second text of a pair to the first, at the last token of each."""
    if not pairs:
        raise InputError("a direction needs at least one pair of texts")
    ends = [[_along(values_at(model, ids, [site])[site])[-1] for ids in pair] for pair in pairs]
    return torch.stack([one - other for one, other in ends]).mean(0).float().cpu().numpy()


def mean_over(model: Decoder, texts: Sequence[Sequence[int]], site: str) -> Array:
    """The mean of a site over all tokens of some texts."""
    if not texts:
        raise InputError("a mean needs at least one text")
    return torch.cat([_along(values_at(model, ids, [site])[site]) for ids in texts]).mean(0).float().cpu().numpy()


def _along(value: Tensor) -> Tensor:
    """(T, …): positions first, also where heads were."""
    return value.transpose(0, 1) if value.dim() == 3 else value


@dataclass(frozen=True)
class Sweep:
    """Which places carry what tells one text from another: put in one at a time, how much of the answer comes back."""

    sites: list[str]
    clean: float  # the measure on the clean text
    broken: float  # and on the broken one
    patched: Array  # (S, T) the measure on the broken text, with one place as in the clean one

    @property
    def restored(self) -> Array:
        """(S, T): 0 nothing, 1 all of the difference."""
        gap = self.clean - self.broken
        return (self.patched - self.broken) / (gap if gap else np.nan)


@torch.inference_mode()
def sweep(
    model: Decoder,
    clean: Sequence[int],
    broken: Sequence[int],
    sites: Sequence[str],
    answer: int,
    foil: int,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Sweep:
    """Patch every site at every position from the clean text into the broken one; measured is the answer's lead over the foil."""
    if len(clean) != len(broken):
        raise InputError(f"the texts must have as many tokens as each other, not {len(clean)} and {len(broken)}")
    for token in (answer, foil):
        if not 0 <= token < model.vocab:
            raise InputError(f"token {token} is not there; the vocabulary has {model.vocab:,}")
    size, row = len(clean), as_row(model, broken)

    def lead(logits: Tensor) -> Tensor:
        last: Tensor = logits[:, -1].double()
        return last[:, answer] - last[:, foil]

    given = values_at(model, clean, sites)
    patched = np.zeros((len(sites), size))
    for number, site in enumerate(sites):
        for start in range(0, size, ROWS):
            where = torch.arange(start, min(start + ROWS, size), device=row.device)
            with look(model, edits={site: _one_each(given[site], where)}):
                patched[number, start : start + len(where)] = lead(model(row.expand(len(where), -1))).cpu().numpy()
        progress(number + 1, len(sites))
    ends = [float(lead(model(as_row(model, ids)))) for ids in (clean, broken)]
    return Sweep(list(sites), ends[0], ends[1], patched)


def _one_each(given: Tensor, where: Tensor) -> Callable[[Tensor], Tensor]:
    """Put the given values in at one position of each row of a batch, a different one each time."""

    def put_in(value: Tensor) -> Tensor:
        new = value.clone()
        for number, position in enumerate(where.tolist()):
            new[number].select(given.dim() - 2, position).copy_(given.select(given.dim() - 2, position))
        return new

    return put_in
