"""Samples jobs while they run, finds their bursts and idle times, and stores them as runs."""

import json
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from foretell.apps.api import store_repeated
from foretell.core.app import ParameterType
from foretell.core.errors import Mistake, OutputError, SpecError
from foretell.core.observation import CycleSearch, Observation, Recorded, Resource
from foretell.core.private_files import FOLDER, keep_file, make_kept_folder
from foretell.core.run import Allocation, Run, RunSpec, State
from foretell.core.serialization import to_record
from foretell.core.units import render_duration
from foretell.core.warning import PredictionWarning, build_warning, experimental
from foretell.measure.consumption_sampler import INTERVAL_S, TICK_S, require_processes
from foretell.measure.machine import detect_machine
from foretell.measure.watch import Watched, build_recorded_record, watch_command, watch_processes
from foretell.observations.cycles import search_cycle
from foretell.schedulers.slurm.observe_job import watch_job
from foretell.stores.opening import StoreLike, using_store

APP = "observe"  # the application of the stored runs
_TYPES = {"subject": ParameterType.TEXT, "interval_ms": ParameterType.NUMBER}
OBSERVATIONS = "observations"
KEPT = Path(FOLDER)
SHORTEST_S, LONGEST_S = 0.005, 1.0  # between two samples
_PERIOD_TOLERANCE = 0.05  # by which periods of one job may differ
_FEW_SAMPLES = 6  # of a period: below, its durations are only known to a sample
_GPU_UPDATE_S = 0.17  # the longest interval at which NVIDIA's driver updates its counters
_BUSY_IDLE = 0.2  # of the amount in bursts: an idle above this is not idle
_LATE = 1.5  # times the interval: samples that take longer on average are late


@experimental
def observe(
    command: Sequence[str] = (),
    *,
    pids: Collection[int] = (),
    job: str | None = None,
    interval_s: float = INTERVAL_S,
    duration_s: float | None = None,
    least_s: float = 0.0,
    keep_stdout: bool = True,
    store: StoreLike = None,
    folder: Path = KEPT,
) -> Observation:
    """Run and sample a command, or sample running processes or a running Slurm job; stored as a run.

    Bursts and idle times shorter than ``least_s`` are taken for noise.

    Raises:
        SpecError: Not exactly one of command, pids and job is given, or the interval is out of range.
        RunnerError: The command cannot be started.
        NotFoundError: There is no such process.
        SchedulerError: The job does not run, or cannot be sampled.
        OutputError, StoreError: The samples or the run cannot be stored.
    """
    _check(command, pids, job, interval_s=interval_s)
    with using_store(store, create=True):
        kept = _make_folder(folder)  # fails before the job runs, if it cannot be written
    began = datetime.now(UTC)
    if command:
        subject = shlex.join(command)
        watched = watch_command(command, interval_s=interval_s, longest_s=duration_s, keep_stdout=keep_stdout)
    elif job is not None:
        subject, watched = f"job {job}", watch_job(job, interval_s=interval_s, longest_s=duration_s)
    else:
        require_processes(pids)
        subject = f"process {', '.join(map(str, pids))}"
        watched = watch_processes(pids, interval_s=interval_s, longest_s=duration_s)
    cycles = _search_cycles(watched.recorded, least_s=least_s)
    observation = Observation(
        subject=subject,
        recorded=watched.recorded,
        cycles=cycles,
        exit_code=watched.exit_code,
        warnings=(*watched.recorded.warnings, *_list_warnings(watched.recorded, cycles)),
    )
    with using_store(store, create=True) as opened:
        run = store_repeated(_build_run(observation, watched, job=job, began=began), _TYPES, opened)
    path = _save(observation, kept / f"{run.id}.json")
    return replace(observation, run_id=run.id, path=str(path))


def _check(command: Sequence[str], pids: Collection[int], job: str | None, *, interval_s: float) -> None:
    given = [name for name, value in (("command", command), ("pid", pids), ("job", job)) if value]
    mistakes = []
    if len(given) != 1:
        found = " and ".join(given) or "nothing to observe"
        expected = "exactly one: a command after --, as in 'foretell observe -- python train.py', --pid, or --job"
        mistakes.append(Mistake(place="observe", found=found, expected=expected))
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        expected = f"{1000 * SHORTEST_S:g}ms to {LONGEST_S:g}s"
        mistakes.append(Mistake(place="interval", found=render_duration(interval_s), expected=expected))
    if mistakes:
        raise SpecError("options", mistakes)


def _search_cycles(recorded: Recorded, *, least_s: float) -> dict[Resource, CycleSearch]:
    grains_s = {} if recorded.gpus else {Resource.COMPUTE: recorded.grain_s}  # counters of the network have none
    return {
        resource: search_cycle(series, least_s=least_s, grain_s=grains_s.get(resource, 0.0))
        for resource, series in recorded.series.items()
    }


def _list_warnings(recorded: Recorded, cycles: Mapping[Resource, CycleSearch]) -> Iterator[PredictionWarning]:
    load = recorded.load
    if load.disturbs:
        by = "; ".join(f"{name}: {cores:.2f} cores" for name, cores in load.by.items())
        stolen = f", and other virtual machines used {load.stolen:.2f} cores" if load.stolen >= 0.01 else ""
        busy = f"other processes used {load.others:.2f} of {load.cores} cores{f' ({by})' if by else ''}{stolen}"
        yield build_warning(
            "busy-machine",
            f"Disturbed: {busy}. Durations may be too long; bytes and amounts are hardly affected.",
            busy_cores=load.others,
            stolen_cores=load.stolen,
            cores=load.cores,
        )
        compute = cycles[Resource.COMPUTE].cycle
        if compute is not None and not recorded.gpus and compute.idle_amount > _BUSY_IDLE * compute.burst_amount:
            yield build_warning(
                "cycle-of-others",
                "The cycle of compute may be that of other processes: the job was never idle.",
            )
    periods = {name: found.cycle.period_s for name, found in cycles.items() if found.cycle is not None}
    if periods and max(periods.values()) > (1 + _PERIOD_TOLERANCE) * min(periods.values()):
        longest = max(periods, key=lambda name: periods[name])
        shortest = min(periods, key=lambda name: periods[name])
        yield build_warning(
            "periods-differ",
            f"The periods of {longest} and {shortest} differ: one may span several iterations, or a part of one.",
            periods_s={name.value: period_s for name, period_s in periods.items()},
        )
    coarse = [name for name, period_s in periods.items() if period_s < _FEW_SAMPLES * recorded.interval_s]
    if coarse:
        text = f"A period of {' and '.join(coarse)} has fewer than {_FEW_SAMPLES} samples: use a shorter --interval."
        yield build_warning("few-samples", text, resources=[name.value for name in coarse])
    if Resource.COMPUTE in periods and recorded.grain_s > TICK_S:
        grain = f"{1000 * recorded.grain_s:g} ms"
        text = f"CPU time of processes that ended is known in steps of {grain}: a short cycle may be an artefact of it."
        yield build_warning("coarse-cpu-time", text, grain_s=recorded.grain_s)
    if recorded.gpus and recorded.interval_s < _GPU_UPDATE_S:
        text = "The driver updates GPU counters at most 6 times a second: shorter bursts are smoothed."
        yield build_warning("coarse-gpu-time", text, interval_s=recorded.interval_s)
    if len(recorded.cpu.values) * recorded.interval_s * _LATE < recorded.elapsed_s:
        yield build_warning("late-samples", "Samples were late: other processes used the core of the sampler.")


def _build_run(observation: Observation, watched: Watched, *, job: str | None, began: datetime) -> Run:
    recorded = observation.recorded
    failed = bool(watched.exit_code)
    phases = {} if observation.period_s is None else {"period": observation.period_s}
    for resource, found in observation.cycles.items():
        if found.cycle is not None:
            phases |= {f"{resource}_burst": found.cycle.burst_s, f"{resource}_idle": found.cycle.idle_s}
    return Run(
        spec=RunSpec(
            app=APP,
            parameters={"subject": observation.subject, "interval_ms": 1000 * recorded.interval_s},
            allocation=Allocation(cores=recorded.load.cores, gpus=recorded.gpus),
        ),
        state=State.FAILED if failed else State.COMPLETED,
        usage=watched.usage,
        phases=phases,
        machine=replace(detect_machine(), load=recorded.load.others + recorded.load.stolen),
        exit_code=watched.exit_code,
        started_at=began,
        ended_at=datetime.now(UTC),
        source="observe",
        job_id=job or "",
    )


def _save(observation: Observation, path: Path) -> Path:
    record = {
        "subject": observation.subject,
        "cycles": to_record(observation.cycles),
        "warnings": to_record(observation.warnings),
        "recorded": build_recorded_record(observation.recorded),
    }
    keep_file(path, json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return path


def _make_folder(folder: Path) -> Path:
    path = make_kept_folder(folder, OBSERVATIONS)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); free space, or make it writable") from exc
    return path
