"""Codes on Stampede2, by their authors' split."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.runs.cases import Case, Figure, Plan, Suite
from benchmarks.runs.metrics import build_figure, mape, median_ape
from benchmarks.runs.runner import answer_case
from foretell import Columns

COLUMNS = Columns(elapsed="runtime_s")
TESTED, SIZES, FULL_SIZES = 2000, (256,), (256, 2048)
GOALS = {"amg": 15.0, "kripke": 11.0, "gemm": 8.0, "geqrf": 2.5}  # at 256 runs
KNOWN = {"amg": 25.3, "kripke": 15.9, "gemm": 11.7, "geqrf": 3.7}
KNOWN_MANY = {"amg": 16.5, "kripke": 15.1}


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    for part in GOALS:
        train = pd.read_csv(folder / f"{part}_train.csv.gz")
        test = pd.read_csv(folder / f"{part}_test.csv.gz")
        test = test.sample(min(TESTED, len(test)), random_state=0)
        test.index = pd.Index([f"test {row}" for row in test.index])
        for size in FULL_SIZES if plan.full else SIZES:
            few = train.sample(min(size, len(train)), random_state=0)
            yield Case(part=f"{part}/{size}", train=few, test=test, columns=COLUMNS)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    figures = []
    for part, few in rows.groupby("part", sort=False):
        code, _, size = str(part).partition("/")
        first = int(size) == SIZES[0]
        known = KNOWN[code] if first else KNOWN_MANY.get(code)
        by = ("a Gaussian process on logs" if first else "boosting") if known else ""
        goal = GOALS[code] if first else None
        figures.append(build_figure(f"{code}, {size} runs: mean error", few, mape, known=known, known_by=by, goal=goal))
        figures.append(build_figure(f"{code}, {size} runs: median error", few, median_ape))
    return figures


SUITE = Suite(
    name="stampede2",
    folder="stampede2_apps",
    about="the authors' test rows from few of their training rows, drawn with seed 0",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
