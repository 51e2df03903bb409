"""Measured runs of a training, and predictions of its step somewhere."""

import math
from dataclasses import dataclass

from foretell.advice.evidence_errors import StepPlace
from foretell.core.errors import Mistake, SpecError
from foretell.core.prediction import Estimate

RUN_NOISE = 0.03  # of the logarithm of a time, from run to run: 1.3 % in Profet, 5 % of whole jobs in MLPerf Training
CPU_NOISE = 0.08  # in addition, on a CPU that others use as well: 6 % of ten runs in a row, 10 % within an hour
START_UP_NOISE = 0.25  # of the start of a job, from machine to machine: assumed, not measured
LEVEL = 0.9
START_UP = Estimate(value=30.0, low=8.0, high=110.0, level=LEVEL)  # of a job: imports, data, model, first batches


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvidence:
    """A measured run: the time of one step, or of a whole job with so many steps. ``source`` says where it is from.

    ``noise`` is the standard deviation of the logarithm of its time, if it were measured again. ``start_up_s`` is
    what it took before the step that was timed.

    Raises:
        SpecError: There is neither the time of a step nor that of a job with its steps, or a number is impossible.
    """

    device: str
    gpus: int = 1
    layout: str = ""
    batch: int | None = None  # examples of a step of one GPU
    cores: int | None = None  # of a CPU
    step_s: float | None = None
    elapsed_s: float | None = None
    steps: int | None = None
    start_up_s: float | None = None
    noise: float = RUN_NOISE
    source: str = ""

    def __post_init__(self) -> None:
        known = (self.step_s is not None) != (self.elapsed_s is not None and self.steps is not None)
        numbers = [each for each in (self.step_s, self.elapsed_s, self.steps, self.noise) if each is not None]
        if not known or any(not 0 < each < math.inf for each in numbers):
            found = f"step_s={self.step_s}, elapsed_s={self.elapsed_s}, steps={self.steps}"
            expected = "either the time of a step, or that of a job and its steps; positive numbers"
            raise SpecError("the measured run", [Mistake(place="evidence", found=found, expected=expected)])

    @property
    def place(self) -> StepPlace:
        """Where it ran."""
        return StepPlace(device=self.device, gpus=self.gpus, layout=self.layout, batch=self.batch, cores=self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """The predicted time of a step somewhere. ``known``: whole networks were measured on such a device before."""

    place: StepPlace
    estimate: Estimate
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedEvidence:
    """A run that says nothing of the predictions, and why."""

    evidence: StepEvidence
    reason: str
