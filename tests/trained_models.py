"""Distributed training for tests: models fitted to a law, files of jobs, and trainings that only pretend to run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab.links import Links
from lab.training_jobs import Trained, TrainingJob
from tests.contracts.consumption import build_jobs

from foretell.core.devices import Device
from foretell.core.observation import Cycle, Recorded, Resource, Series
from foretell.distributed.consumption import Case, MeasuredJob, Setting
from foretell.distributed.consumption_predictor import ConsumptionPredictor, learn_consumption_model
from foretell.distributed.measured_jobs import JobFile, JobRow

CORE = Device(name="core", kind="cpu", peak_flops=5e10, bandwidth_bytes=1e10, units=1, memory_bytes=2**33)
BEGAN_S, PERIOD_S, ITERATIONS = 100.0, 0.1, 20


def learn_law() -> tuple[list[Case], list[MeasuredJob], ConsumptionPredictor]:
    """A predictor of jobs that follow a law, in three families."""
    cases, jobs = build_jobs()
    jobs = [replace(job, family=job.workload.name.split()[0]) for job in jobs]
    return cases, jobs, learn_consumption_model(cases, jobs)


def save_law(folder: Path, name: str = "shared") -> Path:
    """That predictor, in a project's folder as if it had been fitted there."""
    path = folder / "consumption" / f"{name}.safetensors"
    learn_law()[2].save(path)
    return path


def save_jobs(path: Path, settings: Sequence[Setting] = (Setting(device="core"),), *, jobs: int = 4) -> Path:
    """A file of measured trainings, as the lab writes it: small random networks, by turns in each setting."""
    file = JobFile(path)
    file.start()
    for number in range(jobs):
        scale = 1.0 + 0.1 * number
        cycle = Cycle(
            burst_s=0.06 * scale,
            idle_s=0.04 * scale,
            burst_amount=1.0,
            idle_amount=0.0,
            period_s=0.1 * scale,
            bursts=30,
            chance=0.01,
        )
        sent = replace(cycle, burst_amount=2.4e7)
        file.add(
            JobRow(
                number=number,
                repetition=0,
                network=number,
                seed=7,
                batch=2,
                setting=settings[number % len(settings)],
                iteration_s=0.1 * scale,
                alone_s=0.05 * scale,
                used_s=0.06 * scale,
                cycles={Resource.COMPUTE: cycle, Resource.TRANSMIT: sent, Resource.RECEIVE: sent},
            )
        )
    return path


class PretendedGroup:
    """Trains in no time; some jobs fail."""

    def __init__(self, *, failing: frozenset[int] = frozenset(), others: float = 0.0) -> None:
        self.started: list[TrainingJob] = []
        self.failing = failing
        self.others = others

    def start(self, job: TrainingJob) -> int:
        self.started.append(job)
        return 1

    def finish(self, job: TrainingJob) -> Trained:
        from foretell.core.errors import RunnerError

        if job.network.number in self.failing:
            raise RunnerError("a member of the training failed: no luck")
        began = tuple(BEGAN_S + PERIOD_S * number for number in range(ITERATIONS + 1))
        return Trained(alone_s=0.04, began_s=began, phases_s=(0.02, 0.02, 0.06), others=self.others)


def record() -> Recorded:
    """Compute, then the network, for half of each iteration."""
    times_s = np.linspace(0.0, PERIOD_S * ITERATIONS, 10 * ITERATIONS + 1)
    place = np.arange(10 * ITERATIONS) % 10
    first = ((place >= 2) & (place < 7)).astype(float)  # no edge where an iteration begins
    compute = Series(times_s=times_s, values=first)
    network = Series(times_s=times_s, values=2e7 * (1 - first))
    series = {Resource.COMPUTE: compute, Resource.TRANSMIT: network, Resource.RECEIVE: network}
    return Recorded(started_s=BEGAN_S, interval_s=0.01, series=series, cpu=compute)


def pretend(
    monkeypatch: pytest.MonkeyPatch, group: PretendedGroup | None = None, *, isolated: bool = True
) -> PretendedGroup:
    """Replace trainings by pretended ones, on a machine whose cores are known by their figures."""
    pretended = group or PretendedGroup()

    @contextmanager
    def open_links(count: int) -> Iterator[Links]:
        yield _PretendedLinks(isolated=isolated)

    @contextmanager
    def open_group(_links: Links) -> Iterator[PretendedGroup]:
        yield pretended

    monkeypatch.setattr("lab.measuring.open_links", open_links)
    monkeypatch.setattr("lab.measuring.open_group", open_group)
    monkeypatch.setattr("lab.measuring.sample", lambda _pids, interval_s: record())
    monkeypatch.setattr("lab.training_jobs._measure_core", lambda: 2.0**30)
    know_core(monkeypatch)
    return pretended


def know_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU core in the catalogue of devices."""
    from foretell.core import devices

    real = devices.find_device
    monkeypatch.setattr(devices, "find_device", lambda name: CORE if name == CORE.name else real(name))


class _PretendedLinks(Links):
    def __init__(self, *, isolated: bool) -> None:
        super().__init__([], "switch" if isolated else "")
