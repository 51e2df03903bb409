"""Tables of measured steps → TimedSteps."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from foretell.entities.device import Device
from foretell.entities.placed import PlacedStep, Placement, TimedStep, parse_placement
from foretell.entities.units import parse_rate
from foretell.errors import ImportDataError

NEEDED, KNOWN = ("batch", "gpus", "step_s"), ("workload", "cluster", "sync_s", "device", "link")
TRAINING, HERE = "the training", "this cluster"  # a workload and a cluster that nobody named

FindDevice = Callable[[str], Device | None]


def read_steps(frame: pd.DataFrame, *, find_device: FindDevice) -> list[TimedStep]:
    """A step for each row: ``batch`` of a GPU, ``gpus`` on each node, ``step_s``; other columns where they are known.

    Raises:
        ImportDataError: if a column is missing, or a cell cannot be read.
    """
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise ImportDataError(
            f"no column named {missing[0]!r} among {', '.join(map(str, frame.columns))}; "
            f"expected {', '.join(NEEDED)} and, where they are known, {', '.join(KNOWN)}"
        )
    twice = [name for name in (*NEEDED, *KNOWN) if list(frame.columns).count(name) > 1 or f"{name}.1" in frame.columns]
    if twice:
        raise ImportDataError(f"two columns named {twice[0]!r}; give each its own name")
    if frame.empty:
        raise ImportDataError("the table has no rows; expected one for each measured step")
    return [_read_row(number, row, find_device) for number, row in enumerate(frame.to_dict("records"), start=1)]


def _read_row(number: int, row: Mapping[Any, Any], find_device: FindDevice) -> TimedStep:
    def read(name: str, parse: Callable[[str], Any], usual: Any = None) -> Any:
        cell = row.get(name)
        if not pd.api.types.is_scalar(cell):
            raise ImportDataError(f"row {number}, column {name}: {cell!r}; expected one value")
        if cell is None or pd.isna(cell) or not str(cell).strip():
            if name in NEEDED:
                raise ImportDataError(f"row {number}: no {name}; leave the row out if it is not known")
            return usual
        try:
            return parse(str(cell))
        except ValueError as exc:
            raise ImportDataError(f"row {number}, column {name}: {exc}") from None

    placed = PlacedStep(
        workload=read("workload", str.strip, TRAINING),
        cluster=read("cluster", str.strip, HERE),
        batch=read("batch", _parse_positive),
        gpus=read("gpus", _parse_gpus),
        device=read("device", lambda name: _get_device(name, find_device)),
        link_bytes_per_s=read("link", parse_rate),
    )
    step_s, sync_s = read("step_s", _parse_positive), read("sync_s", _parse_seconds)
    if sync_s is not None and sync_s >= step_s:
        raise ImportDataError(
            f"row {number}: sync_s {sync_s:g} is not below step_s {step_s:g}; expected the part of the step that waits"
        )
    return TimedStep(placed=placed, step_s=step_s, sync_s=sync_s)


def _parse_gpus(text: str) -> Placement:
    return parse_placement(text.removesuffix(".0"))  # a column with empty cells is one of floats


def _parse_positive(text: str) -> float:
    number = _parse_number(text)
    if not 0 < number < math.inf:
        raise ValueError(f"{text!r}; expected a finite number above 0")
    return number


def _parse_seconds(text: str) -> float:
    number = _parse_number(text)
    if not 0 <= number < math.inf:
        raise ValueError(f"{text!r}; expected a finite number, not below 0")
    return number


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _get_device(name: str, find_device: FindDevice) -> Device:
    device = find_device(name)
    if device is None:
        raise ValueError(
            f"{name!r} is not among what 'foretell device list' names; leave it empty if it is none of them"
        )
    return device
