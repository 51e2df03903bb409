"""Laws chosen beforehand must be found again, and hold far outside the rows they were found in."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor

Floats = NDArray[np.float64]
Law = Callable[[Floats], Floats]

_EIGHTFOLD = np.array([8.0, 1.0, 1.0])


def _power(X: Floats) -> Floats:
    return 0.02 * X[:, 0] ** 1.5


def _start_and_product(X: Floats) -> Floats:
    return 4 + 0.003 * X[:, 0] * X[:, 1]


def _amdahl(X: Floats) -> Floats:
    return 2 + 0.5 * X[:, 0] + 3 * X[:, 0] / X[:, 1]


def _product_of_three(X: Floats) -> Floats:
    return 1 + 1e-4 * X[:, 0] * X[:, 1] * X[:, 2]


_LAWS: dict[str, tuple[Law, int]] = {
    "power": (_power, 1),
    "start and product": (_start_and_product, 2),
    "Amdahl": (_amdahl, 2),
    "product of three": (_product_of_three, 3),
}


def _draw_rows(columns: int, *, rows: int = 80, seed: int = 0) -> Floats:
    return np.exp(np.random.default_rng(seed).uniform(np.log(4), np.log(64), (rows, columns)))


def _noise(rows: int, sigma: float, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).lognormal(0, sigma, rows)


def _errors(model: ScalingLawRegressor, X: Floats, law: Law) -> Floats:
    return np.abs(model.predict(X) / law(X) - 1)


@pytest.mark.parametrize("name", _LAWS)
def test_law_holds_eight_times_outside(name: str) -> None:
    law, columns = _LAWS[name]
    medians = []
    for seed in range(10):
        X = _draw_rows(columns, seed=seed)
        model = ScalingLawRegressor().fit(X, law(X) * _noise(len(X), 0.02, seed))
        medians.append(np.median(_errors(model, _draw_rows(columns, seed=100 + seed) * _EIGHTFOLD[:columns], law)))
    assert np.median(medians) < 0.02
    assert np.quantile(medians, 0.9) < 0.05


@pytest.mark.parametrize("name", _LAWS)
def test_law_without_noise_is_exact(name: str) -> None:
    law, columns = _LAWS[name]
    X = _draw_rows(columns)
    assert _errors(ScalingLawRegressor().fit(X, law(X)), 8 * X, law).max() < 0.02


@pytest.mark.parametrize("name", _LAWS)
def test_one_hung_run_bends_nothing(name: str) -> None:
    law, columns = _LAWS[name]
    X = _draw_rows(columns)
    times = law(X) * _noise(len(X), 0.02)
    times[17] *= 20
    far = _draw_rows(columns, seed=2) * _EIGHTFOLD[:columns]
    assert np.median(_errors(ScalingLawRegressor().fit(X, times), far, law)) < 0.05


@given(exponent=st.floats(-2, 2.5), factor=st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_any_single_power_is_found(exponent: float, factor: float) -> None:
    x = np.geomspace(1, 50, 30)[:, None]
    model = ScalingLawRegressor().fit(x, factor * x[:, 0] ** exponent)
    for beyond in (60.0, 120.0):
        assert model.predict([[beyond]])[0] == pytest.approx(factor * beyond**exponent, rel=0.1)


@given(
    powers=st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([-1.0, -0.5, 0.5, 1.0])), seed=st.integers(0, 99)
)
@settings(max_examples=15, deadline=None, derandomize=True)  # with noise, a rare draw may mislead
def test_any_product_of_powers_is_found(powers: tuple[float, float], seed: int) -> None:
    def law(X: Floats) -> Floats:
        return np.asarray(5 * X[:, 0] ** powers[0] * X[:, 1] ** powers[1])

    X = _draw_rows(2, rows=40, seed=seed)
    model = ScalingLawRegressor().fit(X, law(X) * _noise(40, 0.01, seed))
    assert np.median(_errors(model, 8 * X, law)) < 0.05


def test_each_mark_of_a_text_has_its_own_speed() -> None:
    """Two columns of marks, as a text of two levels is encoded; each level has its own cost of a unit."""

    def law(X: Floats) -> Floats:
        return np.asarray(3 + X[:, 0] * (0.1 * X[:, 1] + 0.4 * X[:, 2]))

    size = _draw_rows(1, rows=60)[:, 0]
    mark = np.arange(60) % 2.0
    X = np.column_stack([size, mark, 1 - mark])
    model = ScalingLawRegressor().fit(X, law(X) * _noise(60, 0.01))
    assert _errors(model, X * [8, 1, 1], law).max() < 0.1


def test_irrelevant_columns_stay_out() -> None:
    X = _draw_rows(4)
    model = ScalingLawRegressor().fit(X, _start_and_product(X) * _noise(len(X), 0.05))
    assert {column for term in model.terms_ for column, _ in term} == {0, 1}


@given(seed=st.integers(0, 999), rows=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_few_and_senseless_rows_still_make_a_model(seed: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    X = draw.choice([-3.0, 0.0, 1.0, 1e-9, 1e12], (rows, 3))
    y = draw.lognormal(0, 5, rows)
    predictions = ScalingLawRegressor().fit(X, y).predict(np.vstack([X, 1e6 * X]))
    assert np.isfinite(predictions).all()
    assert (predictions > 0).all()


def test_more_of_a_cost_never_takes_less_time() -> None:
    """Coefficients are not negative: a law of rising powers rises for ever."""
    x = np.linspace(1, 10, 30)[:, None]
    model = ScalingLawRegressor().fit(x, 3 * x[:, 0] * _noise(30, 0.1))
    assert (np.diff(model.predict(np.geomspace(1, 1e6, 50)[:, None])) >= 0).all()
