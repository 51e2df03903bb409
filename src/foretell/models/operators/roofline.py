"""The roofline: what a device computes and moves at most in a second bounds every operator."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.optimize import least_squares

from foretell.entities.workload import Floats, MeasuredStep, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.encoding import Distinct, find_distinct, find_iterations


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

    def _bound(self, distinct: Distinct) -> Floats:
        return np.maximum(distinct.flops / self.flops_per_s_, distinct.bytes_moved / self.bytes_per_s_)


def _tell(kernel: Floats, launch: float) -> StepTimes:
    gap = np.full(len(kernel), launch)
    return StepTimes(iteration_s=float(kernel.sum() + gap.sum()), kernel_s=kernel, gap_s=gap)
