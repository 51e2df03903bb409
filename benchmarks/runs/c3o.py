"""C3O's Spark jobs: random tenths (A), the same within groups of equal context (B), and few runs to learn from (C)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.runs.cases import Case, Figure, Plan, Suite, each
from benchmarks.runs.metrics import build_figure, mape, max_ape
from benchmarks.runs.runner import answer_case
from foretell import Columns

COLUMNS = Columns(elapsed="gross_runtime")
PUBLISHED, HELD_OUT, SIZES = 300, 0.1, (6, 15, 30)
KNOWN_A = {"sort": 2.61, "grep": 2.74, "sgd": 2.25, "kmeans": 2.17, "pagerank": 2.77}
KNOWN_C = {6: 27.2, 15: 17.3, 30: 10.1}
GOALS_C = {6: 12.0, 15: 6.0, 30: 3.5}
BLOW_UP = 3.0  # a prediction so many times too large or too small is worse than none


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Which of a job's runs are used, the columns that describe them, and those that make up their context."""

    machine: str
    features: tuple[str, ...]
    context: tuple[str, ...] = ()
    above: int = 0
    line_length: int | None = None


JOBS = {
    "sort": Job(machine="c4.2xlarge", features=("data_size_MB",), line_length=100),
    "grep": Job(machine="m4.2xlarge", features=("data_size_MB", "p_occurrence"), context=("p_occurrence",)),
    "sgd": Job(
        machine="r4.2xlarge", features=("observations", "features", "iterations"), context=("iterations",), above=2
    ),
    "kmeans": Job(machine="r4.2xlarge", features=("observations", "features", "k"), context=("k",), above=2),
    "pagerank": Job(
        machine="r4.2xlarge",
        features=("links", "pages", "convergence_criterion"),
        context=("pages", "convergence_criterion"),
    ),
}


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    for name, job in JOBS.items():
        runs = read_runs(folder / f"{name}.tsv", job)
        for seed in plan.draws(PUBLISHED):
            yield _split(f"A/{name}", runs, seed, test_size=HELD_OUT)
        groups = [group for _, group in each(runs, job.context)] if job.context else []
        for seed in plan.draws(PUBLISHED) if groups else ():
            yield _split(f"B/{name}", groups[seed % len(groups)], seed, test_size=HELD_OUT)
        for size in SIZES:
            for seed in plan.draws(PUBLISHED):
                yield _split(f"C{size}/{name}", runs, seed, train_size=size)


def read_runs(path: Path, job: Job) -> pd.DataFrame:
    """The median of each configuration's repetitions."""
    runs = pd.read_csv(path, sep="\t")
    kept = (runs["machine_type"] == job.machine) & (runs["instance_count"] > job.above)
    if job.line_length is not None:
        kept &= runs["line_length"] == job.line_length
    return runs[kept].groupby(["instance_count", *job.features])["gross_runtime"].median().reset_index()


def _split(part: str, runs: pd.DataFrame, seed: int, **size: float) -> Case:
    train, test = train_test_split(runs, random_state=seed, **size)
    return Case(part=part, seed=seed, train=train, test=test, columns=COLUMNS)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    protocol = rows["part"].str.partition("/")
    rows = rows.assign(protocol=protocol[0], job=protocol[2])
    of = {name: rows[rows["protocol"] == name] for name in ("A", "B", *(f"C{size}" for size in SIZES))}
    figures = [build_figure("A: mean error", of["A"], _over_jobs(mape), known=2.51, known_by="C3O", goal=1.6)]
    for job, known in KNOWN_A.items():
        few = of["A"][of["A"]["job"] == job]
        figures.append(build_figure(f"A, {job}: mean error", few, mape, known=known, known_by="C3O"))
    figures.append(build_figure("B: mean error", of["B"], _over_jobs(mape), known=5.19, known_by="OGB; C3O 5.20"))
    for size in SIZES:
        few = of[f"C{size}"]
        known = KNOWN_C[size]
        name = f"C, {size} runs"
        figures += [
            build_figure(f"{name}: mean error", few, _over_jobs(mape), known=known, known_by="C3O", goal=GOALS_C[size]),
            build_figure(f"{name}: largest error", few.assign(seed=0), max_ape),
            build_figure(f"{name}: off {BLOW_UP:.0f} times or more", few.assign(seed=0), _blown_up),
        ]
    return figures


def _over_jobs(metric: Callable[[pd.DataFrame], float]) -> Callable[[pd.DataFrame], float]:
    """The jobs' mean, as published: each job counts the same."""
    return lambda rows: sum(metric(group) for _, group in rows.groupby("job")) / rows["job"].nunique()


def _blown_up(rows: pd.DataFrame) -> float:
    ratio = rows["value"] / rows["actual"]
    return 100 * float(((ratio >= BLOW_UP) | (ratio <= 1 / BLOW_UP)).mean())


SUITE = Suite(
    name="c3o",
    folder="c3o",
    about="Spark jobs: A random tenths, B the same within one context, C from n runs",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
