"""A folder of measurements in each set's format, made of laws we chose; small enough to be counted by hand."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

# The benchmarks are no installed package: they are found from the repository's root.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for write in (_write_harp, _write_c3o, _write_lotaru, _write_stampede2, _write_sizey, _write_mlperf, _write_sia):
        write(folder)
    return folder


def _write_harp(folder: Path) -> None:
    (folder / "harp").mkdir()
    for name in ("dnn", "grayscott"):
        sweep = itertools.product(("SD", "FS"), range(1, 9), (1, 2))
        rows = [(scale, size * (10 if scale == "FS" else 1), nodes, "a.csv") for scale, size, nodes in sweep]
        runs = pd.DataFrame(rows, columns=["run_type", "size", "workers", "source_file"])
        runs = runs.assign(walltime_s=3.0 * runs["size"] / runs["workers"], post_epoch_s=1.0, exact_duplicate=0)
        again = runs.assign(walltime_s=runs["walltime_s"] * 1.01)
        copied = runs[:3].assign(exact_duplicate=1)
        pd.concat([runs, again, copied]).to_csv(folder / "harp" / f"{name}.csv", index=False)


def _write_c3o(folder: Path) -> None:
    (folder / "c3o").mkdir()
    extra: dict[str, dict[str, Sequence[float]]] = {
        "sort": {"line_length": (100, 1000)},
        "grep": {"p_occurrence": (0.1, 0.2)},
        "sgd": {"observations": (1, 2, 3), "features": (5, 9), "iterations": (10, 20)},
        "kmeans": {"observations": (1, 2, 3), "features": (5, 9), "k": (3, 5)},
        "pagerank": {"links": (10, 20), "pages": (1, 2), "convergence_criterion": (0.1, 0.01)},
    }
    machines = {"sort": "c4.2xlarge", "grep": "m4.2xlarge"}
    for job, columns in extra.items():
        machine = (machines.get(job, "r4.2xlarge"), "x9.huge")
        sweep = {"instance_count": range(2, 14, 2), "machine_type": machine, "data_size_MB": range(1, 7), **columns}
        runs = pd.DataFrame(itertools.product(*sweep.values()), columns=list(sweep))
        measured = [
            runs.assign(gross_runtime=100 * runs["data_size_MB"] / runs["instance_count"] + k) for k in (0, 1, 9)
        ]
        pd.concat(measured).to_csv(folder / "c3o" / f"{job}.tsv", sep="\t", index=False)


def _write_lotaru(folder: Path) -> None:
    (folder / "lotaru").mkdir()
    speeds = {"local": 1.0, "asok01": 2.0, "asok02": 2.0, "c2": 0.5, "n1": 1.5, "n2": 0.8, "unmeasured": 1.0}
    labels = [("train-1", size) for size in range(1, 11)] + [("train-2", size) for size in range(1, 11)]
    rows = [
        (label, machine, "eager", task, 100 * size, 100 * size + 7, 1000.0 * speed * size)
        for (label, size), (machine, speed), task in itertools.product(
            [*labels, ("test", 40), ("test", 50)], speeds.items(), ("align", "report")
        )
    ]
    columns = ["Label", "Machine", "Workflow", "Task", "TaskInputSizeUncompressed", "WorkflowInputUncompressed"]
    runs = pd.DataFrame(rows, columns=[*columns, "Realtime"])
    runs.to_csv(folder / "lotaru" / "task_runs.csv", index=False)
    for machine, speed in speeds.items():
        bench = pd.DataFrame({"Workflow": "Eager", "Task": ["align", "report"], "Machine": "wrong"})
        readings = {f"Realtime{number}": [8 * speed * factor, 1.0] for number, factor in ((1, 1), (2, 1), (3, 9))}
        bench.assign(**readings).to_csv(folder / "lotaru" / f"bio-bench-{machine}.csv", index=False)
    tested = runs[(runs["Label"] == "test") & (runs["Machine"] != "unmeasured")]
    published = pd.DataFrame(
        {
            "Machine": tested["Machine"],
            "TaskName": tested["Task"],
            "Estimator": "Lotaru-A",
            "SizeInput": tested["WorkflowInputUncompressed"],
            "Predicted": tested["Realtime"] * 1.2,
            "Real": tested["Realtime"],
        }
    )
    both = [published.assign(Workflow=f"EAGER-{number}") for number in (0, 1)]
    both.append(both[0].assign(Estimator="Naive", Predicted=0.0))
    pd.concat(both).to_csv(folder / "lotaru" / "published_predictions.csv.gz", index=False)


def _write_stampede2(folder: Path) -> None:
    (folder / "stampede2_apps").mkdir()
    for code in ("amg", "kripke", "gemm", "geqrf"):
        for kind, count in (("train", 300), ("test", 40)):
            x = np.arange(1, count + 1)
            runs = pd.DataFrame({"x0_m": x, "x1_n": x % 7 + 1, "runtime_s": 0.1 * x})
            runs.to_csv(folder / "stampede2_apps" / f"{code}_{kind}.csv.gz", index=False)


def _write_sizey(folder: Path) -> None:
    (folder / "sizey").mkdir()
    sizes = np.arange(1, 41)
    tasks = pd.DataFrame({"rchar": sizes * 1000, "realtime": 3_600_000, "rss": sizes * 10**9})
    kept = tasks.assign(process="kept")
    unmeasured = tasks.assign(process="too quick", realtime=[0, *[1000] * 39])
    pd.concat([kept, unmeasured, tasks[:33].assign(process="rare")]).to_csv(
        folder / "sizey" / "trace_flow.csv.gz", index=False
    )
    baselines = pd.DataFrame(
        {"M": ["Tovar/Default", "Other/STD"], "GBh": [100.0, 80.0], "fail": 0, "n": 28, "wf": "flow"}
    )
    baselines.to_csv(folder / "sizey" / "baseline_wastage_seed1996.csv", index=False)


def _write_mlperf(folder: Path) -> None:
    (folder / "mlperf_training").mkdir()
    series = list(itertools.product(("v1", "v2"), ("Acme", "Bolt"), ("bert",), ("X100",)))
    rows = [(*key, float(n), 100.0 / n) for key in series for n in (8, 16, 32)]
    columns = ["round", "org", "benchmark", "acc", "n"]
    runs = pd.DataFrame(rows, columns=[*columns, "t"]).assign(gbs=1.0, tp=1.0)
    runs.to_csv(folder / "mlperf_training" / "median_time_to_train.csv", index=False)
    largest = runs[(runs["n"] == 32) & (runs["org"] == "Acme")][columns]
    largest = largest.assign(prev=16.0, y=100 / 32, perfect=100 / 32 * 0.5, powerlaw=100 / 32 * 1.5)
    largest.to_csv(folder / "mlperf_training" / "extrapolation_cases.csv", index=False)


def _write_sia(folder: Path) -> None:
    (folder / "sia_pollux").mkdir()
    steps = pd.DataFrame(
        [
            ("bert", "placements", "aws", "1.0", 4.0, 0.4, None, None),
            ("bert", "placements", "aws", "31.0", 4.0, 0.5, None, None),
            ("bert", "placements", "rtx", "8888888888888888.0", 4.0, 0.9, None, None),
            ("bert", "scalability", "dgx", None, 8.0, 0.3, 3.0, 10.0),
            ("gpt_pmp", "scalability", "rtx", None, 1.0, 0.1, 1.0, 8.0),
        ],
        columns=["workload", "kind", "cluster", "placement", "local_bsz", "step_time", "num_nodes", "num_replicas"],
    )
    steps.to_csv(folder / "sia_pollux" / "step_times.csv", index=False)
