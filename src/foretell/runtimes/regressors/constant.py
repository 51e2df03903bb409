"""The same value for every configuration."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from foretell.core.model_files import read_number
from foretell.runtimes.regressors._base import Floats, RunRegressor, State, weighted_median

if TYPE_CHECKING:
    from sklearn.utils import Tags


class ConstantRunRegressor(RunRegressor):
    """The median of the runs: what is left where the columns carry no information."""

    complexity = 0.5
    least_to_win_ties = 40  # with few runs everything ties; a real effect must not be lost to that

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it explains nothing, on purpose
        return tags

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.value_ = weighted_median(y, weight)

    def _predict(self, X: Floats) -> Any:
        return np.full(len(X), self.value_)

    def to_state(self) -> State:
        return State(values={"value": self.value_})

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        model.value_ = read_number(state.values["value"])
        return model
