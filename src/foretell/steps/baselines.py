"""Operators on their own, each kind with a regression of its own, as Habitat and Justus do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from scipy.optimize import least_squares, nnls
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.steps._base import StepModel, StepTimes
from foretell.steps.operator_encoding import DistinctOperators, Rows, encode, find_distinct, find_iterations, read_times

_Kind: TypeAlias = tuple[str, StepPhase]

_SHORTEST_S = 1e-6  # of shorter times the logarithm would be mostly noise


class OperatorRegressionModel(StepModel):
    """Boosted trees on the logarithms of an operator's time and of the gap after it; what stands around is not seen.

    Distinct operators are learned from, each by its mean. The mean of logarithms lies below the logarithm of the mean,
    and a step is a sum: what the trees of a kind tell is raised by the mean ratio of the times they learned. A kind
    that was hardly or never measured is answered for by trees that learned from all kinds and do not see which it is.
    """

    def __init__(
        self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 5, fewest: int = 40, seed: int = 0
    ) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.fewest = fewest
        self.seed = seed

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        distinct = find_distinct(step.workload for step in steps)
        kernel, gap = _average(distinct, steps)
        X = encode(distinct.operators)
        self.kernels_ = self._fit_kinds(distinct, X, kernel)
        self.gaps_ = self._fit_kinds(distinct, X, gap)
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        distinct = find_distinct(workloads)
        X = encode(distinct.operators)
        kernel = _predict_kinds(self.kernels_, distinct, X)
        gap = _predict_kinds(self.gaps_, distinct, X)
        return [
            StepTimes(iteration_s=float(kernel[rows].sum() + gap[rows].sum()), kernel_s=kernel[rows], gap_s=gap[rows])
            for rows in distinct.rows
        ]

    def _fit_kinds(self, distinct: DistinctOperators, X: Floats, times: Floats) -> "dict[_Kind | None, _Trees]":
        known = ~np.isnan(times)
        y = np.log(np.maximum(times, _SHORTEST_S))
        models: dict[_Kind | None, _Trees] = {None: self._fit(X[known], y[known])}
        for kind, rows in _group(distinct).items():
            rows = rows[known[rows]]
            if len(rows) >= self.fewest:
                models[kind] = self._fit(X[rows], y[rows])
        return models

    def _fit(self, X: Floats, y: Floats) -> "_Trees":
        model = HistGradientBoostingRegressor(
            max_iter=self.trees,
            learning_rate=self.learning_rate,
            min_samples_leaf=self.min_leaf,
            early_stopping=False,
            random_state=self.seed,
        ).fit(X, y)
        return _Trees(model=model, shift=float(np.log(np.mean(np.exp(y - model.predict(X))))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trees:
    model: Any
    shift: float

    def predict(self, X: Floats) -> Floats:
        return np.exp(np.asarray(self.model.predict(X)) + self.shift)


def _average(distinct: DistinctOperators, steps: Sequence[MeasuredStep]) -> tuple[Floats, Floats]:
    """The mean time of each distinct operator and of the gap after it; not a number where none was recorded."""
    sums, counts = np.zeros((2, len(distinct.operators))), np.zeros((2, len(distinct.operators)))
    for rows, step in zip(distinct.rows, steps, strict=True):
        times = read_times(step)
        for target, values, chosen in (
            (0, times.kernel_s, slice(None)),
            (1, np.maximum(times.gap_s, 0.0), times.alone),
        ):
            places = rows[times.places][chosen]
            np.add.at(sums[target], places, values[chosen])
            np.add.at(counts[target], places, 1.0)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return means[0], means[1]


def _predict_kinds(models: dict[_Kind | None, _Trees], distinct: DistinctOperators, X: Floats) -> Floats:
    told = np.zeros(len(X))
    for kind, rows in _group(distinct).items():
        told[rows] = models.get(kind, models[None]).predict(X[rows])
    return told


def _group(distinct: DistinctOperators) -> dict[_Kind | None, Rows]:
    """Where the operators of each kind and phase are."""
    groups: dict[_Kind | None, list[int]] = {}
    for place, operator in enumerate(distinct.operators):
        groups.setdefault(_find_kind(operator), []).append(place)
    return {kind: np.array(places, dtype=np.intp) for kind, places in groups.items()}


def _find_kind(operator: Operator) -> _Kind:
    return operator.kind, operator.phase


class RooflineModel(StepModel):
    """Each operator takes the longer of computing and moving, and one launch that is the same for all.

    Three numbers are learned, with the least squares of the iterations' errors as ratios: operations in a second, bytes
    in a second, and the launch. They are what the device reaches, its public figures times an efficiency.
    """

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        distinct = find_distinct(step.workload for step in steps)
        counts, times = distinct.count(), find_iterations(steps)
        flops, moved = distinct.flops, distinct.bytes_moved

        def miss(logs: Floats) -> Floats:
            speed, bandwidth, launch = np.exp(logs)
            told = counts @ (np.maximum(flops / speed, moved / bandwidth) + launch)
            return np.asarray(np.log(told / times))

        # No step beats its device: the best of all steps is where each figure may lie.
        best = [np.max(counts @ flops / times), np.max(counts @ moved / times), np.min(times / counts.sum(axis=1))]
        found = least_squares(miss, np.log(np.maximum(best, 1e-12)), loss="soft_l1")
        self.flops_per_s_, self.bytes_per_s_, self.launch_s_ = map(float, np.exp(found.x))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        distinct = find_distinct(workloads)
        kernel = self._bound(distinct)
        return [_tell(kernel[rows], self.launch_s_) for rows in distinct.rows]

    def _bound(self, distinct: DistinctOperators) -> Floats:
        return np.maximum(distinct.flops / self.flops_per_s_, distinct.bytes_moved / self.bytes_per_s_)


def _tell(kernel: Floats, launch: float) -> StepTimes:
    gap = np.full(len(kernel), launch)
    return StepTimes(iteration_s=float(kernel.sum() + gap.sum()), kernel_s=kernel, gap_s=gap)


_OTHERS = 0  # the place of kinds that were never measured


class PaleoModel(StepModel):
    """Computing and moving one after the other: FLOPs over the kind's own speed, bytes over the device's bandwidth.

    The original divides the peak by a "platform percent of peak"; here both are one number for each kind, learned with
    the bandwidth from whole iterations, the least squares of relative errors, none negative. It knows no launches.
    A kind that was never measured computes as fast as all kinds do together.
    """

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        distinct = find_distinct(step.workload for step in steps)
        kinds = sorted({operator.kind for operator in distinct.operators})
        self.places_ = {kind: place for place, kind in enumerate(kinds, start=1)}
        counts, times = distinct.count(), find_iterations(steps)
        moved = counts @ distinct.bytes_moved
        computed = np.zeros((len(steps), len(kinds) + 1))
        for place in self.places_.values():
            computed[:, place] = counts @ np.where(self._find_places(distinct) == place, distinct.flops, 0.0)
        together = _solve(np.column_stack([computed.sum(axis=1), moved]), times)
        apart = _solve(np.column_stack([computed[:, 1:], moved]), times)
        self.s_per_flop_ = np.array([together[0], *apart[:-1]])
        self.s_per_byte_ = float(apart[-1])
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        distinct = find_distinct(workloads)
        slowness = self.s_per_flop_[self._find_places(distinct)]
        kernel = slowness * distinct.flops + self.s_per_byte_ * distinct.bytes_moved
        return [
            StepTimes(iteration_s=float(kernel[rows].sum()), kernel_s=kernel[rows], gap_s=np.zeros(len(rows)))
            for rows in distinct.rows
        ]

    def _find_places(self, distinct: DistinctOperators) -> Rows:
        return np.array([self.places_.get(operator.kind, _OTHERS) for operator in distinct.operators], dtype=np.intp)


def _solve(work: Floats, times: Floats) -> Floats:
    """Seconds for each unit of work, by the least relative errors."""
    scale = np.maximum(work.max(axis=0), 1e-300)
    found, _ = nnls(work / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


_TOTALS_OTHERS = 0  # the place of kinds that were never measured


class TotalsModel(StepModel):
    """Boosted trees on the logarithm of the iteration's time over the time its bytes take.

    Columns are a step's operations, bytes, parameters and batch, and how many operators of each kind and phase it has.
    The bytes' speed is that of the median step. The time is shared out by what the operators compute and move.
    """

    def __init__(self, trees: int = 200, learning_rate: float = 0.08, min_leaf: int = 10, seed: int = 0) -> None:
        self.trees = trees
        self.learning_rate = learning_rate
        self.min_leaf = min_leaf
        self.seed = seed

    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""
        workloads = [step.workload for step in steps]
        distinct = find_distinct(workloads)
        words = sorted({(operator.kind, operator.phase) for operator in distinct.operators})
        self.places_ = {word: place for place, word in enumerate(words, start=1)}
        moved = distinct.count() @ distinct.bytes_moved
        times = find_iterations(steps)
        self.model_ = HistGradientBoostingRegressor(
            max_iter=self.trees,
            learning_rate=self.learning_rate,
            min_samples_leaf=self.min_leaf,
            early_stopping=False,
            random_state=self.seed,
        ).fit(self._encode(workloads, distinct), np.log(times / np.maximum(moved, 1.0)))
        return self

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        if not workloads:
            return []
        distinct = find_distinct(workloads)
        moved = distinct.count() @ distinct.bytes_moved
        times = np.exp(self.model_.predict(self._encode(workloads, distinct))) * np.maximum(moved, 1.0)
        flops, read = distinct.flops, distinct.bytes_moved
        return [
            StepTimes(
                iteration_s=float(time), kernel_s=time * _share(flops[rows], read[rows]), gap_s=np.zeros(len(rows))
            )
            for time, rows in zip(times, distinct.rows, strict=True)
        ]

    def _encode(self, workloads: Sequence[Workload], distinct: DistinctOperators) -> Floats:
        places = [self.places_.get((operator.kind, operator.phase), _TOTALS_OTHERS) for operator in distinct.operators]
        kinds = distinct.count(np.array(places, dtype=np.intp), len(self.places_) + 1).toarray()
        return np.column_stack(
            [
                np.log1p(kinds),
                *(np.log1p(total) for total in _sum_phases(distinct)),
                np.log([len(rows) + 1 for rows in distinct.rows]),
                np.log2([max(workload.batch, 1) for workload in workloads]),
                np.log1p([workload.parameters for workload in workloads]),
            ]
        )


def _sum_phases(distinct: DistinctOperators) -> list[Floats]:
    """Operations and bytes of each phase."""
    counts = distinct.count()
    phases = np.array([operator.phase for operator in distinct.operators])
    return [
        np.asarray(counts @ np.where(phases == phase, values, 0.0))
        for phase in StepPhase
        for values in (distinct.flops, distinct.bytes_moved)
    ]


def _share(flops: Floats, moved: Floats) -> Floats:
    """Which part of the step each operator is: half by what it computes, half by what it moves."""
    parts = [values / values.sum() for values in (flops, moved) if values.sum() > 0]
    return np.mean(parts, axis=0) if parts else np.full(len(flops), 1 / max(len(flops), 1))
