"""A scaling law for the trend, boosted trees for the rest."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.runtimes.regressors._base import SMALLEST, RunRegressor
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor

_TREES, _RATE = 100, 0.1  # half as many as without a law: it has said the most of it


class TrendRunRegressor(RunRegressor):
    """Trees learn what the law leaves over, as a ratio: steps inside the runs, and the law's growth outside them."""

    complexity = 6

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self._fit_rest(ScalingLawRegressor().fit(X, y, weight), X, y, weight)

    def _fit_like(
        self, like: Self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> None:
        self._fit_rest(ScalingLawRegressor().fit(X, y, weight, like=like.law_), X, y, weight)

    def _fit_rest(
        self,
        law: ScalingLawRegressor,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> None:
        self.law_ = law
        self.rest_ = BoostingRunRegressor(trees=_TREES, learning_rate=_RATE).fit(
            X, np.maximum(y, SMALLEST) / law.predict(X), weight
        )

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.law_.predict(X) * self.rest_.predict(X)
