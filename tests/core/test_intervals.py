"""Intervals contain as many unseen rows as their level says, within what the sample size allows."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.core.intervals import NO_SPREAD, QuantileSpread, Spread, bound, build_estimate, count_doublings

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]

_SETS = 400
_FRESH = 200
_NOISES: dict[str, Noise] = {
    "normal": lambda draw, shape: draw.normal(0, 0.1, shape),
    "heavy-tailed": lambda draw, shape: 0.1 * draw.standard_t(2, shape),
    "skewed": lambda draw, shape: draw.exponential(0.2, shape),
    "biased": lambda draw, shape: draw.normal(0.5, 0.1, shape),
}
_residuals = st.lists(st.floats(-3, 3), min_size=1, max_size=40)
_chances = st.floats(1e-6, 0.999)


def _learn(residuals: Floats | list[float]) -> Spread:
    return Spread.learn(np.exp(residuals), np.ones(len(residuals)))


def _coverages(noise: Noise, rows: int, level: float) -> Floats:
    """For many sets of rows: the share of fresh ones inside the interval."""
    draw = np.random.default_rng(rows)
    outside = (1 - level) / 2
    shares = []
    for _ in range(_SETS):
        spread = _learn(noise(draw, (rows,)))
        fresh = noise(draw, (_FRESH,))
        shares.append(np.mean((fresh >= spread.lower(outside)) & (fresh <= spread.upper(outside))))
    return np.array(shares)


@pytest.mark.parametrize("name", _NOISES)
@pytest.mark.parametrize("rows", [8, 20, 60, 300])
@pytest.mark.parametrize("level", [0.8, 0.9])
def test_coverage_is_the_level(name: str, rows: int, level: float) -> None:
    shares = _coverages(_NOISES[name], rows, level)
    error = shares.std() / np.sqrt(_SETS)
    assert shares.mean() >= level - 0.015 - 3 * error
    wasted = 2 / (rows + 1)  # ranks are whole numbers: on each side up to one more row stays inside
    assert shares.mean() <= level + wasted + 3 * error


@given(residuals=_residuals, chances=st.tuples(_chances, _chances))
def test_less_risk_never_means_a_lower_bound(residuals: list[float], chances: tuple[float, float]) -> None:
    spread = _learn(residuals)
    less, more = sorted(chances)
    assert spread.upper(less) >= spread.upper(more)
    assert spread.lower(less) <= spread.lower(more)


@given(residuals=_residuals, chance=_chances, shift=st.floats(-1, 1))
def test_exceeded_is_the_reverse_of_upper(residuals: list[float], chance: float, shift: float) -> None:
    """A bound is exceeded with at most a chance if, and only if, it is no lower than the bound of that chance."""
    spread = _learn(residuals)
    bound = spread.upper(chance)
    assert spread.exceeded(np.array([bound]))[0] <= chance * (1 + 1e-9)
    if abs(shift) > 1e-6:
        allowed = spread.exceeded(np.array([bound + shift]))[0] <= chance
        assert allowed == (shift > 0)


@given(residuals=_residuals, ratios=st.lists(st.floats(-10, 10), min_size=2, max_size=20))
def test_chance_falls_as_the_bound_rises(residuals: list[float], ratios: list[float]) -> None:
    chances = _learn(residuals).exceeded(np.sort(np.array(ratios)))
    assert (np.diff(chances) <= 0).all()
    assert ((chances > 0) & (chances <= 1)).all()


@given(residuals=_residuals, chance=_chances)
def test_upper_and_lower_mirror_each_other(residuals: list[float], chance: float) -> None:
    there = _learn([-residual for residual in residuals])
    assert there.lower(chance) == pytest.approx(-_learn(residuals).upper(chance))


def test_many_residuals_are_kept_as_quantiles() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.2, 50_000)
    spread = _learn(residuals)
    assert len(spread.residuals) <= 1000
    for chance in (0.01, 0.05, 0.5):
        assert spread.upper(chance) == pytest.approx(np.quantile(residuals, 1 - chance), abs=0.01)


def test_perfect_predictions_still_have_an_interval() -> None:
    spread = _learn(np.zeros(5))
    assert spread.upper(0.01) > 0 > spread.lower(0.01)


_errors = st.one_of(
    _residuals.map(_learn),
    _residuals.map(lambda residuals: QuantileSpread.learn(residuals, count=11)),
    st.just(NO_SPREAD),
)
_levels = st.floats(0.1, 0.99)


@given(errors=_errors, value=st.floats(1e-3, 1e6), level=_levels, shift=st.floats(0, 2), width=st.floats(0.1, 3))
def test_bounds_contain_the_value_and_a_shift_widens_them(
    errors: Spread, value: float, level: float, shift: float, width: float
) -> None:
    low, high = bound(value, errors, level=level, width=width)
    wider = bound(value, errors, level=level, width=width, shift=shift)
    assert wider[0] <= low <= value <= high <= wider[1]


@given(errors=_errors, values=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5), level=_levels)
def test_columns_and_single_values_have_the_same_bounds(errors: Spread, values: list[float], level: float) -> None:
    low, high = bound(np.array(values), errors, level=level, shift=0.1)
    each = [build_estimate(value, errors, level=level, shift=0.1) for value in values]
    assert low.tolist() == [estimate.low for estimate in each]
    assert high.tolist() == [estimate.high for estimate in each]


def test_a_limit_caps_value_and_bounds() -> None:
    estimate = build_estimate(0.9, NO_SPREAD, level=0.9, shift=1.0, most=0.8)
    assert (estimate.value, estimate.high) == (0.8, 0.8)
    assert estimate.low == pytest.approx(0.9 / np.e)


def test_bounds_keep_a_least_distance() -> None:
    low, high = bound(1.0, NO_SPREAD, level=0.9, least=0.02)
    assert (float(low), float(high)) == pytest.approx((np.exp(-0.02), np.exp(0.02)))


def test_quantiles_of_normal_errors_are_found_again() -> None:
    errors = np.random.default_rng(0).normal(0, 0.2, 50_000)
    spread = QuantileSpread.learn(errors, count=201)
    assert spread.upper(0.05) == pytest.approx(1.645 * 0.2, rel=0.03)
    assert spread.lower(0.05) == pytest.approx(-1.645 * 0.2, rel=0.03)


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"), [(8, 1, 4, 1), (0.25, 1, 4, 2), (2, 1, 4, 0), (8, 0, 2, 2), (8, 0, 0, np.inf)]
)
def test_distance_from_a_range_is_in_doublings(value: float, low: float, high: float, expected: float) -> None:
    assert count_doublings(value, low, high) == expected


@pytest.mark.parametrize("count", [2, 3, 4])
def test_few_configurations_have_wider_intervals_that_cover(count: int) -> None:
    """As the interval of Student's t does, for rows that are normally distributed."""
    draw = np.random.default_rng(count)
    inside = []
    for _ in range(_SETS):
        errors, new = draw.normal(0, 0.1, count), draw.normal(0, 0.1, _FRESH)
        spread = Spread.learn_from_few(np.exp(errors), np.ones(count), configurations=count, least=0.0)
        inside.append(np.mean((new >= spread.lower(0.05)) & (new <= spread.upper(0.05))))
    assert np.mean(inside) >= 0.9


def test_few_configurations_are_not_narrower_than_the_source() -> None:
    few = Spread.learn_from_few(np.exp([0.001, -0.001]), np.ones(2), configurations=5, least=0.2)
    assert few.scale == pytest.approx(0.2)
