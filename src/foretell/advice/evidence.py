"""Evidence meets: predictions from code and measured runs of the same application become one answer with one interval.

Runs correct the errors that they share with a prediction (``evidence_errors``), weighted by precision (Bayes). A run of
which only the whole time is known says something of its start-up and of its steps; runs of different lengths tell them
apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.advice.evidence_errors import (
    SHARES,
    ErrorCovariance,
    ErrorShares,
    StepPlace,
    build_covariance,
    find_scale,
    t_quantile,
)
from foretell.core.errors import Mistake, SpecError
from foretell.core.intervals import Floats
from foretell.core.prediction import Estimate

RUN_NOISE = 0.03  # of the logarithm of a time, from run to run: 1.3 % in Profet, 5 % of whole jobs in MLPerf Training
LEVEL = 0.9
START_UP = Estimate(value=30.0, low=8.0, high=110.0, level=LEVEL)  # of a job: imports, data, model, first batches
_ROUNDS, _LARGEST_STEP, _CLOSE, _WIDTHS = 30, 1.0, 1e-9, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvidence:
    """A measured run: the time of one step, or of a whole job with so many steps. ``source`` says where it is from.

    ``noise`` is the standard deviation of the logarithm of its time, if it were measured again.

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
    noise: float = RUN_NOISE
    source: str = ""

    def __post_init__(self) -> None:
        known = (self.step_s is not None) != (self.elapsed_s is not None and self.steps is not None)
        numbers = [each for each in (self.step_s, self.elapsed_s, self.steps, self.noise) if each is not None]
        if not known or any(not 0 < each < np.inf for each in numbers):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedSteps:
    """Predictions that know of runs, in the order of the predictions; ``before`` are those from code alone.

    ``errors`` and ``covariance`` are of the logarithms: of each prediction, and of the start-up.
    """

    before: tuple[PlacedStep, ...]
    after: tuple[Estimate, ...]
    start_up: Estimate
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
    used, unused, expected = [], [], []
    for run in runs:
        step = known.get(run.place) or predict(run.place)
        if step is None:
            unused.append(UnusedEvidence(evidence=run, reason=f"the code has no prediction for {run.device}"))
        else:
            used.append(run)
            expected.append(step)
    law = _Law.build([*predictions, *expected], start_up, shares)
    found = law.learn(used, first=len(predictions))
    after = tuple(found.correct(number, each.estimate) for number, each in enumerate(predictions))
    rows = [*range(len(predictions)), len(law.values) - 1]
    return CombinedSteps(
        before=tuple(predictions),
        after=after,
        start_up=found.correct(len(law.values) - 1, start_up),
        used=tuple(used),
        unused=tuple(unused),
        surprise=found.surprise,
        errors=found.errors[rows],
        covariance=found.covariance[np.ix_(rows, rows)],
        freedom=found.freedom,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """Errors of all places and of the start-up, as the runs say."""

    errors: Floats
    covariance: Floats
    prior: Floats
    freedom: float
    freedom_before: float
    surprise: float
    runs: int

    def correct(self, number: int, estimate: Estimate) -> Estimate:
        """The estimate, moved by its error and as wide as what is left of it."""
        if not self.runs:
            return estimate
        before = float(self.prior[number, number])
        left = min(before, float(self.covariance[number, number]) + RUN_NOISE**2)
        chance = 0.5 + estimate.level / 2
        quantiles = t_quantile(chance, self.freedom) / t_quantile(chance, self.freedom_before)
        factor = quantiles * float(np.sqrt(left / before)) if before else 1.0
        value = estimate.value * float(np.exp(self.errors[number]))
        low = value * (estimate.low / estimate.value) ** factor
        return Estimate(
            value=value, low=low, high=value * (estimate.high / estimate.value) ** factor, level=estimate.level
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """How much larger the variances are than expected: of the network, and of the device of each place."""

    network: float
    devices: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """A step of Bayes with known widths."""

    errors: Floats
    left: Floats  # covariance
    slopes: Floats  # of the runs
    spread: Floats
    rest: Floats

    @property
    def squares(self) -> float:
        """The squared distance of the runs from the predictions."""
        return float(self.rest @ np.linalg.solve(self.spread, self.rest))

    def find_square(self, part: Floats) -> Floats:
        """The expected square of a part of the error of each place, of which this was the covariance."""
        slopes = self.slopes[:, :-1]
        mean = part @ slopes.T @ np.linalg.solve(self.spread, self.rest)
        left = np.diag(part) - np.einsum("ij,ji->i", part @ slopes.T, np.linalg.solve(self.spread, slopes @ part))
        return np.asarray(mean**2 + left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """What is expected of all places, the start-up being the last of them."""

    values: Floats  # seconds of a step, and of the start-up
    covariance: ErrorCovariance
    start_up: float  # variance
    freedom: float
    device_freedom: float

    @classmethod
    def build(cls, steps: Sequence[PlacedStep], start_up: Estimate, shares: ErrorShares) -> "_Law":
        scales = np.array([find_scale(each.estimate, shares.freedom) for each in steps])
        return cls(
            values=np.array([*(each.estimate.value for each in steps), start_up.value]),
            covariance=build_covariance([each.place for each in steps], scales, [each.known for each in steps], shares),
            start_up=find_scale(start_up, shares.freedom) ** 2,
            freedom=shares.freedom,
            device_freedom=shares.device_freedom,
        )

    def build_prior(self, widths: "_Widths | None" = None) -> Floats:
        """Of the errors of steps, and that of the start-up."""
        widths = widths or _Widths(network=1.0, devices=np.ones(len(self.values) - 1))
        prior = np.zeros((len(self.values), len(self.values)))
        prior[:-1, :-1] = self.covariance.build(widths.network, widths.devices)
        prior[-1, -1] = self.start_up
        return prior

    def learn(self, runs: Sequence[StepEvidence], *, first: int) -> _Learned:
        """The errors after runs, whose places are those from the first on.

        A t distribution is a normal one of unknown width, which is found by expectation maximization: runs that are far
        from what was predicted say that this network, or this device, is one of those with large errors.
        """
        widths = _Widths(network=1.0, devices=np.ones(len(self.values) - 1))
        if not runs:
            return self._finish(np.zeros(len(self.values)), self.build_prior(), squares=0.0, runs=0)
        first_update = self._update(runs, first, widths)
        update = first_update
        for _ in range(_WIDTHS):
            widths = self._find_widths(update, widths)
            update = self._update(runs, first, widths)
        return self._finish(update.errors, update.left, squares=first_update.squares, runs=len(runs))

    def _find_widths(self, update: "_Update", widths: "_Widths") -> "_Widths":
        network = self.covariance.network
        whole = np.full((len(self.values) - 1, len(self.values) - 1), network)
        found = update.find_square(widths.network * whole)[0] / network
        spread = np.sqrt(widths.devices)
        own = np.diag(self.covariance.devices)
        squares = update.find_square(self.covariance.devices * np.outer(spread, spread))
        ratios = np.divide(squares, own, out=np.ones(len(own)), where=own > 0)
        return _Widths(
            network=(self.freedom + found) / (self.freedom + 1),
            devices=(self.device_freedom + ratios) / (self.device_freedom + 1),
        )

    def _update(self, runs: Sequence[StepEvidence], first: int, widths: "_Widths") -> "_Update":
        """Gauss-Newton, as whole times are sums."""
        prior, errors = self.build_prior(widths), np.zeros(len(self.values))
        noise = np.diag([run.noise**2 for run in runs])
        measured = np.log([run.step_s or run.elapsed_s or 1.0 for run in runs])
        for _ in range(_ROUNDS):
            expected, slopes = self._expect(runs, errors, first)
            spread = slopes @ prior @ slopes.T + noise
            rest = measured - expected + slopes @ errors
            gain = np.linalg.solve(spread, slopes @ prior).T
            change = np.clip(gain @ rest - errors, -_LARGEST_STEP, _LARGEST_STEP)
            errors = errors + change
            if np.abs(change).max() < _CLOSE:
                break
        return _Update(errors=errors, left=prior - gain @ slopes @ prior, slopes=slopes, spread=spread, rest=rest)

    def _expect(self, runs: Sequence[StepEvidence], errors: Floats, first: int) -> tuple[Floats, Floats]:
        """The logarithm of each measured time, and its slopes by the errors."""
        seconds = self.values * np.exp(errors)
        slopes = np.zeros((len(runs), len(errors)))
        totals = np.zeros(len(runs))
        for row, run in enumerate(runs):
            steps = 1.0 if run.steps is None else float(run.steps)
            start_up = 0.0 if run.steps is None else seconds[-1]
            totals[row] = steps * seconds[first + row] + start_up
            slopes[row, first + row] = steps * seconds[first + row] / totals[row]
            slopes[row, -1] = start_up / totals[row]
        return np.log(totals), slopes

    def _finish(self, errors: Floats, left: Floats, *, squares: float, runs: int) -> _Learned:
        return _Learned(
            errors=errors,
            covariance=left,
            prior=self.build_prior(),
            freedom=self.freedom + min(runs, 1),
            freedom_before=self.freedom,
            surprise=squares / max(1, runs),
            runs=runs,
        )
