"""Whether fitted models of scikit-learn can be used: their compiled parts read whatever memory a changed one names."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import TREE_LEAF, Tree

from foretell.models.checks import check_nodes, check_numbers

_DEEPEST = 50


def check_parts(part: Any, *, features: int = 0, depth: int = 0) -> None:
    """Look through a model and all it is made of; ``features`` are the columns of the model around it.

    Raises:
        ValueError: if a number is none, or a tree leads outside itself.
    """
    if depth > _DEEPEST:
        raise ValueError(f"parts within parts, {_DEEPEST} deep")
    features = getattr(part, "n_features_in_", features)
    if isinstance(part, np.ndarray):
        _check_array(part)
    elif isinstance(part, Tree):
        _check_tree(part, features)
    elif isinstance(part, TreePredictor):
        _check_predictor(part, features)
    for inner in _list_parts(part):
        check_parts(inner, features=features, depth=depth + 1)


def _list_parts(part: Any) -> Iterator[Any]:
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, list | tuple):
        yield from part
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        yield from (getattr(part, field.name) for field in dataclasses.fields(part))
    elif not isinstance(part, type | np.ndarray | Tree | np.random.RandomState):
        yield from getattr(part, "__dict__", {}).values()


def _check_array(array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError("an array with values that are no numbers")


def _check_tree(tree: Tree, features: int) -> None:
    leaf = tree.children_left == TREE_LEAF
    check_nodes(tree.children_left, tree.children_right, tree.feature, leaf=leaf, features=features)
    check_numbers(np.ravel(tree.value), shape=(None,))


def _check_predictor(predictor: TreePredictor, features: int) -> None:
    nodes = predictor.nodes
    if nodes.ndim != 1 or not len(nodes) or nodes.dtype.names is None or nodes["is_categorical"].any():
        raise ValueError("boosted trees that Foretell does not fit")
    check_nodes(
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["feature_idx"].astype(np.int64),
        leaf=nodes["is_leaf"],
        features=features,
    )
    check_numbers(nodes["value"], shape=(len(nodes),))
    check_numbers(nodes["num_threshold"], shape=(len(nodes),), finite=False)
