"""Predictions of a source after a few of its steps were measured: a ridge regression on what a step consists of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.distributed.results import Result
from benchmarks.distributed.shared_rows import LEVEL, PredictedRow, judge_predicted
from foretell.core.workload import Floats

_PARTS = ("tensor", "data", "bubble", "host")  # of a step, besides computing
# Seconds that the host of a machine needs for an operator, slow ones and fast ones: shorter operators wait for it.
_HOSTS_S = (15e-6, 30e-6, 60e-6)
_RIDGES = tuple(np.geomspace(0.03, 100, 12).tolist())
_FEW, _SEEDS = 20, 5


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors for predictions, and the spread of log errors that remain."""

    centre: Floats
    scale: Floats
    weights: Floats
    spread: float

    def predict(self, rows: Sequence[PredictedRow]) -> Floats:
        """Log of the factor of each."""
        return np.asarray(_add_ones((build_features(rows) - self.centre) / self.scale) @ self.weights)


def correct_by_rows(rows: Sequence[PredictedRow]) -> Correction:
    """Learn from measured rows. How strongly is chosen by leaving each of them out."""
    given = build_features(rows)
    centre, scale = given.mean(axis=0), given.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    errors = np.array([row.log_error for row in rows])
    columns = _add_ones((given - centre) / scale)
    left_out = {ridge: _leave_each_out(columns, errors, ridge) for ridge in _RIDGES}
    ridge = min(_RIDGES, key=lambda each: float(np.mean(left_out[each] ** 2)))
    weights, _ = _solve(columns, errors, ridge)
    return Correction(centre, scale, weights, float(np.quantile(np.abs(left_out[ridge]), LEVEL)))


def build_features(rows: Sequence[PredictedRow]) -> Floats:
    """What errors may depend on: shares of the parts, sizes of groups, and how long an operator runs on a GPU."""
    return np.array([_describe(row) for row in rows])


def _describe(row: PredictedRow) -> list[float]:
    parts = row.step.parts
    total = sum(parts.values())
    layout = row.row.layout
    operators = row.step.micro_batches * len(row.step.workload.operators) / layout.pipeline_parallel
    operator_s = parts["compute"] / operators
    groups = (layout.tensor_parallel, layout.pipeline_parallel, layout.copies)
    return [
        *(parts.get(name, 0.0) / total for name in _PARTS),
        *np.log(groups).tolist(),
        float(np.log(operator_s)),
        *(max(0.0, float(np.log(host_s / operator_s))) for host_s in _HOSTS_S),
    ]


def _add_ones(columns: Floats) -> Floats:
    return np.column_stack([np.ones(len(columns)), columns])


def _solve(columns: Floats, errors: Floats, ridge: float) -> tuple[Floats, Floats]:
    """The weights, and the share that each row has in its own prediction. The mean is not shrunk."""
    penalty = ridge * np.eye(columns.shape[1])
    penalty[0, 0] = 0.0
    inverse = np.linalg.inv(columns.T @ columns + penalty)
    return inverse @ columns.T @ errors, np.einsum("ij,jk,ik->i", columns, inverse, columns)


def _leave_each_out(columns: Floats, errors: Floats, ridge: float) -> Floats:
    weights, shares = _solve(columns, errors, ridge)
    return np.asarray((errors - columns @ weights) / np.maximum(1e-6, 1 - shares))


def judge_few_rows(what: str, rows: Sequence[PredictedRow], *, most: float | None = None) -> list[Result]:
    """Rows that were not learned from, after 20 others drawn at random; the results of five draws together."""
    if len(rows) <= _FEW:
        return []
    kept: list[PredictedRow] = []
    factors: dict[int, float] = {}
    bounds: list[tuple[float, float]] = []
    for seed in range(_SEEDS):
        order = np.random.default_rng(seed).permutation(len(rows))
        correction = correct_by_rows([rows[place] for place in order[:_FEW]])
        others = [rows[place] for place in order[_FEW:]]
        for row, log in zip(others, correction.predict(others), strict=True):
            value = row.step.step.value * float(np.exp(log))
            factors[len(kept)] = float(np.exp(log))
            bounds.append((value * float(np.exp(-correction.spread)), value * float(np.exp(correction.spread))))
            kept.append(row)
    note = f"{_SEEDS} draws"
    return judge_predicted(what, f"with {_FEW} rows", kept, most=most, factors=factors, widths=bounds, note=note)
