"""HARP's DTR: a decision tree."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

from foretell.models.runs._base import RunRegressor


class TreeRunRegressor(RunRegressor):
    """One decision tree, bounded so that a large history does not make a large model."""

    complexity = 3

    def __init__(self, max_leaf_nodes: int = 1024, seed: int = 0) -> None:
        self.max_leaf_nodes = max_leaf_nodes
        self.seed = seed

    def _fit(self, X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        tree = DecisionTreeRegressor(max_leaf_nodes=self.max_leaf_nodes, random_state=self.seed)
        self.model_ = tree.fit(X, y, sample_weight=weight)

    def _predict(self, X: NDArray[np.float64]) -> Any:
        return self.model_.predict(X)
