"""C3O's Spark jobs on more nodes than were measured: learned from at most 6 or 8, asked for up to 12."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.runs.c3o import COLUMNS, JOBS, read_runs
from benchmarks.runs.cases import Case, Figure, Plan, Suite
from benchmarks.runs.metrics import build_figure, mape, median_ape, upp
from benchmarks.runs.runner import answer_case

CUTS = (6, 8)
_NODES = "instance_count"


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    for cut in CUTS:
        for name, job in JOBS.items():
            runs = read_runs(folder / f"{name}.tsv", job)
            few = runs[_NODES] <= cut
            yield Case(part=f"at most {cut} nodes/{name}", train=runs[few], test=runs[~few], columns=COLUMNS)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    figures = []
    for cut in CUTS:
        mine = rows[rows["part"].str.startswith(f"at most {cut} nodes/")]
        held = _judge_held(folder, cut)
        figures += [
            build_figure(
                f"from at most {cut} nodes: mean error", mine, mape, known=held, known_by="as on the most measured"
            ),
            build_figure(f"from at most {cut} nodes: median error", mine, median_ape),
            build_figure(f"from at most {cut} nodes: requests too small", mine, upp),
        ]
        for name in JOBS:
            figures.append(
                build_figure(f"{name} from {cut}: mean error", mine[mine["part"].str.endswith(f"/{name}")], mape)
            )
    return figures


def _judge_held(folder: Path, cut: int) -> float:
    """The mean error of the time on the most nodes measured, taken for every larger number."""
    errors = []
    for name, job in JOBS.items():
        runs = read_runs(folder / f"{name}.tsv", job)
        most = runs[runs[_NODES] == cut].set_index(list(job.features))["gross_runtime"]
        asked = runs[runs[_NODES] > cut].set_index(list(job.features))["gross_runtime"]
        errors.append((most.reindex(asked.index).to_numpy() - asked).abs() / asked)
    return 100 * float(pd.concat(errors).mean())


SUITE = Suite(
    name="scaleout",
    folder="c3o",
    about="Spark jobs on more nodes than were measured",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
