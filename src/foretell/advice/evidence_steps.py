"""Evidence meets: predictions from code and measured runs of the same application become one answer with one interval.

Runs correct the errors that they share with a prediction (``evidence_errors``), weighted by precision (Bayes). A run of
which only the whole time is known says something of its start-up and of its steps; runs of different lengths separate
the two.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretell.advice.evidence_errors import SHARES, ErrorShares, StepPlace
from foretell.advice.evidence_law import ErrorLaw
from foretell.advice.evidence_values import (
    LEVEL,
    RUN_NOISE,
    START_UP,
    START_UP_NOISE,
    PlacedStep,
    StepEvidence,
    UnusedEvidence,
)
from foretell.core.intervals import Floats
from foretell.core.prediction import Estimate

__all__ = [
    "LEVEL",
    "RUN_NOISE",
    "START_UP",
    "CombinedSteps",
    "PlacedStep",
    "StepEvidence",
    "UnusedEvidence",
    "combine",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedSteps:
    """Predictions that know of runs, in the order of the predictions; ``before`` are those from code alone.

    ``errors`` and ``covariance`` are of the logarithms: of each prediction, and of the start-up.
    """

    before: tuple[PlacedStep, ...]
    after: tuple[Estimate, ...]
    start_up: Estimate
    start_up_before: Estimate = START_UP
    used: tuple[StepEvidence, ...] = ()
    unused: tuple[UnusedEvidence, ...] = ()
    surprise: float = 0.0  # of the runs: 1 is as expected, more is farther from the predictions
    errors: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    covariance: Floats = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    freedom: float = SHARES.freedom

    def estimate_job(self, place: int, steps: float) -> Estimate:
        """The time of a job with so many steps: of its start-up, which runs may know less well than the sum, and them.

        Its steps are those of the prediction of that number.
        """
        step, start_up = self.after[place], self.start_up
        value = start_up.value + steps * step.value
        shares = np.array([steps * step.value, start_up.value]) / value
        rows = [place, len(self.after)]
        joint = self.covariance[np.ix_(rows, rows)]
        own = float(np.sqrt(shares**2 @ np.diag(joint)))
        factor = math.sqrt(max(0.0, float(shares @ joint @ shares))) / own if own else 1.0
        down = factor * math.hypot(shares[0] * math.log(step.value / step.low), shares[1] * _log(start_up, below=True))
        up = factor * math.hypot(shares[0] * math.log(step.high / step.value), shares[1] * _log(start_up, below=False))
        low, high = value * math.exp(-down), value * math.exp(up)
        return Estimate(value=value, low=low, high=high, level=step.level)


def _log(estimate: Estimate, *, below: bool) -> float:
    return math.log(estimate.value / estimate.low) if below else math.log(estimate.high / estimate.value)


def combine(
    predictions: Sequence[PlacedStep],
    runs: Sequence[StepEvidence],
    *,
    predict: Callable[[StepPlace], PlacedStep | None] = lambda _: None,
    start_up: Estimate = START_UP,
    shares: ErrorShares = SHARES,
) -> CombinedSteps:
    """Predictions of one application, corrected by its measured runs.

    ``predict`` gives the prediction from code where a run was made and none of the predictions is; None where there is
    none. ``start_up`` is what is expected of the start of a job.
    """
    known = {each.place: each for each in predictions}
    used, unused = [], []
    measured: list[StepEvidence] = []
    expected: list[PlacedStep] = []
    for run in runs:
        step = known.get(run.place) or predict(run.place)
        if step is None:
            unused.append(UnusedEvidence(evidence=run, reason=f"the code has no prediction for {run.place}"))
        else:
            used.append(run)
            parts = list(_divide(run))
            measured += parts
            expected += [step] * len(parts)
    law = ErrorLaw.build([*predictions, *expected], start_up, shares)
    found = law.learn(measured, first=len(predictions))
    after = tuple(found.correct(number, each.estimate) for number, each in enumerate(predictions))
    rows = [*range(len(predictions)), len(law.values) - 1]
    return CombinedSteps(
        before=tuple(predictions),
        after=after,
        start_up=found.correct(len(law.values) - 1, start_up),
        start_up_before=start_up,
        used=tuple(used),
        unused=tuple(unused),
        surprise=found.surprise,
        errors=found.errors[rows],
        covariance=found.covariance[np.ix_(rows, rows)],
        freedom=found.freedom,
    )


def _divide(run: StepEvidence) -> Iterator[StepEvidence]:
    """What a run says of the step, and, as a job of one step, of its start-up."""
    yield run
    if run.step_s is not None and run.start_up_s:
        whole_s = run.start_up_s + run.step_s
        yield replace(run, step_s=None, elapsed_s=whole_s, steps=1, start_up_s=None, noise=START_UP_NOISE)
