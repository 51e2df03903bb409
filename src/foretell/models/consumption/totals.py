"""One straight line for each figure, in logarithms, on a step's totals and its setting."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from foretell.entities.consumption import Case, Consumed, MeasuredJob, Strategy
from foretell.entities.workload import Floats
from foretell.models.consumption._base import ConsumptionModel
from foretell.models.consumption.targets import TARGETS, Target, count_gradient_bytes, read_targets, sum_compute

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
