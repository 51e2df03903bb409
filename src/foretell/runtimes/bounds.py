"""Predictions with their intervals and requests, as columns."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.intervals import Spread, bound
from foretell.core.prediction import Estimate
from foretell.runtimes.regressors import LARGEST
from foretell.runtimes.requests import Outlay, plan_for_widths

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

_TRIES = 3
_COMPARED_LEVEL = 0.9
_LEAST_WIDTH = 1e-9  # of runs that all took the same
_COLUMNS = ("value", "low", "high", "request", "retries", "centre", "width", "shift", "which")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Estimates as columns: the value, its interval at a level, the request and what to ask for after it.

    A new run lies from ``centre`` by ``shift`` at most and by its spread (the one that ``which`` counts) times
    ``width``, in logs.
    """

    value: Floats
    low: Floats
    high: Floats
    request: Floats
    retries: Floats  # a column a try
    centre: Floats
    width: Floats
    shift: Floats
    which: NDArray[np.intp]
    spreads: tuple[Spread, ...]

    def estimate(self, row: int, level: float) -> Estimate:
        value, low, high = float(self.value[row]), float(self.low[row]), float(self.high[row])
        return Estimate(value=value, low=low, high=high, level=level)

    def exceeded(self, request: Floats) -> Floats:
        """The chance that these requests are too small."""
        log_ratio = (np.log(request / self.centre) - self.shift) / self.width
        chances = np.array([spread.exceeded(log_ratio) for spread in self.spreads])
        return np.asarray(chances[self.which, np.arange(len(log_ratio))])

    def take(self, rows: slice) -> "Bounds":
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    def replaced(self, mask: Bools, other: "Bounds") -> "Bounds":
        """The other's rows where the mask is true, these elsewhere."""
        if not mask.any():
            return self
        columns = {
            name: np.where(mask if own.ndim == 1 else mask[:, None], new, own)
            for name in _COLUMNS[:-1]
            for own, new in [(getattr(self, name), getattr(other, name))]
        }
        which = np.where(mask, other.which + len(self.spreads), self.which)
        return Bounds(**columns, which=which, spreads=(*self.spreads, *other.spreads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of bounds: the level, the risk of requests, and in logs what else to allow for in each row.

    ``shift`` is for what lies outside the runs or on another machine. Without ``least_cost`` the first request is the
    least with the ``risk``.
    """

    shift: Floats
    level: float
    risk: float
    least_cost: bool
    retry_cost: float | None

    def bounds(self, value: Floats, spread: Spread, widths: Floats, outlay: Outlay) -> Bounds:
        if self.retry_cost is not None:
            outlay = replace(outlay, retry_cost=self.retry_cost)
        plan = plan_for_widths(spread, outlay, widths=widths, tries=_TRIES, risk=self.risk, least_cost=self.least_cost)
        low, high = bound(value, spread, level=self.level, width=widths, shift=self.shift)
        with np.errstate(over="ignore"):
            asked = np.minimum((value * np.exp(self.shift))[:, None] * plan, LARGEST)
        return Bounds(
            value=value,
            low=low,
            high=high,
            request=asked[:, 0],
            retries=asked[:, 1:],
            centre=value,
            width=widths,
            shift=self.shift,
            which=np.zeros(len(value), dtype=np.intp),
            spreads=(spread,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """What is known of a run whose configuration is not: the median of all runs, and how far they lie from it."""

    median: float
    spread: Spread

    @classmethod
    def learn(cls, measured: Floats) -> "Marginal":
        median = float(np.median(measured))
        return cls(median=median, spread=Spread.learn(measured, np.full(len(measured), median)))

    def limit(
        self,
        question: Question,
        value: Floats,
        spread: Spread,
        widths: Floats,
        *,
        extrapolation: Floats,
        outlay: Outlay,
    ) -> Bounds:
        """Bounds no wider than those of a run of which nothing is known.

        A prediction that is less sure than that, inside the runs, has the interval and the request of such a run.
        Outside the runs intervals may be wider, the more the farther away (``extrapolation``).
        """
        own = max(spread.width(_COMPARED_LEVEL), _LEAST_WIDTH)
        widest = (1 + extrapolation) * self.spread.width(_COMPARED_LEVEL) / own
        bounds = question.bounds(value, spread, np.minimum(widths, widest), outlay)
        usual = question.bounds(np.full(len(value), self.median), self.spread, np.ones(len(value)), outlay)
        unsure = (widths > widest) & (extrapolation == 0) & (value >= usual.low) & (value <= usual.high)
        return bounds.replaced(unsure, replace(usual, value=value, request=np.maximum(usual.request, value)))
