"""Measured steps as files: JSON that people can read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foretell.core.errors import ImportDataError, NotFoundError, OutputError
from foretell.core.workload import Attribute, Floats, Gradient, MeasuredStep, Operator, Shape, StepPhase, Workload

FORMAT = "foretell profile"
VERSION = 1
TIMES = ("kernel_s", "span_s", "start_s", "launch_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A measured step, and how well it was measured."""

    step: MeasuredStep
    steps: int  # that the iteration's time is the median of
    spread: float  # of these, as a share: half of them lie within so much of the median
    overhead: float  # by which share a step took longer while its operators were timed
    load: float | None = None  # of the machine when it began: processes that wanted to run
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
    """What was measured.

    Raises:
        NotFoundError: There is no such file.
        ImportDataError: The file holds something else.
    """
    return from_record(_parse(_read(path), str(path)), source=str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise NotFoundError("profile", str(path), hint="Make one with 'foretell workload profile'.") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ImportDataError(
            f"{path}: cannot be read ({exc}); expected a file of 'foretell workload profile'"
        ) from exc


def _parse(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise ImportDataError(f"{source}: no JSON ({exc}); expected a file of 'foretell workload profile'") from exc


# A profile as plain values


def to_record(profile: Profile) -> dict[str, Any]:
    """Plain values: each different operator once, and the order in which they ran."""
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
    """The profile that :func:`to_record` made plain.

    Raises:
        ImportDataError: The values are something else.
    """
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ImportDataError(f"{source}: no profile; expected a file of 'foretell workload profile'")
    if record.get("version") != VERSION:
        raise ImportDataError(
            f"{source}: version {record.get('version')!r} of the format; this program reads {VERSION}. "
            "Measure again, or use the program that wrote it."
        )
    try:
        return _build(record)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as exc:
        raise ImportDataError(f"{source}: a profile with a mistake in it ({exc!r}); measure again") from exc


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
    """A workload in plain values. Who reads whose results is left out: they are many, and the code tells it again."""
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
        "gradients": [[each.bytes_, each.ready] for each in workload.gradients],
    }


def workload_from_record(record: Mapping[str, Any]) -> Workload:
    """The workload that :func:`workload_to_record` made plain."""
    known = [_build_operator(values) for values in record["operators"]]
    return Workload(
        name=str(record["name"]),
        operators=tuple(known[place] for place in record["order"]),
        layers=tuple(map(str, record["layers"])),
        views=tuple(map(int, record["views"])),
        batch=int(record["batch"]),
        settings={str(name): str(value) for name, value in record["settings"].items()},
        parameters=int(record["parameters"]),
        gradients=tuple(Gradient(bytes_=int(size), ready=int(ready)) for size, ready in record.get("gradients", ())),
    )


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
    )


def _to_attribute(value: int | Sequence[int]) -> Attribute:
    return value if isinstance(value, int) else _to_shape(value)


def _to_shape(sizes: Sequence[int]) -> Shape:
    return tuple(int(size) for size in sizes)


def _to_numbers(times: Floats) -> list[float | None]:
    """To the nanosecond; nothing where nothing was recorded, since JSON has no word for it."""
    return [None if math.isnan(time) else round(time, 9) for time in times.tolist()]


def _from_numbers(numbers: Sequence[float | None], count: int) -> Floats:
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} times for {count} operators")
    return np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)
