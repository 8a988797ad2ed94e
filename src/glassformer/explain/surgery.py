"""Surgery: switch parts of a model off, put in what it thought of another text, push it in a direction.

An edit says where (an address), what to do, and at which positions of the prompt, if not at all:

    {"site": "blocks.5.attn.mix[1]", "do": "zero"}

It is plain data; `hands` makes of a list of them what `trace(edits=…)` wants.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.explain.decoder import Decoder, as_row, look

Array = np.ndarray[Any, Any]
DOINGS = ("zero", "mean", "scale", "add", "patch")
ROWS = 16  # patched runs side by side


@dataclass(frozen=True, eq=False)
class Edit:
    """One change. `value` is what mean, add and patch need: (…) or (positions, …), without the batch; `by` scales."""

    site: str
    do: str
    by: float = 1.0
    at: tuple[int, ...] | None = None  # positions of the prompt; None: everywhere, and in every later step
    value: Array | None = None

    def __post_init__(self) -> None:
        if self.do not in DOINGS:
            raise InputError(f"{self.site}: do {self.do!r} is none of {', '.join(DOINGS)}")
        if self.do in ("add", "patch") and self.value is None:
            raise InputError(f"{self.site}: {self.do} needs a value")


def hands(edits: Iterable[Edit]) -> dict[str, Callable[[Tensor], Tensor]]:
    """What `trace(edits=…)` wants; several edits of one site are done in their order."""
    done: dict[str, Callable[[Tensor], Tensor]] = {}
    for edit in edits:
        done[edit.site] = _after(done.get(edit.site), edit)
    return done


def _after(before: Callable[[Tensor], Tensor] | None, edit: Edit) -> Callable[[Tensor], Tensor]:
    return lambda value: _apply(edit, value if before is None else before(value))


def _apply(edit: Edit, value: Tensor) -> Tensor:
    """The new value of a site: (B, T, …), or (B, H, T, K) where all heads are meant; positions are counted in the prompt."""
    axis = value.dim() - 2 if value.dim() == 4 else 1  # where positions run
    if edit.at is None:
        return _changed(edit, value, axis)
    if value.shape[axis] == 1:  # a later step of a generation: its positions are not the prompt's
        return value
    size = value.shape[axis]
    for position in edit.at:
        if not -size <= position < size:
            raise InputError(f"{edit.site}: position {position} is not there; the prompt has positions 0 to {size - 1}")
    where = torch.tensor([position % size for position in edit.at], device=value.device)
    return value.index_copy(axis, where, _changed(edit, value, axis).index_select(axis, where))


def _changed(edit: Edit, value: Tensor, axis: int) -> Tensor:
    given = None if edit.value is None else torch.as_tensor(edit.value, dtype=value.dtype, device=value.device)
    if edit.do == "zero":
        return torch.zeros_like(value)
    if edit.do == "scale":
        return value * edit.by
    if edit.do == "mean" and given is None:
        return value.mean(axis, keepdim=True).expand_as(value)
    assert given is not None
    try:
        given = given.expand_as(value)
    except RuntimeError:
        shape, has = tuple(value.shape[1:]), tuple(given.shape)
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
    ways = [values_at(model, one, [site])[site][-1] - values_at(model, other, [site])[site][-1] for one, other in pairs]
    return torch.stack(ways).mean(0).float().cpu().numpy()


def mean_over(model: Decoder, texts: Sequence[Sequence[int]], site: str) -> Array:
    """The mean of a site over all tokens of some texts."""
    if not texts:
        raise InputError("a mean needs at least one text")
    found = [values_at(model, ids, [site])[site] for ids in texts]
    axis = found[0].dim() - 2
    return torch.cat(found, axis).mean(axis).float().cpu().numpy()


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


def run_edited(model: Decoder, ids: Sequence[int], edits: Mapping[str, Callable[[Tensor], Tensor]]) -> Tensor:
    """Logits (T, V) of a text, with edits."""
    with torch.inference_mode(), look(model, edits=edits):
        return model(as_row(model, ids))[0]
