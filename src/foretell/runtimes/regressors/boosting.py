"""Gradient boosting on the logarithm of the target."""

from typing import Any, Self

import numpy as np

from foretell.core.array_trees import ArrayTrees
from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State, predict_distinct

_MANY_ROWS = 500


class BoostingRunRegressor(RunRegressor):
    """Boosted trees on log(target): errors count as ratios, so a short run matters as much as a long one."""

    complexity = 5

    def __init__(self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 4, seed: int = 0) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.seed = seed

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor

        share = 1.0 if len(y) >= _MANY_ROWS else 0.5  # for few rows half as many trees at twice the rate do as well
        model = HistGradientBoostingRegressor(
            max_iter=max(1, round(self.trees * share)),
            learning_rate=self.learning_rate / share,
            min_samples_leaf=self.min_leaf,
            early_stopping=False,
            random_state=self.seed,
        )
        even = bool(np.ptp(weight) == 0)  # equal weights change nothing, and make it several times as slow
        model.fit(X, np.log(np.maximum(y, SMALLEST)), sample_weight=None if even else weight)
        self.trees_ = ArrayTrees.from_boosting(model)

    def _predict(self, X: Floats) -> Any:
        return np.exp(predict_distinct(self.trees_.predict, X))

    def to_state(self) -> State:
        return State(arrays=self.trees_.to_arrays())

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.trees_ = ArrayTrees.from_arrays(state.arrays, columns=columns)
        return model
