"""Steps of data-parallel training as columns that models read."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.apps.table_files import TableLike, get_table, is_missing
from foretell.core.devices import Device
from foretell.core.errors import ImportDataError, NotFoundError
from foretell.core.prediction import Estimate
from foretell.core.units import parse_rate
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats

Placement = tuple[int, ...]  # GPUs on each node

_EQUAL = re.compile(r"(\d+)x(\d+)")
_EACH = re.compile(r"\d+(\+\d+)*")
_DIGITS = 9  # more are more than any
_MOST_NODES, _MOST_GPUS = 10_000, 1_000  # of a node: what no cluster has is a slip of the pen


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step that is asked for: ``gpus`` on each node, each with ``batch`` samples."""

    workload: str
    cluster: str
    batch: float
    gpus: Placement
    device: Device | None = None  # nobody named one
    link_bytes_per_s: float | None = None  # between nodes; nobody named one


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A step that was measured; ``sync_s`` is the part of it in which computing waits for gradients."""

    placed: PlacedStep
    step_s: float
    sync_s: float | None = None  # nobody measured it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPrediction:
    """What is told of a step: its time, and the parts that compute and that wait for gradients.

    ``measured_s`` is the median of the very same step where it was measured. ``warnings`` say where
    the placement lies outside what was measured.
    """

    step: PlacedStep
    step_s: Estimate
    compute_s: float
    exposed_s: float
    measured_s: float | None = None
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def count(self) -> int:
        """GPUs on all nodes."""
        return sum(self.step.gpus)

    @property
    def examples_per_s(self) -> float:
        """Of all GPUs."""
        return self.count * self.step.batch / self.step_s.value

    @property
    def waits(self) -> float:
        """The share of a step in which computing waits for gradients."""
        return self.exposed_s / self.step_s.value


def parse_placement(text: str) -> Placement:
    """GPUs on each node from ``"8"``, ``"4+2"`` (on two nodes) or ``"2x8"`` (two nodes of 8).

    Raises:
        ValueError: if it is none of these, a node has none, or there are more than any cluster has.
    """
    spaceless = "".join(text.split())
    nodes, each = 1, spaceless
    if equal := _EQUAL.fullmatch(spaceless):
        nodes, each = int(equal[1][:_DIGITS]), equal[2]
    counts = [int(word[:_DIGITS]) for word in each.split("+")] if _EACH.fullmatch(each) else []
    if not counts or not 1 <= nodes * len(counts) <= _MOST_NODES or not 1 <= min(counts) <= max(counts) <= _MOST_GPUS:
        raise ValueError(
            f"{text!r} is no placement; write for example 8, 4+2 (two nodes) or 2x8 (two nodes of 8), with at most "
            f"{_MOST_GPUS:,} GPUs on a node and {_MOST_NODES:,} nodes"
        )
    return nodes * tuple(sorted(counts, reverse=True))


def render_placement(gpus: Placement) -> str:
    """``8``, ``4+2``, ``2x8``; what :func:`parse_placement` reads."""
    if len(gpus) > 1 and len(set(gpus)) == 1:
        return f"{len(gpus)}x{gpus[0]}"
    return "+".join(map(str, gpus))


NEEDED, KNOWN = ("batch", "gpus", "step_s"), ("workload", "cluster", "sync_s", "device", "link")
TRAINING, HERE = "the training", "this cluster"  # a workload and a cluster that nobody named

FindDevice = Callable[[str], Device | None]


def read_steps(source: TableLike, *, find_device: FindDevice) -> list[TimedStep]:
    """A step for each row: ``batch`` of a GPU, ``gpus`` on each node, ``step_s``; other columns where they are known.

    Raises:
        ImportDataError: if a column is missing, or a cell cannot be read.
    """
    table = get_table(source)
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise ImportDataError(
            f"no column named {missing[0]!r} among {', '.join(table.columns)}; "
            f"expected {', '.join(NEEDED)} and, where they are known, {', '.join(KNOWN)}"
        )
    twice = [name for name in (*NEEDED, *KNOWN) if f"{name}.1" in table]
    if twice:
        raise ImportDataError(f"columns named twice: {twice[0]!r}; give each its own name")
    if not len(table):
        raise ImportDataError("the table has no rows; expected one for each measured step")
    return [_read_row(number, row, find_device) for number, row in enumerate(table.rows(), start=1)]


def _read_row(number: int, row: Mapping[Any, Any], find_device: FindDevice) -> TimedStep:
    def read(name: str, parse: Callable[[str], Any], usual: Any = None) -> Any:
        cell = row.get(name)
        if isinstance(cell, Mapping | list | tuple | set):
            raise ImportDataError(f"row {number}, column {name}: {cell!r}; expected one value")
        if is_missing(cell) or not str(cell).strip():
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


Ints = NDArray[np.int64]

_USUAL_LINK = 4e9  # bytes a second, between 10 and 100 Gb/s: what nodes have whose link nobody named


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Steps as columns. Levels are numbers of names; -1 is a name never seen."""

    levels: Mapping[str, Ints]
    batch: Floats
    count: Floats
    nodes: Floats
    most: Floats  # GPUs of the fullest node
    flops: Floats  # logs, of the mean of devices
    bandwidth: Floats
    link: Floats

    def take(self, chosen: Ints) -> "Rows":
        levels = {name: values[chosen] for name, values in self.levels.items()}
        rest = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return Rows(levels=levels, **rest)


_COLUMNS = ("batch", "count", "nodes", "most", "flops", "bandwidth", "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What was seen: workloads, clusters and pairs of them; and what figures are compared with."""

    workload: Mapping[str, int]
    cluster: Mapping[str, int]
    pair: Mapping[tuple[str, str], int]
    scale: Mapping[str, float | None]

    @classmethod
    def find(cls, steps: Sequence[PlacedStep]) -> "Names":
        names = [
            _number({step.workload for step in steps}),
            _number({step.cluster for step in steps}),
        ]
        pairs = sorted({(step.workload, step.cluster) for step in steps})
        clusters = {step.cluster: step for step in steps}.values()
        figures = {name: [each[name] for each in map(_figures, clusters)] for name in ("flops", "bandwidth")}
        scale = {name: _mean_log(values) for name, values in figures.items()} | {"link": float(np.log(_USUAL_LINK))}
        return cls(
            workload=names[0], cluster=names[1], pair={pair: number for number, pair in enumerate(pairs)}, scale=scale
        )

    def sizes(self) -> dict[str, int]:
        return {
            "all": 1,
            "workload": len(self.workload),
            "cluster": len(self.cluster),
            "pair": len(self.pair),
        }

    def number(self, steps: Sequence[PlacedStep]) -> Rows:
        """The steps as columns.

        Raises:
            NotFoundError: if a workload was never seen.
        """
        for step in steps:
            if step.workload not in self.workload:
                raise NotFoundError("workload", step.workload, known=self.workload, hint="Measure steps of it first.")
        levels = {
            "all": np.zeros(len(steps), dtype=np.int64),
            "workload": np.array([self.workload[step.workload] for step in steps], dtype=np.int64),
            "cluster": np.array([self.cluster.get(step.cluster, -1) for step in steps], dtype=np.int64),
            "pair": np.array([self.pair.get((step.workload, step.cluster), -1) for step in steps], dtype=np.int64),
        }
        figures = {
            name: np.array([_compare(_figures(step)[name], self.scale[name]) for step in steps])
            for name in ("flops", "bandwidth", "link")
        }
        return Rows(
            levels=levels,
            batch=np.array([step.batch for step in steps], dtype=float),
            count=np.array([sum(step.gpus) for step in steps], dtype=float),
            nodes=np.array([len(step.gpus) for step in steps], dtype=float),
            most=np.array([max(step.gpus) for step in steps], dtype=float),
            **figures,
        )


def _number(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _figures(step: PlacedStep) -> dict[str, float | None]:
    device = step.device
    return {
        "flops": device.peak_flops if device else None,
        "bandwidth": device.bandwidth_bytes if device else None,
        "link": step.link_bytes_per_s,
    }


def _mean_log(values: Sequence[float | None]) -> float | None:
    known = [np.log(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _compare(value: float | None, scale: float | None) -> float:
    """A figure that nobody named counts as the mean of those named."""
    return 0.0 if value is None or scale is None else float(np.log(value) - scale)
