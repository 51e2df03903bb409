"""Results of running a job: its attempts with their requests, runs and costs; and verified predictions."""

from dataclasses import dataclass
from decimal import Decimal

from foretell.core.prediction import Offer, Prediction
from foretell.core.run import Allocation, Run, State


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
