"""Distributed training: what it will consume, and jobs that are run to learn that."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.api.workloads import DEVICES, KEPT, Input, read_workload
from foretell.entities.consumption import Case, ConsumptionPrediction, MeasuredJob, Series, Setting, Strategy
from foretell.entities.observation import Recorded
from foretell.entities.training import Trained, TrainingJob
from foretell.errors import Mistake, RunnerError, SpecError
from foretell.features.cycles import measure_cycle
from foretell.machines import devices
from foretell.probes.consumption import sample
from foretell.runners.links import open_links
from foretell.runners.training import TrainingGroup, open_group
from foretell.workloads import require_torch
from foretell.workloads.sources import StepOptions

if TYPE_CHECKING:
    from foretell.workloads.measured_jobs import JobRow

__all__ = ["LearnedConsumption", "learn_consumption", "measure_jobs", "predict_consumption"]

CONSUMPTION = "consumption"  # what was learned and measured is kept there
JOBS = 20
SAMPLED_S = 0.01
SEED = 7  # of the row of networks that are measured; that of 'device learn' is another
TRIES = 3  # for a quiet machine
FASTER, SLOWER = (2.0, 4.0), (0.5,)  # links that a user may think of beside the one asked for


def predict_consumption(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    settings: Sequence[Setting],
    batches: Sequence[int] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    model: str | None = None,
    level: float = 0.9,
    folder: Path = KEPT,
) -> list[ConsumptionPrediction]:
    """What training a model consumes in each setting, for each batch; as the inputs say where none is given.

    Raises:
        NotFoundError: There is no such device, file, module, factory or model of consumption.
        SpecError: A setting cannot be.
        MissingExtraError, WorkloadError: As :func:`read_workload`.
    """
    from foretell.predictor.consumption import SHIPPED, find_consumption_model, tell_operators

    for setting in settings:
        _check_setting(setting)
    known = find_consumption_model(model or SHIPPED, learned=folder / CONSUMPTION)
    answers = []
    for batch in batches or (None,):
        workload = read_workload(source, inputs, arguments=arguments, options=options, batch=batch)
        for setting in settings:
            figures = devices.find_device(setting.device)
            named = replace(setting, device=figures.name if figures else setting.device)
            operator_s, note = tell_operators(workload, named.device, figures=figures, learned=folder / DEVICES)
            notes = [*([note] if note else []), *_note(named)]
            answers.append(known.predict(workload, named, operator_s, level=level, notes=notes))
    return answers


def vary(setting: Setting, batch: int) -> dict[str, list[tuple[Setting, int]]]:
    """What a user may think of beside a setting: other links, workers, servers and batches, by what is changed."""
    others: dict[str, list[tuple[Setting, int]]] = {"workers": [], "batch": []}
    if setting.link_bytes_per_s is not None:
        rates = [setting.link_bytes_per_s * factor for factor in (*SLOWER, 1.0, *FASTER)]
        others["link"] = [(replace(setting, link_bytes_per_s=rate), batch) for rate in rates]
    counts = sorted({max(1, setting.workers // 2), setting.workers, 2 * setting.workers, 4 * setting.workers})
    others["workers"] = [(replace(setting, workers=count), batch) for count in counts]
    if setting.strategy is Strategy.SERVERS:
        counts = sorted({1, setting.servers, setting.servers + 1, 2 * setting.servers})
        others["servers"] = [(replace(setting, servers=count), batch) for count in counts]
    sizes = sorted({max(1, batch // 2), batch, 2 * batch, 4 * batch})
    others["batch"] = [(setting, size) for size in sizes]
    return others


def _note(setting: Setting) -> list[str]:
    notes = []
    if setting.link_bytes_per_s is None:
        notes.append("No link was named: workers are taken to talk through one machine's memory. Say --link 10Gb.")
    if setting.workers == 1 and setting.strategy is Strategy.ALLREDUCE:
        notes.append("One worker has nobody to talk to: there is no communication.")
    return [*notes, "GPU-memory utilisation is not told: no training on a GPU was measured, and a CPU has none."]


def _check_setting(setting: Setting) -> None:
    mistakes = []
    if setting.workers < 1:
        mistakes.append(Mistake(place="workers", found=str(setting.workers), expected="a whole number from 1"))
    if setting.strategy is Strategy.SERVERS and setting.servers < 1:
        mistakes.append(
            Mistake(place="servers", found=str(setting.servers), expected="1 or more for parameter servers")
        )
    if setting.strategy is Strategy.ALLREDUCE and setting.servers:
        mistakes.append(
            Mistake(place="servers", found=str(setting.servers), expected="none for all-reduce; or --strategy ps")
        )
    if setting.strategy is Strategy.ALLREDUCE and not setting.synchronous:
        mistakes.append(Mistake(place="asynchronous", found="all-reduce", expected="--strategy ps, which can be so"))
    if setting.link_bytes_per_s is not None and not setting.link_bytes_per_s > 0:
        found = str(setting.link_bytes_per_s)
        mistakes.append(Mistake(place="link", found=found, expected="a rate above none, such as 10Gb"))
    if mistakes:
        raise SpecError("setting", mistakes)


# Jobs that are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """A job that has just been measured, or why it could not be."""

    done: int
    asked: int
    row: "JobRow | None" = None
    failed: str = ""


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
        SpecError: A setting cannot be.
        RunnerError: The machine cannot have such links.
        ImportDataError, OutputError: The file cannot be used.
    """
    require_torch()
    from foretell.workloads.measured_jobs import JobFile

    for setting in settings:
        _check_setting(setting)
    file = JobFile(path)
    file.start()
    rows = file.read()
    done = {(row.number, row.repetition) for row in rows}
    asked = [(number, again) for again in range(repetitions) for number in range(jobs)]
    members = max(setting.workers + setting.servers for setting in settings)
    with open_links(members) as links, open_group(links) as group:
        for number, again in asked:
            if (number, again) in done:
                continue
            progress = _try_job(group, number, again, settings[number % len(settings)], seed)
            done.add((number, again))
            if progress.row is not None:
                file.add(progress.row)
                rows.append(progress.row)
            on_progress(replace(progress, done=len(done), asked=len(asked)))
    return rows


def _try_job(group: TrainingGroup, number: int, again: int, setting: Setting, seed: int) -> JobProgress:
    """A quiet measurement if there is one in some tries; the last of them otherwise, which its load marks."""
    from foretell.workloads.jobs import draw_job

    job = draw_job(number, setting, seed=seed)
    row, why = None, ""
    for _ in range(TRIES):
        try:
            row = _build_row(job, number, again, *_run_job(group, job))
        except RunnerError as exc:
            why = str(exc)
            continue
        if not row.disturbed:
            break
    return JobProgress(done=0, asked=0, row=row, failed="" if row else why)


def _run_job(group: TrainingGroup, job: TrainingJob) -> tuple[Trained, Recorded]:
    pid = group.start(job)
    recorded = sample([pid], interval_s=SAMPLED_S)
    return group.finish(job), recorded


def _build_row(job: TrainingJob, number: int, again: int, trained: Trained, recorded: Recorded) -> "JobRow":
    from foretell.workloads.measured_jobs import JobRow

    begins_s = np.array(trained.began_s) - recorded.started_s
    cycles = {resource: measure_cycle(_cut(series, begins_s), begins_s) for resource, series in recorded.series.items()}
    return JobRow(
        number=number,
        repetition=again,
        network=job.network.number,
        seed=job.network.seed,
        batch=job.batch,
        setting=job.setting,
        iteration_s=float(np.median(np.diff(begins_s))),
        alone_s=trained.alone_s,
        cycles={resource: cycle for resource, cycle in cycles.items() if cycle is not None},
        others=max(0.0, trained.others - recorded.sampling_cpu_s / recorded.elapsed_s),
        stolen=trained.stolen,
    )


def _cut(series: Series, begins_s: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Series:
    """From the first iteration's begin to the last one's end."""
    inside = np.flatnonzero((series.times_s >= begins_s[0]) & (series.times_s <= begins_s[-1]))
    first, last = int(inside[0]), int(inside[-1])
    return Series(times_s=series.times_s[first : last + 1], values=series.values[first:last])


# Learning


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedConsumption:
    """What was learned: from how many jobs, from scratch or not, and where it is kept."""

    name: str
    jobs: int
    disturbed: int
    transferred: bool
    path: Path
    measured: Path


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

    Raises:
        NotEnoughRunsError: Too few jobs could be measured.
        NotFoundError: The device's times are not known.
        MissingExtraError, SpecError, RunnerError, ImportDataError, OutputError: As :func:`measure_jobs`.
    """
    require_torch()
    from foretell.predictor.consumption import SUFFIX, find_consumption_model, learn_consumption_model
    from foretell.workloads.measured_jobs import build_jobs

    _check_setting(setting)
    measured = folder / CONSUMPTION / f"{name}.jsonl"
    rows = measure_jobs(measured, [setting], jobs=jobs, repetitions=repetitions, on_progress=on_progress)
    known = build_jobs(rows)
    cases = list(_build_cases(known, folder))
    model = learn_consumption_model(cases, known) if scratch else find_consumption_model().transfer(cases, known)
    path = folder / CONSUMPTION / f"{name}{SUFFIX}"
    model.save(path)
    return LearnedConsumption(
        name=name,
        jobs=len(known),
        disturbed=sum(row.disturbed for row in rows),
        transferred=not scratch,
        path=path,
        measured=measured,
    )


def _build_cases(jobs: Sequence[MeasuredJob], folder: Path) -> Iterator[Case]:
    from foretell.predictor.consumption import tell_operators

    for job in jobs:
        device = job.setting.device
        figures = devices.find_device(device)
        operator_s, _ = tell_operators(job.workload, device, figures=figures, learned=folder / DEVICES)
        yield Case(workload=job.workload, setting=job.setting, operator_s=operator_s)
