"""Masks of leaves find what walking through the trees finds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.core.array_trees import ArrayTrees

TWO = ArrayTrees(  # a tree of three leaves, and one of two
    roots=np.array([0, 5]),
    feature=np.array([0, 0, 1, 0, 0, 1, 0, 0]),
    threshold=np.array([1.0, np.inf, 2.0, np.inf, np.inf, 2.5, np.inf, np.inf]),
    left=np.array([1, 1, 3, 3, 4, 6, 6, 7]),
    right=np.array([2, 1, 4, 3, 4, 7, 6, 7]),
    value=np.array([0.0, 1.0, 0.0, 2.0, 4.0, 0.0, 10.0, 20.0]),
    baseline=100.0,
    depth=2,
)


def draw_rows() -> NDArray[np.float64]:
    """Values on thresholds, beside them, and none."""
    known = [-np.inf, 0.0, 1.0, np.nextafter(1.0, 2.0), 2.0, 2.25, 2.5, 3.0, np.inf, np.nan]
    return np.array([(first, second) for first in known for second in known])


def predict_each(trees: ArrayTrees, X: NDArray[np.float64]) -> list[float]:
    """Single rows walk through the trees."""
    return [float(trees.predict(row[None])[0]) for row in X]


def test_masks_find_the_leaves_of_walking() -> None:
    X = draw_rows()
    assert TWO._masks is not None
    assert TWO.predict(X).tolist() == predict_each(TWO, X)
    assert set(TWO.predict(X).tolist()) == {111.0, 121.0, 112.0, 114.0, 124.0}


def test_trees_of_one_leaf_have_its_value() -> None:
    none = np.array([0, 1])
    trees = replace(
        TWO, roots=none, feature=none * 0, threshold=none + np.inf, left=none, right=none, value=none + 1.0, depth=0
    )
    assert trees._masks is not None
    assert trees.predict(draw_rows()).tolist() == [103.0] * len(draw_rows())


@pytest.mark.parametrize(
    "changed",
    [
        {"right": np.array([2, 1, 3, 3, 4, 7, 6, 7])},  # a leaf below both sides of a node, and one below none
        {"right": np.array([2, 1, 7, 3, 4, 4, 6, 7])},  # leaves of the other tree
        {"roots": np.array([5, 0])},
    ],
    ids=["shared", "crossed", "order"],
)
def test_other_trees_are_walked_through(changed: dict[str, Any]) -> None:
    trees = replace(TWO, **changed)
    assert trees._masks is None
    assert trees.predict(draw_rows()).tolist() == predict_each(trees, draw_rows())
