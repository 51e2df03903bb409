"""HARP's own runs: fitted to scaled-down runs and three quarters of the full-scale ones, the rest predicted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.runs.cases import Case, Figure, Plan, Suite
from benchmarks.runs.metrics import build_figure, mape, median_ape, point_cost, request_cost, upp
from benchmarks.runs.runner import answer_case
from foretell import Columns

COLUMNS = Columns(elapsed="walltime_s", scale="run_type")
SEEDS = {"dnn": 10, "grayscott": 3}  # without --full; five thousand runs take their time
HELD_OUT = 0.25


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    for part, few in SEEDS.items():
        runs = read_runs(folder / f"{part}.csv")
        for seed in range(plan.seeds if plan.full else min(plan.seeds, few)):
            yield split(part, runs, seed)


def read_runs(path: Path) -> pd.DataFrame:
    """The runs without what is known only afterwards, and without rows that were copied."""
    runs = pd.read_csv(path)
    if "exact_duplicate" in runs:
        runs = runs[runs["exact_duplicate"] == 0]
    after = [name for name in runs if str(name).startswith("post_")]
    return runs.drop(columns=[*after, "exact_duplicate", "source_file"], errors="ignore")


def split(part: str, runs: pd.DataFrame, seed: int) -> Case:
    """A quarter of the distinct full-scale configurations is held out, with all their repetitions."""
    settings = [name for name in runs if name not in (COLUMNS.elapsed, COLUMNS.scale)]
    configuration = runs.groupby(settings, dropna=False, sort=False).ngroup()
    full = configuration[runs["run_type"] == "FS"].unique()
    held = np.random.default_rng(seed).permutation(full)[: round(HELD_OUT * len(full))]
    out = configuration.isin(held)
    test = runs[out & (runs["run_type"] == "FS")]
    return Case(part=part, seed=seed, train=runs[~out], test=test.drop(columns="run_type"), columns=COLUMNS)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    dnn, stencil = rows[rows["part"] == "dnn"], rows[rows["part"] == "grayscott"]
    by = "HARP's recipe; two tree ensembles reach {}"
    return [
        build_figure("DNN: mean error", dnn, mape, known=113.0, known_by=by.format("8.6"), goal=5.0),
        build_figure("DNN: requests too small", dnn, upp, known=23.6, known_by=by.format("10.4"), goal=5.0),
        build_figure(
            "DNN: cost of requests", dnn, request_cost, known=1.40, known_by=by.format("1.16"), goal=1.08, unit="times"
        ),
        build_figure("DNN: cost of point estimates", dnn, point_cost, unit="times"),
        build_figure("Gray-Scott: mean error", stencil, mape),
        build_figure("Gray-Scott: median error", stencil, median_ape),
        build_figure("Gray-Scott: requests too small", stencil, upp),
        build_figure("Gray-Scott: cost of requests", stencil, request_cost, unit="times"),
        build_figure("Gray-Scott: cost of point estimates", stencil, point_cost, unit="times"),
    ]


SUITE = Suite(
    name="harp",
    folder="harp",
    about="a quarter of the full-scale configurations from the scaled-down runs and the other full-scale ones",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
