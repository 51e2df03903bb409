"""One power law: a straight line in logarithms."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.runtimes.regressors._base import SMALLEST, RunRegressor

_RIDGE = 1e-3  # keeps columns apart that always changed together
_STEEPEST = 3.0
_LARGEST_LOG = 690.0


class PowerRunRegressor(RunRegressor):
    """``y = c * x1**p1 * x2**p2 …``; columns that may be zero or negative enter as ``exp(p * x)``.

    Beyond their range these grow as a power, too.
    """

    complexity = 1.7
    least_to_win_ties = math.inf  # what adds up or bends must not be lost to a tie

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
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

    def _read(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        positive = self.low_ > 0
        span = np.maximum(self.high_ - self.low_, SMALLEST)
        near = np.clip(X, self.low_, self.high_)
        bent = near + np.sign(X - near) * span * np.log1p(np.abs(X - near) / span)
        return np.where(positive, np.log(np.where(positive, np.maximum(X, self.low_ * 1e-3), 1.0)), bent)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        logs = self.level_ + (self._read(X) - self.centre_) / self.scale_ @ self.slopes_
        return np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))
