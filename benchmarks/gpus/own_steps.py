"""Measured steps of the user's own, from a file: device, model, input, precision, mode, batch, seconds."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gpus.models import read_timm, read_torchvision
from benchmarks.gpus.step_labels import StepLabel
from foretell.core.devices import get_device
from foretell.core.workload import Workload
from foretell.workloads.api import read_workload
from foretell.workloads.step_options import StepOptions, parse_input, resize

COLUMNS = ("device", "model", "input", "precision", "mode", "batch", "seconds")


def read_labels(path: Path) -> Iterator[StepLabel]:
    """The steps of a file.

    Raises:
        ValueError: It lacks a column, or a batch or a time is no positive number.
        NotFoundError: It has an unknown device.
        SpecError: A precision or a mode is unknown.
    """
    rows = pd.read_csv(path, skipinitialspace=True)
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
    for name in ("batch", "seconds"):
        _check_positive(path, rows[name])
    for row in rows.itertuples():
        options = StepOptions(precision=str(row.precision), mode=str(row.mode))
        yield StepLabel(
            source=str(path.name),
            model=str(row.model),
            family=str(row.model),
            device=get_device(str(row.device)).name,
            mode=options.mode,
            precision=options.precision,
            batch=int(float(str(row.batch))),
            seconds=float(str(row.seconds)),
            read=partial(_read, str(row.model), str(row.input), int(float(str(row.batch))), options),
        )


def _check_positive(path: Path, column: "pd.Series[Any]") -> None:
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))
    if len(wrong):
        found = column.iloc[wrong[0]]
        raise ValueError(f"{path}, row {wrong[0] + 1}: {column.name} is {found!r}, which is no positive number")


def _read(model: str, given: str, batch: int, options: StepOptions) -> Workload | None:
    inputs = resize([parse_input(text) for text in given.split()], batch)
    library, _, name = model.partition(":")
    size = inputs[0].shape[-1]
    if library == "timm":
        return read_timm(name, batch=batch, size=size, options=options)
    if library == "torchvision":
        return read_torchvision(name, batch=batch, size=size, options=options)
    return read_workload(model, inputs, options=options)
