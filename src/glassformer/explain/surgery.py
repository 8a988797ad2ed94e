"""Surgery: switch parts of a model off, put in what it thought of another text, push it in a direction.

An edit says where (an address), what to do, and at which positions of the text, if not at all:

    {"site": "blocks.5.attn.mix[1]", "do": "zero"}

It is plain data; inside `with edited(model, edits):` the model runs with them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.decoder import Array, Decoder, as_row, look, numbers
from glassformer.trace import Tracer, parse_address, sites_of

DOINGS = ("zero", "mean", "scale", "add", "patch")
ROWS = 16  # patched runs side by side


@dataclass(frozen=True, eq=False)
class Edit:
    """One change. `value` is what mean, add and patch put in: one for every position, or, with one axis more, one each."""

    site: str
    do: str
    by: float = 1.0
    at: tuple[int, ...] | None = (
        None  # positions of the text, those still to be written too; None: everywhere
    )
    value: Array | None = None

    def __post_init__(self) -> None:
        if self.do not in DOINGS:
            raise InputError(f"{self.site}: do {self.do!r} is none of {', '.join(DOINGS)}")
        if self.do in ("mean", "add", "patch") and self.value is None:
            raise InputError(f"{self.site}: {self.do} needs a value")


PROMPT: ContextVar[int] = ContextVar(
    "PROMPT", default=0
)  # tokens of the prompt, while what was written is read again


@contextmanager
def replayed(prompt: int) -> Iterator[None]:
    """Inside, texts begin with a prompt of so many tokens: positions below 0 count from its end, as they did in the writing."""
    before = PROMPT.set(prompt)
    try:
        yield
    finally:
        PROMPT.reset(before)


class Places:
    """Which positions of the text a pass reads; a hook that runs before each pass."""

    def __init__(self) -> None:
        self.now = torch.zeros(0, 0)  # (B or 1, T); what is padding lies below 0
        self.ends: Tensor | None = (
            None  # (B or 1, 1) where prompts end; None in later steps, which lie behind them
        )
        self.most = 0  # as many positions had the longest text

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids, cache = given[0], given[1] if len(given) > 1 else named.get("cache")
        start = 0 if cache is None else cache.length
        self.now = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        if cache is not None and cache.padding is not None:
            self.now = self.now - cache.padding[:, None]
        whole = self.now[:, -1:] + 1  # all texts of a batch end together
        self.ends = (
            None
            if start
            else whole
            if cache is not None or not PROMPT.get()
            else torch.full_like(whole, PROMPT.get())
        )
        self.most = max(self.most, int(whole.max()))


@contextmanager
def edited(model: Decoder, edits: Sequence[Edit]) -> Iterator[None]:
    """Inside, the model runs with the edits, done in their order; a site that is not there is refused at once.

    An edit at positions that no text had is a mistake, and is told at the end.
    """
    places, seen = Places(), sites(model)
    hands = [
        (address, partial(_apply, edit, places)) for edit in edits for address in seen.addresses(edit.site)
    ]
    if not hands:
        yield
        return
    hook = cast(nn.Module, model).register_forward_pre_hook(places, with_kwargs=True)
    try:
        with look(model, edits=hands):
            yield
    finally:
        hook.remove()
    for edit in edits if places.most else ():
        if edit.at is not None and not any(-places.most <= position < places.most for position in edit.at):
            raise InputError(
                f"{edit.site}: no text had a position {edit.at[0]}; the longest had 0 to {places.most - 1}"
            )


def sites(model: Decoder) -> Tracer:
    """All sites of a model, as one token meets them."""
    return sites_of(cast(nn.Module, model), as_row(model, [0]))


def _apply(edit: Edit, places: Places, value: Tensor) -> Tensor:
    """The new value of a site, (B, T, …), or (B, H, T, …) where all heads are meant."""
    axis = 2 if value.dim() == 4 else 1  # where positions run
    here = places.now[
        :, -value.shape[axis] :
    ]  # the last one alone behind the final norm, while text is written
    given = (
        None if edit.value is None else torch.as_tensor(edit.value, dtype=value.dtype, device=value.device)
    )
    apart = given is not None and given.dim() == value.dim() - 1  # one a position
    size = given.shape[axis - 1] if given is not None and apart else 0
    which = _which(edit, here, places.ends, size)  # (B or 1, T): the position to take it from, -1 for none
    chosen = which >= 0
    if not chosen.any():
        return value
    if given is not None and apart:
        given = torch.stack([given.index_select(axis - 1, row) for row in which.clamp(min=0)])
    elif given is not None and given.dim() == value.dim() - 2:
        given = given.unsqueeze(axis - 1)
    new = _changed(edit, value, given)
    if chosen.all():
        return new
    return torch.where(
        chosen.view(len(chosen), *(1,) * (axis - 1), -1, *(1,) * (value.dim() - axis - 1)), new, value
    )


def _which(edit: Edit, here: Tensor, ends: Tensor | None, size: int) -> Tensor:
    """Which position of the given values each of these positions takes; -1 where the edit is not for it.

    Of values for another text, a position takes the same one, and one that is counted from the end takes the same from there.
    """
    if edit.at is None:
        return here.masked_fill(here >= size, -1) if size else here
    which = torch.full_like(here, -1)
    for position in edit.at:
        source = position if position >= 0 else position + size
        if size and not 0 <= source < size:
            raise InputError(
                f"{edit.site}: there is no position {position} to take it from; the other text has 0 to {size - 1}"
            )
        if position >= 0:
            which[here == position] = source
        elif ends is not None:
            which[(here == ends + position) & (here >= 0)] = max(source, 0)
    return which


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
        raise InputError(
            f"{edit.site}: a value of shape {has} does not fit the {shape} that is there"
        ) from None
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
    _check_alike(site)
    ends = [[_along(values_at(model, ids, [site])[site])[-1] for ids in pair] for pair in pairs]
    return numbers(torch.stack([one - other for one, other in ends]).mean(0))


def mean_over(model: Decoder, texts: Sequence[Sequence[int]], site: str) -> Array:
    """The mean of a site over all tokens of some texts."""
    if not texts:
        raise InputError("a mean needs at least one text")
    _check_alike(site)
    return numbers(torch.cat([_along(values_at(model, ids, [site])[site]) for ids in texts]).mean(0))


def _check_alike(site: str) -> None:
    if parse_address(site)[0].endswith((".scores", ".pattern")):
        raise InputError(
            f"{site}: who looks at whom has another shape for every text; there is no mean of it and no direction"
        )


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
        raise InputError(
            f"the texts must have as many tokens as each other, not {len(clean)} and {len(broken)}"
        )
    for token in (answer, foil):
        if not 0 <= token < model.vocab:
            raise InputError(f"token {token} is not there; the vocabulary has {model.vocab:,}")
    size, row = len(clean), as_row(model, broken)

    def lead(logits: Tensor) -> Tensor:
        return logits[:, -1, answer] - logits[:, -1, foil]

    given = values_at(model, clean, sites)
    patched = np.zeros((len(sites), size))
    for number, site in enumerate(sites):
        last = site not in (
            "final",
            "logits",
        )  # which are only there for all positions if nobody asks for the last alone
        for start in range(0, size, ROWS):
            where = torch.arange(start, min(start + ROWS, size), device=row.device)
            with look(model, edits={site: _one_each(given[site], where)}):
                patched[number, start : start + len(where)] = numbers(
                    lead(model(row.expand(len(where), -1), last=last))
                )
        progress(number + 1, len(sites))
    ends = [float(lead(model(as_row(model, ids), last=True))) for ids in (clean, broken)]
    return Sweep(list(sites), ends[0], ends[1], patched)


def _one_each(given: Tensor, where: Tensor) -> Callable[[Tensor], Tensor]:
    """Put the given values in at one position of each row of a batch, a different one each time."""

    def put_in(value: Tensor) -> Tensor:
        new = value.clone()
        for number, position in enumerate(where.tolist()):
            new[number].select(given.dim() - 2, position).copy_(given.select(given.dim() - 2, position))
        return new

    return put_in
