"""How intervals are calibrated, widened and capped: one way for every kind of prediction.

Calibrated: the distribution of log(measured / predicted) is learned from rows that the model was not fitted to, by
:class:`Spread` or :class:`QuantileSpread`. Widened and capped: :func:`bound` turns it into the bounds of values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretell.core.prediction import Estimate

Floats: TypeAlias = NDArray[np.float64]

_MOST_KEPT = 1000
_LEAST_CHANCE = 1e-300
_LEAST_SCALE = 0.005  # no clock or allocator is steadier than half a percent
_ENOUGH = 40  # residuals from which a tail can be estimated without a prior
_PRIOR = 1.5 * np.array([1.22, -1.22, -0.14, 0.76, -0.76, 0.14, 0.43, -0.43])  # ninths of the normal distribution
_LARGEST_RESIDUAL = 5.0  # while the prior is used
_ROUNDING = 1e-9  # what a bound loses on its way through exp and log
_KEPT_DIGITS = 5
# How much farther a 5 % quantile lies if the scale is estimated from so few: Student's t over the normal distribution.
_FOR_FEW = {2: 3.84, 3: 1.78, 4: 1.43}


class ErrorDistribution(Protocol):
    """How far measured values lie from predicted ones, as log ratios."""

    def lower(self, chance: float) -> float:
        """The log ratio that a new row falls below with this chance."""

    def upper(self, chance: float) -> float:
        """The log ratio that a new row exceeds with this chance."""


def bound(
    value: Floats | float,
    errors: ErrorDistribution,
    *,
    level: float,
    width: Floats | float = 1.0,
    shift: Floats | float = 0.0,
    least: float = 0.0,
    most: float = np.inf,
) -> tuple[Floats, Floats]:
    """Lower and upper bounds that contain the measured values with probability ``level``.

    ``width`` scales the errors, ``shift`` is added on either side: for what the errors were not calibrated on. Both are
    in logs, as is ``least``, the smallest distance of a bound from its value. ``most`` caps values that have a limit.
    """
    outside = (1 - level) / 2
    low = np.minimum(width * errors.lower(outside) - shift, -least)
    high = np.maximum(width * errors.upper(outside) + shift, least)
    with np.errstate(over="ignore"):
        return np.minimum(value * np.exp(low), most), np.minimum(value * np.exp(high), most)


def build_estimate(
    value: float,
    errors: ErrorDistribution,
    *,
    level: float,
    shift: float = 0.0,
    most: float = np.inf,
) -> Estimate:
    """One value with its bounds; see :func:`bound`."""
    low, high = bound(value, errors, level=level, shift=shift, most=most)
    return Estimate(value=min(value, most), low=float(low), high=float(high), level=level)


def measure_error(log_ratios: Floats) -> float:
    """The root mean square of log(measured / predicted)."""
    return float(np.sqrt(np.mean(log_ratios**2)))


def count_doublings(value: float, low: float, high: float) -> float:
    """How far a value lies outside a range, in doublings; 0 inside."""
    above = float(np.log2(value / high)) if high else np.inf
    return max(0.0, above, float(np.log2(low / value)) if low else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of log(measured / predicted) on unseen rows, in units of each row's own width.

    Within the residuals it is conformal: of n unseen rows and a new one, each rank is equally likely, so the new one is
    above the k-th largest with chance k / (n + 1). Beyond the largest residual the chance decays exponentially, by the
    scale of the residuals.
    """

    residuals: tuple[float, ...]  # sorted
    scale: float

    @classmethod
    def learn(cls, actual: ArrayLike, predicted: ArrayLike, widths: Floats | None = None) -> "Spread":
        """From unseen rows; ``widths`` are their expected errors, as standard deviations in logs.

        Few rows say little of a tail. Below ``_ENOUGH`` of them, a prior is mixed in: errors 1.5 times as large as
        expected, normally distributed; and residuals are clipped.
        """
        errors = np.log(np.asarray(actual, dtype=float) / np.asarray(predicted, dtype=float))
        rooted = measure_error(errors)
        if rooted <= _ROUNDING:
            errors, rooted = np.linspace(-2, 2, len(errors) + 2)[1:-1] * _ROUNDING, _ROUNDING
        errors = errors * max(1.0, _LEAST_SCALE / rooted)  # a few equal rows do not make the next one equal
        residuals = np.sort(errors if widths is None else _mix_with_prior(errors / widths))
        scale = max(measure_error(residuals), _LEAST_SCALE / float(1.0 if widths is None else widths.max()))
        if len(residuals) > _MOST_KEPT:  # quantiles of many residuals are as good
            residuals = np.quantile(residuals, np.linspace(0, 1, _MOST_KEPT))
        return cls(residuals=tuple(residuals.tolist()), scale=scale)

    @classmethod
    def learn_from_few(cls, actual: Floats, predicted: Floats, *, configurations: int, least: float) -> "Spread":
        """From unseen rows of few configurations: wider, and with a root mean square of ``least`` or more."""
        errors = np.log(actual / predicted)
        factor = _FOR_FEW.get(configurations, 1.0) * max(1.0, least / max(measure_error(errors), 1e-12))
        return cls.learn(np.exp(errors * factor), np.ones(len(errors)))

    @classmethod
    def from_prior(cls) -> "Spread":
        """Without any row: errors 1.5 times as large as expected."""
        return cls(residuals=tuple(np.sort(_PRIOR).tolist()), scale=measure_error(_PRIOR))

    def upper(self, chance: float) -> float:
        """The log ratio that a new row exceeds with this chance."""
        return _tail_quantile(np.array(self.residuals), self.scale, chance)

    def lower(self, chance: float) -> float:
        """The log ratio that a new row falls below with this chance."""
        return -_tail_quantile(-np.array(self.residuals)[::-1], self.scale, chance)

    def width(self, level: float) -> float:
        """The width of the interval at this level, in logs."""
        return self.upper((1 - level) / 2) - self.lower((1 - level) / 2)

    def exceeded(self, log_ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        """The chance that a new row exceeds these log ratios; the reverse of :meth:`upper`."""
        residuals = np.array(self.residuals)
        above = len(residuals) - np.searchsorted(residuals, log_ratio + _ROUNDING, side="right")
        chance = (above + 1) / (len(residuals) + 1)
        beyond = np.maximum(log_ratio - residuals[-1], 0) / self.scale
        tail = np.maximum(np.exp(-beyond), _LEAST_CHANCE) / (len(residuals) + 1)
        return np.where(above > 0, chance, tail)


def _mix_with_prior(residuals: Floats) -> Floats:
    """With residuals of the prior, the fewer the more were measured."""
    if len(residuals) >= _ENOUGH:
        return residuals
    prior = _PRIOR[:: 1 + len(residuals) * len(_PRIOR) // _ENOUGH]
    return np.append(np.clip(residuals, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL), prior)


def _tail_quantile(residuals: NDArray[np.float64], scale: float, chance: float) -> float:
    count = len(residuals)
    rank = int(np.floor(chance * (count + 1)))  # the rank-th largest is exceeded with chance rank / (n + 1)
    if rank >= 1:
        return float(residuals[count - rank])
    return float(residuals[-1] + scale * np.log(1 / (chance * (count + 1))))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileSpread:
    """Quantiles of log(measured / predicted) on unseen rows, at equal steps from 0 to 1.

    The interval always contains the prediction: bounds of the wrong sign are 0.
    """

    quantiles: tuple[float, ...]

    @classmethod
    def learn(cls, errors: Floats | Sequence[float], *, count: int) -> "QuantileSpread":
        """So many quantiles of log ratios."""
        return cls(quantiles=tuple(np.quantile(errors, np.linspace(0.0, 1.0, count)).tolist()))

    def lower(self, chance: float) -> float:
        return min(self._interpolate(chance), 0.0)

    def upper(self, chance: float) -> float:
        return max(self._interpolate(1 - chance), 0.0)

    def round(self) -> list[float]:
        """As models keep them."""
        return [round(value, _KEPT_DIGITS) for value in self.quantiles]

    def _interpolate(self, at: float) -> float:
        return float(np.interp(at, np.linspace(0.0, 1.0, len(self.quantiles)), self.quantiles))


NO_SPREAD = QuantileSpread(quantiles=(0.0, 0.0))  # the shift alone makes the interval
