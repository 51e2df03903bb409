"""Distributed trainings that were measured: a file with a line for each time, and what models learn from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from foretell.core.cycles import Cycle, Resource
from foretell.core.errors import ImportDataError
from foretell.distributed.consumption import MeasuredJob, Setting, Strategy
from foretell.distributed.job_draws import find_family, read_job
from foretell.distributed.training_jobs import TrainedNetwork, TrainingJob
from foretell.workloads.measurement_files import JsonLinesFile

FORMAT = "foretell consumption"
VERSION = 1
QUIET = 0.15  # cores that others may use beside a job that counts as undisturbed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One time that a job was measured."""

    number: int
    repetition: int
    network: int  # of the endless row
    seed: int
    batch: int
    setting: Setting
    iteration_s: float
    alone_s: float
    used_s: float
    cycles: Mapping[Resource, Cycle]
    others: float = 0.0  # cores that the rest of the machine used
    stolen: float = 0.0  # and other virtual machines

    @property
    def disturbed(self) -> bool:
        """Whether others took part of the machine."""
        return self.others + self.stolen > QUIET


class JobFile(JsonLinesFile):
    """A head, then a line for each time that a job was measured."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, format_=FORMAT, version=VERSION, command="foretell consumption learn")

    def start(self) -> None:
        """Make the file where there is none.

        Raises:
            ImportDataError: It is of another kind or version.
        """
        self.open(lambda: {"format": FORMAT, "version": VERSION})

    def read(self) -> list[JobRow]:
        """All rows.

        Raises:
            ImportDataError: The file holds something else.
        """
        _head, lines = self.split()
        try:
            return [_parse_row(line) for line in lines]
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ImportDataError(
                f"{self.path}: a line that is no measured training ({exc}). Name another file, or remove the line."
            ) from exc

    def add(self, row: JobRow) -> None:
        """Write a row at once."""
        self.append(_build_line(row))


def _build_line(row: JobRow) -> dict[str, Any]:
    record = asdict(row)
    record["cycles"] = {
        resource.value: {name: _shorten(value) for name, value in asdict(cycle).items()}
        for resource, cycle in row.cycles.items()
    }
    return {name: _shorten(value) for name, value in record.items()}


def _shorten(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _parse_row(line: Mapping[str, Any]) -> JobRow:
    setting = Setting(**{**line["setting"], "strategy": Strategy(line["setting"]["strategy"])})
    cycles = {Resource(word): Cycle(**values) for word, values in line["cycles"].items()}
    plain = {each.name: line[each.name] for each in fields(JobRow) if each.name not in ("setting", "cycles")}
    return JobRow(**plain, setting=setting, cycles=cycles)


def build_jobs(rows: Iterable[JobRow]) -> list[MeasuredJob]:
    """What models learn from: each job once, with the medians of all times it was measured, the quiet ones if any."""
    times: dict[tuple[int, int, int, Setting], list[JobRow]] = {}
    for row in rows:
        times.setdefault((row.network, row.seed, row.batch, row.setting), []).append(row)
    return [_merge([row for row in same if not row.disturbed] or same) for same in times.values()]


def _merge(rows: Sequence[JobRow]) -> MeasuredJob:
    first = rows[0]
    network = TrainedNetwork(number=first.network, seed=first.seed)
    job = TrainingJob(network=network, batch=first.batch, setting=first.setting)
    found = {resource: [row.cycles[resource] for row in rows if resource in row.cycles] for resource in Resource}
    return MeasuredJob(
        workload=read_job(job),
        family=find_family(first.network, seed=first.seed),
        setting=first.setting,
        iteration_s=float(np.median([row.iteration_s for row in rows])),
        alone_s=float(np.median([row.alone_s for row in rows])),
        used_s=float(np.median([row.used_s for row in rows])),
        cycles={resource: _join(cycles) for resource, cycles in found.items() if cycles},
    )


def _join(cycles: Sequence[Cycle]) -> Cycle:
    middles = {each.name: float(np.median([getattr(cycle, each.name) for cycle in cycles])) for each in fields(Cycle)}
    return Cycle(**{**middles, "bursts": int(middles["bursts"])})  # type: ignore[arg-type]
