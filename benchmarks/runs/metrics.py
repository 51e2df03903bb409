"""From rows of predictions to figures. All in per cent but ``cost``, which is in multiples of the ideal."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from benchmarks.runs.cases import Figure
from foretell.runtimes.metrics import cost_with_doubling


def mape(rows: pd.DataFrame) -> float:
    return float(_errors(rows).mean())


def median_ape(rows: pd.DataFrame) -> float:
    return float(_errors(rows).median())


def p90_ape(rows: pd.DataFrame) -> float:
    return float(_errors(rows).quantile(0.9))


def max_ape(rows: pd.DataFrame) -> float:
    return float(_errors(rows).max())


def coverage(rows: pd.DataFrame) -> float:
    """How many lie within their interval."""
    return 100 * float(rows["actual"].between(rows["low"], rows["high"]).mean())


def mean_width(rows: pd.DataFrame) -> float:
    return float(_widths(rows).mean())


def median_width(rows: pd.DataFrame) -> float:
    return float(_widths(rows).median())


def upp(rows: pd.DataFrame) -> float:
    """How many need more than was asked for."""
    return 100 * float((rows["actual"] > rows["request"]).mean())


def request_cost(rows: pd.DataFrame) -> float:
    """What the requests cost, doubled where they fail, over what was needed."""
    return _cost(rows, "request")


def point_cost(rows: pd.DataFrame) -> float:
    """The same, had the point estimates been asked for."""
    return _cost(rows, "value")


def over_seeds(rows: pd.DataFrame, metric: Callable[[pd.DataFrame], float]) -> tuple[float, float | None]:
    """The metric's mean over the seeds, and its standard deviation."""
    if rows.empty:
        return float("nan"), None
    values = [metric(group) for _, group in rows.groupby("seed")]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def judge(rows: pd.DataFrame) -> Mapping[str, float]:
    """All metrics of the rows of one quantity."""
    return {
        "rows": len(rows),
        "mape": mape(rows),
        "median_ape": median_ape(rows),
        "p90_ape": p90_ape(rows),
        "coverage": coverage(rows),
        "mean_width": mean_width(rows),
        "median_width": median_width(rows),
        "upp": upp(rows),
        "retry_cost": request_cost(rows),
    }


def _errors(rows: pd.DataFrame) -> "pd.Series[float]":
    return 100 * (rows["value"] - rows["actual"]).abs() / rows["actual"]


def _widths(rows: pd.DataFrame) -> "pd.Series[float]":
    return 100 * (rows["high"] - rows["low"]) / rows["value"]


def _cost(rows: pd.DataFrame, asked: str) -> float:
    return float(np.sum(cost_with_doubling(rows[asked], rows["actual"])) / rows["actual"].sum())


def build_figure(
    name: str,
    rows: pd.DataFrame,
    metric: Callable[[pd.DataFrame], float],
    *,
    known: float | None = None,
    known_by: str = "",
    goal: float | None = None,
    unit: str = "%",
) -> Figure:
    """A metric over the seeds, with the best known result."""
    ours, spread = over_seeds(rows, metric)
    return Figure(name=name, ours=ours, spread=spread, known=known, known_by=known_by, goal=goal, unit=unit)
