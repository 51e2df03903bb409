"""The intervals of predicted steps: learned by what a step's kernels were learned from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.core.intervals import QuantileSpread
from foretell.core.prediction import Estimate
from foretell.steps._base import StepTimes
from foretell.steps.kernels._base import Evidence

QUANTILES = 101
# Of the logarithm of the time of the host: machines differ by more than a factor of two.
HOST_LOG = 0.5
# Half widths of 90 % intervals where no errors were learned.
_UNKNOWN: Mapping[str, float] = {Evidence.MEASURED: 0.2, Evidence.SIMILAR: 0.3, Evidence.FIGURES: 0.5}
# Of the logarithm of the time of operators whose cost is unknown: each is counted as one pass, and may be several.
_UNKNOWN_LESS, _UNKNOWN_MORE = 0.7, 1.6
_PROFILED = 0.5  # of the width, with a profile of the network


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpread:
    """Quantiles of log(measured / predicted) of unseen whole models, by evidence."""

    spreads: Mapping[str, QuantileSpread] = field(default_factory=dict)

    def bound(self, times: StepTimes, level: float, *, profiles: int = 0) -> Estimate:
        """The iteration with its interval; it always contains the prediction and never reaches below the peaks."""
        chance, value = (1 - level) / 2, times.iteration_s
        low = sum(share * self._find(name, chance, -1) for name, share in times.evidence.items())
        high = sum(share * self._find(name, chance, 1) for name, share in times.evidence.items())
        narrowed = _PROFILED if profiles else 1.0
        host = times.limits.get("host", 0.0) * HOST_LOG * narrowed * scale_normal(level)
        down, up = (
            math.hypot(part * narrowed, host) + factor * times.unknown
            for part, factor in ((low, _UNKNOWN_LESS), (high, _UNKNOWN_MORE))
        )
        least = min(times.least_s, value)
        return Estimate(value=value, low=max(value * math.exp(-down), least), high=value * math.exp(up), level=level)

    def _find(self, name: str, chance: float, sign: int) -> float:
        spread = self.spreads.get(name)
        if spread is None:
            return sign * _UNKNOWN.get(name, max(_UNKNOWN.values())) * scale_normal(1 - 2 * chance)
        return spread.upper(chance) if sign > 0 else spread.lower(chance)


def scale_normal(level: float) -> float:
    """The half width of a normal distribution's interval at a level, relative to that at 90 %."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + level / 2) / NormalDist().inv_cdf(0.95)
