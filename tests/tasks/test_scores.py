"""The figures of tasks, beside scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from glassformer.errors import InputError
from glassformer.tasks import scores

DRAW = np.random.default_rng(0)


@pytest.mark.parametrize("classes", [2, 4])
def test_labels(classes: int) -> None:
    """Accuracy, and Matthews' correlation of any number of classes."""
    right, noise = DRAW.integers(0, classes, 200), DRAW.integers(0, classes, 200)
    said = np.where(DRAW.random(200) < 0.6, right, noise)
    assert scores.accuracy(said, right) == pytest.approx(metrics.accuracy_score(right, said), abs=1e-12)
    assert scores.matthews(said, right) == pytest.approx(metrics.matthews_corrcoef(right, said), abs=1e-12)
    assert scores.matthews(["a"] * 4, ["a", "b", "a", "b"]) == 0.0
    assert scores.matthews([1 - one for one in right % 2], right % 2) == pytest.approx(-1)


def test_numbers() -> None:
    """Both correlations, with ties."""
    right = DRAW.integers(0, 6, 300) / 1.0
    said = right + DRAW.normal(0, 2, 300).round(1)
    assert scores.pearson(said, right) == pytest.approx(stats.pearsonr(said, right).statistic, abs=1e-12)
    assert scores.spearman(said, right) == pytest.approx(stats.spearmanr(said, right).statistic, abs=1e-12)
    assert scores.pearson([1.0, 1.0], [0.0, 1.0]) == scores.spearman([1.0, 1.0], [0.0, 1.0]) == 0.0


def test_nothing_to_compare() -> None:
    """Other numbers of answers than labels."""
    with pytest.raises(InputError, match="1 answers cannot be compared with 2 labels"):
        scores.accuracy([1], [1, 2])
