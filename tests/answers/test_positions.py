"""Sinusoidal positions: the lecture's table, the formula, and the picture."""

import math

import numpy as np
import pytest

from glassformer.answers import ask
from glassformer.answers.positions import Positions, positions
from glassformer.errors import InputError


def test_the_lectures_table() -> None:
    """ "I am a robot" with d = 4, n = 100, to two decimals."""
    found = positions(width=4, base=100, words=["I", "am", "a", "robot"])
    right = [[0, 1, 0, 1], [0.84, 0.54, 0.10, 1.0], [0.91, -0.42, 0.20, 0.98], [0.14, -0.99, 0.30, 0.96]]
    np.testing.assert_allclose(found.alternating, right, atol=0.0051)
    assert found.tokens == ["I", "am", "a", "robot"]
    texts = found.view().spec["panels"][0]["texts"]
    assert texts[1] == ["0.84", "0.54", "0.10", "1.00"]
    assert texts[2][1] == "−0.42"
    assert found.columns == ["position", "token", "sin 0", "cos 0", "sin 1", "cos 1"]
    np.testing.assert_allclose(found.rows[3][2:], right[3], atol=0.0051)
    assert found.to_csv().count("\n") == 1 + 16


def test_both_layouts_follow_the_formula() -> None:
    """Pair i of position p is the sine and the cosine of p / base^(2i / width)."""
    found = positions(count=9, width=6)
    for position, pair in np.ndindex(9, 3):
        angle = position / 10_000 ** (2 * pair / 6)
        sine, cosine = math.sin(angle), math.cos(angle)
        np.testing.assert_allclose(
            found.alternating[position, [2 * pair, 2 * pair + 1]], [sine, cosine], atol=1e-6
        )
        np.testing.assert_allclose(found.halves[position, [pair, 3 + pair]], [sine, cosine], atol=1e-6)


def test_the_sentence_is_true() -> None:
    """Lengths and products are those of the table."""
    found = ask("positions", count=30, width=32)
    assert isinstance(found, Positions)
    np.testing.assert_allclose(np.linalg.norm(found.alternating, axis=1), 4)
    assert "the length √16" in found.sentence()
    products = found.view("similarity").spec["series"][0]["values"]
    assert np.argmax(products) == 15
    np.testing.assert_allclose(products[14], products[16], rtol=1e-3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"count": 1}, "count must be between 2 and 4,096, not 1"),
        ({"width": 5}, "the width must be even, not 5"),
        ({"base": 1}, "base must be above 1, not 1"),
    ],
)
def test_what_is_no_table(how: dict[str, int], words: str) -> None:
    """One sentence."""
    with pytest.raises(InputError, match=words):
        positions(**how)  # type: ignore[arg-type]
