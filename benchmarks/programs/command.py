"""``python -m benchmarks programs``: small sweeps of ordinary programs, and new full-scale configurations."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

Floats = NDArray[np.float64]

_TARGETS = {"time": "cpu_s", "memory": "peak_memory_bytes"}
_COLUMNS = {
    "Median error %": "median_error",
    "one power law": "power_law",
    "boosted trees": "boosting",
    "in 90 % interval %": "coverage",
    "upper ÷ lower": "width",
    "requests enough %": "enough",
    "request ÷ used": "request",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action="store_true",
        help="run the programs here first (about ten minutes), instead of what is kept",
    )
    parser.add_argument("--measure-missing", action="store_true", help="the same for programs of which no run is kept")


def run_command(arguments: argparse.Namespace) -> None:
    """Learn from each sweep, predict what it did not run, and print how near that is."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.measure or arguments.measure_missing:
        from benchmarks.programs.measure import measure_all

        measure_all(only_missing=not arguments.measure)
    record = judge_all()
    if arguments.json:
        json.dump(record, sys.stdout, indent=2)
        print()
    else:
        _print(record)


def judge_all() -> dict[str, Any]:
    """Figures for each program and quantity, and their means."""
    rows = [{"program": program, **figures} for program, figures in _judge_each()]
    frame = pd.DataFrame(rows)
    names = list(_COLUMNS.values())
    means = {
        f"{quantity}, {'held out' if held_out else 'chosen by'}": {name: float(group[name].mean()) for name in names}
        for (held_out, quantity), group in frame.groupby(["held_out", "quantity"])
    }
    return {"programs": rows, "means": means}


def _judge_each() -> Iterator[tuple[str, dict[str, Any]]]:
    from benchmarks.programs.measure import RECORD
    from benchmarks.programs.sweeps import SWEEPS
    from benchmarks.runs.cases import Case
    from benchmarks.runs.runner import answer_case
    from foretell import Columns

    runs = pd.read_csv(RECORD)
    for sweep in SWEEPS:
        own = runs[runs["program"] == sweep.program].reset_index(drop=True)
        table = pd.DataFrame([json.loads(text) for text in own["parameters"]]).assign(
            **{target: own[target].astype(float) for target in _TARGETS.values()}, scale=own["role"]
        )
        asked = table["scale"] == "ASK"
        columns = Columns(elapsed="cpu_s", memory="peak_memory_bytes", scale="scale")
        case = Case(part=sweep.program, train=table[~asked], test=table[asked].drop(columns="scale"), columns=columns)
        answers = answer_case(case).rows
        for quantity, target in _TARGETS.items():
            predicted = answers[answers["quantity"] == quantity]
            baselines = _predict_baselines(case.train.drop(columns="scale"), case.test, target)
            figures = {"quantity": quantity, "held_out": sweep.held_out, **_judge(predicted), **baselines}
            yield sweep.program, figures


def _judge(rows: pd.DataFrame) -> dict[str, float]:
    errors = 100 * (rows["value"] - rows["actual"]).abs() / rows["actual"]
    return {
        "median_error": float(errors.median()),
        "coverage": 100 * float(rows["actual"].between(rows["low"], rows["high"]).mean()),
        "width": float((rows["high"] / rows["low"]).median()),
        "enough": 100 * float((rows["request"] >= rows["actual"]).mean()),
        "request": float((rows["request"] / rows["actual"]).mean()),
    }


def _predict_baselines(train: pd.DataFrame, test: pd.DataFrame, target: str) -> dict[str, float]:
    """Median errors of a straight line in logs, and of boosted trees on the logarithm."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression

    hidden = list(_TARGETS.values())
    both = pd.get_dummies(pd.concat([train, test]).drop(columns=hidden), dtype=float).to_numpy()
    logs = np.where(both.min(axis=0) > 0, np.log(np.maximum(both, 1e-12)), both)
    count, goal = len(train), np.log(train[target].to_numpy(dtype=float))
    line = LinearRegression().fit(logs[:count], goal).predict(logs[count:])
    trees = HistGradientBoostingRegressor(min_samples_leaf=4, random_state=0).fit(both[:count], goal)
    actual = test[target].to_numpy(dtype=float)
    return {"power_law": _median_error(line, actual), "boosting": _median_error(trees.predict(both[count:]), actual)}


def _median_error(logs: Floats, actual: Floats) -> float:
    return float(np.median(100 * np.abs(np.exp(logs) - actual) / actual))


def _print(record: dict[str, Any]) -> None:
    table = Table(title="programs: new full-scale configurations, from small sweeps", title_justify="left")
    for head in ("", "", *_COLUMNS):
        table.add_column(head, justify="right" if head else "left")
    for row in record["programs"]:
        table.add_row(row["program"], row["quantity"], *(f"{row[name]:.3g}" for name in _COLUMNS.values()))
    for quantity, figures in record["means"].items():
        table.add_row("mean", quantity, *(f"{figures[name]:.3g}" for name in _COLUMNS.values()))
    Console(width=130).print(table)
