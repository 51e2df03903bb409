"""Masks of leaves find what walking through the trees finds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.core import array_trees
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


def predict_many(trees: ArrayTrees, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By masks, where there are some."""
    with monkeypatch.context() as patch:
        patch.setattr(array_trees, "_MANY_ROWS", 0)
        return trees.predict(draw_rows()).tolist()


def test_masks_find_the_leaves_of_walking(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TWO._masks is not None
    found = predict_many(TWO, monkeypatch)
    assert found == replace(TWO).predict(draw_rows()).tolist()
    assert set(found) == {111.0, 121.0, 112.0, 114.0, 124.0}


def test_masks_serve_what_is_predicted_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_trees, "_MANY_ROWS", 3 * len(draw_rows()))
    trees = replace(TWO)
    prepared = []
    for _ in range(4):
        trees.predict(draw_rows())
        prepared.append("_masks" in vars(trees))
    assert prepared == [False, False, True, True]


def test_trees_of_one_leaf_have_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    none = np.array([0, 1])
    trees = replace(
        TWO, roots=none, feature=none * 0, threshold=none + np.inf, left=none, right=none, value=none + 1.0, depth=0
    )
    assert trees._masks is not None
    assert predict_many(trees, monkeypatch) == [103.0] * len(draw_rows())


@pytest.mark.parametrize(
    "changed",
    [
        {"right": np.array([2, 1, 3, 3, 4, 7, 6, 7])},  # a leaf below both sides of a node, and one below none
        {"right": np.array([2, 1, 7, 3, 4, 4, 6, 7])},  # leaves of the other tree
        {"roots": np.array([5, 0])},
    ],
    ids=["shared", "crossed", "order"],
)
def test_other_trees_are_walked_through(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    trees = replace(TWO, **changed)
    assert trees._masks is None
    assert predict_many(trees, monkeypatch) == trees.predict(draw_rows()).tolist()
