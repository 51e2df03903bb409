"""Gradient boosting on the logarithm of the target."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.runtimes.regressors._base import SMALLEST, RunRegressor

_MANY_ROWS = 500


class BoostingRunRegressor(RunRegressor):
    """Boosted trees on log(target): errors count as ratios, so a short run matters as much as a long one."""

    complexity = 5

    def __init__(self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 4, seed: int = 0) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.seed = seed

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        share = 1.0 if len(y) >= _MANY_ROWS else 0.5  # fewer and bolder trees for few rows: as good, and quick
        model = HistGradientBoostingRegressor(
            max_iter=max(1, round(self.trees * share)),
            learning_rate=self.learning_rate / share,
            min_samples_leaf=self.min_leaf,
            early_stopping=False,
            random_state=self.seed,
        )
        even = bool(np.ptp(weight) == 0)  # weights that say nothing make it several times as slow
        self.model_ = model.fit(X, np.log(np.maximum(y, SMALLEST)), sample_weight=None if even else weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return np.exp(self.model_.predict(X))
