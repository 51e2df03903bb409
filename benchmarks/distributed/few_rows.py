"""Predictions of a source after a few of its steps were measured."""

from collections.abc import Sequence

import numpy as np

from benchmarks.distributed.shared_rows import LEVEL, PredictedRow, judge_predicted
from benchmarks.gpus.results import Result
from foretell.distributed.step_factors import StepFactors

_FEW, _SEEDS = 20, 5


def judge_few_rows(what: str, rows: Sequence[PredictedRow], *, most: float | None = None) -> list[Result]:
    """Rows that were not learned from, after 20 others drawn at random; the results of five draws together."""
    if len(rows) <= _FEW:
        return []
    kept: list[PredictedRow] = []
    factors: dict[int, float] = {}
    bounds: list[tuple[float, float]] = []
    for seed in range(_SEEDS):
        order = np.random.default_rng(seed).permutation(len(rows))
        drawn, others = ([rows[place] for place in some] for some in (order[:_FEW], order[_FEW:]))
        learned = StepFactors().fit([row.step for row in drawn], [row.row.seconds for row in drawn])
        for row, corrected in zip(others, learned.predict([row.step for row in others], level=LEVEL), strict=True):
            factors[len(kept)] = corrected.value / row.step.step.value
            bounds.append((corrected.low, corrected.high))
            kept.append(row)
    note = f"{_SEEDS} draws"
    return judge_predicted(what, f"with {_FEW} rows", kept, most=most, factors=factors, widths=bounds, note=note)
