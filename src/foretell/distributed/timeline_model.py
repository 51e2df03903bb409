"""The default: an iteration laid out in time by what is known, corrected by what jobs showed.

First, what bytes, link and operators say (:mod:`foretell.distributed.timeline`), with a few costs that are
fitted. Then, for each metric, how far measured jobs were off that, by a smooth function of the setting and of the
timeline itself. What a job used of its device teaches communication by how long operators really took, so that
mistakes about operators are not mistaken for it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from foretell.core.cycles import Metric, Resource
from foretell.core.model_checks import check_numbers, read_number, read_numbers, read_positive
from foretell.core.serialization import from_record
from foretell.core.workload import Floats, StepPhase
from foretell.distributed._base import ConsumptionModel
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Strategy
from foretell.distributed.consumption_targets import TARGETS, Target, find_taught, read_targets
from foretell.distributed.device_demand import Demand, fit_demand, move_demand
from foretell.distributed.timeline import FASTEST_BYTES_PER_S, Costs, Timeline, lay_out, sum_phases

_LEAST = 0.02  # of an iteration: what a timeline says of nothing at all
_RIDGE = 3.0  # jobs that a correction must outweigh
_RANGE = 1.5  # corrections stay within so many spreads of what jobs showed
_STRAY = 0.1  # of a logarithm: what counts as an outlier
_FREE = 1e-6  # for what is common to all: nothing holds it
_TRUST = 2.0  # jobs of a new setting that weigh as much as what was known before
_MOVED_RIDGE = 10.0  # jobs of it that must speak for what not all of them share


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How far metrics are from what the timeline says, as logarithms: a row of weights for each."""

    weights: Floats  # targets x features, the first of which is one
    middle: Floats  # of features
    spread: Floats
    low: Floats  # of the corrections that were seen
    high: Floats

    def apply(self, features: Floats) -> Floats:
        """The logarithms to add, a row for each case."""
        told = self._scale(features) @ self.weights.T
        return np.clip(told, self.low, self.high)

    def follow(self, features: Floats, misses: Floats, *, settings: int) -> "Correction":
        """One more, of what jobs of a few settings are still off; features are as large as they are to this one.

        What all jobs of a setting share is seen from their middle: from afar, each such feature would be one more
        common number, and nothing would hold them together. No job says that less than it showed is too little.
        """
        shared = np.arange(features.shape[1]) < _OF_SETTING
        middle = np.where(shared, features.mean(axis=0), self.middle)
        low, high = _find_range(misses)
        begun = replace(self, middle=middle, low=np.minimum(low, 0.0), high=np.maximum(high, 0.0))
        penalty = _penalise(features, _MOVED_RIDGE, settings=settings, level=_TRUST)
        scaled = begun._scale(features)
        return replace(begun, weights=np.array([_fit_weights(scaled, column, penalty) for column in misses.T]))

    def _scale(self, features: Floats) -> Floats:
        scaled = np.clip((features - self.middle) / self.spread, -3.0, 3.0)
        return np.column_stack([np.ones(len(scaled)), scaled])


class PhysicsModel(ConsumptionModel):
    """A timeline with fitted costs and learned corrections; settings are inputs."""

    kind: ClassVar[str] = "consumption"

    def __init__(self, ridge: float = _RIDGE) -> None:
        self.ridge = ridge

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Learn costs and corrections from jobs that ran."""
        self.taught_ = find_taught(jobs)
        self.slowest_link_ = _find_slowest(cases)
        self.demand_ = fit_demand(cases, jobs)
        true = [_anchor(self.demand_, case, job) for case, job in zip(cases, jobs, strict=True)]
        own = [self.demand_.find_own(case) for case in true]
        self.costs_ = _fit_costs(true, own, jobs)
        lines = [lay_out(case, self.costs_, own_s) for case, own_s in zip(true, own, strict=True)]
        features = _build_features(true, lines)
        penalty = _penalise(features, self.ridge, settings=len({case.setting for case in cases}))
        first = _fit_correction(features, _find_misses(lines, jobs, true), penalty)
        self.corrections_: tuple[Correction, ...] = (first,)
        return self

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Carry what was learned to another setting: costs stay, what is still off there is one more correction."""
        moved = copy.copy(self)
        moved.demand_ = move_demand(self.demand_, cases, jobs)
        true = [_anchor(moved.demand_, case, job) for case, job in zip(cases, jobs, strict=True)]
        lines = [moved._lay_out(case) for case in true]
        features = _build_features(true, lines)
        misses = _find_misses(lines, jobs, true) - self._correct(features)
        further = self.corrections_[0].follow(features, misses, settings=len({case.setting for case in cases}))
        moved.corrections_ = (*self.corrections_, further)
        moved.taught_ = self.taught_ | find_taught(jobs)
        moved.slowest_link_ = min(self.slowest_link_, _find_slowest(cases))
        return moved

    def _correct(self, features: Floats) -> Floats:
        """The logarithms to add."""
        return np.asarray(sum(each.apply(features) for each in self.corrections_))

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes; of a foreign one only what the timeline says."""
        return [self._tell(case if case.foreign else self.demand_.apply(case)) for case in cases]

    def _tell(self, case: Case) -> Consumed:
        asked, *slower = [case, *self._slow_down(case)]
        lines = [self._lay_out(each) for each in (asked, *slower)]
        known = 0.0 if case.foreign else 1.0
        factors = np.exp(known * self._correct(_build_features([asked, *slower], lines)))
        values = _read_line(lines[0], asked, least_idle=known * _LEAST) * factors[0]
        # What corrects may say otherwise, but nothing takes longer because a link is faster.
        values[0] = min(line.iteration_s * factor[0] for line, factor in zip(lines, factors, strict=True))
        return _build(values, lines[0], self.taught_)

    def _slow_down(self, case: Case) -> Iterator[Case]:
        """The same with a link of half the rate, again and again, down to the slowest that was measured."""
        rate = case.setting.link_bytes_per_s or FASTEST_BYTES_PER_S
        while case.setting.communicates and (rate := rate / 2) >= self.slowest_link_:
            yield replace(case, setting=replace(case.setting, link_bytes_per_s=rate))

    def _lay_out(self, case: Case) -> Timeline:
        if case.foreign:
            return lay_out(case, replace(self.costs_, slowdown=1.0))
        return lay_out(case, self.costs_, self.demand_.find_own(case))

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What was learned, as plain values and as arrays."""
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
            "taught": sorted(self.taught_),
            "slowest_link": self.slowest_link_,
        }
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The same model again."""
        model = cls(ridge=read_number(record["ridge"]))
        model.costs_ = from_record(Costs, read_numbers(record["costs"]))
        model.taught_ = frozenset(Resource(word) for word in record["taught"])
        model.slowest_link_ = read_positive(record["slowest_link"])
        model.demand_ = Demand.from_record(record["demand"])
        model.corrections_ = tuple(_read_correction(arrays, number) for number in _count(record["corrections"]))
        return model


def _count(number: int) -> range:
    return range(min(number, _MOST_CORRECTIONS))


def _read_correction(arrays: Mapping[str, NDArray[Any]], number: int) -> Correction:
    shapes = {"weights": (len(_COLUMNS), _FEATURES + 1), "low": (len(_COLUMNS),), "high": (len(_COLUMNS),)}
    return Correction(
        **{
            each.name: check_numbers(arrays[f"{number}.{each.name}"], shape=shapes.get(each.name, (_FEATURES,)))
            for each in fields(Correction)
        }
    )


# What is told: the iteration, then the metrics of each resource

_COLUMNS: tuple[Target | None, ...] = (None, *TARGETS)


def _read_line(line: Timeline, case: Case, *, least_burst: float = 0.0, least_idle: float = 0.0) -> Floats:
    """What the timeline alone says of each column; bursts and idles are at least so much of the iteration."""
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


def _find_misses(lines: Sequence[Timeline], jobs: Sequence[MeasuredJob], cases: Sequence[Case]) -> Floats:
    """Logarithms of measured ÷ laid out; not a number where nothing was measured."""
    actual = np.column_stack([[job.iteration_s for job in jobs], read_targets(jobs)])
    told = np.array(
        [_read_line(line, case, least_burst=_LEAST, least_idle=_LEAST) for line, case in zip(lines, cases, strict=True)]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        misses = np.log(actual / told)
    return np.where(np.isfinite(misses), misses, np.nan)


def _build(values: Floats, line: Timeline, taught: frozenset[Resource]) -> Consumed:
    """Bursts and idles of each resource add up to the iteration, and so do computing and waiting.

    What corrects the iteration says nothing of which of the two was off.
    """
    whole = float(values[0])
    told = taught if line.transmit_bytes else taught - {Resource.TRANSMIT, Resource.RECEIVE}
    metrics = {target: float(value) for target, value in zip(TARGETS, values[1:], strict=True) if target[0] in told}
    for resource in told:
        both = metrics[resource, Metric.BURST] + metrics[resource, Metric.IDLE]
        for metric in (Metric.BURST, Metric.IDLE):
            metrics[resource, metric] *= whole / both
    compute = whole * min(1.0, line.compute_s / line.iteration_s)
    return Consumed(iteration_s=whole, compute_s=compute, exposed_s=whole - compute, metrics=metrics)


# Learning


def _find_slowest(cases: Sequence[Case]) -> float:
    return min(case.setting.link_bytes_per_s or FASTEST_BYTES_PER_S for case in cases)


def _anchor(demand: Demand, case: Case, job: MeasuredJob) -> Case:
    """The case with operators as long as they really took: what the job used of its device, without communication."""
    told, used, own = demand.apply(case), job.used_s, demand.find_own(case)
    if used is None or not used > own:
        return told
    phases = sum_phases(told)
    if case.setting.strategy is Strategy.SERVERS:
        del phases[StepPhase.UPDATE]  # which servers do
    return replace(told, operator_s=told.operator_s * ((used - own) / sum(phases.values())))


def _fit_costs(cases: Sequence[Case], own: Sequence[float], jobs: Sequence[MeasuredJob]) -> Costs:
    names = [each.name for each in fields(Costs)]
    start = np.log([getattr(Costs(), name) for name in names])
    pull = np.array([0.05, 1.0, 1.0, 0.1])  # how far from its usual value each may well be, as logarithms

    def misses(logs: Floats) -> Floats:
        costs = Costs(**dict(zip(names, np.exp(logs).tolist(), strict=True)))
        off = [
            np.log(job.iteration_s / lay_out(case, costs, own_s).iteration_s)
            for case, own_s, job in zip(cases, own, jobs, strict=True)
        ]
        return np.array([*off, *((logs - start) / pull * _STRAY)])

    found = least_squares(misses, start, loss="soft_l1", f_scale=_STRAY).x
    return Costs(**dict(zip(names, np.exp(found).tolist(), strict=True)))


def _build_features(cases: Sequence[Case], lines: Sequence[Timeline]) -> Floats:
    """What a correction may depend on."""
    return np.array([_describe(case, line) for case, line in zip(cases, lines, strict=True)])


_OF_SETTING, _FEATURES = 7, 17
_MOST_CORRECTIONS = 1000


def _describe(case: Case, line: Timeline) -> list[float]:
    setting = case.setting
    reduced = float(setting.strategy is Strategy.ALLREDUCE)
    served = float(setting.strategy is Strategy.SERVERS and setting.synchronous)
    eager = float(setting.strategy is Strategy.SERVERS and not setting.synchronous)
    balance = np.log(max(line.transmit_s, 1e-6) / max(line.compute_s, 1e-6))
    small = np.log(max(line.transmit_bytes, 1.0))
    return [  # first what all jobs of a setting share, as many as _OF_SETTING tells
        reduced,
        served,
        eager,
        np.log(setting.workers),
        np.log(setting.workers / max(setting.servers, 1)) * (1 - reduced),
        np.log(setting.share),
        np.log(max(line.transmit_bytes, 1.0) / max(line.transmit_s, 1e-6)),
        small,
        balance,
        abs(balance),
        balance * reduced,
        balance * served,
        balance * eager,
        np.log(line.iteration_s),
        np.log(line.transmit_s + 1e-6),
        np.log(1 + line.buckets) * reduced,
        line.transmit_s / line.iteration_s,
    ]


def _penalise(features: Floats, ridge: float, *, settings: int, level: float = _FREE) -> Floats:
    """What holds each weight to none: of what all jobs of a setting share, it is settings that count, not jobs."""
    shared = np.arange(features.shape[1]) < _OF_SETTING
    return np.array([level, *np.where(shared, ridge * len(features) / settings, ridge)])


def _fit_correction(features: Floats, misses: Floats, penalty: Floats) -> Correction:
    middle = features.mean(axis=0)
    spread = np.where(features.std(axis=0) > 1e-9, features.std(axis=0), 1.0)
    scaled = np.column_stack([np.ones(len(features)), (features - middle) / spread])
    weights = np.array([_fit_weights(scaled, column, penalty) for column in misses.T])
    low, high = _find_range(misses)
    return Correction(weights=weights, middle=middle, spread=spread, low=low, high=high)


def _fit_weights(scaled: Floats, misses: Floats, penalty: Floats) -> Floats:
    """Ridge regression in which outliers count less and less."""
    known = ~np.isnan(misses)
    if not known.any():
        return np.zeros(scaled.shape[1])
    rows, values = scaled[known], misses[known]
    trust = np.ones(len(values))
    for _ in range(10):
        weighted = rows * trust[:, None]
        weights = np.linalg.solve(weighted.T @ rows + np.diag(penalty), weighted.T @ values)
        off = np.abs(values - rows @ weights)
        trust = 1.0 / np.maximum(1.0, off / _STRAY)
    return np.asarray(weights)


def _find_range(misses: Floats) -> tuple[Floats, Floats]:
    known = [column[~np.isnan(column)] for column in misses.T]
    low = [np.quantile(column, 0.02) if len(column) else 0.0 for column in known]
    high = [np.quantile(column, 0.98) if len(column) else 0.0 for column in known]
    middle = (np.array(low) + np.array(high)) / 2
    half = (np.array(high) - np.array(low)) / 2 * _RANGE
    return middle - half, middle + half
