"""Every model of runs is a scikit-learn regressor, and keeps our own promises."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.contracts.regressors import RegressorContract

from foretell.runtimes.regressors import REGRESSORS, RunRegressor
from foretell.runtimes.regressors.blend import BlendRunRegressor
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.gaussian_process import GaussianProcessRunRegressor
from foretell.runtimes.regressors.harp import (
    LinearRunRegressor,
    NeuralRunRegressor,
    ReducedLinearRunRegressor,
    ReducedNeuralRunRegressor,
    ReducedTreeRunRegressor,
    TreeRunRegressor,
)
from foretell.runtimes.regressors.piecewise_law import PiecewiseLawRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor
from foretell.runtimes.regressors.trend import TrendRunRegressor

pytestmark = pytest.mark.slow

# As they are used, but for what only makes the tests long.
_QUICK: dict[str, dict[str, Any]] = {
    "boosting": {"trees": 60},
    "neural": {"hidden": (16,)},
    "gaussian process": {"steps": 10},
    "blend": {"members": (LinearRunRegressor(), TreeRunRegressor()), "weights": (0.6, 0.4)},
}
_REGRESSORS = [regressor(**_QUICK.get(name, {})) for name, regressor in REGRESSORS.items()]
_REPETITION = "check_sample_weight_equivalence_on_dense_data"
_EXCEPTIONS: dict[type[RunRegressor], dict[str, str]] = {
    BoostingRunRegressor: {_REPETITION: "the least size of a leaf counts rows, not weights"},
    **{
        law: {
            _REPETITION: "how many terms a law may have depends on the number of rows, not of their weight",
            "check_regressors_train": "centred columns: a negative number has no powers, so the law leaves them out",
        }
        for law in (ScalingLawRegressor, PiecewiseLawRegressor)
    },
    GaussianProcessRunRegressor: {
        _REPETITION: "what is believed beforehand weighs less against more rows, not more weight"
    },
    BlendRunRegressor: {_REPETITION: "rounding decides between equal splits of the tree in it"},
    **{
        reduced: {_REPETITION: "principal components are those of rows, not of their weight"}
        for reduced in (ReducedLinearRunRegressor, ReducedTreeRunRegressor, ReducedNeuralRunRegressor)
    },
    TrendRunRegressor: {_REPETITION: "as the law and the trees it is made of"},
    NeuralRunRegressor: {_REPETITION: "weight decay is a share of the number of rows, not of their weight"},
}


def _list_exceptions(regressor: RunRegressor) -> dict[str, str]:
    return _EXCEPTIONS.get(type(regressor), {})


with warnings.catch_warnings():
    # They only import scikit-learn to be fitted, so they cannot inherit from its classes.
    warnings.filterwarnings("ignore", message=".*does not inherit from `sklearn.base.BaseEstimator`")
    _with_checks = parametrize_with_checks(_REGRESSORS, expected_failed_checks=_list_exceptions)


@_with_checks  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: RunRegressor, check: Callable[[RunRegressor], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("regressor", _REGRESSORS, ids=list(REGRESSORS), indirect=True)
class TestRegressors(RegressorContract):
    @pytest.fixture
    def regressor(self, request: pytest.FixtureRequest) -> RunRegressor:
        fresh: RunRegressor = clone(request.param)
        return fresh


def test_complexities_differ() -> None:
    complexities = [regressor.complexity for regressor in REGRESSORS.values()]
    assert len(set(complexities)) == len(complexities)
    assert min(complexities) > 0
