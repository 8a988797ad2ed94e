"""What a picture shows, in one sentence, for those who do not see it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.figures.labels import number, percent

if TYPE_CHECKING:
    from glassformer.tasks.look import Look


def sentence(look: "Look") -> str:
    """Its caption, and the most important thing to see."""
    title = look.caption.partition("\n")[0]
    return f"{title}: {SAID.get(look.kind, _first)(look)}." if look.rows else f"{title}."


def _first(look: "Look") -> str:
    """The first row of a table that is in order."""
    told = (f"{column} {_told(value)}" for column, value in zip(look.columns, look.rows[0], strict=True))
    return f"first of {len(look.rows)} rows: " + ", ".join(told)


def _told(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return "none" if value is None else repr(value)


def _best(look: "Look", column: str, key: Callable[[Any], float] = lambda value: value) -> list[Any]:
    """The row that has the most in a column."""
    at = look.columns.index(column)
    return max(look.rows, key=lambda row: -np.inf if row[at] is None or row[at] != row[at] else key(row[at]))


def _attention(look: "Look") -> str:
    table = np.asarray(look.numbers)
    row, column = (0, 0) if len(table) == 1 else divmod(int(table[1:].argmax()), table.shape[1])
    row += len(table) > 1  # the first token has nothing to choose
    given = (number if look.seen == "handed over" else percent)(float(table[row, column]))
    return f"{look.tokens[row]!r} gives {given} to {look.tokens[column]!r}, the most of all"


def _heads(look: "Look") -> str:
    layer, head, share, *_ = _best(look, "previous")
    return (
        f"most of all on the token before looks head {layer}.{head}, with {percent(share)}"
        if share == share
        else "one token"
    )


def _steps(look: "Look") -> str:
    row = _best(look, "softmax")
    return f"it gives {percent(row[5])} to {row[1]!r}"


def _lens(look: "Look") -> str:
    last = [row for row in look.rows if row[1] == look.rows[-1][1]]
    said = last[-1][2]
    since = next(row[0] for n, row in enumerate(last) if all(other[2] == said for other in last[n:]))
    unchanged = f", unchanged since {since}" if len(last) > 1 else ""
    return f"after {look.tokens[last[-1][1]]!r} it says {said!r} ({percent(last[-1][3])}){unchanged}"


def _ranks(look: "Look") -> str:
    told = (f"{name} {rank:,}" for name, rank in zip(look.columns[1:], look.rows[-1][1:], strict=True))
    return "ranks in the last layer: " + ", ".join(told)


def _saliency(look: "Look") -> str:
    position, token, source, share, *_ = look.rows[0]
    return f"{token!r} at position {position} is owed most to {source!r}, {percent(share)}"


def _neurons(look: "Look") -> str:
    _, token, layer, neuron, value = _best(look, "activation")
    return f"neuron {neuron} of layer {layer} fires most, {number(value)} at {token!r}"


def _peaks(look: "Look") -> str:
    told = (
        f"{look.columns[0]} {n} is highest at {look.tokens[int(np.argmax(row))]!r}"
        for n, row in enumerate(look.seen)
    )
    return "; ".join(told)


def _sweep(look: "Look") -> str:
    site, _, token, share = _best(look, "restored")
    return (
        f"most comes back from {site} at {token!r}, {percent(share)}"
        if share == share
        else "the texts do not differ in it"
    )


def _diff(look: "Look") -> str:
    row = _best(look, "difference", abs)
    return f"they differ most about {row[1]!r}, by {number(row[4])} nats"


def _written(look: "Look") -> str:
    low, high = _best(look, "probability", lambda value: -value), _best(look, "probability")
    return f"least sure of {low[1]!r} ({percent(low[2])}), surest of {high[1]!r} ({percent(high[2])})"


def _cache(look: "Look") -> str:
    step, _, computed, reused, *_, size = look.rows[-1]
    return (
        f"in step {step} each layer computes {computed} and finds {reused} positions; {size:,} bytes in all"
    )


def _last(look: "Look") -> str:
    told = (f"{column} {_told(value)}" for column, value in zip(look.columns, look.rows[-1], strict=True))
    return "at the end: " + ", ".join(told)


SAID: dict[str, Callable[["Look"], str]] = {
    "attention": _attention, "heads": _heads, "steps": _steps, "lens": _lens, "rankings": _ranks, "watched": _ranks,
    "saliency": _saliency, "neurons": _neurons, "factors": _peaks, "clusters": _peaks, "sweep": _sweep, "diff": _diff,
    "written": _written, "cache": _cache, "journey": _last, "curve": _last,
}  # fmt: skip
