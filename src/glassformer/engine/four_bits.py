"""Weights in four bits: S · m · q, an integer q in -8 … 7, its group's multiplier m and its row's scale S.

Multipliers are integers, so that a sum of products with int8 activations stays an integer to its end.
"""

from typing import Any

import numpy as np

from glassformer.errors import InputError

Array = np.ndarray[Any, Any]

GROUP = 32  # columns that share a multiplier
LEAST, MOST = -8, 7
MOST_MULTIPLIER = 127
# Multipliers are tried as shares of the one that cuts nothing off. Smaller ones round all other weights of a
# group more finely and cut off its largest.
SHARES = tuple(np.float32(share / 40) for share in range(28, 43))
DAMPING = 0.01  # of the mean importance, added to all: no column is free, and moments are invertible
SEARCHED, ROUNDED = 2**17, 2**20  # weights at once: the search stays in the processor's cache
COLUMNS = 64  # rounded one by one before their errors reach all later columns, in one product


def quantize4(
    weights: Array, *, importance: Array | None = None, group: int = GROUP, name: str = "the matrix"
) -> tuple[Array, Array, Array]:
    """A matrix (outputs, inputs) in four bits: q (outputs, inputs), m (outputs, groups), scales (outputs,).

    Minimized is the squared error of the weights, column j weighted by importance[j]. That is the error of
    the outputs where inputs are uncorrelated and importance is the mean of x²; after a norm this is about
    gain² + bias², known without any text. Given the mean of x xᵀ (inputs, inputs) instead, the error of each
    rounded column is made up for by the columns that are still to be rounded.
    """
    weights = np.asarray(weights, dtype=np.float32)
    outputs, inputs = weights.shape
    moments = _damped(importance, inputs)
    columns = moments if moments.ndim == 1 else np.diagonal(moments)
    scales = _reach(weights) / np.float32(MOST_MULTIPLIER)
    if not np.isfinite(scales).all():  # the extremes of a row are NaN or infinite if any of it is
        raise InputError(f"{name} has numbers that are NaN or infinite")

    # A row of zeros, or of numbers too small to divide by, becomes zeros.
    divisible = scales > np.finfo(np.float32).tiny
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=divisible)[:, None]
    rounded = np.empty((outputs, inputs), dtype=np.int8)
    multipliers = np.empty((outputs, -(-inputs // group)), dtype=np.uint8)
    for rows in _blocks(outputs, SEARCHED // max(1, inputs)):
        units = weights[rows] * inverse[rows]
        multipliers[rows] = _multipliers(units, columns.astype(np.float32), group)
        if moments.ndim == 1:
            rounded[rows] = _nearest(units, _steps(multipliers[rows], group, inputs))
    if moments.ndim == 2:
        order, feedback = _feedback(moments)
        for rows in _blocks(outputs, ROUNDED // max(1, inputs)):
            units = (weights[rows] * inverse[rows])[:, order]
            steps = _steps(multipliers[rows], group, inputs)[:, order]
            rounded[rows, order] = _compensated(units, steps, feedback)
    return rounded, multipliers, scales


def dequantize4(made: tuple[Array, Array, Array], *, group: int = GROUP) -> Array:
    """The weights S · m · q, in float32, of what `quantize4` made."""
    rounded, multipliers, scales = made
    steps = _steps(multipliers, group, rounded.shape[1])
    weights: Array = rounded * steps * np.asarray(scales, dtype=np.float32)[:, None]
    return weights


def _damped(importance: Array | None, inputs: int) -> Array:
    """What is given, in float64, with a mean of 1 and a little more of every column."""
    if importance is None:
        return np.ones(inputs)
    given = np.array(importance, dtype=np.float64)
    if given.shape not in ((inputs,), (inputs, inputs)):
        raise InputError(f"importance must have the shape ({inputs},) or ({inputs}, {inputs})")
    each = given if given.ndim == 1 else np.diagonal(given)
    mean = each.mean() if inputs else 0.0
    if not np.isfinite(given).all() or (each < 0).any():
        raise InputError("importance must be finite and at least 0")
    if not mean > 0:
        return np.ones(inputs)
    given /= mean
    if given.ndim == 1:
        return given + DAMPING
    given[np.diag_indices(inputs)] += DAMPING
    return given


def _reach(values: Array) -> Array:
    """The smallest step by which no value along the last axis is cut off."""
    above = values.max(axis=-1, initial=0) / np.float32(MOST)
    below = values.min(axis=-1, initial=0) / np.float32(LEAST)
    reach: Array = np.maximum(above, below)
    return reach


def _blocks(rows: int, size: int) -> list[slice]:
    """Slices of some rows each."""
    size = max(1, size)
    return [slice(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def _multipliers(units: Array, columns: Array, group: int) -> Array:
    """The multiplier of every group with the smallest weighted error: rows in units of their scale in."""
    rows, inputs = units.shape
    groups = -(-inputs // group)
    padded = np.zeros((rows, groups * group), dtype=np.float32)  # zeros behind the last group have no error
    padded[:, :inputs] = units
    values = padded.reshape(rows, groups, group)
    weight = np.zeros(groups * group, dtype=np.float32)
    weight[:inputs] = columns
    weight = weight.reshape(groups, group)

    reach = _reach(values)
    best = np.zeros_like(reach)
    least = np.full_like(reach, np.inf)
    for share in SHARES:
        tried = np.clip(np.rint(reach * share), 1, MOST_MULTIPLIER)
        away = values / tried[..., None]
        away -= np.clip(np.rint(away), LEAST, MOST)
        away *= away
        error = np.einsum("rgc,gc->rg", away, weight) * tried**2
        better = error < least
        best[better] = tried[better]
        least[better] = error[better]
    best[reach == 0] = 0
    return best


def _steps(multipliers: Array, group: int, inputs: int) -> Array:
    """The multiplier of every column."""
    steps: Array = np.repeat(multipliers.astype(np.float32), group, axis=1)[:, :inputs]
    return steps


def _nearest(units: Array, steps: Array) -> Array:
    """Multiples of steps, as near as they come."""
    whole = np.rint(np.divide(units, steps, out=np.zeros_like(units), where=steps > 0))
    nearest: Array = np.clip(whole, LEAST, MOST)
    return nearest


def _feedback(moments: Array) -> tuple[Array, Array]:
    """The order of columns, the most important first, and how much of an error each later one takes over.

    With moments = U D Uᵀ, U upper triangular with a diagonal of ones, the error of the outputs is the sum of
    D[k] · (U-weighted errors up to column k)²: rounding w[k] + Σ_{j<k} error[j] · U[j, k] makes each small.
    """
    order = np.argsort(-np.diagonal(moments), kind="stable")
    backward = order[::-1]
    lower = np.linalg.cholesky(moments[np.ix_(backward, backward)])
    upper = lower[::-1, ::-1]  # of the moments in order: upper @ upper.T
    return order, (upper / np.diagonal(upper)).astype(np.float32)


def _compensated(units: Array, steps: Array, feedback: Array) -> Array:
    """Columns rounded one after the other, each with the errors of those before it."""
    units, steps = np.ascontiguousarray(units.T), np.ascontiguousarray(steps.T)  # (inputs, rows)
    rounded = np.empty_like(units)
    errors = np.empty_like(units)
    for some in _blocks(len(units), COLUMNS):
        wanted = units[some] + feedback[: some.start, some].T @ errors[: some.start]
        for at, column in enumerate(range(some.start, some.stop)):
            rounded[column] = _nearest(wanted[at], steps[column])
            errors[column] = units[column] - rounded[column] * steps[column]
            wanted[at + 1 :] += feedback[column, column + 1 : some.stop, None] * errors[column]
    return rounded.T
