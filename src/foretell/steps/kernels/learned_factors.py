"""A bounded factor on the times that figures give: levels by name, trees on figures, and what a device showed."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import Arrays, ArrayTrees
from foretell.core.model_files import check_numbers, read_numbers
from foretell.core.workload import Floats

Path: TypeAlias = tuple[str, ...]  # of a call, from the coarsest name to the finest

_SHRINK = 8.0  # calls of a name that have the weight of the name above
_NEAR = 1.0  # distance in columns at which a measured call has lost 40 % of its weight
_ALONE = 0.3  # weight of "no correction" against measured calls nearby
_PAIRS_AT_ONCE = 4_000_000


def fit_trees(X: Floats, y: Floats, weights: Floats, *, settings: Mapping[str, Any], seed: int) -> ArrayTrees:
    """Boosted trees fitted by scikit-learn, as arrays."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(**settings, early_stopping=False, random_state=seed)
    return ArrayTrees.from_boosting(model.fit(X, y, sample_weight=weights), dtype=np.float32)


def fit_forest(X: Floats, y: Floats, weights: Floats, *, settings: Mapping[str, Any], seed: int) -> ArrayTrees:
    """The mean of random trees: where times jump between algorithms, they follow better than boosted ones."""
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(**settings, random_state=seed).fit(X, y, sample_weight=weights)
    parts = [ArrayTrees.from_decision_tree(tree) for tree in model.estimators_]
    begins = np.cumsum([0, *(len(part.left) for part in parts[:-1])])
    return ArrayTrees(
        roots=begins.astype(np.int32),
        feature=np.concatenate([part.feature for part in parts]),
        threshold=np.concatenate([part.threshold for part in parts]).astype(np.float32),
        left=np.concatenate([part.left + begin for part, begin in zip(parts, begins, strict=True)]).astype(np.int32),
        right=np.concatenate([part.right + begin for part, begin in zip(parts, begins, strict=True)]).astype(np.int32),
        value=np.concatenate([part.value / len(parts) for part in parts]).astype(np.float32),
        baseline=0.0,
        depth=max(part.depth for part in parts),
    )


class NamedLevels:
    """Log factors by name; a finer name is shrunk towards the one above it."""

    def __init__(self, levels: Mapping[str, float] | None = None) -> None:
        self.levels = dict(levels or {})

    def fit(self, paths: Sequence[Path], y: Floats, weights: Floats) -> Self:
        """Fit on log factors."""
        self.levels = {"": weighted_median(y, weights)}
        for depth in range(1, max(map(len, paths), default=0) + 1):
            for name, places in _group(paths, depth).items():
                above = self.find(name.split("/")[:-1])
                middle, size = weighted_median(y[places], weights[places]), len(places)
                self.levels[name] = (middle * size + above * _SHRINK) / (size + _SHRINK)
        return self

    def find(self, path: Sequence[str]) -> float:
        """The finest level known of a path."""
        return next(
            (self.levels[name] for size in range(len(path), -1, -1) if (name := "/".join(path[:size])) in self.levels),
            0.0,
        )

    def predict(self, paths: Sequence[Path]) -> Floats:
        """One log factor for each path."""
        known = {path: self.find(path) for path in dict.fromkeys(paths)}
        return np.array([known[path] for path in paths])


class MeasuredShifts:
    """What a few measured calls of one device say about its other calls.

    Every call moves by the mean of all, then by that of its names, then by what calls of similar figures still lack.
    """

    def __init__(self, levels: NamedLevels, names: NDArray[np.str_], points: Floats, rest: Floats) -> None:
        self.levels, self.names, self.points, self.rest = levels, names, points, rest

    @classmethod
    def build(cls, paths: Sequence[Path], points: Floats, errors: Floats) -> Self:
        """The shifts of measured calls with these log errors."""
        weights = np.ones(len(errors))
        levels = NamedLevels({"": weighted_median(errors, weights) * len(errors) / (len(errors) + 2)})
        for depth in range(1, max(map(len, paths), default=0) + 1):
            for name, places in _group(paths, depth).items():
                above = levels.find(name.split("/")[:-1])
                mean = float(np.clip(errors[places] - above, -1, 1).mean())
                levels.levels[name] = above + mean * len(places) / (len(places) + 2)
        rest = errors - levels.predict(paths)
        return cls(levels, np.array([_class_of(path) for path in paths]), points, rest)

    def predict(self, paths: Sequence[Path], points: Floats) -> Floats:
        """A log factor for each call."""
        shift = self.levels.predict(paths)
        names = np.array([_class_of(path) for path in paths])
        for name in np.unique(self.names):
            mine, known = np.flatnonzero(names == name), np.flatnonzero(self.names == name)
            step = max(1, _PAIRS_AT_ONCE // len(known))
            for start in range(0, len(mine), step):
                some = mine[start : start + step]
                shift[some] += _smooth(points[some], self.points[known], self.rest[known])
        return shift

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        record = {"levels": self.levels.levels, "names": self.names.tolist()}
        return record, {"points": self.points.astype(np.float32), "rest": self.rest.astype(np.float32)}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        names = np.array([str(name) for name in record["names"]])
        rest = check_numbers(arrays["rest"], shape=(len(names),)).astype(float)
        points = check_numbers(arrays["points"], shape=(len(names), None)).astype(float)
        return cls(NamedLevels(read_numbers(record["levels"])), names, points, rest)


def _smooth(points: Floats, known: Floats, rest: Floats) -> Floats:
    """The mean of what is known nearby; nothing where nothing is near."""
    far = np.maximum((points**2).sum(axis=1)[:, None] + (known**2).sum(axis=1)[None] - 2 * points @ known.T, 0.0)
    weights = np.exp(-far / (2 * _NEAR**2))
    return np.asarray(weights @ rest / (weights.sum(axis=1) + _ALONE))


def _class_of(path: Path) -> str:
    return "/".join(path[:2])


def _group(paths: Sequence[Path], depth: int) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for place, path in enumerate(paths):
        if len(path) >= depth:
            groups.setdefault("/".join(path[:depth]), []).append(place)
    return groups


def weighted_median(values: Floats, weights: Floats) -> float:
    """The weighted median."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def take_arrays(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays of one part of a model, without its name."""
    return {name[len(prefix) :]: values for name, values in arrays.items() if name.startswith(prefix)}
