"""Reads the measured trainings, and the profiles of the core that they ran on."""

import gzip
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats, MeasuredStep, Workload
from foretell.distributed import measured_jobs
from foretell.distributed.consumption import Case, MeasuredJob
from foretell.distributed.measured_jobs import JobRow
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
    """A step measured operator by operator, and the family of its network."""

    step: MeasuredStep
    family: str


def read_rows(path: Path = JOBS) -> list[JobRow]:
    """All measurements."""
    return measured_jobs.read_rows(path)


def read_jobs(path: Path = JOBS) -> list[MeasuredJob]:
    """Each job once, with the medians of its measurements."""
    return measured_jobs.build_jobs(read_rows(path))


def read_profiles(path: Path = PROFILES) -> list[Profiled]:
    """The steps that the core's times are fitted to."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        steps = DeviceFile(plain).read().steps
    return [Profiled(step=step, family=step.workload.name.partition("-")[0]) for step in steps]


def predict_operators(profiles: Sequence[Profiled], workloads: Sequence[Workload], *, without: str) -> list[Floats]:
    """Operator times on the core, predicted from its profiles of all other families."""
    model = SerialModel(CORE).fit([each.step for each in profiles if each.family != without])
    return [np.asarray(times.kernel_s + times.gap_s) for times in model.predict(workloads)]


def build_cases(profiles: Sequence[Profiled], jobs: Sequence[MeasuredJob], *, without: str) -> list[Case]:
    """The cases of jobs, with operator times predicted without a family."""
    times = predict_operators(profiles, [job.workload for job in jobs], without=without)
    return [
        Case(workload=job.workload, setting=job.setting, operator_s=operator_s)
        for job, operator_s in zip(jobs, times, strict=True)
    ]
