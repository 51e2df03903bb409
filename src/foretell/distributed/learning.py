"""Distributed trainings that are run to be measured, and what is learned from them."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.apps.workspace import make_kept_folder
from foretell.core import devices
from foretell.core.cycles import Cycle, Resource, Series
from foretell.core.errors import Mistake, NotFoundError, RunnerError, SpecError
from foretell.core.observation import Recorded
from foretell.core.warning import experimental
from foretell.core.workload import Floats
from foretell.distributed.api import CONSUMPTION, check_setting, name_device, tell_times
from foretell.distributed.consumption import Case, MeasuredJob, Setting
from foretell.distributed.links import Links, open_links
from foretell.distributed.training_group import TrainingGroup, open_group
from foretell.distributed.training_jobs import JobProgress, Trained, TrainingJob
from foretell.measure.consumption_sampler import sample
from foretell.observations.cycles import measure_cycle
from foretell.steps.api import DEVICES, KEPT, check_name
from foretell.workloads.api import require_torch

if TYPE_CHECKING:
    from foretell.distributed.measured_jobs import JobFile, JobRow

JOBS = 20
SAMPLED_S = 0.01
SEED = 7  # of the row of networks that are measured; that of 'device learn' is another
TRIES = 3  # for a quiet machine
_NETWORK = (Resource.TRANSMIT, Resource.RECEIVE)


def measure_jobs(
    path: Path,
    settings: Sequence[Setting],
    *,
    jobs: int = JOBS,
    repetitions: int = 1,
    seed: int = SEED,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
) -> "list[JobRow]":
    """Train random networks for real, in turn through settings, and keep what each consumed; what is there is kept.

    Raises:
        MissingExtraError: PyTorch is not installed.
        SpecError: A setting cannot be, or none is given.
        RunnerError: The machine cannot have such links.
        ImportDataError, OutputError: The file cannot be used, or somebody else does so.
    """
    require_torch()
    from foretell.distributed.measured_jobs import JobFile

    if not settings:
        raise SpecError("settings", [Mistake(place="settings", found="none", expected="at least one")])
    for setting in settings:
        check_setting(setting)
    file = JobFile(path)
    file.start()
    with file.locked():
        return _measure_left(file, settings, jobs=jobs, repetitions=repetitions, seed=seed, on_progress=on_progress)


def _measure_left(
    file: "JobFile",
    settings: Sequence[Setting],
    *,
    jobs: int,
    repetitions: int,
    seed: int,
    on_progress: Callable[[JobProgress], None],
) -> "list[JobRow]":
    rows = file.read()
    kept = {(row.number, row.repetition, row.setting) for row in rows if row.seed == seed}
    asked = [
        (number, again, settings[number % len(settings)]) for again in range(repetitions) for number in range(jobs)
    ]
    left = [each for each in asked if each not in kept]
    if not left:
        return rows
    members = max(setting.workers + setting.servers for setting in settings)
    with open_links(members) as links, open_group(links) as group:
        _try_rates(links, settings)
        for place, one in enumerate(left, start=1 + len(asked) - len(left)):
            row, failed = _try_job(group, *one, seed=seed, apart=links.apart)
            if row is not None:
                file.add(row)
                rows.append(row)
            on_progress(_describe(row, failed, number=one[0], done=place, asked=len(asked)))
    return rows


def _try_rates(links: Links, settings: Sequence[Setting]) -> None:
    """Now, and not at each job."""
    for setting in settings:
        links.set_rate(setting.link_bytes_per_s)


def _try_job(
    group: TrainingGroup, number: int, again: int, setting: Setting, *, seed: int, apart: bool
) -> "tuple[JobRow | None, str]":
    """A quiet measurement if there is one in some tries, the last of them otherwise; or why there is none."""
    from foretell.distributed.job_draws import draw_job

    job = draw_job(number, setting, seed=seed)
    row, failed = None, ""
    for _ in range(TRIES):
        try:
            row = _build_row(job, number, again, *_run_job(group, job), apart=apart)
        except RunnerError as exc:
            failed = str(exc)
            continue
        if not row.disturbed:
            break
    return row, "" if row else failed


def _describe(row: "JobRow | None", failed: str, *, number: int, done: int, asked: int) -> JobProgress:
    from foretell.distributed.job_draws import find_family

    if row is None:
        return JobProgress(number=number, done=done, asked=asked, failed=failed)
    return JobProgress(
        number=number,
        done=done,
        asked=asked,
        family=find_family(row.network, seed=row.seed),
        iteration_s=row.iteration_s,
        disturbed=row.disturbed,
    )


def _run_job(group: TrainingGroup, job: TrainingJob) -> tuple[Trained, Recorded]:
    pid = group.start(job)
    try:
        recorded = sample([pid], interval_s=SAMPLED_S)
    except NotFoundError as exc:
        group.finish(job)  # which tells why, where a member knows
        raise RunnerError("the first worker ended before it could be looked at") from exc
    return group.finish(job), recorded


def _build_row(
    job: TrainingJob, number: int, again: int, trained: Trained, recorded: Recorded, *, apart: bool = True
) -> "JobRow":
    from foretell.distributed.measured_jobs import JobRow

    begins_s = np.array(trained.began_s) - recorded.started_s
    return JobRow(
        number=number,
        repetition=again,
        network=job.network.number,
        seed=job.network.seed,
        batch=job.batch,
        setting=job.setting,
        iteration_s=float(np.median(np.diff(begins_s))),
        alone_s=trained.alone_s,
        used_s=_find_used(_cut(recorded.series[Resource.COMPUTE], begins_s), begins_s),
        cycles=_find_cycles(recorded, begins_s, apart=apart),
        others=max(0.0, trained.others - recorded.sampling_cpu_s / recorded.elapsed_s),
        stolen=trained.stolen,
    )


def _find_cycles(recorded: Recorded, begins_s: Floats, *, apart: bool) -> dict[Resource, Cycle]:
    """Of the resources that have one; where all share a network, what the first worker moves is not known."""
    series = {name: each for name, each in recorded.series.items() if apart or name not in _NETWORK}
    found = {name: measure_cycle(_cut(each, begins_s), begins_s) for name, each in series.items()}
    return {name: cycle for name, cycle in found.items() if cycle is not None}


def _find_used(compute: Series, begins_s: Floats) -> float:
    """Seconds of the usual iteration for which the device was busy."""
    share = np.average(compute.values, weights=np.diff(compute.times_s))
    return float(share * np.diff(begins_s).mean())


def _cut(series: Series, begins_s: Floats) -> Series:
    """From the first iteration's begin to the last one's end.

    Raises:
        RunnerError: There is no whole sample in between.
    """
    inside = np.flatnonzero((series.times_s >= begins_s[0]) & (series.times_s <= begins_s[-1]))
    if len(inside) < 2:
        raise RunnerError(f"the training took {begins_s[-1] - begins_s[0]:.2g} s, too short to be sampled")
    first, last = int(inside[0]), int(inside[-1])
    return Series(times_s=series.times_s[first : last + 1], values=series.values[first:last])


# Learning


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedConsumption:
    """What was learned: from how many jobs in which settings, from scratch or not, and where it is kept."""

    name: str
    jobs: int
    disturbed: int
    settings: tuple[Setting, ...]
    resources: frozenset[Resource]  # that could be measured
    transferred: bool
    path: Path
    measured: Path


@experimental
def learn_consumption(
    setting: Setting,
    *,
    name: str = "here",
    jobs: int = JOBS,
    repetitions: int = 1,
    scratch: bool = False,
    folder: Path = KEPT,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
) -> LearnedConsumption:
    """Measure trainings in a setting and learn it: by carrying over what ships, or from scratch.

    What was measured is kept at once: after an interruption, the same call goes on where it was. What was measured
    under that name in other settings is learned from, too.

    Raises:
        NotFoundError: The device's times are not known, or nothing ships that could be carried over.
        RunnerError: Too few jobs could be measured; and as :func:`measure_jobs`.
        MissingExtraError, SpecError, ImportDataError, OutputError: As :func:`measure_jobs`.
    """
    require_torch()
    from foretell.distributed.consumption_predictor import SUFFIX, find_consumption_model, learn_consumption_model
    from foretell.distributed.measured_jobs import build_jobs

    placed = _place(setting, folder=folder)
    _check_counts(jobs, repetitions)
    chosen = check_name(name)
    kept = make_kept_folder(folder, CONSUMPTION) / chosen
    base = None if scratch else find_consumption_model()
    measured = kept.with_name(f"{kept.name}.jsonl")
    rows = measure_jobs(measured, [placed], jobs=jobs, repetitions=repetitions, on_progress=on_progress)
    known = build_jobs(rows)
    _check_enough(known, jobs)
    cases = list(_build_cases(known, folder))
    model = base.transfer(cases, known) if base else learn_consumption_model(cases, known)
    path = kept.with_name(f"{kept.name}{SUFFIX}")
    model.save(path)
    return LearnedConsumption(
        name=name,
        jobs=len(known),
        disturbed=sum(row.disturbed for row in rows),
        settings=tuple(dict.fromkeys(job.setting for job in known)),
        resources=frozenset(resource for job in known for resource in job.cycles),
        transferred=not scratch,
        path=path,
        measured=measured,
    )


def _place(setting: Setting, *, folder: Path) -> Setting:
    """The setting as it is on this machine: workers take turns where there are more of them than cores.

    Raises:
        SpecError: The setting cannot be, or the device is none of this machine's cores.
        NotFoundError: The device's times are not known.
    """
    from foretell.distributed.consumption_predictor import find_kind

    check_setting(setting)
    device = name_device(setting.device)
    if find_kind(device, figures=devices.find_device(device), learned=folder / DEVICES) == "gpu":
        expected = "a CPU's times, as of 'foretell device learn': trainings are measured on this machine's cores"
        raise SpecError("options", [Mistake(place="device", found=f"{device}, a GPU", expected=expected)])
    share = min(1.0, len(os.sched_getaffinity(0)) / setting.workers)
    return replace(setting, device=device, share=share)


def _check_counts(jobs: int, repetitions: int) -> None:
    from foretell.distributed.consumption_predictor import LEAST_JOBS

    mistakes = [
        Mistake(place=name, found=str(found), expected=f"{least} or more")
        for name, found, least in (("jobs", jobs, LEAST_JOBS), ("repetitions", repetitions, 1))
        if found < least
    ]
    if mistakes:
        raise SpecError("options", mistakes)


def _check_enough(known: Sequence[MeasuredJob], asked: int) -> None:
    from foretell.distributed.consumption_predictor import LEAST_JOBS

    if len(known) < LEAST_JOBS:
        raise RunnerError(
            f"{len(known)} of {asked} trainings could be measured, {LEAST_JOBS} are needed. "
            "Those are kept; see above why others failed, and try again."
        )


def _build_cases(jobs: Sequence[MeasuredJob], folder: Path) -> Iterator[Case]:
    for job in jobs:
        times = tell_times(job.workload, job.setting.device, folder)
        yield Case(workload=job.workload, setting=job.setting, operator_s=times.operator_s)
