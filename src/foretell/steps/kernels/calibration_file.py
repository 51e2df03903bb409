"""The file of a calibration: a header, then a line of JSON for each measured kernel. It is data, never code."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foretell.core.devices import Device, read_device
from foretell.core.errors import ImportDataError, NotFoundError
from foretell.core.model_files import read_numbers, read_positive
from foretell.core.serialization import from_record, to_record
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import KernelCall
from foretell.steps.kernels.split_steps import KINDS
from foretell.workloads.measurement_files import JsonLinesFile

FORMAT = "foretell calibration"
VERSION = 1
SUFFIX = ".calibration.jsonl"
_COMMAND = "foretell device calibrate"
_MOST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A kernel with its median time, and the spread of its repeats as a share of it."""

    call: KernelCall
    seconds: float
    spread: float = 0.0

    @property
    def precision(self) -> str:
        """Its type; none of passes over memory."""
        return str(getattr(self.call, "precision", ""))

    @property
    def kind(self) -> str:
        """The name of its model."""
        return next(name for name, kind in KINDS.items() if isinstance(self.call, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Kernels that were measured on a device."""

    device: Device
    kernels: tuple[MeasuredKernel, ...] = ()
    host_ratio: float | None = None  # of the time of the host to that of an undisturbed one
    facts: Mapping[str, str] = field(default_factory=dict)  # versions, clock, load
    conditions: tuple[Mapping[str, float], ...] = ()  # of each session: busy_cores, cores, gpu_busy, clock_mhz
    seconds: float = 0.0  # spent on measuring
    skipped: int = 0  # kernels that the device cannot run
    done: frozenset[str] = frozenset()  # keys of all that were tried

    def select(self, kind: str, *, least: int = 1) -> tuple[list[KernelCall], Floats]:
        """The kernels of a kind, and their times; of types with so many, at least."""
        own = [each for each in self.kernels if each.kind == kind]
        count = Counter(each.precision for each in own)
        found = [each for each in own if count[each.precision] >= least]
        return [each.call for each in found], np.array([each.seconds for each in found])

    def find_worst(self, condition: str) -> float:
        """The largest of a condition in all sessions; 0 if it is unknown."""
        return max((each.get(condition, 0.0) for each in self.conditions), default=0.0)

    @property
    def spread(self) -> float:
        """The median spread of repeats."""
        return float(np.median([each.spread for each in self.kernels])) if self.kernels else 0.0


class CalibrationFile(JsonLinesFile):
    """A file that is written line by line, so that an interrupted measurement continues."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, format_=FORMAT, version=VERSION, command=_COMMAND)

    def read(self) -> Calibration:
        """What was measured so far.

        Raises:
            ImportDataError: The file is not one of a calibration.
        """
        head, lines = self.split()
        try:
            return _read(head, list(lines))
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            expected = f"a file of '{_COMMAND}'"
            raise ImportDataError(f"{self.path}: not a calibration ({exc}); expected {expected}") from exc


def load_calibration(path: Path) -> Calibration:
    """The calibration of a file, perhaps made elsewhere.

    Raises:
        NotFoundError: There is no such file.
        ImportDataError: The file is not one.
    """
    if not path.is_file():
        raise NotFoundError("calibration", str(path), hint=f"Make one on a machine with the GPU: '{_COMMAND}'.")
    if path.stat().st_size > _MOST_BYTES:
        raise ImportDataError(f"{path}: {path.stat().st_size} bytes; a calibration has {_MOST_BYTES} at most")
    file = CalibrationFile(path)
    file.open(dict)  # checks the format and its version
    return file.read()


def build_header(device: Device, facts: Mapping[str, str]) -> dict[str, Any]:
    """The first line: the device with its figures, and what the times depend on."""
    return {"format": FORMAT, "version": VERSION, "device": to_record(asdict(device)), "facts": dict(facts)}


def build_line(key: str, measured: MeasuredKernel | str, seconds: float) -> dict[str, Any]:
    """The line of a kernel, or of the reason why it was not measured; ``seconds`` is what that took."""
    line: dict[str, Any] = {"key": key, "took": round(seconds, 4)}
    if isinstance(measured, str):
        return {**line, "skipped": measured}
    times = {"seconds": float(f"{measured.seconds:.6g}"), "spread": float(f"{measured.spread:.3g}")}
    return {**line, "kind": measured.kind, "call": to_record(measured.call), **times}


def build_host_line(ratio: float, seconds: float) -> dict[str, Any]:
    """The line of the host's time."""
    return {"host_ratio": float(f"{ratio:.6g}"), "took": round(seconds, 4)}


def build_conditions_line(conditions: Mapping[str, float]) -> dict[str, Any]:
    """The line of a session's conditions: load, clock."""
    return {"conditions": {name: float(f"{value:.4g}") for name, value in conditions.items()}, "took": 0.0}


def build_key(chosen: object) -> str:
    """What a chosen kernel is known by in a file."""
    return hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]


def _read(head: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Calibration:
    return Calibration(
        device=read_device(head["device"]),
        kernels=tuple(_read_kernel(line) for line in lines if "call" in line),
        host_ratio=next((read_positive(line["host_ratio"]) for line in lines if "host_ratio" in line), None),
        conditions=tuple(read_numbers(line["conditions"]) for line in lines if "conditions" in line),
        facts={str(name): str(value) for name, value in head["facts"].items()},
        seconds=sum(float(line.get("took", 0.0)) for line in lines),
        skipped=sum("skipped" in line for line in lines),
        done=frozenset(str(line["key"]) for line in lines if "key" in line),
    )


def _read_kernel(line: Mapping[str, Any]) -> MeasuredKernel:
    call: KernelCall = from_record(KINDS[line["kind"]], line["call"])
    for value in _list_values(call):
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < 1e18:
            raise ValueError(f"{value!r} in a kernel")
    return MeasuredKernel(call=call, seconds=read_positive(line["seconds"]), spread=float(line.get("spread", 0.0)))


def _list_values(call: KernelCall) -> list[Any]:
    """The values of a kernel, with those of its pairs."""
    values = list(asdict(call).values())
    return [*values, *(part for value in values if isinstance(value, tuple | list) for part in value)]
