"""Step times of data-parallel training: few GPUs to many, and clusters never seen."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.runs.cases import Case, Figure, Plan, Suite
from benchmarks.runs.metrics import build_figure, mape, median_ape
from benchmarks.runs.runner import answer_case
from foretell import Columns

COLUMNS = Columns(elapsed="step_time")
FEW_GPUS, MOST_ROWS = 4, 2000  # rows learned from and asked without --full
DERIVED = "gpt_pmp"  # looks computed rather than measured
# GPU, its TFLOP/s in single precision and its memory's GB/s by its data sheet, Gb/s between nodes as far as described.
HARDWARE = {
    "aws": ("T4", 8.1, 320.0, None),
    "rtx": ("RTX 2080 Ti", 13.4, 616.0, 50.0),
    "dgx": ("A100-40GB", 19.5, 1555.0, 1600.0),
    "quad": ("Quadro RTX 6000", 16.3, 672.0, None),
    "azure": (None, None, None, None),
}
FACTS = ("gpu", "gpu_tflops", "gpu_gb_per_s", "link_gbit_per_s")


def make_cases(folder: Path, plan: Plan) -> Iterator[Case]:
    steps = read_steps(folder / "step_times.csv")
    many = steps["gpus"] > FEW_GPUS
    yield _make_case("more GPUs", steps[~many], steps[many], plan)
    for cluster in HARDWARE:
        out = steps["cluster"] == cluster
        if out.any():
            yield _make_case(f"new cluster/{cluster}", steps[~out], steps[out], plan, labels=("cluster",))


def _make_case(part: str, train: pd.DataFrame, test: pd.DataFrame, plan: Plan, *, labels: tuple[str, ...] = ()) -> Case:
    if not plan.full:
        train = train.sample(min(MOST_ROWS, len(train)), random_state=0)
        test = test.sample(min(MOST_ROWS, len(test)), random_state=0)
    return Case(part=part, train=train, test=test, columns=COLUMNS, labels=labels)


def read_steps(path: Path) -> pd.DataFrame:
    """The measured steps with their placement in numbers and their cluster's hardware."""
    steps = pd.read_csv(path, dtype={"placement": str})
    steps = steps[steps["workload"] != DERIVED]
    digits = steps["placement"].str.removesuffix(".0")
    spread = digits.map(_count_gpus, na_action="ignore")
    even = -(-steps["num_replicas"] // steps["num_nodes"])
    facts = pd.DataFrame(steps["cluster"].map(HARDWARE).tolist(), columns=list(FACTS), index=steps.index)
    return pd.DataFrame(
        {
            "workload": steps["workload"],
            "cluster": steps["cluster"],
            "gpus": spread.fillna(steps["num_replicas"]).astype(int),
            "nodes": digits.str.len().fillna(steps["num_nodes"]).astype(int),
            "gpus_per_node": digits.map(_largest, na_action="ignore").fillna(even).astype(int),
            "local_bsz": steps["local_bsz"],
            **{name: facts[name] for name in FACTS},
            "step_time": steps["step_time"],
        }
    )


def _count_gpus(digits: str) -> int:
    return sum(int(digit) for digit in digits)


def _largest(digits: str) -> int:
    return max(int(digit) for digit in digits)


def make_figures(rows: pd.DataFrame, folder: Path) -> Sequence[Figure]:
    more = rows[rows["part"] == "more GPUs"]
    new = rows[rows["part"] != "more GPUs"]
    figures = [
        build_figure(f"from {FEW_GPUS} GPUs to more: mean error", more, mape, goal=8.0),
        build_figure(f"from {FEW_GPUS} GPUs to more: median error", more, median_ape),
        build_figure("a new cluster: mean error", new, _over_parts, goal=15.0),
    ]
    for part, few in new.groupby("part", sort=False):
        figures.append(build_figure(f"{part}: mean error".replace("/", ", "), few, mape))
    return figures


def _over_parts(rows: pd.DataFrame) -> float:
    """Each cluster counts the same."""
    return float(sum(mape(group) for _, group in rows.groupby("part")) / rows["part"].nunique())


SUITE = Suite(
    name="sia",
    folder="sia_pollux",
    about=f"training steps: at most {FEW_GPUS} GPUs to more; all clusters but one to that one",
    cases=make_cases,
    answer=answer_case,
    figures=make_figures,
)
