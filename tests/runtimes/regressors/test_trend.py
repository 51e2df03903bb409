"""A law outside the rows, steps inside them."""

import numpy as np
from numpy.typing import NDArray

from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor
from foretell.runtimes.regressors.trend import TrendRunRegressor

Floats = NDArray[np.float64]


def _rows(count: int = 200, *, seed: int = 0) -> tuple[Floats, Floats]:
    """In proportion to a size; one of six kinds of input, in no order, takes twice to five times as long."""
    draw = np.random.default_rng(seed)
    X = np.column_stack([draw.uniform(1, 100, count), draw.integers(0, 6, count).astype(float)])
    return X, _truth(X)


def _truth(X: Floats) -> Floats:
    return np.asarray(X[:, 0] * np.array([1.0, 4, 2, 5, 1, 3])[X[:, 1].astype(int)])


def _error(model: TrendRunRegressor | BoostingRunRegressor | ScalingLawRegressor, X: Floats) -> float:
    return float(np.median(np.abs(np.log(model.predict(X) / _truth(X)))))


def test_inside_it_follows_steps_that_no_law_has() -> None:
    X, y = _rows()
    fresh, _ = _rows(100, seed=1)
    assert _error(TrendRunRegressor().fit(X, y), fresh) < 0.5 * _error(ScalingLawRegressor().fit(X, y), fresh)


def test_outside_it_grows_on_where_trees_stand_still() -> None:
    X, y = _rows()
    far, _ = _rows(100, seed=1)
    far[:, 0] *= 20
    assert _error(TrendRunRegressor().fit(X, y), far) < 0.5 * _error(BoostingRunRegressor().fit(X, y), far)


def test_like_takes_over_the_form_of_the_law() -> None:
    X, y = _rows(400)
    part = np.arange(400) % 10 > 0
    whole = TrendRunRegressor().fit(X, y)
    alike, anew = TrendRunRegressor().fit(X[part], y[part], like=whole), TrendRunRegressor().fit(X[part], y[part])
    assert alike.law_.terms_ == whole.law_.terms_
    np.testing.assert_allclose(alike.predict(X[~part]), anew.predict(X[~part]), rtol=0.1)
