"""What a campaign of runs will do, how it stands, and what other ways of getting runs brought."""

from dataclasses import dataclass

from foretell.entities.prediction import Prediction
from foretell.entities.run import Run, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A prediction, and the run that was made to see whether it holds."""

    prediction: Prediction
    run: Run

    @property
    def time_inside(self) -> bool | None:
        """Whether the measured time lies in the interval; ``None`` if the run did not complete."""
        if self.run.usage is None or not self.completed:
            return None
        return self.prediction.elapsed_s.low <= self.run.usage.elapsed_s <= self.prediction.elapsed_s.high

    @property
    def memory_inside(self) -> bool | None:
        estimate = self.prediction.peak_memory_bytes
        if self.run.usage is None or self.run.usage.peak_memory_bytes is None or estimate is None or not self.completed:
            return None
        return estimate.low <= self.run.usage.peak_memory_bytes <= estimate.high

    @property
    def completed(self) -> bool:
        return self.run.state is State.COMPLETED
