"""Measured and predicted steps of data-parallel training, their tables, and which placement is worth it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.errors import ImportDataError, NotFoundError
from foretell.core.prediction import Estimate
from foretell.core.table_files import TableLike, get_table, is_missing
from foretell.core.units import parse_rate
from foretell.core.warning import PredictionWarning
from foretell.core.workload import Floats

Placement = tuple[int, ...]  # GPUs on each node

_EQUAL = re.compile(r"(\d+)x(\d+)")
_EACH = re.compile(r"\d+(\+\d+)*")
_DIGITS = 9
_MOST_NODES, _MOST_GPUS = 10_000, 1_000  # GPUs of a node; more are taken for a typing error
_MILLION, _HOUR_S = 1e6, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step to predict: ``gpus`` on each node, each with ``batch`` examples."""

    workload: str
    cluster: str
    batch: float
    gpus: Placement
    device: Device | None = None  # unknown
    link_bytes_per_s: float | None = None  # between nodes; unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A measured step; ``sync_s`` is the part of it that waits for gradients."""

    placed: PlacedStep
    step_s: float
    sync_s: float | None = None  # not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPrediction:
    """The predicted time of a step, and the parts that compute and that wait for gradients.

    ``measured_s`` is the median of the same step, if it was measured. ``warnings`` say where the placement is outside
    the measured ones.
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
    def exposed_share(self) -> float:
        """The share of a step that waits for gradients."""
        return self.exposed_s / self.step_s.value

    @property
    def gpu_hours_per_million(self) -> float:
        """GPU hours for a million examples."""
        return _MILLION / self.examples_per_s * self.count / _HOUR_S


class ChoiceReason(StrEnum):
    """Why a placement is recommended, or none."""

    EFFICIENT = "efficient"
    NO_LARGER = "no larger placement"
    NOT_MEASURED = "larger placements not measured"
    INEFFICIENT = "larger placements inefficient"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementComparison:
    """Predicted placements, and the one that is worth requesting for a required efficiency.

    The efficiency of a placement is what each of its GPUs does, relative to a GPU of the smallest placement.
    """

    predictions: tuple[PlacedPrediction, ...]
    efficiency: float  # required

    @property
    def smallest(self) -> PlacedPrediction:
        """The fewest GPUs; the fastest of several such."""
        return min(self.predictions, key=lambda each: (each.count, each.step_s.value))

    def get_efficiency(self, prediction: PlacedPrediction) -> float:
        """The efficiency of one of the placements."""
        least = self.smallest
        return prediction.examples_per_s / prediction.count / (least.examples_per_s / least.count)

    @property
    def choice(self) -> PlacedPrediction | None:
        """The most examples per second at the required efficiency; ``None`` if only the smallest placement has it.

        A placement with warnings is chosen only where all have some.
        """
        candidates = [each for each in self.predictions if not each.warnings] or self.predictions
        efficient = [
            each for each in candidates if each in self._larger and self.get_efficiency(each) >= self.efficiency
        ]
        return max(efficient, key=lambda each: each.examples_per_s, default=None)

    @property
    def reason(self) -> ChoiceReason:
        """Why the choice is made, or none is."""
        if self.choice is not None:
            return ChoiceReason.EFFICIENT
        if not self._larger:
            return ChoiceReason.NO_LARGER
        if all(each.warnings for each in self._larger) and not self.smallest.warnings:
            return ChoiceReason.NOT_MEASURED
        return ChoiceReason.INEFFICIENT

    @property
    def partly_extrapolated(self) -> bool:
        """Whether some larger placements have warnings, and others have none."""
        return 0 < sum(bool(each.warnings) for each in self._larger) < len(self._larger)

    @property
    def first_warning(self) -> PredictionWarning | None:
        """Of the larger placements."""
        return next((warning for each in self._larger for warning in each.warnings), None)

    @property
    def _larger(self) -> list[PlacedPrediction]:
        return [each for each in self.predictions if each.count > self.smallest.count]


def parse_placement(text: str) -> Placement:
    """GPUs on each node from ``"8"``, ``"4+2"`` (on two nodes) or ``"2x8"`` (two nodes of 8).

    Raises:
        ValueError: It is none of these, or has no GPUs or too many.
    """
    spaceless = "".join(text.split())
    nodes, each = 1, spaceless
    if equal := _EQUAL.fullmatch(spaceless):
        nodes, each = int(equal[1][:_DIGITS]), equal[2]
    counts = [int(word[:_DIGITS]) for word in each.split("+")] if _EACH.fullmatch(each) else []
    if not counts or not 1 <= nodes * len(counts) <= _MOST_NODES or not 1 <= min(counts) <= max(counts) <= _MOST_GPUS:
        raise ValueError(
            f"{text!r} is not a placement; write for example 8, 4+2 (two nodes) or 2x8 (two nodes of 8), with at most "
            f"{_MOST_GPUS:,} GPUs on a node and {_MOST_NODES:,} nodes"
        )
    return nodes * tuple(sorted(counts, reverse=True))


def render_placement(gpus: Placement) -> str:
    """``8``, ``4+2``, ``2x8``, as :func:`parse_placement` reads it."""
    if len(gpus) > 1 and len(set(gpus)) == 1:
        return f"{len(gpus)}x{gpus[0]}"
    return "+".join(map(str, gpus))


NEEDED, KNOWN = ("batch", "gpus", "step_s"), ("workload", "cluster", "sync_s", "device", "link")
TRAINING, HERE = "the training", "this cluster"  # names where the table has no such column

FindDevice = Callable[[str], Device | None]


def read_steps(source: TableLike, *, find_device: FindDevice) -> list[TimedStep]:
    """A step for each row: ``batch`` of a GPU, ``gpus`` on each node, ``step_s``; other columns are optional.

    Raises:
        ImportDataError: A column is missing, or a cell cannot be read.
    """
    table = get_table(source)
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise ImportDataError(
            f"no column named {missing[0]!r} among {', '.join(table.columns)}; "
            f"expected {', '.join(NEEDED)}, and optionally {', '.join(KNOWN)}"
        )
    twice = [name for name in (*NEEDED, *KNOWN) if f"{name}.1" in table]
    if twice:
        raise ImportDataError(f"columns named twice: {twice[0]!r}; give each its own name")
    if not len(table):
        raise ImportDataError("the table has no rows; expected one for each measured step")
    return [_read_row(number, row, find_device) for number, row in enumerate(table.rows(), start=1)]


def _read_row(number: int, row: Mapping[Any, Any], find_device: FindDevice) -> TimedStep:
    def read(name: str, parse: Callable[[str], Any], default: Any = None) -> Any:
        cell = row.get(name)
        if isinstance(cell, Mapping | list | tuple | set):
            raise ImportDataError(f"row {number}, column {name}: {cell!r}; expected one value")
        if is_missing(cell) or not str(cell).strip():
            if name in NEEDED:
                raise ImportDataError(f"row {number}: no {name}; leave the row out if it is unknown")
            return default
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
            f"unknown device {name!r}; 'foretell device list' prints the known ones, or leave the cell empty"
        )
    return device


Ints = NDArray[np.int64]

_DEFAULT_LINK = 4e9  # bytes a second where the link is unknown: between 10 and 100 Gb/s


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Steps as columns. Levels are indices of names; -1 is a name that was not measured."""

    levels: Mapping[str, Ints]
    batch: Floats
    count: Floats
    nodes: Floats
    most: Floats  # GPUs of the fullest node
    flops: Floats  # log, relative to the mean of the devices
    bandwidth: Floats
    local_link: Floats  # in the node
    link: Floats  # between nodes

    def take(self, chosen: Ints) -> "Rows":
        levels = {name: values[chosen] for name, values in self.levels.items()}
        rest = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return Rows(levels=levels, **rest)


_DEVICE_FIGURES = ("flops", "bandwidth", "local_link")
_COLUMNS = ("batch", "count", "nodes", "most", *_DEVICE_FIGURES, "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Indices of the measured workloads, clusters and pairs of them, and the scale of their figures."""

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
        figures = {name: [each[name] for each in map(_figures, clusters)] for name in _DEVICE_FIGURES}
        scale = {name: _mean_log(values) for name, values in figures.items()} | {"link": float(np.log(_DEFAULT_LINK))}
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
            NotFoundError: A workload was not measured.
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
            for name in (*_DEVICE_FIGURES, "link")
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
        "local_link": (device.link_bytes or None) if device else None,
        "link": step.link_bytes_per_s,
    }


def _mean_log(values: Sequence[float | None]) -> float | None:
    known = [np.log(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _compare(value: float | None, scale: float | None) -> float:
    """The log of a figure relative to the mean; 0 where it is unknown."""
    return 0.0 if value is None or scale is None else float(np.log(value) - scale)
