"""Edits as people write them: a list in JSON, with texts where `explain` wants numbers; and what they do to a text.

    [{"site": "blocks.5.attn.mix[1]", "do": "zero"},
     {"site": "blocks.*.mlp", "do": "mean", "over": ["Once upon a time", "The dog ran"]},
     {"site": "blocks.3.mlp.neurons[17]", "do": "scale", "by": 3},
     {"site": "blocks.2.out", "do": "patch", "from": "The boy lost", "at": [1]},
     {"site": "blocks.3.out", "do": "add", "by": 4, "pairs": [["I am happy", "I am sad"]]}]

Instead of `over`, `from` and `pairs` there may be a `value`: numbers.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain import surgery
from glassformer.explain.decoder import numbers
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.look import Look, Progress, find_token, labels

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel
    from glassformer.trace import Tracer

Edits = str | Path | Sequence[Mapping[str, Any]]
SOURCES = {"mean": "over", "add": "pairs", "patch": "from"}  # the words that stand for a value
KNOWN = {
    "zero": (),
    "scale": ("by",),
    "mean": ("over", "value"),
    "add": ("by", "pairs", "value"),
    "patch": ("from", "value"),
}


def read_edits(lm: "LanguageModel", given: Edits) -> list[surgery.Edit]:
    """The edits of a list, or of a file that holds one."""
    given = read_file(Path(given)) if isinstance(given, str | Path) else _list(given, "edits")
    seen = surgery.sites(lm.model)
    return [edit for number, one in enumerate(given) for edit in _edits(lm, seen, f"edit {number}", one)]


def read_file(path: Path) -> list[Any]:
    """The list in an edit file, as it stands there."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    return _list(given, str(path))


def _list(given: Any, what: str) -> list[Any]:
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence):
        raise InputError(
            f'{what}: not a list of edits, as in [{{"site": "blocks.5.attn.mix[1]", "do": "zero"}}]'
        )
    return list(given)


def _edits(lm: "LanguageModel", seen: "Tracer", where: str, given: Any) -> list[surgery.Edit]:
    """One edit of the list; where its site is a glob, one for each site that it stands for."""
    if not isinstance(given, Mapping):
        raise InputError(
            f'{where} is {given!r}, not an object such as {{"site": "blocks.2.attn", "do": "zero"}}'
        )
    for key in ("site", "do"):
        if not isinstance(given.get(key), str):
            raise InputError(f"{where}: {key!r} must be a text")
    do = given["do"]
    if do not in KNOWN:
        raise InputError(f"{where}: do {do!r} is none of {', '.join(KNOWN)}")
    for key in given:
        if key not in ("site", "do", "at", *KNOWN[do]):
            raise InputError(
                f"{where}: {do} takes no {key!r}; it takes {', '.join(('site', 'do', 'at', *KNOWN[do]))}"
            )
    by = given.get("by", 1.0)
    if isinstance(by, bool) or not isinstance(by, int | float) or not math.isfinite(by):
        raise InputError(f"{where}: 'by' must be a number, not {by!r}")
    if do == "scale" and "by" not in given:
        raise InputError(f"{where}: scale needs 'by', a number")
    at = given.get("at")
    if at is not None and (
        not isinstance(at, list | tuple) or not at or any(type(one) is not int for one in at)
    ):
        raise InputError(f"{where}: 'at' must be a list of positions, as in [0, -1], not {at!r}")
    return [
        surgery.Edit(site, do, float(by), None if at is None else tuple(at), _value(lm, where, given, site))
        for site in seen.addresses(given["site"])
    ]


def _value(lm: "LanguageModel", where: str, given: Mapping[str, Any], site: str) -> Any:
    """The numbers that are given, or what the model thinks of the texts that are."""
    if given["do"] not in SOURCES:
        return None
    source = SOURCES[given["do"]]
    if (source in given) == ("value" in given):
        raise InputError(f"{where}: {given['do']} needs {source!r} or 'value', one of them")
    if "value" in given:
        try:
            value = np.array(given["value"], dtype=np.float64)
        except (TypeError, ValueError):
            value = np.array(np.nan)
        if not np.isfinite(value).all():
            raise InputError(f"{where}: 'value' must be numbers, in lists of equal length")
        return value
    texts = given[source]
    if source == "from":
        if not isinstance(texts, str):
            raise InputError(f"{where}: 'from' must be a text")
        return numbers(surgery.values_at(lm.model, lm.encode(texts), [site])[site])
    if not isinstance(texts, list | tuple):
        raise InputError(f"{where}: {source!r} must be a list")
    if source == "over":
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{where}: 'over' must be a list of texts")
        return surgery.mean_over(lm.model, [lm.encode(text) for text in texts], site)
    if not all(
        isinstance(pair, list | tuple) and [type(text) for text in pair] == [str, str] for pair in texts
    ):
        raise InputError(f"{where}: 'pairs' must be a list of two texts each: toward which, away from which")
    return surgery.direction(lm.model, [(lm.encode(one), lm.encode(other)) for one, other in texts], site)


def operate(
    lm: "LanguageModel",
    prompt: str,
    edits: Edits,
    *,
    k: int = 10,
    max_new_tokens: int = 0,
    seed: int = 0,
    temperature: float = 0.0,
) -> Look:
    """What comes after a text, with and without edits: the next token, and what would be written."""
    ids = lm.encode(prompt)
    edits = read_file(Path(edits)) if isinstance(edits, str | Path) else edits
    chosen = read_edits(lm, edits)
    for one in edits:
        if "from" in one and "at" not in one and len(lm.encode(one["from"])) != len(ids):
            raise InputError(
                f"{one['from']!r} has not as many tokens as {prompt!r}: name the positions to patch by 'at'"
            )
    how: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
    with lm.edit([]):  # as the edited model is: nothing but the edits tells them apart
        before, plain = lm.logits(ids)[-1], lm.generate(prompt, **how).text
    with surgery.edited(lm.model, chosen):
        after, changed = lm.logits(ids)[-1], lm.generate(prompt, **how).text
    one, other = log_softmax(before), log_softmax(after)
    best = list(dict.fromkeys(int(id) for row in (one, other) for id in np.argsort(-row, kind="stable")[:k]))
    best.sort(key=lambda id: -max(one[id], other[id]))
    chances = [[float(np.exp(row[id])) for row in (one, other)] for id in best]
    rows = [[name, a, b, b - a] for name, (a, b) in zip(labels(lm, best), chances, strict=True)]
    apart = float((np.exp(one) * (one - other)).sum())
    found = {
        "ids": best,
        "before": one[best],
        "after": other[best],
        "divergence": apart,
        "text": plain,
        "edited": changed,
    }
    told = ", ".join(
        f"{one['do']} {one['site']}" + (f" by {one['by']:g}" if "by" in one else "") for one in edits
    )
    caption = f"{lm.name}: the next token, before and after {told} ({apart:.3f} nats apart)"
    if max_new_tokens:
        caption += f"\n\nbefore  {prompt}{plain}\n\nafter   {prompt}{changed}\n"
    return Look("edit", caption, labels(lm, ids), found, ["token", "before", "after", "difference"], rows)


def trace_back(
    lm: "LanguageModel",
    clean: str,
    broken: str,
    answer: str,
    foil: str,
    *,
    sites: str = "blocks.*.out",
    progress: Progress = lambda done, total: None,
) -> Look:
    """Which places carry what tells two texts apart: patch each from one into the other; how much of the answer is back?"""
    ids = lm.encode(broken)
    chosen = surgery.sites(lm.model).addresses(sites)
    found = surgery.sweep(
        lm.model,
        lm.encode(clean),
        ids,
        chosen,
        find_token(lm, answer),
        find_token(lm, foil),
        progress=progress,
    )
    names = labels(lm, ids)
    restored = found.restored
    rows = [
        [site, at, name, float(restored[n, at])]
        for n, site in enumerate(chosen)
        for at, name in enumerate(names)
    ]
    caption = f"{lm.name}: lead of {answer!r} over {foil!r}: {found.clean:.2f} clean, {found.broken:.2f} broken; how much comes back"
    return Look("sweep", caption, names, found, ["site", "position", "token", "restored"], rows)
