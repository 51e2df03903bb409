"""The law of errors of a training, and what runs say of it: Bayes' rule for a t distribution."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.advice.evidence_errors import (
    ErrorCovariance,
    ErrorShares,
    StepPlace,
    build_covariance,
    find_scale,
    t_quantile,
)
from foretell.advice.evidence_values import CPU_NOISE, RUN_NOISE, PlacedStep, StepEvidence
from foretell.core.intervals import Floats
from foretell.core.prediction import Estimate

_ROUNDS, _LARGEST_STEP, _CLOSE, _WIDTHS = 30, 1.0, 1e-9, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedErrors:
    """Errors of all places and of the start-up, as the runs say."""

    errors: Floats
    covariance: Floats
    prior: Floats
    freedom: float
    freedom_before: float
    surprise: float
    runs: int
    noise: Floats  # variance from run to run, of each

    def correct(self, number: int, estimate: Estimate) -> Estimate:
        """The estimate, moved by its error and as wide as what is left of it."""
        if not self.runs:
            return estimate
        before = float(self.prior[number, number])
        left = min(before, float(self.covariance[number, number] + self.noise[number]))
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
class ErrorLaw:
    """What is expected of all places, the start-up being the last of them."""

    values: Floats  # seconds of a step, and of the start-up
    places: tuple[StepPlace, ...]
    covariance: ErrorCovariance
    start_up: float  # variance
    freedom: float
    device_freedom: float

    @classmethod
    def build(cls, steps: Sequence[PlacedStep], start_up: Estimate, shares: ErrorShares) -> "ErrorLaw":
        scales = np.array([find_scale(each.estimate, shares.freedom) for each in steps])
        return cls(
            values=np.array([*(each.estimate.value for each in steps), start_up.value]),
            places=tuple(each.place for each in steps),
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

    def learn(self, runs: Sequence[StepEvidence], *, first: int) -> LearnedErrors:
        """The errors after runs, whose places are those from the first on.

        A t distribution is a normal one of unknown width, which is found by expectation maximization: runs that are far
        from what was predicted say that this network, or this device, is one of those with large errors.
        """
        if not runs:
            return self._finish(np.zeros(len(self.values)), self.build_prior(), squares=0.0, runs=0)
        own = replace(
            self, values=self.values[first:], places=self.places[first:], covariance=self.covariance.select(first)
        )
        widths = _Widths(network=1.0, devices=np.ones(len(runs)))
        update = start = own._update(runs, 0, widths)
        for _ in range(_WIDTHS):
            widths = own._find_widths(update, widths)
            update = own._update(runs, 0, widths)
        by_device = {run.device: width for run, width in zip(runs, widths.devices.tolist(), strict=True)}
        everywhere = np.array([by_device.get(place.device, 1.0) for place in self.places])
        found = self._update(runs, first, replace(widths, devices=everywhere))
        return self._finish(found.errors, found.left, squares=start.squares, runs=len(runs))

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
        noise = np.diag([run.noise**2 + _find_cpu_noise(run.place) for run in runs])
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

    def _finish(self, errors: Floats, left: Floats, *, squares: float, runs: int) -> LearnedErrors:
        return LearnedErrors(
            errors=errors,
            covariance=left,
            prior=self.build_prior(),
            freedom=self.freedom + min(runs, 1),
            freedom_before=self.freedom,
            surprise=squares / max(1, runs),
            runs=runs,
            noise=np.array([*(RUN_NOISE**2 + _find_cpu_noise(place) for place in self.places), RUN_NOISE**2]),
        )


def _find_cpu_noise(place: StepPlace) -> float:
    """Variance from run to run, of what others use of a CPU."""
    return CPU_NOISE**2 if place.cores is not None else 0.0
