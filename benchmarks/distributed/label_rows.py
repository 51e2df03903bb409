"""Measured steps of several GPUs in a file of the user's."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, judge_predicted, predict_rows
from benchmarks.gpus.results import Result
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.topology import Topology
from foretell.core.units import parse_rate
from foretell.core.workload import Workload
from foretell.workloads.api import read_workload
from foretell.workloads.step_options import StepOptions, parse_input

_NEEDED = ("device", "gpus", "layout", "model", "input", "precision", "seconds")


def judge_labels(path: Path, devices: Sequence[str] = ()) -> list[Result]:
    """The rows of a file, together."""
    rows = [each for each in predict_labels(path) if not devices or each.row.group in devices]
    return judge_predicted(path.name, "all", rows)


def predict_labels(path: Path) -> list[PredictedRow]:
    """The predicted rows of a file.

    Raises:
        ValueError: A column is missing, or a cell cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    missing = [name for name in _NEEDED if not records or name not in records[0]]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}; needed: {', '.join(_NEEDED)}")
    return predict_rows([_build_row(record) for record in records])


def _build_row(record: Mapping[str, str]) -> SharedRow:
    device = get_device(record["device"])
    network = record.get("network", "")
    gpus_per_node = int(record.get("gpus_per_node") or 8)
    return SharedRow(
        source="labels",
        group=device.name,
        model=record["model"],
        workload=" ".join(record.get(name) or "" for name in ("model", "input", "precision", "checkpointing")),
        layout=parse_layout(record["layout"], gpus=int(record["gpus"])),
        topology=Topology(
            device=device, gpus_per_node=gpus_per_node, network_bytes=parse_rate(network) if network else 0.0
        ),
        accumulation=int(record.get("accumulation") or 1),
        seconds=float(record["seconds"]),
        read=partial(read_labelled, record),
    )


def read_labelled(record: Mapping[str, str]) -> Workload:
    """The step of one batch on one GPU that a row of a file describes."""
    options = StepOptions(
        precision=record["precision"],
        optimizer=record.get("optimizer") or "adamw",
        checkpointing=(record.get("checkpointing") or "no").lower() in ("yes", "true", "1"),
    )
    return read_workload(record["model"], [parse_input(record["input"])], options=options)
