"""Regression trees as plain arrays: small on disk, loaded in milliseconds, evaluated by numpy alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foretell.core.errors import StoreError
from foretell.core.leaf_masks import LeafMasks
from foretell.core.model_files import check_nodes, check_numbers, check_whole_numbers

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Floats: TypeAlias = NDArray[np.float64]

_DEEPEST = 4096
_PAIRS_AT_ONCE = 65_536  # of rows and trees: what fits into caches
_NO_CHILD = -1
_MANY_ROWS = 1000  # in all, after which it pays to prepare masks of leaves
_LEVELS = 4  # after which pairs of row and tree are looked through


@dataclass(frozen=True, kw_only=True)
class ArrayTrees:
    """The sum of several trees. The nodes of all trees follow one another; a leaf's children are the leaf itself."""

    roots: NDArray[np.integer[Any]]
    feature: NDArray[np.integer[Any]]
    threshold: Floats
    left: NDArray[np.integer[Any]]
    right: NDArray[np.integer[Any]]
    value: NDArray[np.floating[Any]]
    baseline: float
    depth: int
    _asked: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)  # rows so far

    @classmethod
    def from_boosting(cls, model: Any, *, dtype: DTypeLike = np.float64) -> Self:
        """The trees of a fitted ``HistGradientBoostingRegressor`` without categories and missing values."""
        parts = [stage[0].nodes for stage in model._predictors]
        sizes = [len(nodes) for nodes in parts]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        nodes = np.concatenate(parts)
        offset = np.repeat(roots, sizes)
        return cls._link(
            roots,
            leaf=nodes["is_leaf"].astype(bool),
            feature=nodes["feature_idx"],
            threshold=nodes["num_threshold"],
            left=nodes["left"] + offset,
            right=nodes["right"] + offset,
            value=nodes["value"].astype(dtype),
            baseline=float(np.ravel(model._baseline_prediction)[0]),
            depth=max(int(part["depth"].max()) for part in parts),
        )

    @classmethod
    def from_decision_tree(cls, model: Any) -> Self:
        """The tree of a fitted ``DecisionTreeRegressor``, which reads rows as 32-bit numbers."""
        tree = model.tree_
        return cls._link(
            np.zeros(1, dtype=np.int32),
            leaf=tree.children_left == _NO_CHILD,
            feature=tree.feature,
            threshold=tree.threshold,
            left=tree.children_left,
            right=tree.children_right,
            value=tree.value[:, 0, 0],
            baseline=0.0,
            depth=int(tree.max_depth),
        )

    @classmethod
    def _link(
        cls,
        roots: NDArray[np.int32],
        *,
        leaf: NDArray[np.bool_],
        feature: NDArray[Any],
        threshold: Floats,
        left: NDArray[Any],
        right: NDArray[Any],
        value: NDArray[Any],
        baseline: float,
        depth: int,
    ) -> Self:
        own = np.arange(len(leaf), dtype=np.int32)
        return cls(
            roots=roots,
            feature=np.where(leaf, 0, feature).astype(np.int16),
            threshold=np.where(leaf, np.inf, threshold),
            left=np.where(leaf, own, left).astype(np.int32),
            right=np.where(leaf, own, right).astype(np.int32),
            value=np.where(leaf, value, value.dtype.type(0)),
            baseline=baseline,
            depth=depth,
        )

    def predict(self, X: NDArray[np.floating[Any]]) -> Floats:
        """One value for each row.

        Raises:
            StoreError: The trees were fitted to more columns, as those of a file that somebody changed.
        """
        if self.feature.max() >= X.shape[1]:
            raise StoreError(f"a model that reads more than the {X.shape[1]} columns there are; fit it again")
        found = np.empty(len(X))
        step = max(1, _PAIRS_AT_ONCE // len(self.roots))
        for start in range(0, len(X), step):
            found[start : start + step] = self._add_leaves(X[start : start + step])
        return found

    def find_leaves(self, X: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """The node at which each row ends, a column for each tree."""
        step = max(1, _PAIRS_AT_ONCE // len(self.roots))
        parts = [self._find_leaves(X[start : start + step]) for start in range(0, len(X), step)]
        return np.concatenate(parts).reshape(len(X), len(self.roots))

    def with_values(self, value: NDArray[np.floating[Any]]) -> Self:
        """The same trees with other values, one for each node."""
        return replace(self, value=value)

    def _add_leaves(self, X: NDArray[np.floating[Any]]) -> Floats:
        self._asked[0] += len(X)
        masks = self._masks if self._asked[0] >= _MANY_ROWS else None
        values = masks.look_up(X) if masks else self.value[self._find_leaves(X).reshape(len(X), len(self.roots))]
        return np.asarray(self.baseline + np.sum(values, axis=1, dtype=np.float64))

    @cached_property
    def _children(self) -> NDArray[np.intp]:
        return np.concatenate([self.right, self.left]).astype(np.intp)

    @cached_property
    def _masks(self) -> LeafMasks | None:
        children = np.stack([self.left, self.right])
        return LeafMasks.find(self.roots, self.feature, self.threshold, children, self.value)

    def _find_leaves(self, X: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """The leaf of each row in each tree; pairs that reached theirs are left out every few levels."""
        values, count = np.ascontiguousarray(X).ravel(), len(self.feature)
        leaves = np.tile(self.roots.astype(np.intp), len(X))
        node, pairs = leaves, np.arange(len(leaves))
        begin = np.repeat(np.arange(len(X)) * X.shape[1], len(self.roots))
        for level in range(self.depth):
            goes_left = values.take(begin + self.feature.take(node)) <= self.threshold.take(node)
            node = self._children.take(node + goes_left * count)
            if level % _LEVELS == _LEVELS - 1:
                leaves[pairs] = node
                going = np.flatnonzero(self.left.take(node) != node)
                node, pairs, begin = node.take(going), pairs.take(going), begin.take(going)
        leaves[pairs] = node
        return leaves

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "roots": self.roots,
            "feature": self.feature,
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "value": self.value,
            "scalars": np.array([self.baseline, self.depth]),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, *, columns: int | None = None) -> Self:
        """The trees that :meth:`to_arrays` took apart; ``columns`` is how many they may read, if that is known.

        Raises:
            ValueError: A path leads outside the trees or does not end, or a column is not there.
            KeyError: An array is missing.
        """
        _check(arrays, columns)
        return cls(
            roots=arrays["roots"],
            feature=arrays["feature"],
            threshold=arrays["threshold"],
            left=arrays["left"],
            right=arrays["right"],
            value=arrays["value"],
            baseline=float(arrays["scalars"][0]),
            depth=int(arrays["scalars"][1]),
        )


def _check(arrays: Arrays, columns: int | None) -> None:
    roots, left = (check_whole_numbers(arrays[name], shape=(None,)) for name in ("roots", "left"))
    count = len(left)
    right, feature = (check_whole_numbers(arrays[name], shape=(count,)) for name in ("right", "feature"))
    check_numbers(arrays["threshold"], shape=(count,), finite=False)
    check_numbers(arrays["value"], shape=(count,))
    _baseline, depth = check_numbers(arrays["scalars"], shape=(2,))
    own = np.arange(count)
    leaf = (left == own) & (right == own)
    check_nodes(left, right, feature, leaf=leaf, features=columns)
    if roots.min() < 0 or roots.max() >= count or feature.min() < 0 or not 0 <= depth <= min(count, _DEEPEST):
        raise ValueError("trees that begin or end outside themselves")
