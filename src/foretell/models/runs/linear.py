"""HARP's MLR: multiple linear regression."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from foretell.models.runs._base import RunRegressor


class LinearRunRegressor(RunRegressor):
    """A straight line through standardised columns, with the least ridge that keeps it solvable."""

    complexity = 1

    def __init__(self, ridge: float = 1e-6) -> None:
        self.ridge = ridge

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.scaler_ = StandardScaler().fit(X, sample_weight=weight)
        self.model_ = Ridge(alpha=self.ridge).fit(self.scaler_.transform(X), y, sample_weight=weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(self.scaler_.transform(X))
