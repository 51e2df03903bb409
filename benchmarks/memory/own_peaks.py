"""Measured peaks of the user's own, from a file, against predictions by what ships."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.gpus.models import build_torchvision
from benchmarks.memory.models import build_timm
from benchmarks.memory.results import Result
from foretell.core.devices import get_device
from foretell.core.memory import MemoryTrace
from foretell.memory.forecast import forecast
from foretell.memory.usage import measure_usage
from foretell.workloads.api import read_memory
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import StepOptions, parse_input, resize

COLUMNS = ("model", "input", "precision", "optimizer", "mode", "batch", "device", "bytes", "what")
KINDS = ("allocated", "reserved", "device")
_LEVEL = 0.9  # of the interval, whose upper end is the 95 % bound


def judge_labels(path: Path) -> list[Result]:
    """Each measured peak.

    Raises:
        ValueError: The file lacks a column, or has an unknown kind of peak.
        NotFoundError: It has an unknown device.
    """
    rows = pd.read_csv(path)
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
    unknown = sorted(set(rows["what"]) - set(KINDS))
    if unknown:
        raise ValueError(f"{path}: no kind of peak {unknown[0]!r}; known kinds: {', '.join(KINDS)}")
    return list(_judge(rows))


def _judge(rows: pd.DataFrame) -> Iterator[Result]:
    for row in rows.to_dict("records"):
        options = StepOptions(precision=row["precision"], optimizer=row["optimizer"], mode=row["mode"])
        usage = measure_usage(_read(row["model"], row["input"], int(row["batch"]), options))
        device = get_device(row["device"])
        found = forecast(usage, device, level=_LEVEL)
        predicted = {
            "allocated": usage.allocated_bytes,
            "reserved": usage.reserved_bytes + found.workspace_bytes,
            "device": found.needed.value,
        }[row["what"]]
        measured = float(row["bytes"])
        figures = {"error": 100 * (predicted / measured - 1)}
        if row["what"] == "device":
            figures["too low"] = 100.0 * (found.needed.high < measured)
        yield Result(
            what=f"{row['model']} {options.mode} {options.precision} batch {row['batch']}, {row['what']}",
            group=device.name,
            cases=1,
            figures={name: float(np.round(value, 2)) for name, value in figures.items()},
        )


def _read(model: str, given: str, batch: int, options: StepOptions) -> MemoryTrace:
    inputs = resize([parse_input(text) for text in str(given).split()], batch)
    library, _, name = model.partition(":")
    if library == "timm":
        return capture_memory(build_timm(name, inputs[0].shape[-1]), inputs, options=options)
    if library == "torchvision":
        return capture_memory(build_torchvision(name), inputs, options=options)
    return read_memory(model, inputs, options=options)
