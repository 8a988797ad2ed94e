"""ROUGE by hand, and beside the package that the numbers are meant to equal."""

import random

import pytest

from glassformer.tasks.rouge import KINDS, longest_common, mean_rouge, rouge, words

TEXTS = [
    "", "The cat sat on the mat.", "the CAT sat, on a mat", "a b a b a", "b a b a b a b", "naïve café — it's 3.5 %!",
    "one\ntwo  three", "Straße İstanbul", "x",
]  # fmt: skip


def test_by_hand() -> None:
    """police killed the gunman / police kill the gunman: three of four words, one of three pairs."""
    found = rouge("Police kill the gunman!", ["police killed the gunman"])
    assert found == {
        "rouge1": pytest.approx(3 / 4),
        "rouge2": pytest.approx(1 / 3),
        "rougeL": pytest.approx(3 / 4),
    }
    found = rouge("the gunman police killed", ["police killed the gunman"])
    assert found == {
        "rouge1": pytest.approx(1),
        "rouge2": pytest.approx(2 / 3),
        "rougeL": pytest.approx(1 / 2),
    }


def test_precision_and_recall_count_repeated_words_once_each() -> None:
    """Two of three words are right, two of five are found: 2 · (2/3) · (2/5) / (2/3 + 2/5)."""
    assert rouge("a a a", ["a a b c d"])["rouge1"] == pytest.approx(0.5)


def test_the_best_reference_counts() -> None:
    """For each figure apart."""
    first, second = "a b c d", "d c b a e"
    both = rouge("a b c x", [first, second])
    for kind in KINDS:
        assert both[kind] == max(rouge("a b c x", [one])[kind] for one in (first, second))


def test_words_and_means() -> None:
    """Letters of other scripts separate words, as in the package; an empty text has no word in common."""
    assert words("It's naïve: 3.5 % of A1") == ["it", "s", "na", "ve", "3", "5", "of", "a1"]
    assert set(rouge("", ["a"]).values()) == {0.0}
    assert mean_rouge(["a", "b"], [["a"], ["a"]])["rouge1"] == 0.5


def test_longest_common_row_with_gaps() -> None:
    """Against all subsequences, counted one by one."""

    def slow(ours: str, theirs: str) -> int:
        if not ours or not theirs:
            return 0
        if ours[0] == theirs[0]:
            return 1 + slow(ours[1:], theirs[1:])
        return max(slow(ours[1:], theirs), slow(ours, theirs[1:]))

    draw = random.Random(0)
    for _ in range(60):
        ours, theirs = ("".join(draw.choices("abc", k=draw.randint(0, 7))) for _ in range(2))
        assert longest_common(list(ours), list(theirs)) == slow(ours, theirs)


def test_the_numbers_are_those_of_the_package() -> None:
    """Of hard texts, of random ones, with one reference and with several."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed")
    theirs = scorer.RougeScorer(list(KINDS))
    draw = random.Random(1)
    texts = TEXTS + [
        " ".join(
            draw.choices(["the", "cat", "sat", "on", "a", "mat", "Dog", "7", "é"], k=draw.randint(1, 25))
        )
        for _ in range(60)
    ]
    for _ in range(150):
        written, *references = draw.choices(texts, k=draw.randint(2, 4))
        right = theirs.score_multi(references, written)
        ours = rouge(written, references)
        assert ours == {kind: pytest.approx(right[kind].fmeasure, abs=1e-12) for kind in KINDS}
