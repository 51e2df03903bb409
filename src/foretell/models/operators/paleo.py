"""Paleo's analytic model: each kind of operator reaches its share of what the device could do."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.optimize import nnls

from foretell.entities.workload import Floats, MeasuredStep, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.encoding import Distinct, Rows, find_distinct, find_iterations

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

    def _find_places(self, distinct: Distinct) -> Rows:
        return np.array([self.places_.get(operator.kind, _OTHERS) for operator in distinct.operators], dtype=np.intp)


def _solve(work: Floats, times: Floats) -> Floats:
    """Seconds for each unit of work, by the least relative errors."""
    scale = np.maximum(work.max(axis=0), 1e-300)
    found, _ = nnls(work / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)
