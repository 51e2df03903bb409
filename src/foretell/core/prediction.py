"""Predictions for a configuration, and offers of a site for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from foretell.core.app import Value
from foretell.core.run import Allocation, Run, State
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A prediction, and the run that was made to check it."""

    prediction: Prediction
    run: Run

    @property
    def time_inside(self) -> bool | None:
        """Whether the measured time lies in the interval; ``None`` if the run did not complete."""
        if self.run.usage is None or not self.completed:
            return None
        return self.prediction.elapsed_s.contains(self.run.usage.elapsed_s)

    @property
    def memory_inside(self) -> bool | None:
        estimate = self.prediction.peak_memory_bytes
        if self.run.usage is None or self.run.usage.peak_memory_bytes is None or estimate is None or not self.completed:
            return None
        return estimate.contains(self.run.usage.peak_memory_bytes)

    @property
    def completed(self) -> bool:
        return self.run.state is State.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One submission. ``bill`` is the cost of what was allocated, for as long as it was."""

    asked: Allocation
    run: Run
    bill: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A job from its recommendation to its end.

    ``why_stopped`` is the reason for no further attempt if the last one did not complete. ``by_accounting``: every
    bill is for what was allocated according to the scheduler's accounting.
    """

    app: str
    offer: Offer
    why: str
    attempts: tuple[Attempt, ...]
    why_stopped: str = ""
    by_accounting: bool = False

    @property
    def run(self) -> Run:
        return self.attempts[-1].run

    @property
    def completed(self) -> bool:
        return bool(self.attempts) and self.run.state is State.COMPLETED

    @property
    def paid(self) -> Decimal:
        return sum((attempt.bill for attempt in self.attempts), Decimal(0))
