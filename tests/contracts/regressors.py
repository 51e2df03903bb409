"""What every model of runs must do. Inherit, and give the fixture ``regressor``: a model that is not fitted yet."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from foretell.runtimes.predictor_files import dump_models, load_models
from foretell.runtimes.regressors import RunRegressor

Floats = NDArray[np.float64]

_FAR = (0.0, 1e-12, 1.0, 1e6, 1e30)


def build_rows(*, rows: int = 40, seed: int = 0) -> tuple[Floats, Floats]:
    """Sizes, cores and a mark, and times that follow from them with a little noise."""
    draw = np.random.default_rng(seed)
    size, cores, mark = draw.uniform(1, 100, rows), draw.choice([1.0, 2, 4, 8], rows), draw.choice([0.0, 1.0], rows)
    times = (3 + 0.5 * size / cores + 10 * mark) * draw.lognormal(0, 0.02, rows)
    return np.column_stack([size, cores, mark]), times


class RegressorContract:
    """The promises of :class:`foretell.runtimes.regressors.RunRegressor`."""

    @pytest.mark.parametrize("value", _FAR)
    def test_predictions_are_positive_and_finite_far_outside(self, regressor: RunRegressor, value: float) -> None:
        X, y = build_rows()
        predictions = regressor.fit(X, y).predict(np.vstack([np.full((1, 3), value), np.diag([value] * 3)]))
        assert np.isfinite(predictions).all()
        assert (predictions > 0).all()

    def test_same_data_makes_the_same_model(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        again = clone(regressor).fit(X, y)
        np.testing.assert_array_equal(regressor.fit(X, y).predict(X), again.predict(X))

    def test_order_of_rows_hardly_matters(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        order = np.random.default_rng(1).permutation(len(y))
        shuffled = clone(regressor).fit(X[order], y[order]).predict(X)
        assert np.median(np.abs(np.log(regressor.fit(X, y).predict(X) / shuffled))) < 0.1

    def test_row_of_weight_zero_is_absent(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        weight = np.where(np.arange(len(y)) % 4, 1.5, 0.0)
        absent = clone(regressor).fit(X[weight > 0], y[weight > 0])
        spoilt = np.where(weight > 0, y, 1e6)
        np.testing.assert_allclose(regressor.fit(X, spoilt, sample_weight=weight).predict(X), absent.predict(X))

    def test_weight_draws_the_model_near(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        twice, times = np.vstack([X, X]), np.append(y, 3 * y)
        even = clone(regressor).fit(twice, times)
        drawn = regressor.fit(twice, times, sample_weight=np.repeat([1.0, 50.0], len(y)))
        assert drawn.predict(X).mean() > 1.1 * even.predict(X).mean()

    def test_loaded_model_predicts_the_same(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        models, facts = load_models(dump_models({"elapsed_s": regressor.fit(X, y)}, facts={"rows": len(y)}))
        assert facts == {"rows": len(y)}
        np.testing.assert_array_equal(models["elapsed_s"].predict(X), regressor.predict(X))

    def test_equal_times_stay_equal(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        np.testing.assert_allclose(regressor.fit(X, np.full_like(y, 7.0)).predict(X), 7.0, rtol=1e-3)

    def test_column_that_never_varies_gives_one_value(self, regressor: RunRegressor) -> None:
        _, y = build_rows()
        constant = np.full((len(y), 1), 4.0)
        predictions = regressor.fit(constant, y).predict(constant)
        assert np.ptp(predictions) == pytest.approx(0, abs=1e-6)
        assert y.min() < predictions[0] < y.max()

    def test_rows_it_has_seen_are_explained(self, regressor: RunRegressor) -> None:
        X, y = build_rows()
        least = -1.0 if regressor.__sklearn_tags__().regressor_tags.poor_score else 0.5
        assert regressor.fit(X, y).score(X, y) > least
