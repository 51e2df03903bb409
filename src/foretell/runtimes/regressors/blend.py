"""Several models as one."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from foretell.core.model_files import read_number
from foretell.runtimes.regressors._base import Floats, RunRegressor, State

_PRIOR_ROWS = 4.0  # how many rows it takes to move the weights halfway from what the members' errors alone suggest
_LEAST_WEIGHT = 0.02  # a member with less than this says nothing
_TOGETHER = 1e3  # weights sum to one as firmly as this


class BlendRunRegressor(RunRegressor):
    """The weighted geometric mean of models that were fitted already."""

    complexity = 9

    def __init__(self, members: Sequence[RunRegressor] = (), weights: Sequence[float] = ()) -> None:
        self.members = members
        self.weights = weights

    @classmethod
    def of(cls, members: Sequence[RunRegressor], weights: Sequence[float]) -> Self:
        """A blend that is ready to predict."""
        blend = cls(members=members, weights=weights)
        blend.members_ = list(members)
        blend.n_features_in_ = members[0].n_features_in_
        return blend

    def _fit(self, X: Floats, y: Floats, weight: Floats) -> None:
        from sklearn.base import clone

        self.members_ = [clone(member).fit(X, y, weight) for member in self.members]

    def _predict(self, X: Floats) -> Any:
        logs = [weight * np.log(member.predict(X)) for weight, member in zip(self.weights, self.members_, strict=True)]
        return np.exp(np.sum(logs, axis=0))

    def to_state(self) -> State:
        return State(values={"weights": list(self.weights)}, parts=tuple(self.members_))

    @classmethod
    def from_state(cls, state: State, *, columns: int) -> Self:
        weights = [read_number(weight) for weight in state.values["weights"]]
        if not weights or len(weights) != len(state.parts):
            raise ValueError(f"a blend of {len(state.parts)} models with {len(weights)} weights")
        for member in state.parts:
            # A blend of blends of blends would be one small file and endless work.
            if isinstance(member, cls) or member.n_features_in_ != columns:
                raise ValueError(f"a blend with a {type(member).__name__} of {member.n_features_in_} columns")
        return cls.of(state.parts, weights)


def build_blend(models: Sequence[RunRegressor], weights: Floats) -> BlendRunRegressor:
    """A blend of fitted models, without those of hardly any weight."""
    kept = np.flatnonzero(weights >= min(_LEAST_WEIGHT, weights.max()))
    return BlendRunRegressor.of([models[int(place)] for place in kept], (weights[kept] / weights[kept].sum()).tolist())


def weigh_by_error(log_errors: Floats) -> Floats:
    """Weights of members (columns): the inverse of each one's own squared error."""
    squares = np.maximum(np.mean(log_errors**2, axis=0), 1e-12)
    return np.asarray((1 / squares) / np.sum(1 / squares))


def weigh_members(log_errors: Floats) -> Floats:
    """Weights of least squared log error for members (columns) over rows; none negative, together one.

    With few rows they stay near the inverse of each member's own squared error.
    """
    from scipy.optimize import nnls

    squares, believed = np.maximum(np.mean(log_errors**2, axis=0), 1e-12), weigh_by_error(log_errors)
    firmness = np.sqrt(_PRIOR_ROWS * squares.min())
    count = log_errors.shape[1]
    design = np.vstack([log_errors, firmness * np.eye(count), np.full((1, count), _TOGETHER)])
    weights, _ = nnls(design, np.concatenate([np.zeros(len(log_errors)), firmness * believed, [_TOGETHER]]))
    return np.asarray(weights / weights.sum())
