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
    ours = words(written)
    best = dict.fromkeys(KINDS, 0.0)
    for reference in references:
        figures = _figures(ours, words(reference))
        for kind in KINDS:
            best[kind] = max(best[kind], figures[kind])
    return best


def mean_rouge(written: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means over many summaries."""
    sums = dict.fromkeys(KINDS, 0.0)
    for text, right in zip(written, references, strict=True):
        figures = rouge(text, right)
        for kind in KINDS:
            sums[kind] += figures[kind]
    return {kind: total / max(1, len(written)) for kind, total in sums.items()}


def _figures(ours: list[str], theirs: list[str]) -> dict[str, float]:
    common = longest_common(ours, theirs)
    return {
        "rouge1": _of_rows(ours, theirs, size=1),
        "rouge2": _of_rows(ours, theirs, size=2),
        "rougeL": _f_measure(common, len(ours), len(theirs)),
    }


def _of_rows(ours: list[str], theirs: list[str], *, size: int) -> float:
    """By all rows of `size` words; one that occurs twice in both counts twice."""
    first = _rows(ours, size)
    second = _rows(theirs, size)
    common = first & second
    return _f_measure(common.total(), first.total(), second.total())


def _rows(found: list[str], size: int) -> Counter[tuple[str, ...]]:
    rows: Counter[tuple[str, ...]] = Counter()
    for end in range(size, len(found) + 1):
        rows[tuple(found[end - size : end])] += 1
    return rows


def _f_measure(common: int, ours: int, theirs: int) -> float:
    """The harmonic mean of precision and recall."""
    if not common:
        return 0.0
    precision = common / ours
    recall = common / theirs
    return 2 * precision * recall / (precision + recall)


def longest_common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """The length of the longest row of words that is in both, in order, with gaps allowed."""
    best = [0] * (len(theirs) + 1)  # best[n]: with the words of ours so far, and the first n of theirs
    for word in ours:
        before = 0  # best[n - 1], without this word
        for n, other in enumerate(theirs, 1):
            without = best[n]
            best[n] = before + 1 if word == other else max(without, best[n - 1])
            before = without
    return best[-1]
