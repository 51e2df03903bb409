"""Simple methods to compare with: a log-linear regression on totals, and the full rate of the link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.model_files import check_numbers, read_number, read_positive
from foretell.core.observation import Metric, Resource
from foretell.core.workload import Floats
from foretell.distributed._base import (
    TARGETS,
    Arrays,
    ConsumptionModel,
    Target,
    count_gradient_bytes,
    count_sent_bytes,
    find_measured_resources,
    read_targets,
    sum_compute,
)
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Strategy

_LEAST = 1e-12  # no logarithm of less
_LARGEST_LOG = 30.0  # predictions stay within exp(±30)
_COLUMNS: tuple[Target | None, ...] = (None, *TARGETS)  # the iteration, then the metrics
_FEATURES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A ridge regression of logarithms on standardised features."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float

    @classmethod
    def fit(cls, X: Floats, y: Floats, *, ridge: float) -> "_Line":
        known = ~np.isnan(y)
        X, logs = X[known], np.log(np.maximum(y[known], _LEAST))
        deviation = X.std(axis=0)
        # features that hardly vary are not scaled up: their deviation is rounding
        scale = np.where(deviation > 10 * np.finfo(float).eps * np.abs(X).max(axis=0), deviation, 1.0)
        mean, intercept = X.mean(axis=0), float(logs.mean())
        scaled = (X - mean) / scale
        weights = np.linalg.solve(scaled.T @ scaled + ridge * np.eye(X.shape[1]), scaled.T @ (logs - intercept))
        return cls(mean=mean, scale=scale, weights=np.asarray(weights), intercept=intercept)

    def predict(self, X: Floats) -> Floats:
        logs = (X - self.mean) / self.scale @ self.weights + self.intercept
        return np.asarray(np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG)))


class TotalsModel(ConsumptionModel):
    """Ridge regression of logarithms: each figure is a product of powers of totals.

    Totals are operations, bytes moved, bytes of gradients, parameters, operators and the batch; then link, workers,
    servers, the share of a core, the strategy and whether workers wait for each other. Without a link, the geometric
    mean of the measured links is used.
    """

    kind: ClassVar[str] = "totals"

    def __init__(self, ridge: float = 1e-2) -> None:
        self.ridge = ridge

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Fit one regression for the iteration and for each metric; returns itself."""
        links = [case.setting.link_bytes_per_s for case in cases if case.setting.link_bytes_per_s]
        self.link_ = float(np.exp(np.mean(np.log(links)))) if links else 1.0
        X = self._encode(cases)
        y = np.column_stack([[job.iteration_s for job in jobs], read_targets(jobs)])
        self.lines_ = {
            target: _Line.fit(X, column, ridge=self.ridge)
            for target, column in zip(_COLUMNS, y.T, strict=True)
            if not np.isnan(column).all()
        }
        return self

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""
        if not cases:
            return []
        X = self._encode(cases)
        columns = {target: line.predict(X).tolist() for target, line in self.lines_.items()}
        return [
            _build(case, columns[None][row], {target: columns[target][row] for target in columns if target})
            for row, case in enumerate(cases)
        ]

    def _encode(self, cases: Sequence[Case]) -> Floats:
        return np.array([self._encode_case(case) for case in cases], dtype=np.float64)

    def _encode_case(self, case: Case) -> list[float]:
        workload, setting = case.workload, case.setting
        totals = [
            workload.flops,
            workload.bytes_moved,
            count_gradient_bytes(workload),
            workload.parameters,
            len(workload.operators),
            workload.batch,
            setting.link_bytes_per_s or self.link_,
            setting.workers,
            setting.servers,
        ]
        flags = [float(setting.strategy is Strategy.SERVERS), float(setting.synchronous)]
        return [*np.log1p(totals).tolist(), float(np.log(max(setting.share, _LEAST))), *flags]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The regressions that were fitted."""
        places = [place for place, target in enumerate(_COLUMNS) if target in self.lines_]
        lines = [self.lines_[_COLUMNS[place]] for place in places]
        record = {"ridge": self.ridge, "link": self.link_, "columns": places}
        arrays = {name: np.array([getattr(line, name) for line in lines]) for name in ("mean", "scale", "weights")}
        return record, arrays | {"intercept": np.array([line.intercept for line in lines])}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state."""
        model = cls(ridge=read_number(record["ridge"]))
        model.link_ = read_positive(record["link"])
        targets = [_COLUMNS[place] for place in record["columns"]]
        shape = (len(targets), _FEATURES)
        mean, scale, weights = (check_numbers(arrays[name], shape=shape) for name in ("mean", "scale", "weights"))
        if None not in targets or not (scale > 0).all():
            raise ValueError("a regression without the iteration, or with a scale of 0")
        intercept = check_numbers(arrays["intercept"], shape=shape[:1])
        model.lines_ = {
            target: _Line(mean=mean[row], scale=scale[row], weights=weights[row], intercept=float(intercept[row]))
            for row, target in enumerate(targets)
        }
        return model


def _build(case: Case, iteration_s: float, metrics: dict[Target, float]) -> Consumed:
    compute_s = min(sum_compute(case), iteration_s)
    return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=iteration_s - compute_s, metrics=metrics)


class BandwidthModel(ConsumptionModel):
    """Operators run at the device's best measured rate, then gradients are sent at the full rate of the link.

    An iteration is the sum of both; whatever is no burst is idle. Without a link, the fastest measured burst is used;
    on a device that was not measured, the operator times. There is no latency of messages, no buckets, no overlap, and
    no sharing of servers.
    """

    kind: ClassVar[str] = "bandwidth"

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Find the best rates; returns itself."""
        self.resources_ = find_measured_resources(jobs)
        self.rates_: dict[str, float] = {}  # operations a second of a whole device
        self.fastest_: float | None = None  # bytes a second
        for job in jobs:
            device, compute = job.setting.device, job.cycles.get(Resource.COMPUTE)
            seconds = job.alone_s or (job.iteration_s if compute is None else compute.burst_s)
            rate = job.workload.flops / (seconds * job.setting.share) if seconds > 0 else 0.0
            self.rates_[device] = max(self.rates_.get(device, 0.0), rate)
            sent = job.cycles.get(Resource.TRANSMIT)
            self.fastest_ = self.fastest_ if sent is None else max(self.fastest_ or 0.0, sent.burst_amount)
        return self

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""
        return [self._predict_case(case) for case in cases]

    def _predict_case(self, case: Case) -> Consumed:
        link = case.setting.link_bytes_per_s or self.fastest_
        compute_s = self._compute_time(case)
        sent_s = count_sent_bytes(case) / link if link else 0.0
        exposed_s = sent_s if case.setting.strategy is Strategy.ALLREDUCE else 2 * sent_s  # there and back
        iteration_s = compute_s + exposed_s
        found = _build_cycle(Resource.COMPUTE, compute_s, iteration_s, case.setting.share)
        if link:
            found |= _build_cycle(Resource.TRANSMIT, sent_s, iteration_s, link)
            found |= _build_cycle(Resource.RECEIVE, sent_s, iteration_s, link)
        metrics = {target: value for target, value in found.items() if target[0] in self.resources_}
        return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=exposed_s, metrics=metrics)

    def _compute_time(self, case: Case) -> float:
        rate = self.rates_.get(case.setting.device)
        return case.workload.flops / (rate * case.setting.share) if rate else sum_compute(case)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The best rates."""
        return {"rates": self.rates_, "fastest": self.fastest_, "resources": sorted(self.resources_)}, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state."""
        model = cls()
        model.rates_ = {name: read_positive(rate) for name, rate in record["rates"].items()}
        model.fastest_ = None if record["fastest"] is None else read_positive(record["fastest"])
        model.resources_ = frozenset(Resource(word) for word in record["resources"])
        return model


def _build_cycle(resource: Resource, burst_s: float, iteration_s: float, amount: float) -> dict[Target, float]:
    return {
        (resource, Metric.BURST): burst_s,
        (resource, Metric.IDLE): iteration_s - burst_s,
        (resource, Metric.AMOUNT): amount,
    }
