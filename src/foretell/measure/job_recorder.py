"""The sample of a job in its run directory: usage, machine, memory and GPUs over time."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretell.core.run import RUN_DIRECTORY, SAMPLE, Machine, Usage
from foretell.core.serialization import from_record, to_record
from foretell.measure.child_process import Child
from foretell.measure.gpus import find_gpus
from foretell.measure.machine import detect_machine
from foretell.measure.process_tree import TreeProbe

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


_FIRST_RECORD_S, _LONGEST_BETWEEN_S = 1.0, 60.0
_PATIENCE_S = 10.0  # for the description of the node, when the command has ended
_BETWEEN = 0.25  # share of the elapsed time: a killed job loses no larger share of its end if it is short


class JobRecorder(TreeProbe):
    """Measures a command's process tree and writes a :class:`Sample` of it to the run's directory."""

    def __init__(self, child: Child) -> None:
        super().__init__(child.follow)
        self._child = child
        self._directory = Path(os.environ.get(RUN_DIRECTORY, "."))
        self._memory, self._gpus_over_time = Series(), Series()
        self._next_s = _FIRST_RECORD_S
        self._warned = False
        self._machine = Machine()
        self._asking = threading.Thread(target=self._ask, daemon=True)  # GPU drivers may take seconds to respond

    def _ask(self) -> None:
        self._gpus = find_gpus()
        self._machine = detect_machine()

    def record(self) -> None:
        """Sample the command to its end, and write the final record.

        Raises:
            OSError: if the record cannot be written.
        """
        with contextlib.suppress(OSError):
            (self._directory / SAMPLE).unlink(missing_ok=True)  # of the same run, before it was requeued
        self._asking.start()
        usage = self.wait().usage
        self._asking.join(_PATIENCE_S)
        self._write(usage)

    def _sample(self) -> None:
        super()._sample()
        if self.memory_bytes:  # no memory is left of a process that has ended
            self._memory.add(self.elapsed_s, self.memory_bytes)
        if self.gpu is not None:
            self._gpus_over_time.add(self.elapsed_s, self.gpu.utilisation, self.gpu.memory_bytes)

    def _after_sample(self) -> None:
        if self.elapsed_s < self._next_s and self._child.warned == self._warned:
            return
        self._warned = self._child.warned
        with contextlib.suppress(OSError):  # the disk may have space again at the end
            self._write(self.usage)
        self._next_s = self.elapsed_s + min(max(_BETWEEN * self.elapsed_s, _FIRST_RECORD_S), _LONGEST_BETWEEN_S)

    def _write(self, usage: Usage) -> None:
        sample = Sample(
            usage=usage,
            machine=self._machine,
            memory=self._memory.points,
            gpus=self._gpus_over_time.points,
            sampler_cpu_s=time.process_time(),
        )
        write_sample(self._directory, sample)
