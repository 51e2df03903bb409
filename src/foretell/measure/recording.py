"""Samples as text, to store in a file or send to another node."""

import json
from typing import Any

import numpy as np

from foretell.core.cycles import Resource, Series
from foretell.core.observation import Load, Recorded
from foretell.core.serialization import from_record, read_warnings, to_record

_DIGITS = 7  # of a stored rate
_PLAIN = ("started_s", "interval_s", "processes", "gpus", "grain_s", "sampling_cpu_s")


def build_recorded_record(recorded: Recorded) -> dict[str, Any]:
    """Return JSON data; times are stored once, in microseconds, because all series have the same."""
    memory = recorded.gpu_memory
    return {
        **{name: to_record(getattr(recorded, name)) for name in _PLAIN},
        "warnings": to_record(recorded.warnings),
        "load": to_record(recorded.load),
        "times_s": [round(float(time_s), 6) for time_s in recorded.cpu.times_s],
        "series": {resource.value: _list(series) for resource, series in recorded.series.items()},
        "cpu": _list(recorded.cpu),
        "gpu_memory": None if memory is None else _list(memory),
    }


def render_recorded(recorded: Recorded) -> str:
    """Return one line of text."""
    return json.dumps(build_recorded_record(recorded), separators=(",", ":"))


def parse_recorded(text: str) -> Recorded:
    """Return the samples.

    Raises:
        ValueError, TypeError, LookupError: if the text is not valid.
    """
    record = json.loads(text)
    times_s = np.array(record["times_s"], dtype=float)
    memory = record["gpu_memory"]
    plain = {name: record[name] for name in _PLAIN}
    return Recorded(
        **plain,
        warnings=read_warnings(record),
        load=from_record(Load, record["load"]),
        series={Resource(name): _read(values, times_s) for name, values in record["series"].items()},
        cpu=_read(record["cpu"], times_s),
        gpu_memory=None if memory is None else _read(memory, times_s),
    )


def _list(series: Series) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in series.values]


def _read(values: list[float], times_s: Any) -> Series:
    return Series(times_s=times_s, values=np.array(values, dtype=float))
