"""The same value for every configuration."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from foretell.runtimes.regressors._base import RunRegressor, weighted_median


class ConstantRunRegressor(RunRegressor):
    """The median of the runs: what is left where the columns carry no information."""

    complexity = 0.5
    least_to_win_ties = 40  # with few runs everything ties; a real effect must not be lost to that

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it explains nothing, on purpose
        return tags

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.value_ = weighted_median(y, weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return np.full(len(X), self.value_)
