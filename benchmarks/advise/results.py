"""Rows of the table of ``python -m benchmarks advise``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.advise.published import Compared, ComparedJob

GOAL = 15.0  # per cent, of the median
_INSIDE = (87.0, 93.0)
_PICKED = 80.0
NEAR = 0.9  # of the best, which is good enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Errors of predictions, |predicted - published| / published time, in per cent."""

    part: str
    group: str
    cases: int
    median: float
    mean: float
    ninetieth: float
    shift: float  # of the geometric mean: above 0 if predicted too slow
    inside: float  # of 90 % intervals
    width: float  # of the intervals, relative to the prediction
    goal: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickResult:
    """How often the choice that is predicted to be best is within 10 % of the best, in per cent."""

    part: str
    group: str
    cases: int
    good: float
    chance: float  # the same of choices at random
    worst: float  # of the best published value
    goal: str = ""


def judge(
    part: str, group: str, rows: Sequence[Compared | ComparedJob], *, has_goal: bool = False, note: str = ""
) -> list[Result]:
    """The errors of these predictions; none without rows."""
    if not rows:
        return []
    ratios = np.array([each.ratio for each in rows])
    errors = 100 * np.abs(ratios - 1)
    inside = 100 * float(np.mean([each.inside for each in rows]))
    median = float(np.median(errors))
    return [
        Result(
            part=part,
            group=group,
            cases=len(rows),
            median=median,
            mean=float(errors.mean()),
            ninetieth=float(np.quantile(errors, 0.9)),
            shift=100 * float(np.expm1(np.mean(np.log(ratios)))),
            inside=inside,
            width=100 * float(np.mean([_measure_width(each) for each in rows])),
            goal=_describe_goal(median, inside) if has_goal else "",
            note=note,
        )
    ]


def _measure_width(row: Compared | ComparedJob) -> float:
    estimate = row.total if isinstance(row, ComparedJob) else row.step
    return (estimate.high - estimate.low) / estimate.value


def _describe_goal(median: float, inside: float) -> str:
    least, most = _INSIDE
    error = f"median {GOAL:g} {'met' if median <= GOAL else 'missed'}"
    return f"{error}, inside {least:g}-{most:g} {'met' if least <= inside <= most else 'missed'}"


def judge_picks(part: str, group: str, picked: Sequence[tuple[float, float]]) -> list[PickResult]:
    """How good choices are: the share of the best published value that each has, and how many are good by chance."""
    if not picked:
        return []
    values, chances = zip(*picked, strict=True)
    good = 100 * float(np.mean(np.array(values) >= NEAR))
    return [
        PickResult(
            part=part,
            group=group,
            cases=len(values),
            good=good,
            chance=100 * float(np.mean(chances)),
            worst=100 * min(values),
            goal=f"{_PICKED:g} {'met' if good >= _PICKED else 'missed'}",
        )
    ]
