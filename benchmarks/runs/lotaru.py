"""Lotaru's workflow tasks: from small runs on one machine, and a microbenchmark of each, to large runs on others.

Two ways: from all small runs of a task, and as the published predictions were made (found by recomputing some of them
to the last digit): six runs, one input at a time.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.runs.cases import Case, Figure, Plan, Suite, each
from benchmarks.runs.metrics import build_figure, mape, median_ape
from benchmarks.runs.runner import answer_case
from foretell import Columns

HOME, PEER = "local", "Lotaru-A"
MACHINES = ("asok01", "asok02", "c2", "local", "n1", "n2")
SIZE, TIME, BENCH = "TaskInputSizeUncompressed", "Realtime", "bench_s"
INPUT = "WorkflowInputUncompressed"
INPUTS = {"train-1": "0", "train-2": "1"}  # the peers' number of the experiment
FIRST = 6
ALL, SIX = "all small runs", "six small runs"
TASK = ["Workflow", "Task"]
LABELS = ("Machine", "published")

COLUMNS = Columns(elapsed=TIME, elapsed_unit_s=1e-3, per=BENCH)


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    runs = read_runs(folder)
    for task, group in each(runs, TASK):
        home, asked = group[group["Machine"] == HOME], group[group["Label"] == "test"]
        small = home[home["Label"].isin(INPUTS)]
        yield _make_case(f"{ALL}/{task}", small, asked)
        for label in INPUTS:
            few = small[small["Label"] == label][:FIRST]
            yield _make_case(f"{SIX}/{label}/{task}", few, asked.assign(published=asked[label]))


def _make_case(part: str, train: pd.DataFrame, test: pd.DataFrame) -> Case:
    kept = [SIZE, BENCH, TIME, *LABELS]
    return Case(part=part, train=train[kept], test=test[kept], columns=COLUMNS, labels=LABELS)


def read_runs(folder: Path) -> pd.DataFrame:
    """The runs on benchmarked machines, with the machine's benchmark and what the peer predicted for tested ones."""
    runs = pd.read_csv(folder / "task_runs.csv")
    runs = runs[runs["Machine"].isin(MACHINES)]
    bench = read_benchmarks(folder)
    runs = runs.reset_index().merge(bench, on=[*TASK, "Machine"], how="left", validate="many_to_one")
    for label, experiment in INPUTS.items():
        published = read_published(folder, experiment).rename(columns={"published": label})
        runs = runs.merge(published, on=[*TASK, "Machine", INPUT, TIME], how="left", validate="many_to_one")
    return runs.set_index("index").assign(published=np.nan)


def read_published(folder: Path, experiment: str) -> pd.DataFrame:
    """The predictions of the peer in an experiment, by the columns that identify a run."""
    published = pd.read_csv(folder / "published_predictions.csv.gz")
    workflow = published["Workflow"].str.lower().str.rpartition("-")
    published = published.assign(Workflow=workflow[0], Task=published["TaskName"], published=published["Predicted"])
    published = published[(published["Estimator"] == PEER) & (workflow[2] == experiment)]
    published = published.rename(columns={"SizeInput": INPUT, "Real": TIME})
    return published[[*TASK, "Machine", INPUT, TIME, "published"]]


def read_benchmarks(folder: Path) -> pd.DataFrame:
    """The median of a task's three microbenchmarks on each machine, which is in the file's name.

    The column that should name the machine is of the other one for asok01 and asok02. Their small runs take the same
    time on both, so nothing measured says which is right; the published predictions go by the file's name.
    A task's benchmark takes seconds and is noisy, so it and the mean of the machine's other ones count the same: two
    witnesses of one speed. One with the same value on every machine was never run; then the others are used.
    """
    tables = []
    for machine in MACHINES:
        table = pd.read_csv(folder / f"bio-bench-{machine}.csv")
        median = table[["Realtime1", "Realtime2", "Realtime3"]].median(axis=1)
        tables.append(table[TASK].assign(Machine=machine, bench_s=median, Workflow=table["Workflow"].str.lower()))
    bench = pd.concat(tables).pivot(index=TASK, columns="Machine", values=BENCH)
    run = bench[bench.nunique(axis=1) > 1]
    own = run.div(run[HOME], axis=0)
    usual = own.apply(lambda ratios: float(np.exp(np.log(ratios).mean())))
    bench = own.mul(usual, axis=1).pow(0.5).reindex(bench.index).fillna(usual)
    return bench.reset_index().melt(id_vars=TASK, var_name="Machine", value_name=BENCH)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    six = rows[rows["part"].str.startswith(SIX)]
    assert six["published"].notna().all()
    figures = []
    for name, few in ((ALL, rows[rows["part"].str.startswith(ALL)]), (SIX, six)):
        figures += _compare_with_peer(name, few, six, median_goal=10.0, mean_goal=20.0)
        away = few[few["Machine"] != HOME]
        figures += _compare_with_peer(f"{name}, other machines only", away, six[six["Machine"] != HOME])
    return figures


def _compare_with_peer(
    name: str,
    rows: pd.DataFrame,
    published: pd.DataFrame,
    *,
    median_goal: float | None = None,
    mean_goal: float | None = None,
) -> list[Figure]:
    peer = published.assign(value=published["published"] * COLUMNS.elapsed_unit_s)
    label = f"{name} ({len(rows)} predictions)"
    return [
        build_figure(
            f"{label}: median error", rows, median_ape, known=median_ape(peer), known_by=PEER, goal=median_goal
        ),
        build_figure(f"{label}: mean error", rows, mape, known=mape(peer), known_by=PEER, goal=mean_goal),
    ]


SUITE = Suite(
    name="lotaru",
    folder="lotaru",
    about="workflow tasks on six machines from small runs on one, with a microbenchmark of each machine",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
