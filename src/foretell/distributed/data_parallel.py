"""The time of a data-parallel training step for a batch, a placement and a cluster.

A step computes a batch on each GPU and synchronises the gradients. Compute time is bound by the host or by the GPU;
public figures of the GPU transfer it to others. Gradients are sent by a ring over the bus of a node and the network,
partly while the GPU computes. All parameters are fitted together with priors, those of a workload or cluster around the
common ones, so that an unmeasured cluster has a prediction too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from foretell.core.errors import ImportDataError
from foretell.core.intervals import Spread, bound
from foretell.core.workload import Floats
from foretell.distributed.compute_time import (
    NOISE,
    ComputeTimeModel,
    Params,
    fit_parameters,
    soft_l1,
)
from foretell.distributed.gradient_times import PARAMETERS, find_step_times
from foretell.distributed.measured_range import SPLITS, Distance, MeasuredRange
from foretell.distributed.placed_steps import Ints, Names, PlacedStep, Placement, Rows, TimedStep

_SYNC_NOISE = (0.1, 0.05)  # of measured synchronisation: relative to itself, and to compute time
_LEAST_WIDTH = 0.02  # of an interval on each side, as a logarithm
_MOST_ROWS = 3000  # to fit synchronisation to
_MOST_POINTS = 300  # of the Gaussian process of a workload on a cluster
_MOST_RESIDUAL = 2.0  # as a logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTime:
    """The predicted time of a step with bounds, and the parts that compute and that wait for gradients."""

    step_s: float
    compute_s: float
    exposed_s: float
    low_s: float
    high_s: float


class ParallelModel:
    """Predicts steps with other batches, placements and clusters from a table of measured ones.

    **Residuals** are optionally fitted by a Gaussian process for each workload on a cluster.
    **Intervals** have default widths until :meth:`calibrate` fits them to rows that were held back.
    """

    def __init__(self, *, residuals: bool = True) -> None:
        self.residuals = residuals

    def fit(self, rows: Sequence[TimedStep]) -> Self:
        """Fit to measured steps; returns itself.

        Raises:
            ImportDataError: The rows cannot be fitted to.
        """
        _check(rows)
        self.names_ = Names.find([row.placed for row in rows])
        self.range_ = MeasuredRange.find([row.placed for row in rows])
        self.spreads_ = {distance: Spread.from_prior() for distance in SPLITS}
        every = self.names_.number([row.placed for row in rows])
        step_s = np.array([row.step_s for row in rows])
        sync_s = np.array([np.nan if row.sync_s is None else row.sync_s for row in rows])
        self.compute_ = ComputeTimeModel.fit(every, _find_compute_times(every, step_s, sync_s), self.names_)
        chosen = _choose_rows(len(rows))
        few = every.take(chosen)
        self.sync_ = self._fit_sync(few, step_s[chosen], sync_s[chosen])
        self.residuals_ = self._fit_residuals(few, step_s[chosen]) if self.residuals else {}
        return self

    def predict(self, steps: Sequence[PlacedStep], *, level: float = 0.9) -> list[ParallelTime]:
        """The time of each step, in order, with an interval at ``level``.

        Raises:
            NotFoundError: A workload was not measured.
        """
        if not steps:
            return []
        times, compute = self._predict_times(steps)
        least, _ = self._predict_times([self.range_.find_lower_bound(step) for step in steps])
        return [
            self._build(step, time_s=float(time), compute_s=float(alone), level=level)
            for step, time, alone in zip(steps, np.maximum(least, times), compute, strict=True)
        ]

    def _predict_times(self, steps: Sequence[PlacedStep]) -> tuple[Floats, Floats]:
        """Seconds of each step, and of its computation."""
        rows = self.names_.number(steps)
        times = self._predict_law(rows) * np.exp(_predict_residuals(self.residuals_, rows))
        compute = np.where(rows.count > 1, np.minimum(np.exp(self.compute_.predict(rows)), times), times)
        return times, compute

    def calibrate(self, rows: Sequence[TimedStep], distances: Iterable[Distance] = tuple(Distance)) -> Self:
        """Fit intervals to rows that are held back: other batches, more GPUs, other clusters; returns itself."""
        for distance in distances:
            errors = [each for fold in SPLITS[distance](rows) for each in self._find_errors(*fold)]
            if errors:
                logs, widths = np.array(errors).T
                self.spreads_[distance] = Spread.learn(np.exp(logs), np.ones(len(logs)), widths)
        return self

    def _find_errors(self, train: Sequence[TimedStep], test: Sequence[TimedStep]) -> Iterator[tuple[float, float]]:
        """The error of each placement, as a logarithm, and the expected one; batches of a placement count as one."""
        model = ParallelModel(residuals=self.residuals).fit(train)
        groups: dict[tuple[str, str, Placement], list[float]] = {}
        for row, predicted in zip(test, model.predict([row.placed for row in test]), strict=True):
            key = (row.placed.workload, row.placed.cluster, row.placed.gpus)
            groups.setdefault(key, []).append(float(np.log(row.step_s / predicted.step_s)))
        steps = {(row.placed.workload, row.placed.cluster, row.placed.gpus): row.placed for row in test}
        for key, logs in groups.items():
            yield (
                float(np.copysign(np.sqrt(np.mean(np.square(logs))), np.mean(logs))),
                model.range_.find_width(steps[key]),
            )

    def _build(self, step: PlacedStep, *, time_s: float, compute_s: float, level: float) -> ParallelTime:
        distance, width = self.range_.find_distance(step), self.range_.find_width(step)
        spread = self.spreads_[distance]
        low_s, high_s = bound(time_s, spread, level=level, width=width, least=_LEAST_WIDTH)
        # A step is not shorter than its compute time, whose error does not depend on the number of GPUs.
        known = 1.0 if distance is Distance.OTHER_CLUSTER else self.range_.find_batch_width(step) / width
        least_s = compute_s * float(np.exp(spread.lower((1 - level) / 2) * width * min(1.0, known)))
        return ParallelTime(
            step_s=time_s,
            compute_s=compute_s,
            exposed_s=time_s - compute_s,
            low_s=max(float(low_s), min(least_s, time_s * (1 - _LEAST_WIDTH))),
            high_s=float(high_s),
        )

    def _fit_sync(self, rows: Rows, step_s: Floats, sync_s: Floats) -> Params:
        medians = _find_medians(self.compute_.predict(rows), rows.levels["workload"], self.names_.sizes()["workload"])
        several = np.flatnonzero(rows.count > 1)
        rows, step_s, sync_s = rows.take(several), step_s[several], sync_s[several]
        self.synchronised_ = np.unique(rows.levels["cluster"])
        compute, gpu_share = np.exp(self.compute_.predict(rows)), self.compute_.find_gpu_share(rows)
        measured = np.isfinite(sync_s)
        noise = _SYNC_NOISE[0] * np.where(measured, sync_s, 0.0) + _SYNC_NOISE[1] * compute

        def find_residuals(params: Params) -> Floats:
            times, exposed = find_step_times(params, rows, compute, gpu_share)
            waits = np.where(measured, sync_s - exposed, 0.0) / noise
            return np.stack([soft_l1(np.log(step_s / times) / NOISE), soft_l1(waits)])

        # Start where gradients take as long as computing: fully overlapped, their time would have no gradient.
        median = np.array([np.median(medians)])
        start = {"local": median, "net": median, "bytes": medians - median}
        centred = {
            name: replace(PARAMETERS[name], mean=float(median[0]) + PARAMETERS[name].mean) for name in ("local", "net")
        }
        return fit_parameters({**PARAMETERS, **centred}, self.names_.sizes(), rows, find_residuals, start=start)

    def _predict_law(self, rows: Rows) -> Floats:
        """Seconds of each step; of clusters without synchronised GPUs, the median of the common and all others."""
        compute, gpu_share = np.exp(self.compute_.predict(rows)), self.compute_.find_gpu_share(rows)
        cluster = rows.levels["cluster"]
        known = np.isin(cluster, self.synchronised_)
        others = [] if known.all() else [np.where(known, cluster, number) for number in self.synchronised_]
        likely = [replace(rows, levels={**rows.levels, "cluster": each}) for each in [cluster, *others]]
        return np.median([find_step_times(self.sync_, each, compute, gpu_share)[0] for each in likely], axis=0)

    def _fit_residuals(self, rows: Rows, step_s: Floats) -> "dict[int, _GaussianProcess]":
        residuals = np.clip(np.log(step_s / self._predict_law(rows)), -_MOST_RESIDUAL, _MOST_RESIDUAL)
        pairs = rows.levels["pair"]
        chosen = {pair: np.flatnonzero(pairs == pair) for pair in np.unique(pairs).tolist()}
        return {pair: _GaussianProcess.fit(rows.take(few), residuals[few]) for pair, few in chosen.items()}


def _check(rows: Sequence[TimedStep]) -> None:
    if not rows:
        raise ImportDataError("no steps to fit to; expected rows with a batch, a placement and a time")
    for row in rows:
        placed = row.placed
        if not row.step_s > 0 or not placed.batch > 0 or not placed.gpus or min(placed.gpus) < 1:
            raise ImportDataError(
                f"{placed.workload!r} on {placed.cluster!r}: a step of {row.step_s} s with batch {placed.batch} on"
                f" {placed.gpus} GPUs; expected numbers above 0. Leave such rows out"
            )


def _choose_rows(count: int) -> Ints:
    """Rows to fit to: all, or a fixed random sample of many."""
    if count <= _MOST_ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, _MOST_ROWS, replace=False))


def _find_compute_times(rows: Rows, step_s: Floats, sync_s: Floats) -> Floats:
    """Seconds that a step computes; NaN where it ran on several GPUs and its waiting was not measured."""
    waits = np.where(rows.count == 1, np.nan_to_num(sync_s), sync_s)
    return np.where(step_s > waits, step_s - waits, np.nan)


def _find_medians(values: Floats, levels: Ints, size: int) -> Floats:
    """The median of each level; of all values where a level has none."""
    overall = float(np.median(values))
    return np.array([np.median(values[levels == n]) if (levels == n).any() else overall for n in range(size)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _GaussianProcess:
    """The residuals of a workload on a cluster; 0 far from the measured placements."""

    points: Floats
    weights: Floats

    @classmethod
    def fit(cls, rows: Rows, residuals: Floats) -> "_GaussianProcess":
        chosen = np.unique(np.linspace(0, len(residuals) - 1, min(len(residuals), _MOST_POINTS)).astype(np.int64))
        points, residuals = _build_points(rows.take(chosen)), residuals[chosen]
        variance = max(float(np.var(residuals)), 1e-8)
        covariance = variance * _kernel(points, points) + NOISE**2 * np.eye(len(points))
        return cls(points=points, weights=np.asarray(variance * np.linalg.solve(covariance, residuals), dtype=float))

    def predict(self, rows: Rows) -> Floats:
        return np.asarray(_kernel(_build_points(rows), self.points) @ self.weights)


def _predict_residuals(processes: Mapping[int, _GaussianProcess], rows: Rows) -> Floats:
    residuals, pairs = np.zeros(len(rows.batch)), rows.levels["pair"]
    for pair in np.unique(pairs).tolist():
        if pair in processes:
            few = np.flatnonzero(pairs == pair)
            residuals[few] = processes[pair].predict(rows.take(few))
    return residuals


def _build_points(rows: Rows) -> Floats:
    """Batch, GPUs, nodes and GPUs of the fullest node, in doublings."""
    return np.log2(np.column_stack([rows.batch, rows.count, rows.nodes, rows.most]))


def _kernel(some: Floats, others: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * ((some[:, None] - others[None]) ** 2).sum(axis=2)))
