"""90 % means 90 % on rows nobody has seen, within what the sample size allows."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.core.intervals import Spread

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
def test_intervals_cover_what_they_say(name: str, rows: int, level: float) -> None:
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


def test_long_history_is_kept_short_and_says_the_same() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.2, 50_000)
    spread = _learn(residuals)
    assert len(spread.residuals) <= 1000
    for chance in (0.01, 0.05, 0.5):
        assert spread.upper(chance) == pytest.approx(np.quantile(residuals, 1 - chance), abs=0.01)


def test_perfect_predictions_still_leave_a_little_doubt() -> None:
    spread = _learn(np.zeros(5))
    assert spread.upper(0.01) > 0 > spread.lower(0.01)
