"""Rows of the tables of ``python -m benchmarks gpus`` and ``python -m benchmarks distributed``."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(os.environ.get("FORETELL_DATA", Path(__file__).parents[3] / "shared" / "data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The errors of one comparison: |predicted - measured| / measured, in per cent."""

    what: str
    group: str  # the device, the family, the operation, the cluster or all
    cases: int
    mean: float
    median: float
    worst: float
    most: float | None = None  # the goal
    by: str = "mean"  # the figure that the goal is about: mean or median
    inside: float | None = None  # of 90 % intervals, in per cent
    width: float | None = None  # mean width of the intervals, relative to the prediction, in per cent
    note: str = ""


def judge(
    what: str,
    group: str,
    predicted: Sequence[float],
    measured: Sequence[float],
    *,
    most: float | None = None,
    by: str = "mean",
    inside: float | None = None,
    width: float | None = None,
    note: str = "",
) -> Result:
    """The errors of these predictions."""
    errors = 100 * np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return Result(
        what=what,
        group=group,
        cases=len(errors),
        mean=float(errors.mean()),
        median=float(np.median(errors)),
        worst=float(errors.max()),
        most=most,
        by=by,
        inside=inside,
        width=width,
        note=note,
    )
