"""A process finds laws again, is sure where the runs are, and says where it is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from foretell.runtimes.regressors.gaussian_process import GaussianProcessRunRegressor, _Rows
from foretell.runtimes.regressors.gaussian_process_kernel import Kernel, fit_axis

Floats = NDArray[np.float64]


def _rows(count: int = 40, *, noise: float = 0.02, seed: int = 0) -> tuple[Floats, Floats]:
    """A size over three decades, cores, and a mark; a power law of the first two, half as long with the mark."""
    draw = np.random.default_rng(seed)
    X = np.column_stack(
        [10 ** draw.uniform(0, 3, count), draw.choice([1.0, 2, 4, 8], count), draw.choice([0.0, 1], count)]
    )
    return X, _truth(X) * draw.lognormal(0, noise, count)


def _truth(X: Floats) -> Floats:
    return np.asarray(5 * X[:, 0] ** 0.7 / X[:, 1] * np.where(X[:, 2] > 0, 0.5, 1.0))


@pytest.fixture(scope="module")
def fitted() -> GaussianProcessRunRegressor:
    return GaussianProcessRunRegressor().fit(*_rows())


@pytest.mark.parametrize("projections", [0, 1, 2])
def test_gradient_of_the_covariance_is_that_of_finite_differences(projections: int) -> None:
    X, _ = _rows(12)
    kernel = Kernel(axes=tuple(fit_axis(column) for column in X.T), projections=projections)
    draw = np.random.default_rng(1)
    theta = kernel.prior()[0] + draw.normal(0, 0.5, len(kernel.names))
    pairs = kernel.own_pairs(kernel.read(X))
    covariance, gradient = kernel.with_gradient(pairs, theta)
    weight = draw.normal(size=len(covariance))

    def weigh(at: npt.NDArray[np.float64]) -> float:
        return float(kernel.with_gradient(pairs, at)[0] @ weight)

    measured = approx_fprime(theta, weigh, 1e-6)
    np.testing.assert_allclose(gradient.contract(weight), measured, rtol=1e-3, atol=1e-4)


def test_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    """What the search follows, repeated configurations and unequal weights included."""
    seen: list[tuple[Any, ...]] = []

    class _Watched(GaussianProcessRunRegressor):
        def _search(self, kernel: Kernel) -> Any:
            search = super()._search(kernel)
            seen.append((search, kernel))
            return search

    X, y = _rows(15)
    model = _Watched(steps=2).fit(np.vstack([X, X[:3]]), np.append(y, 1.1 * y[:3]))
    for search, kernel in seen:
        rows = _Rows(X=X[:, model.columns_], target=np.log(y) - np.log(y).mean(), weight=np.linspace(0.5, 2, 15))
        pairs = kernel.own_pairs(kernel.read(rows.X))
        theta = search.start(rows)
        _, slope = search._loss(theta, pairs, rows)
        measured = approx_fprime(theta, _first_of(search._loss), 1e-6, pairs, rows)
        np.testing.assert_allclose(slope, measured, rtol=1e-3, atol=1e-3)


def _first_of(function: Callable[..., tuple[float, Any]]) -> Callable[..., float]:
    return lambda *arguments: function(*arguments)[0]


def test_covariance_of_a_row_with_itself_is_its_variance() -> None:
    X, _ = _rows(10)
    kernel = Kernel(axes=tuple(fit_axis(column) for column in X.T), projections=1)
    theta, Z = kernel.prior()[0], kernel.read(X)
    np.testing.assert_allclose(np.diag(kernel.covariance(Z, Z, theta)), kernel.variance(Z, theta))


@pytest.mark.parametrize(
    ("values", "log"),
    [([1.0, 10, 100], True), ([100.0, 110, 120], False), ([0.0, 1, 100], True), ([-1.0, 1, 100], False)],
)
def test_positive_columns_of_many_magnitudes_are_read_in_logs(values: list[float], log: bool) -> None:
    assert fit_axis(np.array(values * 4)).log == log


def test_power_law_continues_outside_the_rows(fitted: GaussianProcessRunRegressor) -> None:
    far = np.array([[1e4, 4.0, 0.0], [1e4, 16.0, 1.0]])
    np.testing.assert_allclose(fitted.predict(far), _truth(far), rtol=0.3)


def test_unseen_rows_are_near(fitted: GaussianProcessRunRegressor) -> None:
    X, _ = _rows(100, seed=9)
    assert np.median(np.abs(fitted.predict(X) / _truth(X) - 1)) < 0.03


def test_deviation_grows_outside_the_rows_and_is_least_near_them(fitted: GaussianProcessRunRegressor) -> None:
    X, _ = _rows()
    at_rows = fitted.spread(X)
    distances = fitted.spread(np.array([[size, 4.0, 0.0] for size in (1e3, 1e4, 1e6, 1e9)]))
    assert (np.diff(distances) > 0).all()
    assert np.median(at_rows) < distances[1]


def test_deviation_inside_is_about_the_noise() -> None:
    """A new run strays by the noise however well the law is known."""
    quiet, loud = (GaussianProcessRunRegressor().fit(*_rows(80, noise=noise)) for noise in (0.01, 0.2))
    X, _ = _rows(40, seed=5)
    assert 0.005 < np.median(quiet.spread(X)) < 0.03
    assert 0.1 < np.median(loud.spread(X)) < 0.4


def test_rows_without_noise_leave_a_small_deviation() -> None:
    """Else deviations outside would be divided by nearly nothing."""
    X, _ = _rows()
    assert GaussianProcessRunRegressor().fit(X, _truth(X)).spread(X).min() >= 0.005


def test_a_run_near_the_question_narrows_it_most(fitted: GaussianProcessRunRegressor) -> None:
    question = np.array([[5e4, 2.0, 0.0]])
    options = np.array([[4e4, 2.0, 0.0], [2e3, 2.0, 0.0], [20.0, 8.0, 1.0]])
    gains = fitted.narrowing(question, options)
    assert gains[0] > gains[1] > gains[2] >= 0
    assert gains[0] < fitted.spread(question)[0] ** 2  # nothing is taken away that was not there


def test_narrowing_is_what_a_run_there_does() -> None:
    """It predicts by how much the variance falls when the row is added, with the same hyperparameters."""
    model = GaussianProcessRunRegressor(projections=(0,)).fit(*_rows(20))
    question, option = np.array([[2e4, 2.0, 0.0]]), np.array([[1.5e4, 2.0, 0.0]])
    (process,) = model.processes_
    kernel, theta = process.kernel, process.theta
    rows, asked, added = process.rows, kernel.read(question), kernel.read(option)

    def variance(seen: Floats, noise: Floats) -> float:
        observed = kernel.covariance(seen, seen, theta[:-1]) + 1 + np.diag(noise)
        shared = kernel.covariance(asked, seen, theta[:-1])[0] + 1
        return float(kernel.variance(asked, theta[:-1])[0] + 1 - shared @ np.linalg.solve(observed, shared))

    noise = np.diag(np.linalg.inv(process.whitening.T @ process.whitening)) - kernel.variance(rows, theta[:-1]) - 1
    fall = variance(rows, noise) - variance(np.vstack([rows, added]), np.append(noise, np.exp(2 * theta[-1])))
    assert model.narrowing(question, option)[0] == pytest.approx(fall * model.scale_**2, rel=1e-6)


def test_one_wild_run_does_not_bend_the_rest() -> None:
    X, y = _rows()
    spoilt = y.copy()
    spoilt[7] *= 30  # hung, and came to itself again
    others = np.arange(len(y)) != 7
    plain, wild = GaussianProcessRunRegressor().fit(X[others], y[others]), GaussianProcessRunRegressor().fit(X, spoilt)
    fresh, _ = _rows(60, seed=3)
    assert np.median(np.abs(np.log(wild.predict(fresh) / plain.predict(fresh)))) < 0.05


def test_repeated_configurations_count_as_one_row_of_their_mean() -> None:
    X, y = _rows(20)
    twice = GaussianProcessRunRegressor().fit(np.vstack([X, X]), np.append(y * 1.1, y / 1.1))
    once = GaussianProcessRunRegressor().fit(X, y)
    np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=0.02)


def test_like_saves_the_search_and_predicts_nearly_the_same() -> None:
    X, y = _rows(120)
    whole = GaussianProcessRunRegressor(search_rows=50).fit(X, y)
    part = np.arange(120) % 10 > 0  # more than twice as many as are searched by
    anew = GaussianProcessRunRegressor(search_rows=50).fit(X[part], y[part])
    alike = GaussianProcessRunRegressor(search_rows=50).fit(X[part], y[part], like=whole)
    assert alike.processes_[0].kernel is whole.processes_[0].kernel
    np.testing.assert_allclose(alike.predict(X[~part]), anew.predict(X[~part]), rtol=0.05)


def test_of_few_rows_each_has_a_say_and_nothing_is_taken_over() -> None:
    X, y = _rows(30)
    whole = GaussianProcessRunRegressor().fit(X, y)
    part = np.arange(30) > 2
    alike = GaussianProcessRunRegressor().fit(X[part], y[part], like=whole)
    np.testing.assert_array_equal(alike.predict(X), GaussianProcessRunRegressor().fit(X[part], y[part]).predict(X))


def test_of_many_rows_some_are_enough() -> None:
    X, y = _rows(300)
    thinned = GaussianProcessRunRegressor(most_rows=80, search_rows=40).fit(X, y)
    assert len(thinned.processes_[0].rows) == 80
    assert np.median(np.abs(thinned.predict(X) / _truth(X) - 1)) < 0.05
