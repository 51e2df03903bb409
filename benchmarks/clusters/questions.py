"""Predicts measured steps of data-parallel training: on more GPUs, and on GPU clusters that are held back."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.runs.sia import DERIVED, FEW_GPUS, HARDWARE
from foretell.core.devices import find_device
from foretell.core.prediction import Estimate
from foretell.distributed.data_parallel import ParallelModel
from foretell.distributed.placed_steps import PlacedStep, TimedStep
from foretell.distributed.placement_predictor import PlacedPredictor

MORE, GOALS = "more", {"more": 10.0, "new": 20.0}
SMALL = {"one_node": 1, "two_nodes": 2}  # measured nodes of small tables
SMALL_BATCHES = 4
LEVEL = 0.9
MOST_SHOTS = 3  # placements measured on a new cluster


def read_rows(path: Path) -> list[TimedStep]:
    """The measured steps, without a workload whose rows look computed."""
    table = pd.read_csv(path, dtype={"placement": str})
    return [_build_row(row) for row in table[table["workload"] != DERIVED].to_dict("records")]


def _build_row(row: Mapping[Any, Any]) -> TimedStep:
    device, _, _, gbit_per_s = HARDWARE[row["cluster"]]
    placed = PlacedStep(
        workload=row["workload"],
        cluster=row["cluster"],
        batch=float(row["local_bsz"]),
        gpus=_place(row),
        device=None if device is None else find_device(device),
        link_bytes_per_s=None if gbit_per_s is None else gbit_per_s * 1e9 / 8,
    )
    sync = row.get("sync_time")
    return TimedStep(placed=placed, step_s=float(row["step_time"]), sync_s=None if pd.isna(sync) else float(sync))


def _place(row: Mapping[Any, Any]) -> tuple[int, ...]:
    """GPUs on each node: the digits of the placement, or as even as possible where only the numbers are known."""
    if isinstance(row["placement"], str):
        return tuple(int(digit) for digit in row["placement"].removesuffix(".0"))
    each, more = divmod(int(row["num_replicas"]), int(row["num_nodes"]))
    return tuple(each + (number < more) for number in range(int(row["num_nodes"])))


def ask_more(rows: Sequence[TimedStep]) -> pd.DataFrame:
    """Steps on more GPUs than those fitted to."""
    few = [row for row in rows if sum(row.placed.gpus) <= FEW_GPUS]
    return predict(few, [row for row in rows if sum(row.placed.gpus) > FEW_GPUS])


def ask_new(rows: Sequence[TimedStep], cluster: str) -> pd.DataFrame:
    """Steps on a cluster that is held back."""
    train = [row for row in rows if row.placed.cluster != cluster]
    return predict(train, [row for row in rows if row.placed.cluster == cluster])


def ask_shots(rows: Sequence[TimedStep], cluster: str, shots: int) -> pd.DataFrame:
    """Steps on a cluster with a few measured placements: one GPU, one full node, then full nodes."""
    own = [row for row in rows if row.placed.cluster == cluster]
    measured = choose_placements({row.placed.gpus for row in own})[:shots]
    test = [row for row in own if row.placed.gpus not in measured]
    train = [row for row in rows if row.placed.cluster != cluster or row.placed.gpus in measured]
    return predict(train, test, bounds=False)


def choose_placements(placements: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The placements to measure first: one GPU, one full node, two full nodes; or two GPUs of one node."""
    most = max(max(placement) for placement in placements)
    wanted: list[tuple[int, ...]] = [(1,), (most,), (most, most), (2,)]
    return [each for each in wanted if each in placements][:MOST_SHOTS]


def ask_small(rows: Sequence[TimedStep], nodes: int) -> pd.DataFrame:
    """Twice the GPUs of small tables: one workload on one cluster, few batches, one or two measured nodes."""
    pairs = sorted({(row.placed.workload, row.placed.cluster) for row in rows if len(row.placed.gpus) > 1})
    return pd.concat([_ask_pair(rows, *pair, nodes) for pair in pairs], ignore_index=True)


def _ask_pair(rows: Sequence[TimedStep], workload: str, cluster: str, nodes: int) -> pd.DataFrame:
    own = [row for row in rows if (row.placed.workload, row.placed.cluster) == (workload, cluster)]
    batches = sorted({row.placed.batch for row in own})
    few = batches[:: max(1, len(batches) // SMALL_BATCHES)]
    own = [row for row in own if row.placed.batch in few]
    full = max(max(row.placed.gpus) for row in own)
    measured = {(count,) for count in (1, 2, 4, full)} | (
        {(1, 1), (full // 2,) * 2, (full,) * 2} if nodes > 1 else set()
    )
    train = [row for row in own if row.placed.gpus in measured]
    most = max(sum(row.placed.gpus) for row in train)
    test = [row for row in own if most < sum(row.placed.gpus) <= 2 * most]
    predictor = PlacedPredictor.fit(train, workload=workload, cluster=cluster)
    predicted = predictor.predict([row.placed for row in test])
    return pd.DataFrame([_record(row, each.step_s) for row, each in zip(test, predicted, strict=True)])


def predict(train: Sequence[TimedStep], test: Sequence[TimedStep], *, bounds: bool = True) -> pd.DataFrame:
    """A row for each step, with its measured and predicted time."""
    model = ParallelModel().fit(train)
    if bounds:
        model.calibrate(train)
    predicted = model.predict([row.placed for row in test])
    estimates = [Estimate(value=each.step_s, low=each.low_s, high=each.high_s, level=LEVEL) for each in predicted]
    return pd.DataFrame([_record(row, each) for row, each in zip(test, estimates, strict=True)])


def _record(row: TimedStep, predicted: Estimate) -> dict[str, object]:
    return {
        "workload": row.placed.workload,
        "cluster": row.placed.cluster,
        "gpus": sum(row.placed.gpus),
        "actual": row.step_s,
        "predicted": predicted.value,
        "low": predicted.low,
        "high": predicted.high,
        "error": 100 * abs(predicted.value / row.step_s - 1),
    }


def run_questions(rows: Sequence[TimedStep], questions: Sequence[str]) -> dict[str, Any]:
    """The results of each question, and the mean over held-back clusters, each with the same weight."""
    record: dict[str, Any] = {name: _run_question(rows, name) for name in questions}
    new = [record[name] for name in questions if name in HARDWARE]
    if len(new) > 1:
        record["new"] = _average(new)
    return record


def _run_question(rows: Sequence[TimedStep], name: str) -> dict[str, Any]:
    if name in SMALL:
        return judge_pairs(ask_small(rows, SMALL[name]))
    record = judge(ask_more(rows) if name == MORE else ask_new(rows, name))
    if name != MORE:
        record["measured_placements"] = {
            str(shots): judge(ask_shots(rows, name, shots)) for shots in range(1, MOST_SHOTS + 1)
        }
    return record


def judge(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors in per cent, also by workload and cluster; the share of rows inside intervals, and their width."""
    within = rows["actual"].between(rows["low"], rows["high"])
    return {
        "rows": len(rows),
        "mean_error": float(rows["error"].mean()),
        "median_error": float(rows["error"].median()),
        "workloads": rows.groupby("workload")["error"].mean().to_dict(),
        "clusters": rows.groupby("cluster")["error"].mean().to_dict(),
        "pairs": {
            "/".join(map(str, pair)): float(group.mean())
            for pair, group in rows.groupby(["workload", "cluster"])["error"]
        },
        "coverage": 100 * float(within.mean()),
        "mean_width": 100 * float(((rows["high"] - rows["low"]) / rows["predicted"]).mean()),
    }


def judge_pairs(rows: pd.DataFrame) -> dict[str, Any]:
    """As :func:`judge`, with the same weight for each workload on a cluster, since each is a table of its own."""
    tables = [judge(group) for _, group in rows.groupby(["workload", "cluster"])]
    means = {name: statistics.fmean(each[name] for each in tables) for name in ("mean_error", "coverage", "mean_width")}
    return {
        **judge(rows),
        **means,
        "tables": len(tables),
        "median_error": statistics.median(each["mean_error"] for each in tables),
    }


def _average(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over clusters, each with the same weight; ``spread`` is their standard deviation."""
    record: dict[str, Any] = {
        name: statistics.fmean(each[name] for each in records)
        for name in ("mean_error", "median_error", "coverage", "mean_width")
    }
    record["spread"] = statistics.stdev(each["mean_error"] for each in records)
    record["measured_placements"] = {
        shots: statistics.fmean(each["measured_placements"][shots]["mean_error"] for each in records)
        for shots in records[0]["measured_placements"]
    }
    return record


def print_record(record: Mapping[str, Any]) -> None:
    """A table of the questions, and one of each workload."""
    table = Table(title="Predicted steps, in per cent", title_justify="left")
    for name in (
        "question",
        "mean error",
        "goal",
        "median",
        "inside intervals",
        "mean width",
        "1, 2, 3 placements",
    ):
        table.add_column(name, justify="left" if name == "question" else "right")
    for name, each in record.items():
        shots = [_mean(value) for value in each.get("measured_placements", {}).values()]
        figures = [each["median_error"], each["coverage"], each["mean_width"]]
        goal = f"≤ {GOALS[name]:.0f}" if name in GOALS else ""
        cells = [f"{figure:.1f}" for figure in figures]
        table.add_row(name, f"{each['mean_error']:.1f}", goal, *cells, ", ".join(shots))
    Console().print(table)
    if MORE in record:
        Console().print(_tabulate_pairs(record[MORE]))


def _mean(value: Mapping[str, Any] | float) -> str:
    return f"{value if isinstance(value, float) else value['mean_error']:.1f}"


def _tabulate_pairs(record: Mapping[str, Any]) -> Table:
    table = Table(title="More GPUs", title_justify="left")
    table.add_column("workload")
    for cluster in (*record["clusters"], "all"):
        table.add_column(cluster, justify="right")
    for workload, mean in record["workloads"].items():
        errors = [record["pairs"].get(f"{workload}/{cluster}") for cluster in record["clusters"]]
        table.add_row(workload, *("" if error is None else f"{error:.1f}" for error in errors), f"{mean:.1f}")
    table.add_row("all", *(f"{error:.1f}" for error in record["clusters"].values()), f"{record['mean_error']:.1f}")
    return table
