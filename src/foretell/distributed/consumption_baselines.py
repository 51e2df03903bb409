"""One straight line for each figure, in logarithms, on a step's totals and its setting."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from foretell.core.cycles import Metric, Resource
from foretell.core.workload import Floats
from foretell.distributed._base import ConsumptionModel
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Strategy
from foretell.distributed.consumption_targets import (
    TARGETS,
    Target,
    count_gradient_bytes,
    count_sent_bytes,
    find_taught,
    read_targets,
    sum_compute,
)

_LEAST = 1e-12  # no logarithm below
_POWERS = 30.0  # of e: answers beyond are no answers


class TotalsModel(ConsumptionModel):
    """Ridge regression of logarithms: a product of powers of totals.

    Totals are operations, bytes moved, bytes of gradients, parameters, operators and the batch; beside them stand link,
    workers, servers, the share of a core, the strategy and whether workers wait for each other. A link that nobody
    named counts as the usual one of those that were.
    """

    def __init__(self, ridge: float = 1e-2) -> None:
        self.ridge = ridge

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Learn; returns itself."""
        links = [case.setting.link_bytes_per_s for case in cases if case.setting.link_bytes_per_s]
        self.link_ = float(np.exp(np.mean(np.log(links)))) if links else 1.0
        X, y = self._encode(cases), read_targets(jobs)
        self.iteration_ = self._fit_line(X, np.array([job.iteration_s for job in jobs]))
        taught = [place for place in range(len(TARGETS)) if not np.isnan(y[:, place]).all()]
        self.lines_ = {TARGETS[place]: self._fit_line(X, y[:, place]) for place in taught}
        return self

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""
        if not cases:
            return []
        X = self._encode(cases)
        told = {target: _tell(line, X) for target, line in self.lines_.items()}
        return [
            _build(case, iteration_s, {target: float(values[row]) for target, values in told.items()})
            for row, (case, iteration_s) in enumerate(zip(cases, _tell(self.iteration_, X).tolist(), strict=True))
        ]

    def _fit_line(self, X: Floats, y: Floats) -> Pipeline:
        known = ~np.isnan(y)
        line = make_pipeline(StandardScaler(), Ridge(alpha=self.ridge))
        return line.fit(X[known], np.log(np.maximum(y[known], _LEAST)))

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
        marks = [float(setting.strategy is Strategy.SERVERS), float(setting.synchronous)]
        return [*np.log1p(totals).tolist(), float(np.log(max(setting.share, _LEAST))), *marks]


def _tell(line: Pipeline, X: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(line.predict(X), -_POWERS, _POWERS)))


def _build(case: Case, iteration_s: float, metrics: dict[Target, float]) -> Consumed:
    compute_s = min(sum_compute(case), iteration_s)
    return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=iteration_s - compute_s, metrics=metrics)


class BandwidthModel(ConsumptionModel):
    """Gradients go at the full rate of the link once all operators have run at the device's best rate that was seen.

    An iteration is the sum of both; whatever does not burst is idle. Where nobody named a link, the fastest burst that
    was seen stands for it; on a device that was not seen, the times of a worker alone do. It knows no start-up of
    messages, no buckets, nothing of overlap, and nothing of what servers share.
    """

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Keep the best rates."""
        self.taught_ = find_taught(jobs)
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
        return [self._tell(case) for case in cases]

    def _tell(self, case: Case) -> Consumed:
        link = case.setting.link_bytes_per_s or self.fastest_
        compute_s = self._reckon_compute(case)
        sent_s = count_sent_bytes(case) / link if link else 0.0
        exposed_s = sent_s if case.setting.strategy is Strategy.ALLREDUCE else 2 * sent_s  # there, then back
        iteration_s = compute_s + exposed_s
        found = _tell_cycle(Resource.COMPUTE, compute_s, iteration_s, case.setting.share)
        if link:
            found |= _tell_cycle(Resource.TRANSMIT, sent_s, iteration_s, link)
            found |= _tell_cycle(Resource.RECEIVE, sent_s, iteration_s, link)
        metrics = {target: value for target, value in found.items() if target[0] in self.taught_}
        return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=exposed_s, metrics=metrics)

    def _reckon_compute(self, case: Case) -> float:
        rate = self.rates_.get(case.setting.device)
        return case.workload.flops / (rate * case.setting.share) if rate else sum_compute(case)


def _tell_cycle(resource: Resource, burst_s: float, iteration_s: float, amount: float) -> dict[Target, float]:
    return {
        (resource, Metric.BURST): burst_s,
        (resource, Metric.IDLE): iteration_s - burst_s,
        (resource, Metric.AMOUNT): amount,
    }
