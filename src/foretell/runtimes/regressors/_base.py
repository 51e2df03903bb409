"""What every regressor of runs promises."""

import abc
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from sklearn.utils import Tags

Floats: TypeAlias = NDArray[np.float64]

_MANY_ROWS = 1000
SMALLEST = 1e-9
LARGEST = 1e300


class RunRegressor(abc.ABC):
    """A regressor of a positive quantity, with the interface of scikit-learn's.

    **Same data, same model.** Seeds are fixed: fitting twice gives the same predictions.
    **Predictions are positive and finite**, also far outside the rows it was fitted to.
    **Predicting needs numpy alone.** scikit-learn and scipy are imported by ``fit``. What is learned is kept as
    numbers, arrays and other regressors, which :meth:`to_state` lists and :meth:`from_state` checks.
    **Weights.** ``sample_weight`` counts rows; a row of weight 0 might as well be absent.
    **Simplicity.** Of two that do equally well, the one of lower ``complexity`` is selected. One with
    ``least_to_win_ties`` wins such ties only with that many judged rows.
    **Similar fits.** ``like`` was fitted to nearly the same rows. What is slow to find may be reused from it where
    there are so many rows that the difference does not matter.
    """

    complexity: float = 0
    least_to_win_ties: float = 0
    n_features_in_: int

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, like: Self | None = None
    ) -> Self:
        from sklearn.utils import column_or_1d
        from sklearn.utils.validation import check_consistent_length, validate_data

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

    def predict(self, X: ArrayLike) -> Floats:
        matrix = X if self._is_plain(X) else self._validate(X)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = np.asarray(self._predict(np.asarray(matrix)), dtype=float)
        return np.asarray(np.nan_to_num(np.maximum(raw, SMALLEST), nan=SMALLEST, posinf=LARGEST))

    def _is_plain(self, X: ArrayLike) -> bool:
        """Whether it is a matrix of finite numbers with as many columns as there were to fit to."""
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == getattr(self, "n_features_in_", None)
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all())
        )

    def _validate(self, X: ArrayLike) -> Floats:
        """Whatever is not plain: scikit-learn converts it, or its error says what is wrong."""
        from sklearn.utils.validation import check_is_fitted, validate_data

        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=float))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The coefficient of determination, as of every regressor of scikit-learn."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        parameters = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in parameters}

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r} for {type(self).__name__}. Known: {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({values})"

    def __sklearn_tags__(self) -> "Tags":
        from sklearn.utils import RegressorTags, Tags, TargetTags

        target = TargetTags(required=True, positive_only=True)
        return Tags(estimator_type="regressor", target_tags=target, regressor_tags=RegressorTags())

    @abc.abstractmethod
    def to_state(self) -> "State":
        """What was learned."""

    @classmethod
    @abc.abstractmethod
    def from_state(cls, state: "State", *, columns: int) -> Self:
        """The fitted regressor that :meth:`to_state` took apart.

        Somebody else may have written the state: it is checked that predicting neither reads outside the arrays nor
        takes forever.

        Raises:
            ValueError, TypeError, LookupError: The state is not usable.
        """

    @classmethod
    def _start(cls, columns: int) -> Self:
        """A regressor that :meth:`from_state` completes."""
        model = cls()
        model.n_features_in_ = columns
        return model

    @abc.abstractmethod
    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None: ...

    def _fit_like(self, like: Self, X: Floats, y: Floats, weight: Floats) -> None:
        self._fit(X, y, weight)

    @abc.abstractmethod
    def _predict(self, X: Floats) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A fitted regressor taken apart: JSON values, arrays, and regressors that are part of it."""

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    parts: tuple[RunRegressor, ...] = ()


def check_part(part: RunRegressor, expected: type[RunRegressor], *, columns: int) -> None:
    """Check that a part is a regressor of this type for that many columns.

    Raises:
        TypeError, ValueError: It is not.
    """
    if type(part) is not expected:
        raise TypeError(f"a {type(part).__name__} instead of a {expected.__name__}")
    if part.n_features_in_ != columns:
        raise ValueError(f"a {expected.__name__} of {part.n_features_in_} columns instead of {columns}")


def predict_distinct(predict: Callable[[Floats], Floats], X: Floats) -> Floats:
    """The predictions for rows, each distinct row predicted once: among many pairs of jobs and options few differ."""
    if len(X) < _MANY_ROWS:
        return predict(X)
    marks = np.random.default_rng(0).normal(size=X.shape[1])
    keys = (X / np.maximum(np.abs(X).max(axis=0), SMALLEST)) @ marks
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    return predict(X[first])[back]


def weighted_median(values: Floats, weight: Floats) -> float:
    """The value that half of the weight lies at or below."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(reached, reached[-1] / 2)]])
