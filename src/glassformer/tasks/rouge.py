"""ROUGE: how much of a reference is in a summary, by words, pairs of words, and the longest common row.

Paper  ROUGE: A Package for Automatic Evaluation of Summaries (Lin, 2004)

The numbers are those of the `rouge-score` package without a stemmer: words are runs of a-z and 0-9 in the
lower-cased text, and every figure is an F-measure. Where there are several references, the best one counts.
"""

import re
from collections import Counter
from collections.abc import Sequence

KINDS = ("rouge1", "rouge2", "rougeL")
WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    """The words that are compared."""
    return WORD.findall(text.lower())


def rouge(written: str, references: Sequence[str]) -> dict[str, float]:
    """The three figures of one summary, each by the reference for which it is best."""
    each = [_figures(words(written), words(reference)) for reference in references]
    return {kind: max(one[kind] for one in each) for kind in KINDS}


def mean_rouge(written: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means over many summaries."""
    found = [rouge(one, right) for one, right in zip(written, references, strict=True)]
    return {kind: sum(one[kind] for one in found) / max(1, len(found)) for kind in KINDS}


def _figures(ours: list[str], theirs: list[str]) -> dict[str, float]:
    figures = {f"rouge{n}": _of_rows(_rows(ours, n), _rows(theirs, n)) for n in (1, 2)}
    common = longest_common(ours, theirs)
    return figures | {"rougeL": _f_measure(common, len(ours), len(theirs))}


def _rows(found: list[str], size: int) -> Counter[tuple[str, ...]]:
    """Every row of `size` words, and how often it occurs."""
    return Counter(tuple(found[at : at + size]) for at in range(len(found) - size + 1))


def _of_rows(ours: Counter[tuple[str, ...]], theirs: Counter[tuple[str, ...]]) -> float:
    return _f_measure((ours & theirs).total(), ours.total(), theirs.total())


def _f_measure(common: int, ours: int, theirs: int) -> float:
    """The harmonic mean of precision and recall."""
    precision, recall = common / max(1, ours), common / max(1, theirs)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def longest_common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """The length of the longest row of words that is in both, in order, with gaps allowed."""
    best = [0] * (len(theirs) + 1)  # best[n]: with the words of ours so far, and the first n of theirs
    for word in ours:
        before = 0
        for n, other in enumerate(theirs, 1):
            before, best[n] = best[n], before + 1 if word == other else max(best[n], best[n - 1])
    return best[-1]
