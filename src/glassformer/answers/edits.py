"""Edits as JSON, with texts where `explain` wants numbers; what they change; which places carry a difference.

    [{"site": "blocks.5.attn.mix[1]", "do": "zero"},
     {"site": "blocks.*.mlp", "do": "mean", "over": ["Once upon a time", "The dog ran"]},
     {"site": "blocks.3.mlp.neurons[17]", "do": "scale", "by": 3},
     {"site": "blocks.2.out", "do": "patch", "from": "The boy lost", "at": [1]},
     {"site": "blocks.3.out", "do": "add", "by": 4, "pairs": [["I am happy", "I am sad"]]},
     {"site": "decoder.blocks.*.cross.scores", "do": "add", "value": -1e9, "keys": [2]}]

Instead of `over`, `from` and `pairs` there may be a `value`: numbers. Texts of a model that reads a source
are sources; what its decoder computes is that of its own translation of them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from glassformer.answers.answer import (
    Answer,
    Array,
    Cell,
    Column,
    Progress,
    Reader,
    Subject,
    Table,
    Text,
    Writer,
    answer,
    find_token,
    labels,
    several,
)
from glassformer.answers.lens import stage_names
from glassformer.errors import InputError
from glassformer.explain import edits as editing
from glassformer.explain.reading import numbers, stack_of
from glassformer.figures.color import signed
from glassformer.figures.labels import number, percent, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, names, plain
from glassformer.files import MEGABYTE, parse_value, read_text
from glassformer.generation.sampling import log_softmax
from glassformer.waiting import report

if TYPE_CHECKING:
    from glassformer.explain.reading import Reading
    from glassformer.trace import Tracer

Edits = str | Path | Sequence[Mapping[str, Any]]

LARGEST_FILE = 64 * MEGABYTE  # values for a long text of a large model
LARGEST = sys.float_info.max
FARTHEST = 1 << 40  # a position, counted from either end; no text is longer

# What each edit takes beside `site`, `do`, `at` and `keys`; the first name is that of a value made of texts.
KNOWN = {
    "zero": (),
    "scale": ("by",),
    "mean": ("over", "value"),
    "add": ("by", "pairs", "value"),
    "patch": ("from", "value"),
}
NAMES = {  # of interventions, in a sentence
    "zero": "zero ablation of",
    "scale": "scaling",
    "mean": "mean ablation of",
    "add": "steering",
    "patch": "patching",
}
SOURCES = {"mean": "over", "add": "pairs", "patch": "from"}


# Reading edits


def _sites(lm: Reader) -> "Tracer":
    """All sites of a model. They are found by running it, so no other thread may run it meanwhile."""
    with lm.lock:
        return editing.sites(lm.net)


def read_edits(
    lm: Reader,
    given: Edits,
    *,
    read: "Callable[[str], Reading] | None" = None,
    progress: Progress = report,
) -> list[editing.Edit]:
    """The edits of a list, or of a file that holds one; `read` reads the texts that they name."""
    reading = cache(read or lm.reading_of)  # a glob of many sites names one text
    listed = read_file(Path(given)) if isinstance(given, str | Path) else _list(given, "edits")
    sites = _sites(lm)
    found = []
    for n, one in enumerate(listed):
        checked = _check(one, f"edit {n}")
        at, keys = (None if one is None else tuple(one) for one in (checked.get("at"), checked.get("keys")))
        lm.check_sites([checked["site"]])
        for site in sites.addresses(checked["site"]):  # a glob is each of its sites
            value = _value(reading, checked, site, where=f"edit {n}", progress=progress)
            by = float(checked.get("by", 1.0))
            found.append(editing.Edit(site, checked["do"], by, at, value, keys))
    return found


def read_file(path: Path) -> list[Any]:
    """The list in a file of edits, unchecked."""
    text = read_text(path, LARGEST_FILE, kind=InputError)
    return _list(parse_value(text, path, kind=InputError), str(path))


def _list(given: Any, what: str) -> list[Any]:
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence):
        example = '[{"site": "blocks.5.attn.mix[1]", "do": "zero"}]'
        raise InputError(f"{what}: not a list of edits, as in {example}")
    return list(given)


def _check(given: Any, where: str) -> Mapping[str, Any]:
    """One edit of a list, or a sentence that says what is wrong with it."""
    if not isinstance(given, Mapping):
        example = '{"site": "blocks.2.attn", "do": "zero"}'
        raise InputError(f"{where} is {given!r}, not an object such as {example}")
    for key in ("site", "do"):
        if not isinstance(given.get(key), str):
            raise InputError(f"{where}: {key!r} must be a text")

    do = given["do"]
    if do not in KNOWN:
        raise InputError(f"{where}: do {do!r} is none of {', '.join(KNOWN)}")
    takes = ("site", "do", "at", "keys", *KNOWN[do])
    for key in given:
        if key not in takes:
            raise InputError(f"{where}: {do} takes no {key!r}; it takes {', '.join(takes)}")

    by = given.get("by", 1.0)
    if not _is_number(by):
        raise InputError(f"{where}: 'by' must be a finite number, not {_shown(by)}")
    if do == "scale" and "by" not in given:
        raise InputError(f"{where}: scale needs 'by', a number")
    at = given.get("at")
    if at is not None and not _is_positions(at):
        raise InputError(f"{where}: 'at' must be a list of positions, as in [0, -1], not {_shown(at)}")
    keys = given.get("keys")
    if keys is not None and (not _is_positions(keys) or min(keys) < 0):
        raise InputError(f"{where}: 'keys' must be a list of positions from 0 on, not {_shown(keys)}")
    return given


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold; a text of digits is none."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _is_positions(at: Any) -> bool:
    listed = isinstance(at, list | tuple) and bool(at)
    return listed and all(type(one) is int and -FARTHEST <= one < FARTHEST for one in at)


def _shown(value: Any) -> str:
    """The beginning of a value, for a message."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number that is too large"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _value(
    read: "Callable[[str], Reading]", given: Mapping[str, Any], site: str, *, where: str, progress: Progress
) -> Array | None:
    """The numbers that are given, or what the model computes at the site on the texts that are."""
    do = given["do"]
    if do not in SOURCES:
        return None
    source = SOURCES[do]
    if (source in given) == ("value" in given):
        raise InputError(f"{where}: {do} needs {source!r} or 'value', one of them")
    if "value" in given:
        return _numbers(given["value"], where)

    texts = given[source]
    if source == "from":
        if not isinstance(texts, str):
            raise InputError(f"{where}: 'from' must be a text")
        found = editing.values_at(read(texts), [site])
        return numbers(found[site])

    if not isinstance(texts, list | tuple):
        raise InputError(f"{where}: {source!r} must be a list")
    if source == "over":
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{where}: 'over' must be a list of texts")
        return editing.mean_over([read(text) for text in texts], site, progress=progress)

    if not all(_is_pair(pair) for pair in texts):
        raise InputError(f"{where}: 'pairs' must be a list of two texts each: toward which, away from which")
    return editing.direction([(read(one), read(other)) for one, other in texts], site)


def _numbers(value: Any, where: str) -> Array:
    try:
        array = np.array(value)
    except (TypeError, ValueError):
        array = np.array(None)
    is_numeric = array.dtype.kind in "iuf"  # NumPy would read a text of digits as a number, too
    if not is_numeric or not np.isfinite(array).all():
        raise InputError(f"{where}: 'value' must be finite numbers, in lists of equal length")
    return array.astype(np.float64)


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and [type(text) for text in pair] == [str, str]


# edit: what comes after a text, with and without edits


@answer
class Edited(Answer):
    """The next token, and what would be generated, before and after edits."""

    kind = "edit"

    ids: list[int]  # the likeliest tokens before and after
    words: list[str]
    before: Array  # log-probabilities of these tokens
    after: Array
    divergence: float  # Kullback-Leibler, from before to after, nats
    text: str  # what is generated before
    edited: str  # and after

    def make_table(self) -> Table:
        """The probabilities of the likeliest tokens."""
        columns = [
            Column("token", "token", key=True),
            Column("before", "share"),
            Column("after", "share"),
            Column("difference", "signed"),
        ]
        rows: list[list[Cell]] = []
        for n, word in enumerate(self.words):
            one, other = float(np.exp(self.before[n])), float(np.exp(self.after[n]))
            rows.append([word, one, other, other - one])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Two bars for every token."""
        series = [
            {"name": "before", "values": plain(np.exp(self.before))},
            {"name": "after", "values": plain(np.exp(self.after))},
        ]
        return {"kind": "bars", "labels": names(self.words), "series": series, "unit": "percent"}


def edit(
    text: Text,
    *,
    edits: Edits,
    k: int = 10,
    max_new_tokens: int = 0,
    seed: int = 0,
    temperature: float = 0.0,
    progress: Progress = report,
) -> Edited:
    """What comes after a text, with and without edits: the next token, and what would be generated."""
    listed = read_file(Path(edits)) if isinstance(edits, str | Path) else edits
    chosen = read_edits(text.lm, listed, progress=progress)
    _check_lengths(text, listed)

    how: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
    with text.lm.in_torch():  # the backend that can be edited: the two runs differ by the edits alone
        before, unedited = _continued(text, how)
        with editing.edited(text.net, chosen):
            after, edited = _continued(text, how)

    best = _likeliest(before, after, k)
    divergence = max(0.0, float((np.exp(before) * (before - after)).sum()))  # rounding can make 0 negative
    caption = (
        f"{text.name}: the next token before and after {described(listed)} "
        f"(KL divergence {divergence:.3f} nats)"
    )
    if max_new_tokens:
        caption += f"\n\nbefore: {text.whole}{unedited}\n\nafter: {text.whole}{edited}\n"
    return Edited(
        caption=caption,
        tokens=text.labels,
        ids=best,
        words=text.labels_of(best, after=text.ids[-1]),
        before=before[best],
        after=after[best],
        divergence=divergence,
        text=unedited,
        edited=edited,
    )


def _check_lengths(text: Text, edits: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to patch all positions from a text that has not as many."""
    for one in edits:
        if "from" in one and "at" not in one and len(text.lm.encode(one["from"])) != len(text.ids):
            raise InputError(
                f"{one['from']!r} has not as many tokens as {text.whole!r}: "
                "name the positions to patch by 'at'"
            )


def _continued(text: Text, how: dict[str, Any]) -> tuple[Array, str]:
    """The log-probabilities of the next token, and what is generated after a text."""
    lm = cast(Writer, text.lm)  # as QUESTIONS demands: `writes`
    logp = log_softmax(lm.logits(text.ids)[-1])
    if not np.isfinite(logp).all():
        raise InputError("edits: with these numbers the model's logits are not finite")
    return logp, lm.generate(text.ids, **how).text


def _likeliest(before: Array, after: Array, k: int) -> list[int]:
    """The k likeliest tokens before and after, those that are likeliest in either first."""
    both = [int(id) for row in (before, after) for id in np.argsort(-row, kind="stable")[:k]]
    return sorted(dict.fromkeys(both), key=lambda id: -max(before[id], after[id]))


def described(edits: Sequence[Mapping[str, Any]]) -> str:
    """What edits do, in one line."""
    words = [
        f"{NAMES[one['do']]} {one['site']}" + (f" by {one['by']:g}" if "by" in one else "") for one in edits
    ]
    return ", ".join(words)


# sweep: activation patching, place by place


@answer
class Sweep(Answer, editing.Sweep):
    """Activation patching: how much of a logit difference each site and position restores."""

    kind = "sweep"

    def data(self) -> dict[str, Any]:
        """Its own fields by name, and what follows from them: the share that each place restores."""
        return super().data() | {"restored": self.restored}

    def make_table(self) -> Table:
        """A row for every site and position."""
        columns = [
            Column("site", key=True),
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("restored", "share"),
        ]
        restored = self.restored
        rows: list[list[Cell]] = []
        for n, at in np.ndindex(restored.shape):
            rows.append([self.sites[n], at, self.tokens[at], float(restored[n, at])])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """How much is restored, place by place; the last site on top."""
        restored = self.restored[::-1]
        sites = stage_names(self.sites[::-1])
        most = float(np.nanmax(np.abs(restored), initial=1.0))
        most = max(1.0, np.ceil(np.round(most, 2) * 10) / 10)  # a round number, and 1 where it is about 1
        return matrix(
            sites,
            names(self.tokens),
            values=restored,
            scale=signed("of the logit difference restored", most),
            unit="percent",
            void="–",
            y_title="the site that is patched",
            x_title="the position, with the corrupted text's token",
        )

    def finding(self) -> str:
        """The place that restores most."""
        site, _, token, share = self.table().largest("restored")
        return f"{site} at {token!r} restores most, {percent(share)}"


def sweep(
    lm: Subject,
    clean: str | Sequence[int],
    *,
    corrupted: str | Sequence[int],
    answer: str | int,
    foil: str | int,
    sites: str | Sequence[str] = (),
    progress: Progress = report,
) -> Sweep:
    """Activation patching: put each place of the clean text into the corrupted one, see what is restored.

    `sites`, one address or several, are by default the ends of all blocks (`blocks.*.out`); all heads one by
    one are `blocks.*.attn.mix[*]`.
    """
    ids, clean_ids = lm.encode(corrupted), lm.encode(clean)
    known = _sites(lm)
    chosen = several(sites) or [stack_of(lm.net).site("*", "out")]
    lm.check_sites(chosen)
    found = editing.sweep(
        lm.reading(clean_ids),
        lm.reading(ids),
        sites=[address for one in chosen for address in known.addresses(one)],
        answer=find_token(lm, answer),
        foil=find_token(lm, foil),
        progress=progress,
    )
    pair = f"{quoted(str(answer))} − {quoted(str(foil))}"
    values = f"{number(found.clean)} clean, {number(found.corrupted)} corrupted"
    names_of = labels(lm.tokenizer, ids)
    texts = f"clean {''.join(labels(lm.tokenizer, clean_ids))!r}, corrupted {''.join(names_of)!r}"
    return Sweep(
        caption=f"{lm.name}: activation patching; logit difference {pair}: {values}\n{texts}",
        tokens=names_of,
        **vars(found),
    )
