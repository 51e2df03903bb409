"""Boosted trees for times of operators."""

import numpy as np

from foretell.core.array_trees import ArrayTrees
from foretell.core.workload import Floats

_SETTINGS = {
    "max_iter": 300,
    "learning_rate": 0.07,
    "max_leaf_nodes": 31,
    "min_samples_leaf": 8,
    "l2_regularization": 1.0,
    "max_features": 0.4,  # each split considers some columns only: no single one decides for unknown kinds
}


def fit_trees(X: Floats, y: Floats, weights: Floats | None = None, *, seed: int = 0) -> ArrayTrees:
    """Trees fitted by scikit-learn, as arrays."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    few = len(y) < 20 * _SETTINGS["min_samples_leaf"]
    model = HistGradientBoostingRegressor(
        **(_SETTINGS | {"min_samples_leaf": 2, "max_iter": 60} if few else _SETTINGS),
        early_stopping=False,
        random_state=seed,
    ).fit(X, y, sample_weight=weights)
    trees = ArrayTrees.from_boosting(model, dtype=np.float32)
    check = X[:: max(1, len(X) // 64)]
    assert np.allclose(trees.predict(check), model.predict(check), atol=1e-3), (
        "this version of scikit-learn stores its trees in another way"
    )
    return trees
