"""One power law: a straight line in logarithms."""

import math
from typing import Any, Self

import numpy as np

from foretell.core.model_files import check_numbers, read_number
from foretell.runtimes.regressors._base import SMALLEST, Floats, RunRegressor, State

_RIDGE = 1e-3  # keeps columns apart that always changed together
_STEEPEST = 3.0
_LARGEST_LOG = 690.0
_ARRAYS = ("low", "high", "centre", "scale", "slopes")


class PowerRunRegressor(RunRegressor):
    """``y = c * x1**p1 * x2**p2 …``; columns that may be zero or negative enter as ``exp(p * x)``.

    Beyond their range these grow as a power, too.
    """

    complexity = 1.7
    least_to_win_ties = math.inf  # what adds up or bends must not be lost to a tie

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        self.low_, self.high_ = X.min(axis=0), X.max(axis=0)
        read = self._read(X)
        self.centre_ = np.average(read, axis=0, weights=weight)
        self.scale_ = np.maximum(np.sqrt(np.average((read - self.centre_) ** 2, axis=0, weights=weight)), SMALLEST)
        root = np.sqrt(weight)
        design = np.column_stack([np.ones(len(X)), (read - self.centre_) / self.scale_]) * root[:, None]
        ridge = np.sqrt(_RIDGE * len(X)) * np.eye(design.shape[1])[1:]
        target = np.append(np.log(np.maximum(y, SMALLEST)) * root, np.zeros(len(ridge)))
        solution = np.linalg.lstsq(np.vstack([design, ridge]), target, rcond=None)[0]
        steepest = np.where(self.low_ > 0, _STEEPEST * self.scale_, np.inf)
        self.level_, self.slopes_ = float(solution[0]), np.clip(solution[1:], -steepest, steepest)

    def _read(self, X: Floats) -> Floats:
        positive = self.low_ > 0
        span = np.maximum(self.high_ - self.low_, SMALLEST)
        near = np.clip(X, self.low_, self.high_)
        bent = near + np.sign(X - near) * span * np.log1p(np.abs(X - near) / span)
        return np.where(positive, np.log(np.where(positive, np.maximum(X, self.low_ * 1e-3), 1.0)), bent)

    def _predict(self, X: Floats) -> Any:
        logs = self.level_ + (self._read(X) - self.centre_) / self.scale_ @ self.slopes_
        return np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))

    def to_state(self) -> State:
        arrays = {name: getattr(self, f"{name}_") for name in _ARRAYS}
        return State(values={"level": self.level_}, arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        model = cls._start(columns)
        for name in _ARRAYS:
            setattr(model, f"{name}_", check_numbers(state.arrays[name], shape=(columns,), finite=False))
        model.level_ = read_number(state.values["level"])
        return model
