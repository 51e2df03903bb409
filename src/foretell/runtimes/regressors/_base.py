"""What every model of runs promises."""

import abc
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

Floats: TypeAlias = NDArray[np.float64]

_MANY_ROWS = 1000
SMALLEST = 1e-9
LARGEST = 1e300


class RunRegressor(RegressorMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn regressor of a positive quantity.

    **Same data, same model.** Seeds are fixed: fitting twice gives the same predictions.
    **Predictions are positive and finite**, also far outside the rows it learned from.
    **Weights.** ``sample_weight`` counts rows; a row of weight 0 might as well be absent.
    **Simplicity.** Of two that do equally well, the one of lower ``complexity`` is taken, but for one that needs more
    judged rows for that (``least_to_win_ties``).
    **Likeness.** ``like`` is one fitted to nearly the same rows: what is slow to find may be taken over from it, where
    the rows are so many that the missing ones had no say in it.
    """

    complexity: float = 0
    least_to_win_ties: float = 0

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, like: Self | None = None
    ) -> Self:
        matrix, target = validate_data(self, X, y, y_numeric=True, dtype=float)
        weight = np.ones(len(target)) if sample_weight is None else column_or_1d(sample_weight, dtype=float)
        check_consistent_length(target, weight)
        counts = weight > 0
        if not counts.any():
            raise ValueError("sample_weight is zero for every row; at least one row must count")
        rows = matrix[counts], target[counts], weight[counts] / weight[counts].mean()
        if like is None:
            self._fit(*rows)
        else:
            self._fit_like(like, *rows)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        matrix = validate_data(self, X, reset=False, dtype=float)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = np.asarray(self._predict(matrix), dtype=float)
        return np.asarray(np.nan_to_num(np.maximum(raw, SMALLEST), nan=SMALLEST, posinf=LARGEST))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @abc.abstractmethod
    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None: ...

    def _fit_like(
        self, like: Self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> None:
        self._fit(X, y, weight)

    @abc.abstractmethod
    def _predict(self, X: NDArray[np.float64]) -> Any: ...


def once_each(answer: Callable[[Floats], Floats], X: Floats) -> Floats:
    """The answers for rows, each different row asked once: among many pairs of jobs and places few are different."""
    if len(X) < _MANY_ROWS:
        return answer(X)
    marks = np.random.default_rng(0).normal(size=X.shape[1])
    keys = (X / np.maximum(np.abs(X).max(axis=0), SMALLEST)) @ marks
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    return answer(X[first])[back]


def weighted_median(values: Floats, weight: Floats) -> float:
    """The value that half of the weight lies at or below."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(reached, reached[-1] / 2)]])
