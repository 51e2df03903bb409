"""Reads and writes files of measured distributed trainings, and builds the jobs that models are fitted to."""

import gzip
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.core.errors import ImportDataError
from foretell.core.observation import Cycle, Resource
from foretell.core.workload import Workload
from foretell.distributed.consumption import MeasuredJob, Setting, Strategy
from foretell.workloads.capture import capture
from foretell.workloads.device_measurements import build_input
from foretell.workloads.measurement_files import JsonLinesFile
from foretell.workloads.network_layers import NetworkSpec
from foretell.workloads.random_networks import sample_network
from foretell.workloads.step_options import StepOptions

FORMAT = "foretell consumption"
VERSION = 1
COMMAND = "python -m lab measure"
UNDISTURBED = 0.15  # cores that other processes may use during an undisturbed measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One measurement of a job: a random network, trained in a setting."""

    number: int
    repetition: int
    network: int  # number of the random network
    seed: int  # of the random networks
    batch: int
    setting: Setting
    iteration_s: float
    alone_s: float  # an iteration without communication
    used_s: float  # of an iteration in which the device was busy
    cycles: Mapping[Resource, Cycle]
    others: float = 0.0  # cores used by other processes
    stolen: float = 0.0  # cores used by other virtual machines

    @property
    def disturbed(self) -> bool:
        """Whether other processes used the machine."""
        return self.others + self.stolen > UNDISTURBED


class JobFile(JsonLinesFile):
    """A header, then one line for each measurement."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, format_=FORMAT, version=VERSION, command=COMMAND)

    def start(self) -> None:
        """Create the file if there is none.

        Raises:
            ImportDataError: It has another format or version.
        """
        self.open(lambda: {"format": FORMAT, "version": VERSION})

    def read(self) -> list[JobRow]:
        """All rows.

        Raises:
            ImportDataError: The file has another format, or a line is not a measured training.
        """
        head, lines = self.split()
        if (head.get("format"), head.get("version")) != (FORMAT, VERSION):
            raise ImportDataError(
                f"{self.path}: no file of measured trainings, as '{COMMAND}' writes. Use another file."
            )
        try:
            return [_parse_row(line) for line in lines]
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ImportDataError(
                f"{self.path}: a line is not a measured training ({exc}). Remove the line, or use another file."
            ) from exc

    def add(self, row: JobRow) -> None:
        """Append a row and write it at once."""
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


def read_rows(path: Path) -> list[JobRow]:
    """All rows of a file, which may be compressed (``.gz``).

    Raises:
        ImportDataError: The file cannot be read, or is no file of measured trainings.
    """
    if not path.is_file():
        raise ImportDataError(f"{path}: no such file; measure trainings with '{COMMAND} --out {path}'")
    with _decompressed(path) as plain:
        return JobFile(plain).read()


@contextmanager
def _decompressed(path: Path) -> Iterator[Path]:
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        try:
            with gzip.open(path) as packed, plain.open("wb") as file:
                shutil.copyfileobj(packed, file)
        except (OSError, EOFError) as exc:
            raise ImportDataError(f"{path}: cannot be decompressed ({exc}); use another file") from exc
        yield plain


def build_jobs(rows: Iterable[JobRow]) -> list[MeasuredJob]:
    """Each job once, with the medians of its undisturbed measurements, or of all where none is undisturbed."""
    groups: dict[tuple[int, int, int, Setting], list[JobRow]] = {}
    for row in rows:
        groups.setdefault((row.network, row.seed, row.batch, row.setting), []).append(row)
    return [_merge([row for row in same if not row.disturbed] or same) for same in groups.values()]


def _merge(rows: Sequence[JobRow]) -> MeasuredJob:
    first = rows[0]
    found = {resource: [row.cycles[resource] for row in rows if resource in row.cycles] for resource in Resource}
    return MeasuredJob(
        workload=capture_network(sample_network(first.network, seed=first.seed), first.batch),
        family=find_family(first.network, seed=first.seed),
        setting=first.setting,
        iteration_s=float(np.median([row.iteration_s for row in rows])),
        alone_s=float(np.median([row.alone_s for row in rows])),
        used_s=float(np.median([row.used_s for row in rows])),
        cycles={resource: _find_median_cycle(cycles) for resource, cycles in found.items() if cycles},
    )


def _find_median_cycle(cycles: Sequence[Cycle]) -> Cycle:
    medians = {each.name: float(np.median([getattr(cycle, each.name) for cycle in cycles])) for each in fields(Cycle)}
    return Cycle(**{**medians, "bursts": int(medians["bursts"])})  # type: ignore[arg-type]


def find_family(number: int, *, seed: int) -> str:
    """The kind of a random network, such as ``conv``."""
    return sample_network(number, seed=seed).name.partition("-")[0]


def capture_network(network: NetworkSpec, batch: int) -> Workload:
    """The operators of a random network's training step."""
    with torch.device("meta"):
        model = network.build()
    options = StepOptions(loss=network.loss, optimizer=network.optimizer)
    return capture(model, [build_input(network, batch)], options=options, name=network.name)
