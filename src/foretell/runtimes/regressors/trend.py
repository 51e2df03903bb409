"""A scaling law for the trend, boosted trees for the rest."""

from typing import Any, Self

import numpy as np

from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State, check_part
from foretell.runtimes.regressors.boosting import BoostingRunRegressor
from foretell.runtimes.regressors.scaling_law import ScalingLawRegressor

_TREES, _RATE = 100, 0.1  # half as many trees as without a law, which explains most of it


class TrendRunRegressor(RunRegressor):
    """Trees fit what the law leaves over, as a ratio: steps inside the runs, and the law's growth outside them."""

    complexity = 6

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit_rest(ScalingLawRegressor().fit(X, y, weight), X, y, weight)

    def _fit_like(self, like: Self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit_rest(ScalingLawRegressor().fit(X, y, weight, like=like.law_), X, y, weight)

    def _fit_rest(self, law: ScalingLawRegressor, X: Floats, y: Floats, weight: Floats) -> None:
        self.law_ = law
        self.rest_ = BoostingRunRegressor(trees=_TREES, learning_rate=_RATE).fit(
            X, np.maximum(y, SMALLEST) / law.predict(X), weight
        )

    def _predict(self, X: Floats) -> Any:
        return self.law_.predict(X) * self.rest_.predict(X)

    def to_state(self) -> State:
        return State(parts=(self.law_, self.rest_))

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        law, rest = state.parts
        check_part(law, ScalingLawRegressor, columns=columns)
        check_part(rest, BoostingRunRegressor, columns=columns)
        model = cls._start(columns)
        model.law_, model.rest_ = law, rest  # type: ignore[assignment]  # checked above
        return model
