"""Boosted trees as plain arrays: small on disk, read in milliseconds, asked without scikit-learn."""

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import StoreError
from foretell.core.model_checks import check_nodes, check_numbers, check_whole_numbers
from foretell.core.workload import Floats

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

_SETTINGS = {
    "max_iter": 300,
    "learning_rate": 0.07,
    "max_leaf_nodes": 31,
    "min_samples_leaf": 8,
    "l2_regularization": 1.0,
    "max_features": 0.4,  # each split looks at some columns only: no single one decides for kinds never seen
}


class BoostedTrees:
    """A sum of trees, of which each row passes one path."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats, weights: Floats | None = None) -> Self:
        """Learn; returns itself."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        few = len(y) < 20 * _SETTINGS["min_samples_leaf"]
        model = HistGradientBoostingRegressor(
            **(_SETTINGS | {"min_samples_leaf": 2, "max_iter": 60} if few else _SETTINGS),
            early_stopping=False,
            random_state=self.seed,
        ).fit(X, y, sample_weight=weights)
        self._take(model)
        check = X[:: max(1, len(X) // 64)]
        assert np.allclose(self.predict(check), model.predict(check), atol=1e-3), (
            "scikit-learn keeps its trees otherwise"
        )
        return self

    def _take(self, model: Any) -> None:
        """The trees' nodes behind each other; a leaf leads to itself."""
        parts = [stage[0].nodes for stage in model._predictors]
        sizes = [len(nodes) for nodes in parts]
        self.roots_ = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        nodes = np.concatenate(parts)
        offset = np.repeat(self.roots_, sizes)
        own = np.arange(len(nodes), dtype=np.int32)
        leaf = nodes["is_leaf"].astype(bool)
        self.feature_ = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int16)
        self.threshold_ = np.where(leaf, np.inf, nodes["num_threshold"])
        self.left_ = np.where(leaf, own, nodes["left"] + offset).astype(np.int32)
        self.right_ = np.where(leaf, own, nodes["right"] + offset).astype(np.int32)
        self.value_ = np.where(leaf, nodes["value"], 0.0).astype(np.float32)
        self.baseline_ = float(np.ravel(model._baseline_prediction)[0])
        self.depth_ = max(int(part["depth"].max()) for part in parts)

    def predict(self, X: Floats) -> Floats:
        """One value a row.

        Raises:
            StoreError: if it was read from a file of somebody else's, for tables of more columns.
        """
        if self.feature_.max() >= X.shape[1]:
            raise StoreError(
                "this model of training steps asks for more columns than there are; learn the device again"
            )
        rows = np.arange(len(X))[:, None]
        at = np.broadcast_to(self.roots_, (len(X), len(self.roots_)))
        for _ in range(self.depth_):
            goes_left = X[rows, self.feature_[at]] <= self.threshold_[at]
            at = np.where(goes_left, self.left_[at], self.right_[at])
        return np.asarray(self.baseline_ + np.sum(self.value_[at], axis=1, dtype=np.float64))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned."""
        return {
            "roots": self.roots_,
            "feature": self.feature_,
            "threshold": self.threshold_,
            "left": self.left_,
            "right": self.right_,
            "value": self.value_,
            "scalars": np.array([self.baseline_, self.depth_]),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """The same trees again.

        Raises:
            ValueError: if they are no trees.
        """
        _check(arrays)
        trees = cls()
        trees.roots_, trees.feature_, trees.threshold_ = arrays["roots"], arrays["feature"], arrays["threshold"]
        trees.left_, trees.right_, trees.value_ = arrays["left"], arrays["right"], arrays["value"]
        trees.baseline_, trees.depth_ = float(arrays["scalars"][0]), int(arrays["scalars"][1])
        return trees


def _check(arrays: Arrays) -> None:
    roots, left = (check_whole_numbers(arrays[name], shape=(None,)) for name in ("roots", "left"))
    count = len(left)
    right, feature = (check_whole_numbers(arrays[name], shape=(count,)) for name in ("right", "feature"))
    check_numbers(arrays["threshold"], shape=(count,), finite=False)
    check_numbers(arrays["value"], shape=(count,))
    _baseline, depth = check_numbers(arrays["scalars"], shape=(2,))
    own = np.arange(count)
    leaf = (left == own) & (right == own)
    check_nodes(left, right, feature, leaf=leaf)
    if roots.min() < 0 or roots.max() >= count or feature.min() < 0 or not 0 <= depth <= count:
        raise ValueError("trees that begin or end outside themselves")
