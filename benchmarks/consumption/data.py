"""The measured trainings, and the profiles of the core they ran on."""

import gzip
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats, MeasuredStep, Workload
from foretell.distributed.consumption import Case, MeasuredJob
from foretell.distributed.measured_jobs import JobFile, JobRow, build_jobs
from foretell.steps.serial_replay import SerialModel
from foretell.workloads.device_measurements import DeviceFile

FOLDER = Path(__file__).parent
JOBS = FOLDER / "jobs.jsonl.gz"
PROFILES = FOLDER / "core.jsonl.gz"
CORE = Device(
    name="EPYC core",
    kind="cpu",
    peak_flops=2.0**36,
    bandwidth_bytes=2.0**33,
    units=1,
    memory_bytes=12 * 2**30,
)  # a core of an AMD EPYC of the third generation, a virtual machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A step that was measured operator by operator, and the family of its network."""

    step: MeasuredStep
    family: str


def read_rows(path: Path = JOBS) -> list[JobRow]:
    """Every time that a job was measured."""
    with _unpacked(path) as plain:
        return JobFile(plain).read()


def read_jobs(path: Path = JOBS) -> list[MeasuredJob]:
    """Each job once."""
    return build_jobs(read_rows(path))


def read_profiles(path: Path = PROFILES) -> list[Profiled]:
    """What the core's times are learned from."""
    with _unpacked(path) as plain:
        steps = DeviceFile(plain).read().steps
    return [Profiled(step=step, family=step.workload.name.partition("-")[0]) for step in steps]


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        with gzip.open(path) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield plain


def tell_operators(profiles: Sequence[Profiled], workloads: Sequence[Workload], *, without: str) -> list[Floats]:
    """What operators take on the core, told by its profiles of all other families."""
    model = SerialModel(CORE).fit([each.step for each in profiles if each.family != without])
    return [np.asarray(told.kernel_s + told.gap_s) for told in model.predict(workloads)]


def build_cases(profiles: Sequence[Profiled], jobs: Sequence[MeasuredJob], *, without: str) -> list[Case]:
    """Jobs as they are asked, by one who has never seen a family."""
    times = tell_operators(profiles, [job.workload for job in jobs], without=without)
    return [
        Case(workload=job.workload, setting=job.setting, operator_s=operator_s)
        for job, operator_s in zip(jobs, times, strict=True)
    ]
