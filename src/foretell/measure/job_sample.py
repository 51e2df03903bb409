"""The sample of a job in its run directory: usage, machine, memory and GPUs over time."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretell.core.run import Machine, Usage
from foretell.core.run_environment import SAMPLE
from foretell.core.serialization import from_record, to_record

_MOST_POINTS = 200
_FIRST_WIDTH_S = 0.02

Point = tuple[float, ...]


@dataclass(slots=True)
class Series:
    """Values over time in a limited number of points; each has the largest values of its interval."""

    points: list[Point] = field(default_factory=list)
    _width_s: float = _FIRST_WIDTH_S

    def add(self, at_s: float, *values: float) -> None:
        self._merge((at_s, *values))
        while len(self.points) > _MOST_POINTS:
            self._width_s *= 2
            known, self.points = self.points, []
            for point in known:
                self._merge(point)

    def _merge(self, point: Point) -> None:
        if not self.points or self._interval(self.points[-1]) != self._interval(point):
            self.points.append(point)
            return
        last = self.points[-1]
        at_s = point[0] if point[1] > last[1] else last[0]
        self.points[-1] = (at_s, *map(max, last[1:], point[1:]))

    def _interval(self, point: Point) -> int:
        return int(point[0] / self._width_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the sampler measured in a job.

    ``memory`` is seconds and bytes of the whole tree, ``gpus`` seconds, mean utilisation and bytes on all of them.
    """

    usage: Usage
    machine: Machine = field(default_factory=Machine)
    memory: Sequence[Point] = ()
    gpus: Sequence[Point] = ()
    sampler_cpu_s: float | None = None


def write_sample(directory: Path, sample: Sample) -> None:
    """Write the sample to the run's directory, atomically.

    Raises:
        OSError: if it cannot be written.
    """
    record = to_record(sample)
    for name in ("memory", "gpus"):
        record[name] = [[round(at_s, 3), *values] for at_s, *values in record[name]]
    draft = directory / f".{SAMPLE}.{os.getpid()}"
    try:
        draft.write_text(json.dumps(record, separators=(",", ":")), "utf-8")
        draft.replace(directory / SAMPLE)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def find_sample(directory: Path) -> Sample | None:
    """Return the sample in a run's directory; ``None`` if there is none that can be read."""
    try:
        record = json.loads((directory / SAMPLE).read_text("utf-8"))
        return from_record(
            Sample, {**record, "memory": _to_points(record["memory"]), "gpus": _to_points(record["gpus"])}
        )
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None


def _to_points(rows: Sequence[Sequence[float]]) -> tuple[Point, ...]:
    return tuple(tuple(map(float, row)) for row in rows)
