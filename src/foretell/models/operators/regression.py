"""Operators on their own, each kind with a regression of its own, as Habitat and Justus do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from foretell.entities.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.models.operators._base import StepModel, StepTimes
from foretell.models.operators.encoding import Distinct, Rows, encode, find_distinct, read_times

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

    def _fit_kinds(self, distinct: Distinct, X: Floats, times: Floats) -> "dict[_Kind | None, _Trees]":
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


def _average(distinct: Distinct, steps: Sequence[MeasuredStep]) -> tuple[Floats, Floats]:
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


def _predict_kinds(models: dict[_Kind | None, _Trees], distinct: Distinct, X: Floats) -> Floats:
    told = np.zeros(len(X))
    for kind, rows in _group(distinct).items():
        told[rows] = models.get(kind, models[None]).predict(X[rows])
    return told


def _group(distinct: Distinct) -> dict[_Kind | None, Rows]:
    """Where the operators of each kind and phase are."""
    groups: dict[_Kind | None, list[int]] = {}
    for place, operator in enumerate(distinct.operators):
        groups.setdefault(_find_kind(operator), []).append(place)
    return {kind: np.array(places, dtype=np.intp) for kind, places in groups.items()}


def _find_kind(operator: Operator) -> _Kind:
    return operator.kind, operator.phase
