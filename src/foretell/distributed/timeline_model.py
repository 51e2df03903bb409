"""The default method: a timeline of the iteration, corrected by measured jobs.

The timeline follows from bytes, link and operator times (:mod:`foretell.distributed.timeline`) and a few fitted costs.
Then a ridge regression on the setting and the timeline corrects each metric. While costs and corrections are fitted,
operator times are scaled to the measured use of the device, so that their errors do not appear as communication.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from foretell.core.model_files import check_numbers, read_number, read_numbers, read_positive
from foretell.core.observation import Metric, Resource
from foretell.core.serialization import from_record
from foretell.core.workload import Floats, StepPhase
from foretell.distributed._base import TARGETS, Arrays, Target, TransferableModel, find_measured_resources, read_targets
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Strategy
from foretell.distributed.device_demand import Demand, fit_demand, transfer_demand
from foretell.distributed.timeline import FASTEST_BYTES_PER_S, Costs, Timeline, lay_out, sum_phases

_LEAST = 0.02  # of an iteration: the shortest burst or idle of a timeline
_RIDGE = 3.0  # penalty of corrections, in jobs
_RANGE = 1.5  # corrections stay within so many times the measured range
_OUTLIER = 0.1  # residuals beyond this logarithm count less
_INTERCEPT_PENALTY = 1e-6
_TRANSFER_INTERCEPT_PENALTY = 2.0  # in jobs of the new setting
_TRANSFER_RIDGE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A linear model of log(measured ÷ timeline) for each metric."""

    weights: Floats  # targets x features, the first of which is one
    middle: Floats  # of features
    spread: Floats
    low: Floats  # limits of the correction
    high: Floats

    def apply(self, features: Floats) -> Floats:
        """The logarithms to add, a row for each case."""
        return np.clip(self._scale(features) @ self.weights.T, self.low, self.high)

    def fit_residuals(self, features: Floats, residuals: Floats, *, settings: int) -> "Correction":
        """A further correction for jobs of a few settings, with the feature scales of this one.

        Features of the setting are centred at the new jobs. Otherwise each would act as one more intercept, without
        its penalty. The limits include no correction at all.
        """
        shared = np.arange(features.shape[1]) < _OF_SETTING
        middle = np.where(shared, features.mean(axis=0), self.middle)
        low, high = _find_range(residuals)
        centred = replace(self, middle=middle, low=np.minimum(low, 0.0), high=np.maximum(high, 0.0))
        penalty = _build_penalty(features, _TRANSFER_RIDGE, settings=settings, intercept=_TRANSFER_INTERCEPT_PENALTY)
        scaled = centred._scale(features)
        return replace(centred, weights=np.array([_fit_weights(scaled, column, penalty) for column in residuals.T]))

    def _scale(self, features: Floats) -> Floats:
        scaled = np.clip((features - self.middle) / self.spread, -3.0, 3.0)
        return np.column_stack([np.ones(len(scaled)), scaled])


class TimelineModel(TransferableModel):
    """A timeline with fitted costs and corrections, for every setting."""

    kind: ClassVar[str] = "timeline"

    def __init__(self, ridge: float = _RIDGE) -> None:
        self.ridge = ridge

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Fit demand, costs and corrections; returns itself."""
        self.resources_ = find_measured_resources(jobs)
        self.slowest_link_ = _find_slowest(cases)
        self.demand_ = fit_demand(cases, jobs)
        scaled = [_scale_to_measured(self.demand_, case, job) for case, job in zip(cases, jobs, strict=True)]
        own = [self.demand_.find_own(case) for case in scaled]
        self.costs_ = _fit_costs(scaled, own, jobs)
        lines = [lay_out(case, self.costs_, own_s) for case, own_s in zip(scaled, own, strict=True)]
        features = _build_features(scaled, lines)
        penalty = _build_penalty(features, self.ridge, settings=len({case.setting for case in cases}))
        first = _fit_correction(features, _find_residuals(lines, jobs, scaled), penalty)
        self.corrections_: tuple[Correction, ...] = (first,)
        return self

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Keep the costs, scale the demand, and fit a further correction to these jobs."""
        moved = copy.copy(self)
        moved.demand_ = transfer_demand(self.demand_, cases, jobs)
        scaled = [_scale_to_measured(moved.demand_, case, job) for case, job in zip(cases, jobs, strict=True)]
        lines = [moved._lay_out(case) for case in scaled]
        features = _build_features(scaled, lines)
        residuals = _find_residuals(lines, jobs, scaled) - self._correct(features)
        further = self.corrections_[0].fit_residuals(
            features, residuals, settings=len({case.setting for case in cases})
        )
        moved.corrections_ = (*self.corrections_, further)
        moved.resources_ = self.resources_ | find_measured_resources(jobs)
        moved.slowest_link_ = min(self.slowest_link_, _find_slowest(cases))
        return moved

    def _correct(self, features: Floats) -> Floats:
        """The logarithms to add."""
        return np.asarray(sum(each.apply(features) for each in self.corrections_))

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes; the timeline alone where no job ran on such a device."""
        return [self._predict_case(self.demand_.apply(case) if case.device_measured else case) for case in cases]

    def _predict_case(self, case: Case) -> Consumed:
        cases = [case, *self._list_slower(case)]
        lines = [self._lay_out(each) for each in cases]
        known = 1.0 if case.device_measured else 0.0
        factors = np.exp(known * self._correct(_build_features(cases, lines)))
        values = _read_line(lines[0], case, least_idle=known * _LEAST) * factors[0]
        # A correction could make an iteration longer on a faster link, which no iteration is.
        values[0] = min(line.iteration_s * factor[0] for line, factor in zip(lines, factors, strict=True))
        return _build(values, lines[0], self.resources_)

    def _list_slower(self, case: Case) -> Iterator[Case]:
        """The case with half the link, a quarter and so on, down to the slowest measured."""
        rate = case.setting.link_bytes_per_s or FASTEST_BYTES_PER_S
        while case.setting.communicates and (rate := rate / 2) >= self.slowest_link_:
            yield replace(case, setting=replace(case.setting, link_bytes_per_s=rate))

    def _lay_out(self, case: Case) -> Timeline:
        if not case.device_measured:
            return lay_out(case, replace(self.costs_, slowdown=1.0))
        return lay_out(case, self.costs_, self.demand_.find_own(case))

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was fitted, as plain values and arrays."""
        arrays = {
            f"{number}.{each.name}": np.asarray(getattr(correction, each.name))
            for number, correction in enumerate(self.corrections_)
            for each in fields(Correction)
        }
        record = {
            "ridge": self.ridge,
            "corrections": len(self.corrections_),
            "demand": self.demand_.to_record(),
            "costs": {each.name: getattr(self.costs_, each.name) for each in fields(Costs)},
            "resources": sorted(self.resources_),
            "slowest_link": self.slowest_link_,
        }
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state."""
        model = cls(ridge=read_number(record["ridge"]))
        model.costs_ = from_record(Costs, read_numbers(record["costs"]))
        model.resources_ = frozenset(Resource(word) for word in record["resources"])
        model.slowest_link_ = read_positive(record["slowest_link"])
        model.demand_ = Demand.from_record(record["demand"])
        model.corrections_ = tuple(_read_correction(arrays, number) for number in _count(record["corrections"]))
        return model


def _count(number: int) -> range:
    return range(min(number, _MOST_CORRECTIONS))


def _read_correction(arrays: Arrays, number: int) -> Correction:
    shapes = {"weights": (len(_COLUMNS), _FEATURES + 1), "low": (len(_COLUMNS),), "high": (len(_COLUMNS),)}
    return Correction(
        **{
            each.name: check_numbers(arrays[f"{number}.{each.name}"], shape=shapes.get(each.name, (_FEATURES,)))
            for each in fields(Correction)
        }
    )


_COLUMNS: tuple[Target | None, ...] = (None, *TARGETS)  # the iteration, then the metrics of each resource


def _read_line(line: Timeline, case: Case, *, least_burst: float = 0.0, least_idle: float = 0.0) -> Floats:
    """Each column by the timeline alone; bursts and idles are at least these shares of the iteration."""
    whole = line.iteration_s
    alone = 1.0 if case.busy_s is None else float(case.busy_s.sum() / max(case.operator_s.sum(), 1e-12))
    use = case.setting.share * alone
    values: dict[Target, float] = {}
    for resource, busy, amount in (
        (Resource.COMPUTE, line.compute_s, use),
        (Resource.MEMORY, line.compute_s, use),
        (Resource.TRANSMIT, line.transmit_s, line.transmit_bytes / max(line.transmit_s, 1e-12)),
        (Resource.RECEIVE, line.receive_s, line.receive_bytes / max(line.receive_s, 1e-12)),
    ):
        busy = min(busy, whole)
        values[resource, Metric.BURST] = max(busy, least_burst * whole)
        values[resource, Metric.IDLE] = max(whole - busy, least_idle * whole)
        values[resource, Metric.AMOUNT] = max(amount, 1e-12)
    return np.array([whole, *(values[target] for target in TARGETS)])


def _find_residuals(lines: Sequence[Timeline], jobs: Sequence[MeasuredJob], cases: Sequence[Case]) -> Floats:
    """Logarithms of measured ÷ timeline; NaN where nothing was measured."""
    measured = np.column_stack([[job.iteration_s for job in jobs], read_targets(jobs)])
    expected = np.array(
        [_read_line(line, case, least_burst=_LEAST, least_idle=_LEAST) for line, case in zip(lines, cases, strict=True)]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = np.log(measured / expected)
    return np.where(np.isfinite(residuals), residuals, np.nan)


def _build(values: Floats, line: Timeline, measured: frozenset[Resource]) -> Consumed:
    """Bursts and idles of each resource are scaled to the corrected iteration, and so are compute and waiting."""
    whole = float(values[0])
    used = measured if line.transmit_bytes else measured - {Resource.TRANSMIT, Resource.RECEIVE}
    metrics = {target: float(value) for target, value in zip(TARGETS, values[1:], strict=True) if target[0] in used}
    for resource in used:
        both = metrics[resource, Metric.BURST] + metrics[resource, Metric.IDLE]
        for metric in (Metric.BURST, Metric.IDLE):
            metrics[resource, metric] *= whole / both
    compute = whole * min(1.0, line.compute_s / line.iteration_s)
    return Consumed(iteration_s=whole, compute_s=compute, exposed_s=whole - compute, metrics=metrics)


def _find_slowest(cases: Sequence[Case]) -> float:
    return min(case.setting.link_bytes_per_s or FASTEST_BYTES_PER_S for case in cases)


def _scale_to_measured(demand: Demand, case: Case, job: MeasuredJob) -> Case:
    """The case with operator times scaled to the job's use of its device, communication taken off."""
    expected, used, own = demand.apply(case), job.used_s, demand.find_own(case)
    if used is None or not used > own:
        return expected
    phases = sum_phases(expected)
    if case.setting.strategy is Strategy.SERVERS:
        del phases[StepPhase.UPDATE]  # servers run it
    return replace(expected, operator_s=expected.operator_s * ((used - own) / sum(phases.values())))


def _fit_costs(cases: Sequence[Case], own: Sequence[float], jobs: Sequence[MeasuredJob]) -> Costs:
    names = [each.name for each in fields(Costs)]
    start = np.log([getattr(Costs(), name) for name in names])
    prior = np.array([0.05, 1.0, 1.0, 0.1])  # standard deviation of each around its default, as logarithms

    def find_residuals(logs: Floats) -> Floats:
        costs = Costs(**dict(zip(names, np.exp(logs).tolist(), strict=True)))
        residuals = [
            np.log(job.iteration_s / lay_out(case, costs, own_s).iteration_s)
            for case, own_s, job in zip(cases, own, jobs, strict=True)
        ]
        return np.array([*residuals, *((logs - start) / prior * _OUTLIER)])

    found = least_squares(find_residuals, start, loss="soft_l1", f_scale=_OUTLIER).x
    return Costs(**dict(zip(names, np.exp(found).tolist(), strict=True)))


def _build_features(cases: Sequence[Case], lines: Sequence[Timeline]) -> Floats:
    """The inputs of corrections, a row for each case."""
    return np.array([_describe(case, line) for case, line in zip(cases, lines, strict=True)])


_OF_SETTING, _FEATURES = 7, 17
_MOST_CORRECTIONS = 1000


def _describe(case: Case, line: Timeline) -> list[float]:
    setting = case.setting
    reduced = float(setting.strategy is Strategy.ALLREDUCE)
    served = float(setting.strategy is Strategy.SERVERS and setting.synchronous)
    asynchronous = float(setting.strategy is Strategy.SERVERS and not setting.synchronous)
    balance = np.log(max(line.transmit_s, 1e-6) / max(line.compute_s, 1e-6))
    small = np.log(max(line.transmit_bytes, 1.0))
    return [  # the first _OF_SETTING are the same for all jobs of a setting, or nearly
        reduced,
        served,
        asynchronous,
        np.log(setting.workers),
        np.log(setting.workers / max(setting.servers, 1)) * (1 - reduced),
        np.log(setting.share),
        np.log(max(line.transmit_bytes, 1.0) / max(line.transmit_s, 1e-6)),
        small,
        balance,
        abs(balance),
        balance * reduced,
        balance * served,
        balance * asynchronous,
        np.log(line.iteration_s),
        np.log(line.transmit_s + 1e-6),
        np.log(1 + line.buckets) * reduced,
        line.transmit_s / line.iteration_s,
    ]


def _build_penalty(features: Floats, ridge: float, *, settings: int, intercept: float = _INTERCEPT_PENALTY) -> Floats:
    """The ridge penalty of each weight; for features of the setting, settings count and not jobs."""
    shared = np.arange(features.shape[1]) < _OF_SETTING
    return np.array([intercept, *np.where(shared, ridge * len(features) / settings, ridge)])


def _fit_correction(features: Floats, residuals: Floats, penalty: Floats) -> Correction:
    middle = features.mean(axis=0)
    spread = np.where(features.std(axis=0) > 1e-9, features.std(axis=0), 1.0)
    scaled = np.column_stack([np.ones(len(features)), (features - middle) / spread])
    weights = np.array([_fit_weights(scaled, column, penalty) for column in residuals.T])
    low, high = _find_range(residuals)
    return Correction(weights=weights, middle=middle, spread=spread, low=low, high=high)


def _fit_weights(scaled: Floats, residuals: Floats, penalty: Floats) -> Floats:
    """Ridge regression, reweighted so that outliers count less."""
    known = ~np.isnan(residuals)
    if not known.any():
        return np.zeros(scaled.shape[1])
    rows, values = scaled[known], residuals[known]
    row_weights = np.ones(len(values))
    for _ in range(10):
        weighted = rows * row_weights[:, None]
        weights = np.linalg.solve(weighted.T @ rows + np.diag(penalty), weighted.T @ values)
        off = np.abs(values - rows @ weights)
        row_weights = 1.0 / np.maximum(1.0, off / _OUTLIER)
    return np.asarray(weights)


def _find_range(residuals: Floats) -> tuple[Floats, Floats]:
    known = [column[~np.isnan(column)] for column in residuals.T]
    low = [np.quantile(column, 0.02) if len(column) else 0.0 for column in known]
    high = [np.quantile(column, 0.98) if len(column) else 0.0 for column in known]
    middle = (np.array(low) + np.array(high)) / 2
    half = (np.array(high) - np.array(low)) / 2 * _RANGE
    return middle - half, middle + half
