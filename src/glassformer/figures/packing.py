"""The numbers of a matrix in JSON: few as they are, many as floats in base64."""

import base64
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Rows = list[list[float | None]]
FLOATS = {"half": "<f2", "single": "<f4"}
MANY = 4096  # numbers that are packed
VERY_MANY = 1 << 18  # numbers that are packed into 16 bits each, to keep a page small
LARGEST = 65504  # that 16 bits can hold


def packed(values: Array) -> Any:
    """Rows of numbers as a view holds them: nine digits each, or packed if they are many; null is masked."""
    values = np.asarray(values, dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    if values.size <= MANY:
        return [[None if value != value else short(value) for value in row] for row in values.tolist()]

    fits = np.nanmax(np.abs(values), initial=0) < LARGEST
    kind = "half" if values.size > VERY_MANY and fits else "single"
    data = values.astype(FLOATS[kind]).tobytes()
    return {"shape": list(values.shape), kind: base64.b64encode(data).decode()}


def unpacked(given: Any) -> Array:
    """Rows of numbers as an array (rows, columns); nan is masked."""
    if not isinstance(given, dict):
        rows = [[np.nan if value is None else value for value in row] for row in given]
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1)

    kind = "half" if "half" in given else "single"
    data = np.frombuffer(base64.b64decode(given[kind]), FLOATS[kind])
    return data.astype(np.float64).reshape(given["shape"])


def numbers(given: Any) -> Rows:
    """Rows of numbers as lists; None is masked."""
    return masked(unpacked(given))


def masked(values: Array) -> Rows:
    """Lists in place of an array, and None in place of nan."""
    return [[None if value != value else value for value in row] for row in values.tolist()]


def short(value: float) -> float:
    """A number with nine digits, which tell any two 32-bit floats apart; a whole one as it is.

    Pictures round once more: with few digits here, 11.045 % would be rounded twice and shown as 11.1 %.
    """
    return value if value == int(value) else float(f"{value:.9g}")
