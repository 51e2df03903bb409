"""Files of measured steps: a profile as JSON, and JSON lines to which measurements are appended."""

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from foretell.core.errors import ImportDataError, NotFoundError, OutputError
from foretell.core.private_files import open_to_append
from foretell.core.workload import Attribute, Floats, Gradient, MeasuredStep, Operator, Shape, StepPhase, Workload

FORMAT = "foretell profile"
VERSION = 1
ALLOCATED, RESERVED = "allocated_bytes", "reserved_bytes"  # facts of a profile that was measured on a GPU
TIMES = ("kernel_s", "span_s", "start_s", "launch_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A measured step, and how well it was measured."""

    step: MeasuredStep
    steps: int  # whose median is the time of the iteration
    spread: float  # relative: half of the steps are within this share of the median
    overhead: float  # of the profiler, as a share of the time of a step
    load: float | None = None  # of the machine at the start: runnable processes
    facts: Mapping[str, str] = field(default_factory=dict)  # threads, versions, time of day


def save_profile(profile: Profile, path: Path) -> None:
    """Write a file that :func:`load_profile` reads.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        path.write_text(render_profile(profile), encoding="utf-8")
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); name another file") from exc


def render_profile(profile: Profile) -> str:
    """The text of a file that :func:`load_profile` reads."""
    return json.dumps(to_record(profile), indent=1) + "\n"


def load_profile(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        NotFoundError: There is no such file.
        ImportDataError: The file is not a profile.
    """
    return from_record(_parse(_read(path), str(path)), source=str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise NotFoundError("profile", str(path), hint="Create one with 'foretell workload profile'.") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ImportDataError(
            f"{path}: cannot be read ({exc}); expected a file of 'foretell workload profile'"
        ) from exc


def _parse(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise ImportDataError(f"{source}: not JSON ({exc}); expected a file of 'foretell workload profile'") from exc


# A profile as plain values


def to_record(profile: Profile) -> dict[str, Any]:
    """A profile as plain values: each distinct operator once, and the order in which they ran."""
    step = profile.step
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": step.device,
        "iteration_s": step.iteration_s,
        "steps": profile.steps,
        "spread": profile.spread,
        "overhead": profile.overhead,
        "load": profile.load,
        "facts": dict(profile.facts),
        "workload": workload_to_record(step.workload),
        **{name: _to_numbers(getattr(step, name)) for name in TIMES},
    }


def from_record(record: Any, *, source: str) -> Profile:
    """The profile of a record of :func:`to_record`.

    Raises:
        ImportDataError: The values are not a profile.
    """
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ImportDataError(f"{source}: not a profile; expected a file of 'foretell workload profile'")
    if record.get("version") != VERSION:
        raise ImportDataError(
            f"{source}: version {record.get('version')!r} of the format; expected {VERSION}. "
            "Measure again, or use the version of foretell that wrote it."
        )
    try:
        return _build(record)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as exc:
        raise ImportDataError(f"{source}: an invalid profile ({exc!r}); measure again") from exc


def _build(record: Mapping[str, Any]) -> Profile:
    workload = workload_from_record(record["workload"])
    times = {name: _from_numbers(record[name], len(workload.operators)) for name in TIMES}
    step = MeasuredStep(
        workload=workload, device=str(record["device"]), iteration_s=float(record["iteration_s"]), **times
    )
    return Profile(
        step=step,
        steps=int(record["steps"]),
        spread=float(record["spread"]),
        overhead=float(record["overhead"]),
        load=None if record["load"] is None else float(record["load"]),
        facts={str(name): str(value) for name, value in record["facts"].items()},
    )


def workload_to_record(workload: Workload) -> dict[str, Any]:
    """A workload as plain values, without ``sources``: they are many, and reading the code finds them again."""
    places: dict[Operator, int] = {}
    order = [places.setdefault(operator, len(places)) for operator in workload.operators]
    return {
        "name": workload.name,
        "batch": workload.batch,
        "settings": dict(workload.settings),
        "parameters": workload.parameters,
        "operators": [{**asdict(operator), "attributes": dict(operator.attributes)} for operator in places],
        "order": order,
        "layers": list(workload.layers),
        "views": list(workload.views),
        "gradients": [[each.bytes_, each.ready, each.layer] for each in workload.gradients],
    }


def workload_from_record(record: Mapping[str, Any]) -> Workload:
    """The workload of a record of :func:`workload_to_record`."""
    known = [_build_operator(values) for values in record["operators"]]
    return Workload(
        name=str(record["name"]),
        operators=tuple(known[place] for place in record["order"]),
        layers=tuple(map(str, record["layers"])),
        views=tuple(map(int, record["views"])),
        batch=int(record["batch"]),
        settings={str(name): str(value) for name, value in record["settings"].items()},
        parameters=int(record["parameters"]),
        gradients=tuple(_read_gradient(*each) for each in record.get("gradients", ())),
    )


def _read_gradient(bytes_: Any, ready: Any, layer: Any = "") -> Gradient:
    """Files of earlier versions have no layer."""
    return Gradient(bytes_=int(bytes_), ready=int(ready), layer=str(layer))


def _build_operator(values: Mapping[str, Any]) -> Operator:
    attributes = tuple(sorted((str(name), _to_attribute(value)) for name, value in values["attributes"].items()))
    return Operator(
        kind=str(values["kind"]),
        phase=StepPhase(values["phase"]),
        inputs=tuple(_to_shape(shape) for shape in values["inputs"]),
        output=_to_shape(values["output"]),
        attributes=attributes,
        dtype=str(values["dtype"]),
        flops=float(values["flops"]),
        bytes_moved=float(values["bytes_moved"]),
        parameters=int(values["parameters"]),
        kernels=int(values["kernels"]),
        input_gradient=bool(values["input_gradient"]),
        product_flops=float(values.get("product_flops", 0.0)),
        unknown=int(values.get("unknown", 0)),
    )


def _to_attribute(value: int | Sequence[int]) -> Attribute:
    return value if isinstance(value, int) else _to_shape(value)


def _to_shape(sizes: Sequence[int]) -> Shape:
    return tuple(int(size) for size in sizes)


def _to_numbers(times: Floats) -> list[float | None]:
    """Rounded to nanoseconds; None for NaN, which JSON does not have."""
    return [None if math.isnan(time) else round(time, 9) for time in times.tolist()]


def _from_numbers(numbers: Sequence[float | None], count: int) -> Floats:
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} times for {count} operators")
    return np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)


class JsonLinesFile:
    """A file with a header, then a line for each measurement. An interrupted program can continue it."""

    def __init__(self, path: Path, *, format_: str, version: int, command: str) -> None:
        self.path = path
        self._format = format_
        self._version = version
        self._command = command

    def open(self, build_header: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The header of the file; a new file is created if there is none.

        Raises:
            ImportDataError: The file has another format or version.
            OutputError: It cannot be written.
        """
        head = next(self._lines(), None) if self.path.exists() else None
        if head is None:
            head = build_header()
            self.append(head)
        if head.get("format") != self._format:
            raise ImportDataError(f"{self.path}: not a file of '{self._command}'. Use another name.")
        if head.get("version") != self._version:
            raise ImportDataError(
                f"{self.path}: version {head.get('version')!r} of the format; expected {self._version}. "
                "Use another name."
            )
        return head

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file: two processes would measure the same, and disturb each other.

        Raises:
            OutputError: Another process has locked it.
        """
        with self.path.open("rb") as file:
            try:
                _lock(file)
            except BlockingIOError as exc:
                raise OutputError(
                    f"{self.path}: another '{self._command}' is writing to it. Wait until it ends, or use another name."
                ) from exc
            yield

    def split(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The header, and the lines after it."""
        lines = self._lines()
        return next(lines, {}), lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line at once. A line that was cut off before is left on its own.

        Raises:
            OutputError: The file cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open_to_append(self.path) as file:
                if file.tell() and not _ends_whole(file):
                    file.write(b"\n")
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OutputError:
            raise
        except OSError as exc:
            raise OutputError(f"{self.path}: cannot be written ({exc.strerror}); use another name") from exc

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ImportDataError(f"{self.path}: cannot be read ({exc}); use another name") from exc
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # cut off
                continue
            yield record if isinstance(record, dict) else {}


def _lock(file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
