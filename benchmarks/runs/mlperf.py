"""Time to train of MLPerf submissions: the largest size of each series from all that is smaller or of other series."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.runs.cases import Case, Figure, Plan, Suite
from benchmarks.runs.metrics import build_figure, mape, median_ape
from benchmarks.runs.runner import answer_case
from foretell import Columns

SERIES = ["round", "org", "benchmark", "acc"]
COLUMNS = Columns(elapsed="t", elapsed_unit_s=60.0)
LABELS = ("powerlaw", "perfect", "twin")


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    runs = pd.read_csv(folder / "median_time_to_train.csv")[[*SERIES, "n", "t"]]
    largest = pd.read_csv(folder / "extrapolation_cases.csv")[[*SERIES, "n", "powerlaw", "perfect"]]
    known = runs.reset_index().merge(largest, on=[*SERIES, "n"], how="left").set_index("index")
    held = known["powerlaw"].notna()
    train, test = runs[~held], known[held]
    # Another vendor's submission of the same size is a strong hint, which the peers' laws did not have.
    twins = set(train[["benchmark", "acc", "n"]].itertuples(index=False, name=None))
    asked = test[["benchmark", "acc", "n"]].itertuples(index=False, name=None)
    test = test.assign(twin=[key in twins for key in asked])
    empty = train.assign(powerlaw=0.0, perfect=0.0, twin=False)
    yield Case(part="largest", train=empty, test=test, columns=COLUMNS, labels=LABELS)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    figures = _compare_with_law("", rows, goal=12.0)
    alone = rows[~rows["twin"].astype(bool)]
    if not alone.empty:
        figures += _compare_with_law(f"no such run by another vendor ({len(alone)}): ", alone)
    return figures


def _compare_with_law(name: str, rows: pd.DataFrame, *, goal: float | None = None) -> list[Figure]:
    law = rows.assign(value=rows["powerlaw"] * COLUMNS.elapsed_unit_s)
    perfect = rows.assign(value=rows["perfect"] * COLUMNS.elapsed_unit_s)
    by = "power law; perfect scaling {:.1f}"
    return [
        build_figure(f"{name}mean error", rows, mape, known=mape(law), known_by=by.format(mape(perfect)), goal=goal),
        build_figure(
            f"{name}median error", rows, median_ape, known=median_ape(law), known_by=by.format(median_ape(perfect))
        ),
    ]


SUITE = Suite(
    name="mlperf",
    folder="mlperf_training",
    about="the largest size of each (round, organisation, benchmark, accelerator)",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
