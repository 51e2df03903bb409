"""Memory of nf-core tasks, one after the other: requests are paid until the task fits, then it is used to fit."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.runs.cases import MEMORY, Case, Figure, Plan, Result, Suite
from benchmarks.runs.metrics import upp
from benchmarks.runs.runner import ask, build_model, check_apart, name_app
from foretell import Columns

COLUMNS = Columns(elapsed="realtime", elapsed_unit_s=1e-3, memory="rss")
SEED, HELD_OUT, FEWEST = 1996, 0.7, 34
GROWTH = 1.15  # a model is built anew when the runs have grown by so much
BYTE_SECONDS = 3.6e12  # in a GB·h
PUBLISHED = 100 - 24.68  # per cent of the best baseline's waste that Sizey leaves, the median over workflows
GOAL = 65.0


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    for path in sorted(folder.glob("trace_*.csv.gz")):
        workflow = path.name.removeprefix("trace_").removesuffix(".csv.gz")
        for process, tasks in pd.read_csv(path).groupby("process", sort=False):
            tasks = tasks[tasks["rss"] > 0]
            if len(tasks) < FEWEST or (tasks["realtime"] == 0).any():
                continue
            train, test = train_test_split(tasks[["rchar", "realtime", "rss"]], test_size=HELD_OUT, random_state=SEED)
            yield Case(part=f"{workflow}/{process}", train=train, test=test, columns=COLUMNS)


def answer_online(case: Case) -> Result:
    """Predict the tasks in their order; those predicted so far are used to fit the next model."""
    check_apart(case)
    app, seen, predicted, build_s = name_app(case), case.train, [], []
    for block in cut_blocks(case.train, case.test):
        build_s.append(build_model(app, seen, case))
        predicted.append(ask(app, block, case))
        seen = pd.concat([seen, block])
    rows = pd.concat(predicted)
    rows = rows[rows["quantity"] == MEMORY]
    rows = rows.assign(waste=_waste(rows, case.test))
    return Result(part=case.part, rows=rows.drop(columns="retries"), build_s=tuple(build_s), trained_on=len(case.train))


def _waste(peaks: pd.DataFrame, tasks: pd.DataFrame) -> list[float]:
    """GB·h paid in vain for each task."""
    seconds = tasks.loc[peaks.index, "realtime"] * COLUMNS.elapsed_unit_s
    asked = zip(peaks["actual"], peaks["request"], peaks["retries"], seconds, strict=True)
    return [wasted(need, [first, *others]) * time / BYTE_SECONDS for need, first, others, time in asked]


def cut_blocks(train: pd.DataFrame, test: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The tasks between one model and the next."""
    start = 0
    while start < len(test):
        size = max(1, int((GROWTH - 1) * (len(train) + start)))
        yield test[start : start + size]
        start += size


def wasted(need: float, tries: Iterable[float]) -> float:
    """Bytes paid in vain: failed tries whole, of the one that fits what is left over. After the last: doubling."""
    paid, asked = 0.0, 0.0
    for asked in tries:
        if asked >= need:
            return paid + asked - need
        paid += asked
    while asked < need:
        asked *= 2
        paid += asked if asked < need else asked - need
    return paid


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    peaks = rows.assign(workflow=rows["part"].str.partition("/")[0])
    baselines = pd.read_csv(folder / "baseline_wastage_seed1996.csv").set_index("wf")
    figures, shares = [], []
    for workflow, few in peaks.groupby("workflow"):
        best = baselines.loc[[str(workflow)]].nsmallest(1, "GBh").iloc[0]
        comparable = len(few) == best["n"]  # not where a case was not answered
        ours = float(few["waste"].sum()) if comparable else float("nan")
        shares.append(100 * ours / best["GBh"])
        goal = GOAL / 100 * float(best["GBh"])
        known_by = str(best["M"]).removesuffix("/Default")
        figures.append(
            Figure(
                name=f"{workflow}: wasted",
                ours=ours,
                known=float(best["GBh"]),
                known_by=known_by,
                goal=goal,
                unit="GB·h",
            )
        )
        figures.append(Figure(name=f"{workflow}: requests too small", ours=upp(few)))
    name = "wasted, of the best baseline: median"
    share = float(np.median(shares))
    return [Figure(name=name, ours=share, known=PUBLISHED, known_by="Sizey", goal=GOAL), *figures]


SUITE = Suite(
    name="sizey",
    folder="sizey",
    about="memory of workflow tasks, asked for one after the other; failed tries are paid",
    cases=make_cases,
    answer=answer_online,
    figures=make_figures,
    quantity=MEMORY,
)
