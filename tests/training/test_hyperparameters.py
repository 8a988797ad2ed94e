"""The numbers of a training that follow from others."""

import math

import pytest

from glassformer.errors import InputError
from glassformer.training.hyperparameters import DECAYS, DecoderInputs


def test_the_decays_are_those_of_the_paper() -> None:
    """Bengio et al., 2015: max(ε, k - ci), k^i, k / (k + e^(i/k))."""
    linear = DecoderInputs(decay="linear", decay_k=0.9, decay_c=0.01, true_end=0.25)
    assert linear.true_share(10, 1000) == pytest.approx(0.8)
    assert linear.true_share(500, 1000) == 0.25
    assert DecoderInputs(decay="exponential", decay_k=0.99).true_share(100, 1) == pytest.approx(0.99**100)
    sigmoid = DecoderInputs(decay="inverse-sigmoid", decay_k=50.0)
    assert sigmoid.true_share(120, 1) == pytest.approx(50 / (50 + math.exp(120 / 50)))
    assert sigmoid.true_share(10**9, 1) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("steps", [2, 100, 40_000])
def test_by_default_half_are_true_at_half_time(decay: str, steps: int) -> None:
    """In every decay: it begins with true tokens, falls, and passes 1/2 in the middle."""
    inputs = DecoderInputs(forcing="scheduled", decay=decay)
    shares = [inputs.true_share(step, steps) for step in (0, steps // 4, steps // 2, steps)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5 > shares[-1]
    assert shares[2] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"forcing": "student"}, "forcing 'student' is none of teacher, scheduled, parallel, professor"),
        ({"decay": "quick"}, "decay 'quick' is none of linear"),
        ({"decay": "exponential", "decay_k": 1.5}, "must be less than 1, not 1.5"),
        ({"decay": "inverse-sigmoid", "decay_k": 0.5}, "must be at least 1, not 0.5"),
        ({"decay_c": -1.0}, "decay_c must be at least 0"),
        ({"true_end": 1.5}, "true_end must be from 0 to 1"),
        ({"professor_weight": math.inf}, "professor_weight must be at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, object], message: str) -> None:
    """By a sentence that names the key."""
    with pytest.raises(InputError, match=message):
        DecoderInputs(**values)  # type: ignore[arg-type]
