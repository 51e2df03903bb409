"""Small regression trees evaluated without walking through them: the leaves that each column leaves open, as bits."""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.uint64]

_MOST_LEAVES = 64
_EXPONENT = 52, 1023  # where a 64-bit number has its exponent, and that of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafMasks:
    """For each tree a bit of each leaf.

    The thresholds of a column cut its values into ranges, and each range rules leaves out. The one leaf that no column
    rules out is the leaf of a row: https://dl.acm.org/doi/10.1145/2766462.2767733
    """

    every: Masks  # all leaves of each tree
    columns: tuple[tuple[int, Floats, Masks], ...]  # the column, its thresholds, and leaves by range and tree
    values: NDArray[Any]  # of 64 leaves for each tree

    @classmethod
    def find(
        cls, roots: NDArray[Any], feature: NDArray[Any], threshold: Floats, children: NDArray[Any], value: NDArray[Any]
    ) -> Self | None:
        """The masks of trees that follow one another; none for larger trees, or nodes that are in several.

        ``children`` are the left and the right child of each node.
        """
        leaf = children[0] == np.arange(len(feature))
        if not _are_apart(roots, children[:, ~leaf], count=len(leaf)):
            return None
        tree = np.repeat(np.arange(len(roots)), np.diff(np.append(roots, len(leaf))))
        before = np.cumsum(leaf) - leaf
        bit = before - before[roots][tree]
        if bit[leaf].max() >= _MOST_LEAVES or not (tree[children] == tree).all():
            return None
        below = _collect_leaves(leaf, bit, children)
        values = np.zeros((len(roots), _MOST_LEAVES), dtype=value.dtype)
        values[tree[leaf], bit[leaf]] = value[leaf]
        columns = []
        for column in np.unique(feature[~leaf]).tolist():
            nodes = np.flatnonzero(~leaf & (feature == column))
            cuts, rank = np.unique(threshold[nodes], return_inverse=True)
            sides = below[children[:, nodes]]
            columns.append((column, cuts, _rule_out(rank, tree[nodes], sides, shape=(len(cuts) + 1, len(roots)))))
        return cls(every=below[roots], columns=tuple(columns), values=values.ravel())

    def look_up(self, X: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """The value of each tree for each row."""
        left = np.tile(self.every, (len(X), 1))
        for column, cuts, masks in self.columns:
            left &= masks[np.searchsorted(cuts, X[:, column])]
        bits = (left.astype(np.float64).view(np.int64) >> _EXPONENT[0]) - _EXPONENT[1]
        return np.asarray(self.values[bits + np.arange(len(self.every)) * _MOST_LEAVES])


def _are_apart(roots: NDArray[Any], children: NDArray[Any], *, count: int) -> bool:
    """Whether roots rise from 0, and every other node is the child of one node."""
    parents = np.bincount(children.ravel(), minlength=count)
    expected = np.ones(count, dtype=int)
    expected[roots] = 0
    return bool(roots[0] == 0 and (np.diff(roots) > 0).all() and np.array_equal(parents, expected))


def _collect_leaves(leaf: NDArray[np.bool_], bit: NDArray[Any], children: NDArray[Any]) -> Masks:
    """The leaves below each node, and itself."""
    below = np.where(leaf, np.uint64(1) << np.where(leaf, bit, 0).astype(np.uint64), np.uint64(0))
    while True:
        more = below | below[children[0]] | below[children[1]]
        if np.array_equal(more, below):
            return np.asarray(below)
        below = more


def _rule_out(rank: NDArray[Any], tree: NDArray[Any], sides: Masks, *, shape: tuple[int, int]) -> Masks:
    """The leaves that ranges leave open: above a threshold those to its left are ruled out, else those to its right."""
    above, least = np.full(shape, ~np.uint64(0)), np.full(shape, ~np.uint64(0))
    np.bitwise_and.at(above, (rank + 1, tree), ~sides[0])
    np.bitwise_and.at(least, (rank, tree), ~sides[1])
    falling = np.bitwise_and.accumulate(least[::-1], axis=0)[::-1]
    return np.asarray(np.bitwise_and.accumulate(above, axis=0) & falling)
