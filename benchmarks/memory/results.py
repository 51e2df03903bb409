"""Rows of the table of ``python -m benchmarks memory``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

AT_LEAST = frozenset({"right step", "within one step"})  # figures of which more is better


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of one comparison, in per cent."""

    what: str
    group: str  # the family, the device, or all
    cases: int
    figures: Mapping[str, float]
    known: str = ""  # figures of others
    wanted: Mapping[str, float] = field(default_factory=dict)  # goals, by the names of figures
    note: str = ""

    def list_missed(self) -> Sequence[str]:
        """The figures that do not reach their goals."""
        return [
            name
            for name, goal in self.wanted.items()
            if (self.figures[name] < goal if name in AT_LEAST else self.figures[name] > goal)
        ]


def measure_errors(predicted: ArrayLike, measured: ArrayLike, upper: ArrayLike | None = None) -> dict[str, float]:
    """Median and 95th percentile of |predicted - measured| / measured; how many are above a 95 % upper bound."""
    actual = np.asarray(measured, dtype=float)
    errors = 100 * np.abs(np.asarray(predicted) / actual - 1)
    figures = {"median": float(np.median(errors)), "p95": float(np.quantile(errors, 0.95))}
    if upper is not None:
        figures["too low"] = float(100 * np.mean(np.asarray(upper) < actual))
    return figures
