"""Measured trainings in a file of the user's."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.advise.published import Compared, ComparedJob, Published, compare, compare_job
from benchmarks.distributed.label_rows import read_labelled
from foretell.core.devices import get_device
from foretell.workloads.step_options import parse_input

NEEDED = ("device", "gpus", "model", "input", "precision")
MEASURED = ("rate", "seconds", "total_s")


def compare_labels(path: Path) -> tuple[list[Compared], list[ComparedJob]]:
    """The steps of a file, and the whole jobs of those rows that have their time and samples.

    Raises:
        ValueError: A column is missing, or a cell cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    _check(path, records)
    rows = [build_row(record, place) for place, record in enumerate(records)]
    found = {each.row.label: each for each in compare(rows)}
    jobs = [
        _compare_job(found[row.label], record)
        for row, record in zip(rows, records, strict=True)
        if record.get("total_s") and row.label in found
    ]
    steps = [
        found[row.label]
        for row, record in zip(rows, records, strict=True)
        if row.label in found and (record.get("rate") or record.get("seconds"))
    ]
    return steps, jobs


def _check(path: Path, records: list[dict[str, str]]) -> None:
    missing = [name for name in NEEDED if not records or name not in records[0]]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}; needed: {', '.join(NEEDED)}")
    for line, record in enumerate(records, start=2):
        if not any(record.get(name) for name in MEASURED):
            raise ValueError(f"{path}, line {line}: nothing measured; one of {', '.join(MEASURED)} is needed")
        if record.get("total_s") and not record.get("samples"):
            raise ValueError(f"{path}, line {line}: total_s without samples, those of an epoch")


def build_row(record: Mapping[str, str], place: int = 0) -> Published:
    """A row of the file. Without a rate or the seconds of a step, that of the whole job stands for it."""
    given = parse_input(record["input"])
    gpus, batch = int(record["gpus"]), given.shape[0]
    accumulation = int(record.get("accumulation") or 1)
    row = Published(
        source="labels",
        task=record.get("task") or record["model"],
        network=record["model"],
        device=get_device(record["device"]),
        gpus=gpus,
        gpus_per_node=int(record.get("gpus_per_node") or 8),
        batch=batch,
        precision=record["precision"],
        rate=1.0,
        layout=record.get("layout") or "ddp",
        accumulation=accumulation,
        options={name: record[name] for name in ("optimizer", "checkpointing") if record.get(name)},
        label=f"line {place + 2}",
        read=partial(read_labelled, record),
    )
    return _set_rate(row, record)


def _set_rate(row: Published, record: Mapping[str, str]) -> Published:
    if record.get("rate"):
        return replace(row, rate=float(record["rate"]))
    if record.get("seconds"):
        return replace(row, rate=row.batch * row.accumulation * row.copies / float(record["seconds"]))
    samples = float(record["samples"]) * float(record.get("epochs") or 1)
    return replace(row, rate=samples / float(record["total_s"]))


def _compare_job(step: Compared, record: Mapping[str, str]) -> ComparedJob:
    return compare_job(
        step,
        name=record["model"],
        samples=int(record["samples"]),
        epochs=float(record.get("epochs") or 1),
        measured_s=float(record["total_s"]),
    )
