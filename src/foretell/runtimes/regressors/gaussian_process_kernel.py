"""The covariance of a Gaussian process over configurations, with its gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import read_number

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Pairing: TypeAlias = Callable[[NDArray[Any], NDArray[Any], np.ufunc], NDArray[Any]]  # joins two columns, pair by pair

_ROOT_5 = np.sqrt(5.0)
_MOST_LEVELS = 16  # a number with more distinct values than this is no code for something else
_LEAST_A_LEVEL = 3
_LOG_RATIO = 3.0  # a positive column that spans more than this is read in logs
_LOG_RATIO_WITH_ZERO = 30.0
_IN_CACHE = 65_536  # pairs at a time: more of them are slower, each step then waits for memory
_MOST_PROJECTIONS = 100  # in a file
_WORTH_SHARING = 0.25  # different pairs a pair, below which they are computed once each


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """How one column is read: centred and scaled, in logs (``floor`` > 0 is added or bounds it), as levels or not."""

    log: bool
    floor: float
    offset: float
    centre: float
    scale: float
    smooth: bool
    levels: bool

    def read(self, x: Floats) -> Floats:
        if self.log:
            x = np.log(np.maximum(x + self.offset, self.floor))
        return np.asarray((x - self.centre) / self.scale)


def fit_axis(x: Floats) -> Axis:
    """The axis that suits these values."""
    values = np.unique(x)
    positive = values[values > 0]
    low, high = values[0], values[-1]
    with_zero = low == 0 and len(positive) > 1 and high / positive[0] >= _LOG_RATIO_WITH_ZERO
    log = bool(with_zero or (low > 0 and high / low >= _LOG_RATIO))
    offset = float(positive[0]) if with_zero else 0.0
    floor = float((low + offset) * 1e-3) if log else 0.0
    z = np.log(x + offset) if log else x
    few = len(values) <= min(_MOST_LEVELS, len(x) / _LEAST_A_LEVEL)
    return Axis(
        log=log,
        floor=floor,
        offset=offset,
        centre=float(z.mean()),
        scale=float(max(z.std(), 1e-9)),
        smooth=not set(values.tolist()) <= {0.0, 1.0},  # a mark, present or not, has no slope
        levels=bool(len(values) == 2 or few),
    )


# Means and standard deviations of the prior of each (natural) logarithm.
_PRIOR = {
    "linear": (-1.0, 1.5),
    "smooth": (-1.5, 1.5),
    "length": (0.0, 1.0),
    "level": (-3.0, 1.5),
    "whole": (0.0, 2.0),
}
_DIRECTION = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A product over columns of (1 + linear + smooth + same level): every effect alone, and every interaction.

    In logs the linear part is a power law, so the process continues as one outside the runs. ``projections`` more
    factors are smooth along directions across all smooth columns, which are learned: sizes that only matter together.
    """

    axes: tuple[Axis, ...]
    projections: int

    def check(self, columns: int) -> None:
        """Check a kernel that was read from a file.

        Raises:
            ValueError: It is not one for that many columns.
        """
        if len(self.axes) != columns or not 0 <= self.projections <= _MOST_PROJECTIONS:
            raise ValueError(f"a kernel of {len(self.axes)} columns and {self.projections} projections")
        for axis in self.axes:
            for number in (axis.floor, axis.offset, axis.centre, axis.scale):
                read_number(number)

    @property
    def names(self) -> tuple[str, ...]:
        """What each hyperparameter is; the last is the scale of the whole."""
        found: list[str] = []
        for axis in self.axes:
            found += ["linear", "smooth", "length"] * axis.smooth + ["level"] * axis.levels
        return (*found, *(("smooth",) + ("direction",) * self.directions) * self.projections, "whole")

    @property
    def directions(self) -> int:
        return sum(axis.smooth for axis in self.axes)

    def prior(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each hyperparameter before any run."""
        pairs = [_PRIOR.get(name, (0.0, _DIRECTION)) for name in self.names]
        return np.array([mean for mean, _ in pairs]), np.array([spread for _, spread in pairs])

    def read(self, X: Floats) -> Floats:
        columns = [axis.read(column) for axis, column in zip(self.axes, X.T, strict=True)]
        return np.column_stack(columns) if columns else np.empty((len(X), 0))

    def covariance(self, A: Floats, B: Floats, theta: Floats) -> Floats:
        K = np.empty((len(A), len(B)))
        step = max(1, _IN_CACHE // max(1, len(B)))
        for start in range(0, len(A), step):
            rows = A[start : start + step]
            part = np.full(len(rows) * len(B), np.exp(2 * theta[-1]))
            for factor, _ in self._factors(self._all_pairs(rows, B), theta, gradient=False):
                part *= factor
            K[start : start + step] = part.reshape(len(rows), len(B))
        return K

    def variance(self, A: Floats, theta: Floats) -> Floats:
        """The covariance of each row with itself."""
        value = np.full(len(A), np.exp(2 * theta[-1]))
        at = 0
        for column, axis in zip(A.T, self.axes, strict=True):
            factor = np.ones(len(A))
            if axis.smooth:
                factor += np.exp(2 * theta[at]) * column**2 + np.exp(2 * theta[at + 1])
                at += 3
            if axis.levels:
                factor += np.exp(2 * theta[at])
                at += 1
            value *= factor
        for _ in range(self.projections):
            value *= 1 + np.exp(2 * theta[at])
            at += 1 + self.directions
        return value

    def own_pairs(self, A: Floats) -> "Pairs":
        """Each row with itself and those before it: the lower triangle of the covariance, row by row."""
        one, other = np.tril_indices(len(A))
        return self._pair(A, A, lambda values_a, values_b, join: join(values_a[one], values_b[other]))

    def _all_pairs(self, A: Floats, B: Floats) -> "Pairs":
        """Each row of the one with each of the other."""
        return self._pair(A, B, lambda values_a, values_b, join: join.outer(values_a, values_b).ravel())

    def _pair(self, A: Floats, B: Floats, pair: Pairing) -> "Pairs":
        columns = tuple(_pair_column(a, b, pair) for a, b in zip(A.T, B.T, strict=True))
        smooth = [axis.smooth for axis in self.axes]
        return Pairs(columns=columns, smooth_a=A[:, smooth], smooth_b=B[:, smooth], pair=pair)

    def with_gradient(self, pairs: "Pairs", theta: Floats) -> tuple[Floats, "Gradient"]:
        """The covariance of pairs of rows, and what its gradient is made of."""
        K = np.exp(2 * theta[-1])
        factors = []
        for factor, parts in self._factors(pairs, theta, gradient=True):
            K = K * factor
            factors.append((factor, parts))
        return K, Gradient(K=K, factors=tuple(factors))

    def _factors(self, pairs: "Pairs", theta: Floats, *, gradient: bool) -> Iterator[tuple[Floats, "Parts"]]:
        """Each factor, and its derivatives by the hyperparameters in it, in their order."""
        at = 0
        for axis, column in zip(self.axes, pairs.columns, strict=True):
            factor, found = np.ones(len(column.apart)), []
            if axis.smooth:
                linear = np.exp(2 * theta[at]) * column.product
                smooth, by_length = _matern(column.apart / np.exp(theta[at + 2]), gradient)
                smooth *= np.exp(2 * theta[at + 1])
                factor += linear
                factor += smooth
                found += [2 * linear, 2 * smooth, by_length * np.exp(2 * theta[at + 1])] if gradient else []
                at += 3
            if axis.levels:
                same = np.exp(2 * theta[at]) * (column.apart == 0)
                factor += same
                found += [2 * same] if gradient else []
                at += 1
            yield column.spread_out(factor), Parts(index=column.index, found=found)
        for _ in range(self.projections):
            yield self._projection(pairs, theta[at : at + 1 + self.directions], gradient)
            at += 1 + self.directions

    def _projection(self, pairs: "Pairs", theta: Floats, gradient: bool) -> tuple[Floats, "Parts"]:
        apart = pairs.pair(pairs.smooth_a @ theta[1:], pairs.smooth_b @ theta[1:], np.subtract)
        radius = _ROOT_5 * np.abs(apart)
        decay = np.exp(2 * theta[0] - radius)
        smooth = (1 + radius + radius * radius / 3) * decay
        if not gradient:
            return 1 + smooth, Parts(index=None, found=[])
        slope = (-5 / 3) * apart * (1 + radius) * decay
        return 1 + smooth, Parts(index=None, found=[2 * smooth, *(slope * column for column in pairs.apart())])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumn:
    """One column of pairs of rows. Where few values make many equal pairs, each stands once; ``index`` spreads them."""

    apart: Floats
    product: Floats
    index: Indices | None

    def spread_out(self, values: Floats) -> Floats:
        return values if self.index is None else values[self.index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    columns: tuple[PairColumn, ...]
    smooth_a: Floats
    smooth_b: Floats
    pair: Pairing

    def apart(self) -> Iterator[Floats]:
        """How far apart the rows are in each smooth column, with its sign."""
        for a, b in zip(self.smooth_a.T, self.smooth_b.T, strict=True):
            yield self.pair(a, b, np.subtract)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Derivatives of one factor, for each pair or (with ``index``) for each different pair."""

    index: Indices | None
    found: list[Floats]

    def contract(self, weight: Floats) -> list[float]:
        if self.index is not None and self.found:
            weight = np.asarray(np.bincount(self.index, weight, minlength=len(self.found[0])), dtype=float)
        return [float(weight @ part) for part in self.found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The derivatives of a covariance, kept as its factors'."""

    K: Floats
    factors: tuple[tuple[Floats, Parts], ...]

    def contract(self, weight: Floats) -> Floats:
        """The sum of ``weight`` times the covariance's derivative, for each hyperparameter."""
        whole = weight * self.K
        found = [value for factor, parts in self.factors for value in parts.contract(whole / factor)]
        return np.array([*found, 2 * whole.sum()])


def _pair_column(a: Floats, b: Floats, pair: Pairing) -> PairColumn:
    values_a, index_a = np.unique(a, return_inverse=True)
    values_b, index_b = np.unique(b, return_inverse=True)
    if len(values_a) * len(values_b) > len(a) * len(b) * _WORTH_SHARING:
        return PairColumn(apart=np.abs(pair(a, b, np.subtract)), product=pair(a, b, np.multiply), index=None)
    apart = np.abs(np.subtract.outer(values_a, values_b)).ravel()
    product = np.multiply.outer(values_a, values_b).ravel()
    return PairColumn(apart=apart, product=product, index=pair(index_a * len(values_b), index_b, np.add))


def _matern(distance: Floats, gradient: bool) -> tuple[Floats, Floats]:
    """The Matérn 5/2 function, and its derivative by the logarithm of its length."""
    radius = _ROOT_5 * distance
    decay = np.exp(-radius)
    third = radius * radius / 3
    by_length = third * (1 + radius) * decay if gradient else decay
    return (1 + radius + third) * decay, by_length
