"""Four-bit weights: what is exact, how large an error may be, and that the search and the compensation pay."""

import numpy as np
import pytest

from glassformer.engine import four_bits
from glassformer.engine.four_bits import GROUP, Array, dequantize4, quantize4
from glassformer.errors import InputError


def plain(weights: Array, group: int = GROUP) -> Array:
    """Round to nearest, each group's largest to 7, with scales of any value: nothing is searched."""
    out = np.zeros_like(weights)
    for begin in range(0, weights.shape[1], group):
        some = weights[:, begin : begin + group]
        steps = np.abs(some).max(axis=1, keepdims=True) / 7
        out[:, begin : begin + group] = np.clip(np.rint(some / steps), -8, 7) * steps
    return out


def spoiled(weights: Array, importance: Array | None = None) -> Array:
    """The error that four bits make."""
    difference: Array = dequantize4(quantize4(weights, importance=importance)) - weights
    return difference


def correlated(rng: np.random.Generator, inputs: int, count: int = 4000) -> Array:
    """Inputs (count, inputs) that share a few directions."""
    mixed: Array = rng.normal(size=(count, 12)) @ rng.normal(size=(12, inputs))
    return mixed + 0.3 * rng.normal(size=mixed.shape)


def test_types_and_ranges(rng: np.random.Generator) -> None:
    """As the core reads them; the last group is shorter."""
    q, m, scales = quantize4(rng.normal(size=(5, 70)))
    assert (q.dtype, m.dtype, scales.dtype) == (np.int8, np.uint8, np.float32)
    assert (q.shape, m.shape, scales.shape) == ((5, 70), (5, 3), (5,))
    assert q.min() >= -8
    assert q.max() <= 7
    assert m.min() > 0
    assert m.max() <= 127


def test_a_representable_matrix_is_exact(rng: np.random.Generator) -> None:
    """Multipliers and integers come back, one by one, from their products."""
    q = rng.integers(-8, 8, size=(40, 70))
    q[:, [0, 32, 64]] = -8  # every group reaches its end, which fixes its multiplier
    m = rng.integers(64, 128, size=(40, 3))
    m[:, 1] = 127
    scales = rng.uniform(0.001, 0.1, size=40).astype(np.float32)
    made = quantize4(dequantize4((q.astype(np.int8), m.astype(np.uint8), scales)))
    assert (made[0] == q).all()
    assert (made[1] == m).all()
    np.testing.assert_allclose(made[2], scales, rtol=1e-6)


@pytest.mark.parametrize("inputs", [1, 31, 32, 33, 96])
def test_the_error_is_bounded(inputs: int, rng: np.random.Generator) -> None:
    """Half a step where nothing is cut off; what is cut off was beyond the last step."""
    weights = rng.standard_t(3, size=(64, inputs)).astype(np.float32)
    q, m, scales = quantize4(weights)
    steps = np.repeat(m, GROUP, axis=1)[:, :inputs] * scales[:, None]
    away = dequantize4((q, m, scales)) - weights
    inside = (weights >= -8.5 * steps) & (weights <= 7.5 * steps)
    assert (np.abs(away)[inside] <= 0.5001 * steps[inside]).all()
    assert np.isin(q[~inside], (-8, 7)).all()
    assert inside.mean() > 0.9


@pytest.mark.parametrize("with_moments", [False, True])
def test_zeros_stay_zeros(with_moments: bool, rng: np.random.Generator) -> None:
    """Rows of zeros, of numbers too small to divide by, and a group of zeros in a row of others."""
    weights = rng.normal(size=(4, 64)).astype(np.float32)
    weights[1], weights[2], weights[3, :32] = 0, 1e-42, 0
    moments = np.eye(64) if with_moments else None
    q, m, scales = quantize4(weights, importance=moments)
    for zeros in (q[1], q[2], q[3, :32], m[1], m[2], m[3, 0]):
        assert not zeros.any()
    assert m[3, 1] > 80
    assert np.isfinite(dequantize4((q, m, scales))).all()
    assert quantize4(np.zeros((0, 8)))[0].shape == (0, 8)


def test_huge_rows_do_not_overflow(rng: np.random.Generator) -> None:
    """The search works in units of the row's scale, so a factor changes nothing."""
    weights = rng.normal(size=(8, 64)).astype(np.float32)
    q, m, _ = quantize4(weights)
    for factor in (2.0**120, 2.0**-100):
        other = quantize4(weights * np.float32(factor))
        assert (other[0] == q).all()
        assert (other[1] == m).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(number: float, rng: np.random.Generator) -> None:
    """By the name of the matrix, as in eight bits."""
    weights = rng.normal(size=(3, 40))
    weights[1, 7] = number
    with pytest.raises(
        InputError, match=r"^blocks\.0\.mlp\.up\.weight has numbers that are NaN or infinite$"
    ):
        quantize4(weights, name="blocks.0.mlp.up.weight")


def test_importance_that_does_not_fit_is_refused() -> None:
    """Another shape, negative, or not finite."""
    weights = np.ones((2, 8))
    for wrong in (np.ones(7), np.ones((8, 7)), np.ones((1, 8))):
        with pytest.raises(InputError, match=r"importance must have the shape \(8,\) or \(8, 8\)"):
            quantize4(weights, importance=wrong)
    for wrong in (-np.ones(8), np.full(8, np.nan), -np.eye(8)):
        with pytest.raises(InputError, match="importance must be finite and at least 0"):
            quantize4(weights, importance=wrong)


@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_better_than_plain_rounding(kind: str, rng: np.random.Generator) -> None:
    """By a sixth of the squared error at least."""
    size = (256, 96)
    weights = (rng.normal(size=size) if kind == "normal" else rng.standard_t(3, size=size)).astype(np.float32)
    searched, rounded = (spoiled(weights) ** 2).sum(), ((plain(weights) - weights) ** 2).sum()
    assert 0.5 * rounded < searched < 5 / 6 * rounded


@pytest.mark.parametrize("weighted", [False, True])
def test_the_search_against_all_multipliers(weighted: bool, rng: np.random.Generator) -> None:
    """Every multiplier from 0 to 127 tried in float64: on the whole, their best is hardly better."""
    weights = rng.standard_t(4, size=(60, 40)).astype(np.float32)  # a group of 32 and one of 8
    importance = rng.uniform(0.1, 4, size=40) if weighted else np.ones(40)
    q, m, scales = quantize4(weights, importance=importance)
    damped = importance + 0.01 * importance.mean()
    multipliers = np.arange(1, 128)[:, None]
    for at, most in ((slice(0, 32), 1.01), (slice(32, 40), 1.08)):
        chosen = best = 0.0
        for row in range(60):
            wanted = weights[row, at].astype(np.float64) / scales[row]
            tried = np.clip(np.rint(wanted / multipliers), -8, 7)  # (127, columns)
            errors = (damped[at] * (wanted - multipliers * tried) ** 2).sum(axis=1)
            taken = m[row, at.start // 32] - 1
            assert (q[row, at] == tried[taken]).all()
            chosen += errors[taken]
            best += errors.min()
        assert best < chosen < most * best


def test_importance_moves_the_error(rng: np.random.Generator) -> None:
    """Columns that count more are rounded better, and the weighted error falls."""
    weights = rng.standard_t(3, size=(400, 64)).astype(np.float32)
    importance = np.where(np.arange(64) % 8 == 0, 100.0, 1.0)
    even, weighted = spoiled(weights), spoiled(weights, importance)
    assert (importance * weighted**2).sum() < 0.9 * (importance * even**2).sum()
    # A factor changes nothing, and importance of nothing at all is none.
    assert (spoiled(weights, 7 * importance) == weighted).all()
    assert (spoiled(weights, 0 * importance) == even).all()


@pytest.mark.parametrize("inputs", [40, 200])
def test_compensation_against_columns_on_their_own(inputs: int, rng: np.random.Generator) -> None:
    """The error of the outputs falls by half for inputs that are correlated, and the same matrix comes twice."""
    x = correlated(rng, inputs)
    weights = rng.normal(size=(100, inputs)).astype(np.float32)
    moments = x.T @ x
    alone = spoiled(weights, np.diagonal(moments))
    together = spoiled(weights, moments)
    assert ((x @ together.T) ** 2).sum() < 0.5 * ((x @ alone.T) ** 2).sum()
    assert (spoiled(weights, moments) == together).all()


def test_moments_of_few_inputs(rng: np.random.Generator) -> None:
    """Fewer rows than columns, and columns that are always 0: moments that have no inverse."""
    x = rng.normal(size=(10, 64))
    x[:, 5] = 0
    weights = rng.normal(size=(30, 64)).astype(np.float32)
    away = spoiled(weights, x.T @ x)
    assert ((x @ away.T) ** 2).sum() < 0.2 * ((x @ spoiled(weights).T) ** 2).sum()
    assert np.abs(away).max() < 1


def test_uncorrelated_inputs_need_no_compensation(rng: np.random.Generator) -> None:
    """A diagonal of moments is importance."""
    weights = rng.normal(size=(50, 100))
    importance = rng.uniform(0.1, 3, size=100)
    columns, moments = (quantize4(weights, importance=one) for one in (importance, np.diag(importance)))
    for one, other in zip(columns, moments, strict=True):
        assert (one == other).all()


def test_compensation_column_by_column(rng: np.random.Generator) -> None:
    """Once more in float64, from the inverse of the moments, as the paper on GPTQ has it."""
    x = correlated(rng, 150)
    moments = x.T @ x / len(x)
    weights = rng.normal(size=(6, 150)).astype(np.float32)
    q, m, scales = quantize4(weights, importance=moments)
    damped = moments / np.diagonal(moments).mean() + 0.01 * np.eye(150)
    order = np.argsort(-np.diagonal(damped), kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    steps = (np.repeat(m, GROUP, axis=1)[:, :150] * scales[:, None].astype(np.float64))[:, order]
    left = weights.astype(np.float64)[:, order]
    for k in range(150):
        whole = np.clip(np.rint(left[:, k] / steps[:, k]), -8, 7)
        error = (left[:, k] - whole * steps[:, k]) / upper[k, k]
        left[:, k + 1 :] -= error[:, None] * upper[k, k + 1 :]
        left[:, k] = whole
    assert (q[:, order] == left).mean() > 0.99  # a tie of float32 may fall to the other side


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """A row at a time, or all at once."""
    weights = rng.normal(size=(9, 70))
    x = correlated(rng, 70)
    for importance in (None, x.T @ x):
        whole = quantize4(weights, importance=importance)
        monkeypatch.setattr(four_bits, "SEARCHED", 1)
        one_by_one = quantize4(weights, importance=importance)
        monkeypatch.undo()
        for one, other in zip(whole, one_by_one, strict=True):
            assert (one == other).all()
