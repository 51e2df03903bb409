"""How a candidate is trained: which model, on which mix of scaled-down and full-scale runs, adjusted or not."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import NotFoundError
from foretell.runtimes.regressors import REGRESSORS, GaussianProcessRunRegressor, RunRegressor

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

_VALIDATION_SHARE = 0.25
_LEAST_FOR_VALIDATION = 4
_CENSORED_ROUNDS = 2
_QUIET = 0.3  # cores that others may use without disturbing a run; twice as many halve its weight


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """Rows to learn one quantity from; of ``censored`` rows ``y`` is a lower bound.

    ``unit`` is what is known of each row beforehand: models learn ``y`` in units of it. ``load`` is how many cores
    others used while each row was measured, where that matters and is known.
    """

    X: Floats
    y: Floats
    unit: Floats
    full_scale: Bools
    censored: Bools
    group: NDArray[np.int64]
    load: Floats | None = None

    def take(self, rows: NDArray[np.intp] | Bools) -> "TrainingSet":
        return TrainingSet(
            X=self.X[rows],
            y=self.y[rows],
            unit=self.unit[rows],
            full_scale=self.full_scale[rows],
            censored=self.censored[rows],
            group=self.group[rows],
            load=None if self.load is None else self.load[rows],
        )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """Beyond the largest measured value of a column, predictions that fall do so only by the share ``believed``.

    More cores or nodes help less and less, and the runs may end before that shows.
    """

    high: tuple[float, ...]
    believed: float

    @classmethod
    def of(cls, X: Floats, *, believed: float) -> "Saturation":
        return cls(high=tuple(X.max(axis=0).tolist()), believed=believed)

    def predict(self, model: RunRegressor, X: Floats) -> Floats:
        values, fall = self._find_falls(model, X)
        return np.asarray(values * np.exp((1 - self.believed) * fall))

    def find_shift(self, model: RunRegressor, X: Floats) -> Floats:
        """How far, in logs, the prediction lies from that with all of the fall believed, or none of it."""
        _, fall = self._find_falls(model, X)
        return max(self.believed, 1 - self.believed) * fall

    def _find_falls(self, model: RunRegressor, X: Floats) -> tuple[Floats, Floats]:
        """The predictions as the model makes them, and in logs by how much they fall beyond the measured values."""
        values, near = model.predict(X), np.minimum(X, self.high)
        held = X.copy()
        for column in np.flatnonzero((near < X).any(axis=0)):
            rows = np.flatnonzero(near[:, column] < X[:, column])
            moved = X[rows].copy()
            moved[:, column] = near[rows, column]
            falls = rows[values[rows] < model.predict(moved)]
            held[falls, column] = near[falls, column]
        changed, fall = (held != X).any(axis=1), np.zeros(len(X))
        if changed.any():
            fall[changed] = np.maximum(np.log(model.predict(held[changed]) / values[changed]), 0.0)
        return values, fall


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRecipe:
    """A fitted model and the factor its predictions, in units of what was known beforehand, are scaled by."""

    model: RunRegressor
    factor: float = 1.0
    saturation: Saturation | None = None

    def predict(self, X: Floats) -> Floats:
        raw = self.model.predict(X) if self.saturation is None else self.saturation.predict(self.model, X)
        return raw * self.factor

    def find_saturation_shift(self, X: Floats) -> Floats:
        """What the interval has to allow for in addition, in logs: whether more of a resource still helps."""
        return np.zeros(len(X)) if self.saturation is None else self.saturation.find_shift(self.model, X)

    def find_widths(self, X: Floats) -> Floats | None:
        """How far a new run may lie from the prediction, as a standard deviation in logs, where the model knows."""
        return self.model.spread(X) if isinstance(self.model, GaussianProcessRunRegressor) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """HARP's way to train: all scaled-down rows and a share of the full-scale configurations, those up-weighted.

    An adjusted recipe keeps a quarter of the full-scale configurations out of the fit and scales its predictions by
    the median of measured / predicted over them.
    """

    family: str
    share: float = 1.0
    adjusted: bool = False

    @property
    def mix(self) -> str:
        return f"SD+{self.share:.0%}FS" if self.share else "SD"

    @property
    def name(self) -> str:
        return f"{self.family} {self.mix}{' adjusted' if self.adjusted else ''}"

    @property
    def rank(self) -> tuple[float, ...]:
        """Simpler first."""
        return (REGRESSORS[self.family].complexity, self.adjusted, -self.share)

    @property
    def least_to_win_ties(self) -> float:
        return REGRESSORS[self.family].least_to_win_ties

    def fit(self, data: TrainingSet, *, seed: int = 0, like: FittedRecipe | None = None) -> FittedRecipe:
        """Fitted to these rows; ``like`` was fitted to nearly the same ones, which may save time."""
        groups = np.random.default_rng(seed).permutation(np.unique(data.group[data.full_scale & ~data.censored]))
        held = round(len(groups) * _VALIDATION_SHARE) if self.adjusted and len(groups) >= _LEAST_FOR_VALIDATION else 0
        validation, usable = groups[:held], groups[held:]
        chosen = usable[: int(np.ceil(self.share * len(usable)))]
        rows = ~np.isin(data.group, np.setdiff1d(groups, chosen))
        training = data.take(rows) if (rows & ~data.censored).any() else data
        model = _fit_with_bounds(self.family, training, like.model if like else None)
        return FittedRecipe(model=model, factor=_adjustment(model, data, validation))


def _fit_with_bounds(family: str, data: TrainingSet, like: RunRegressor | None) -> RunRegressor:
    """Stopped runs first stay out; then they count with the larger of their lower bound and the prediction."""
    known = data.take(~data.censored)
    model = REGRESSORS[family]().fit(known.X, known.y / known.unit, _weights(known), like=like)
    bounds = data.take(data.censored)
    for _ in range(_CENSORED_ROUNDS if len(bounds) else 0):
        filled = data.y / data.unit
        filled[data.censored] = np.maximum(bounds.y / bounds.unit, model.predict(bounds.X))
        model = REGRESSORS[family]().fit(data.X, filled, _weights(data), like=model)
    return model


def _weights(data: TrainingSet) -> Floats:
    """Full-scale rows together weigh as much as scaled-down ones, where they are fewer; disturbed ones weigh less."""
    large, small = int(data.full_scale.sum()), int((~data.full_scale).sum())
    weights = np.where(data.full_scale, max(1.0, small / large), 1.0) if large else np.ones(len(data))
    return weights if data.load is None else weights / (1 + np.maximum(np.nan_to_num(data.load) - _QUIET, 0) / _QUIET)


def _adjustment(model: RunRegressor, data: TrainingSet, validation: NDArray[np.int64]) -> float:
    rows = np.isin(data.group, validation) & data.full_scale & ~data.censored
    return float(np.median(data.y[rows] / data.unit[rows] / model.predict(data.X[rows]))) if rows.any() else 1.0


DEFAULT = "default"
_BASELINES = {"harp": ("linear", "tree", "neural"), "harp-pca": ("linear PCA", "tree PCA", "neural PCA")}
CANDIDATES = (DEFAULT, *_BASELINES)
_ALWAYS = ("constant", "power", "law", "gaussian process")
_FOR_FEW = (*_ALWAYS, "piecewise law")
_FOR_MANY = (*_ALWAYS, "boosting", "law+trees")
_LEAST_FOR_TREES = 100


def list_recipes(candidates: str, *, mixed: bool, configurations: int) -> tuple[Recipe, ...]:
    """The recipes of a named list: Foretell's own, or HARP's thirty (three models, five mixes, adjusted or not).

    HARP's may learn from principal components instead of the columns.

    Where runs are not ``mixed``, scaled-down and full-scale ones, there is only one mix. Trees have nothing to say of
    a handful of ``configurations``.

    Raises:
        NotFoundError: if there is no such list.
    """
    if candidates == DEFAULT:
        return tuple(
            Recipe(family=family) for family in (_FOR_MANY if configurations >= _LEAST_FOR_TREES else _FOR_FEW)
        )
    if candidates not in _BASELINES:
        raise NotFoundError("list of candidates", candidates, known=CANDIDATES)
    families = _BASELINES[candidates]
    if not mixed:
        return tuple(Recipe(family=family) for family in families)
    return tuple(
        Recipe(family=family, share=share, adjusted=adjusted)
        for family in families
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        for adjusted in (False, True)
    )
