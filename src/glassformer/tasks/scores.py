"""Figures by which tasks are judged: how far what a model says agrees with what is right."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.faithfulness import spearman as rank_correlation

Values = Sequence[Any]


def accuracy(said: Values, right: Values) -> float:
    """The share of labels that are right."""
    _check(said, right)
    return sum(bool(one == other) for one, other in zip(said, right, strict=True)) / len(right)


def matthews(said: Values, right: Values) -> float:
    """Matthews' correlation coefficient, of any number of classes; 0 where one side has a single class."""
    _check(said, right)
    names = sorted({*said, *right}, key=str)
    one_hot = [
        np.array([[value == name for name in names] for value in side], float) for side in (said, right)
    ]
    one, other = (side - side.mean(0) for side in one_hot)
    length = np.sqrt((one * one).sum() * (other * other).sum())
    return float((one * other).sum() / length) if length else 0.0


def pearson(said: Values, right: Values) -> float:
    """Pearson's correlation of numbers; 0 where one side is constant."""
    _check(said, right)
    one, other = (np.asarray(side, float) - np.mean(np.asarray(side, float)) for side in (said, right))
    length = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / length) if length else 0.0


def spearman(said: Values, right: Values) -> float:
    """Spearman's correlation: that of ranks; 0 where one side is constant."""
    _check(said, right)
    return rank_correlation(np.asarray(said, float), np.asarray(right, float))


def _check(said: Values, right: Values) -> None:
    if len(said) != len(right) or not len(right):
        raise InputError(f"{len(said)} answers cannot be compared with {len(right)} labels")
