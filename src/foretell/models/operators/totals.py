"""The whole step at once: one regression on its totals, as models of whole graphs do."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.entities.workload import Floats, MeasuredStep, StepPhase, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.encoding import Distinct, find_distinct, find_iterations

_OTHERS = 0  # the place of kinds that were never measured


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

    def _encode(self, workloads: Sequence[Workload], distinct: Distinct) -> Floats:
        places = [self.places_.get((operator.kind, operator.phase), _OTHERS) for operator in distinct.operators]
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


def _sum_phases(distinct: Distinct) -> list[Floats]:
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
