"""Predictions for a configuration, and offers of a site for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from foretell.core.app import Value
from foretell.core.run import Allocation
from foretell.core.warning import PredictionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value, and the bounds of the interval that contains the measured one with probability ``level``."""

    value: float
    low: float
    high: float
    level: float

    def contains(self, value: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to request first, and after each failure because it was too small."""

    walltime_s: float
    memory_bytes: int | None
    retries_walltime_s: tuple[float, ...] = ()
    retries_memory: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The estimates for a configuration on an allocation.

    ``elapsed_s`` is the chosen one of ``basic`` (one model of the whole) and ``custom`` (the formula of phases).
    ``warnings`` say where the configuration lies outside what was measured.
    """

    parameters: Mapping[str, Value]
    allocation: Allocation
    elapsed_s: Estimate
    peak_memory_bytes: Estimate | None
    request: Request
    basic: Estimate
    custom: Estimate | None = None
    phases: Mapping[str, Estimate] = field(default_factory=dict)
    warnings: tuple[PredictionWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An allocation with its predicted time, cost and risk.

    ``cost`` is for the expected time, ``cost_at_request`` for the whole request: the most that the first attempt can
    cost, which a limit on the cost is compared with. ``risk`` is the probability that the request is too small (time
    or memory). ``pareto``: no other offer is better in both time and cost. ``measured``: runs were made on such an
    allocation.
    """

    site: str
    prediction: Prediction
    cost: Decimal
    cost_at_request: Decimal
    currency: str
    risk: float
    pareto: bool
    measured: bool

    @property
    def allocation(self) -> Allocation:
        return self.prediction.allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An allocation that cannot work, and why."""

    site: str
    allocation: Allocation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Every offer, the one picked and why, and what cannot work."""

    app: str
    offers: tuple[Offer, ...]
    picked: Offer
    why: str
    rejections: tuple[Rejection, ...] = ()
