"""How far the truth strays from predictions, learned from rows the model never saw."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

_MOST_KEPT = 1000
_NEVER = 1e-300  # nothing is impossible
_LEAST_SCALE = 0.005  # no clock or allocator is steadier than half a percent
_ENOUGH = 40  # residuals that tell a tail by themselves
_BELIEVED = 1.5 * np.array([1.22, -1.22, -0.14, 0.76, -0.76, 0.14, 0.43, -0.43])  # ninths of the normal distribution
_BEYOND_REASON = 5.0
_ROUNDING = 1e-9  # what a bound loses on its way through exp and log


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of log(measured / predicted) on unseen rows, in units of each row's own width.

    Within the residuals it is the conformal one: of n unseen rows and a new one, each rank is as likely as another,
    so the new one is above the k-th largest with chance k / (n + 1). Beyond the largest, where few rows leave no
    rank to go by, the chance falls off exponentially by the residuals' own scale.
    """

    residuals: tuple[float, ...]  # sorted
    scale: float

    @classmethod
    def learn(cls, actual: ArrayLike, predicted: ArrayLike, widths: Floats | None = None) -> "Spread":
        """From unseen rows; ``widths`` are how far each row was expected to stray, as a standard deviation in logs.

        Few rows cannot tell a tail. Until there are enough, the widths are believed: a new row then strays about as
        they say, half as much again, and what is beyond any reason counts as the farthest that is within.
        """
        strayed = np.log(np.asarray(actual, dtype=float) / np.asarray(predicted, dtype=float))
        rooted = float(np.sqrt(np.mean(strayed**2)))
        if rooted <= _ROUNDING:
            strayed, rooted = np.linspace(-2, 2, len(strayed) + 2)[1:-1] * _ROUNDING, _ROUNDING
        strayed = strayed * max(1.0, _LEAST_SCALE / rooted)  # lucky rows do not make the next run repeat to the byte
        residuals = np.sort(strayed if widths is None else _believe(strayed / widths))
        scale = max(
            float(np.sqrt(np.mean(residuals**2))), _LEAST_SCALE / float(1.0 if widths is None else widths.max())
        )
        if len(residuals) > _MOST_KEPT:  # quantiles of a long history say the same
            residuals = np.quantile(residuals, np.linspace(0, 1, _MOST_KEPT))
        return cls(residuals=tuple(residuals.tolist()), scale=scale)

    @classmethod
    def believe(cls) -> "Spread":
        """Before any row was seen: a new one strays as its width says, half as much again."""
        return cls(residuals=tuple(np.sort(_BELIEVED).tolist()), scale=float(np.sqrt(np.mean(_BELIEVED**2))))

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
        tail = np.maximum(np.exp(-beyond), _NEVER) / (len(residuals) + 1)
        return np.where(above > 0, chance, tail)


def _believe(residuals: Floats) -> Floats:
    """With what one expects of residuals before seeing any, the less the more were seen."""
    if len(residuals) >= _ENOUGH:
        return residuals
    believed = _BELIEVED[:: 1 + len(residuals) * len(_BELIEVED) // _ENOUGH]
    return np.append(np.clip(residuals, -_BEYOND_REASON, _BEYOND_REASON), believed)


def _tail_quantile(residuals: NDArray[np.float64], scale: float, chance: float) -> float:
    count = len(residuals)
    rank = int(np.floor(chance * (count + 1)))  # the rank-th largest is exceeded with chance rank / (n + 1)
    if rank >= 1:
        return float(residuals[count - rank])
    return float(residuals[-1] + scale * np.log(1 / (chance * (count + 1))))
