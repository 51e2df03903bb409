"""Trains random networks in a setting and appends what each training consumed to a file of JSON lines."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.core import devices
from foretell.core.errors import Mistake, NotFoundError, RunnerError, SpecError
from foretell.core.observation import Cycle, Recorded, Resource, Series
from foretell.core.workload import Floats
from foretell.distributed.api import check_setting
from foretell.distributed.consumption import Setting
from foretell.distributed.measured_jobs import JobFile, JobRow, find_family
from foretell.distributed.operator_times import find_device_kind
from foretell.measure.consumption_sampler import sample
from foretell.observations.cycles import measure_cycle
from foretell.steps.api import DEVICES, KEPT
from foretell.workloads.api import require_torch
from lab.links import Links, open_links
from lab.training_group import TrainingGroup, open_group
from lab.training_jobs import JobProgress, Trained, TrainingJob, draw_job

JOBS = 20
SEED = 7  # of the random networks; 'foretell device learn' uses another
SAMPLE_INTERVAL_S = 0.01
ATTEMPTS = 3  # to measure a job while no other process uses the machine
_NETWORK = (Resource.TRANSMIT, Resource.RECEIVE)


def measure_jobs(
    path: Path,
    settings: Sequence[Setting],
    *,
    jobs: int = JOBS,
    repetitions: int = 1,
    seed: int = SEED,
    budget_s: float = float("inf"),
    on_progress: Callable[[JobProgress], None] = lambda _: None,
) -> list[JobRow]:
    """All rows of the file after measuring what it lacks: random networks, by turns in each setting.

    Each job is written when it ends, so that an interrupted call can be repeated. No job is started after ``budget_s``.

    Raises:
        MissingExtraError: PyTorch is not installed.
        SpecError: A setting is not possible, or none is given.
        RunnerError: The machine does not allow such links.
        ImportDataError, OutputError: The file cannot be used, or another process writes it.
    """
    require_torch()
    _check(settings, jobs=jobs, repetitions=repetitions)
    file = JobFile(path)
    file.start()
    with file.locked():
        rows = file.read()
        present = {(row.number, row.repetition, row.setting) for row in rows if row.seed == seed}
        requested = [
            (number, repetition, settings[number % len(settings)])
            for repetition in range(repetitions)
            for number in range(jobs)
        ]
        missing = [each for each in requested if each not in present]
        if not missing:
            return rows
        end_s = time.monotonic() + budget_s
        with open_links(max(setting.workers + setting.servers for setting in settings)) as links:
            _check_rates(links, settings)
            with open_group(links) as group:
                for done, job in enumerate(missing, start=1 + len(requested) - len(missing)):
                    if time.monotonic() >= end_s:
                        break
                    row, failed = _try_job(group, *job, seed=seed, isolated=links.isolated)
                    if row is not None:
                        file.add(row)
                        rows.append(row)
                    on_progress(_describe(row, failed, number=job[0], done=done, total=len(requested)))
    return rows


def _check(settings: Sequence[Setting], *, jobs: int, repetitions: int) -> None:
    if not settings:
        raise SpecError("settings", [Mistake(place="settings", found="none", expected="at least one")])
    for setting in settings:
        check_setting(setting)
    mistakes = [
        Mistake(place=name, found=str(found), expected="1 or more")
        for name, found in (("jobs", jobs), ("repetitions", repetitions))
        if found < 1
    ]
    if mistakes:
        raise SpecError("options", mistakes)


def _check_rates(links: Links, settings: Sequence[Setting]) -> None:
    """Before the first job, and not when a later one needs its rate."""
    for setting in settings:
        links.set_rate(setting.link_bytes_per_s)


def place_setting(setting: Setting, *, folder: Path = KEPT) -> Setting:
    """The setting on this machine: where there are more workers than cores, each has a share of one.

    Raises:
        SpecError: The setting is not possible, or the device is no CPU.
        NotFoundError: The device is unknown.
    """
    check_setting(setting)
    figures = devices.find_device(setting.device)
    device = figures.name if figures else setting.device
    if find_device_kind(device, figures=figures, learned=folder / DEVICES) == "gpu":
        expected = "a CPU, as 'foretell device learn' measures it: trainings run on this machine's cores"
        raise SpecError("options", [Mistake(place="device", found=f"{device}, a GPU", expected=expected)])
    share = min(1.0, len(os.sched_getaffinity(0)) / setting.workers)
    return replace(setting, device=device, share=share)


def _try_job(
    group: TrainingGroup, number: int, repetition: int, setting: Setting, *, seed: int, isolated: bool
) -> tuple[JobRow | None, str]:
    """An undisturbed measurement if one of the attempts is, otherwise the last; or why all failed."""
    job = draw_job(number, setting, seed=seed)
    row, failed = None, ""
    for _ in range(ATTEMPTS):
        try:
            row = _build_row(job, number, repetition, *_run_job(group, job), isolated=isolated)
        except RunnerError as exc:
            failed = str(exc)
            continue
        if not row.disturbed:
            break
    return row, "" if row else failed


def _describe(row: JobRow | None, failed: str, *, number: int, done: int, total: int) -> JobProgress:
    if row is None:
        return JobProgress(number=number, done=done, total=total, failed=failed)
    return JobProgress(
        number=number,
        done=done,
        total=total,
        family=find_family(row.network, seed=row.seed),
        iteration_s=row.iteration_s,
        disturbed=row.disturbed,
    )


def _run_job(group: TrainingGroup, job: TrainingJob) -> tuple[Trained, Recorded]:
    pid = group.start(job)
    try:
        recorded = sample([pid], interval_s=SAMPLE_INTERVAL_S)
    except NotFoundError as exc:
        group.finish(job)  # raises the member's own error, if it reported one
        raise RunnerError("the first worker ended before it could be sampled") from exc
    return group.finish(job), recorded


def _build_row(
    job: TrainingJob, number: int, repetition: int, trained: Trained, recorded: Recorded, *, isolated: bool
) -> JobRow:
    begins_s = np.array(trained.began_s) - recorded.started_s
    return JobRow(
        number=number,
        repetition=repetition,
        network=job.network.number,
        seed=job.network.seed,
        batch=job.batch,
        setting=job.setting,
        iteration_s=float(np.median(np.diff(begins_s))),
        alone_s=trained.alone_s,
        used_s=_measure_used(_cut(recorded.series[Resource.COMPUTE], begins_s), begins_s),
        cycles=_measure_cycles(recorded, begins_s, isolated=isolated),
        others=max(0.0, trained.others - recorded.sampling_cpu_s / recorded.elapsed_s),
        stolen=trained.stolen,
    )


def _measure_cycles(recorded: Recorded, begins_s: Floats, *, isolated: bool) -> dict[Resource, Cycle]:
    """Of the resources that have one; on a shared network, the first worker's traffic is unknown."""
    series = {name: each for name, each in recorded.series.items() if isolated or name not in _NETWORK}
    found = {name: measure_cycle(_cut(each, begins_s), begins_s) for name, each in series.items()}
    return {name: cycle for name, cycle in found.items() if cycle is not None}


def _measure_used(compute: Series, begins_s: Floats) -> float:
    """Seconds of the mean iteration in which the device was busy."""
    share = np.average(compute.values, weights=np.diff(compute.times_s))
    return float(share * np.diff(begins_s).mean())


def _cut(series: Series, begins_s: Floats) -> Series:
    """From the begin of the first iteration to the end of the last.

    Raises:
        RunnerError: There is no whole sample in between.
    """
    inside = np.flatnonzero((series.times_s >= begins_s[0]) & (series.times_s <= begins_s[-1]))
    if len(inside) < 2:
        raise RunnerError(f"the training took {begins_s[-1] - begins_s[0]:.2g} s, too short to be sampled")
    first, last = int(inside[0]), int(inside[-1])
    return Series(times_s=series.times_s[first : last + 1], values=series.values[first:last])
