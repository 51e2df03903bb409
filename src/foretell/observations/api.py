"""Jobs looked at while they run: what they consume over time, in bursts and idles."""

import json
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from foretell.apps.api import store_repeated
from foretell.core.app import ParameterType
from foretell.core.cycles import Resource
from foretell.core.errors import Mistake, OutputError, SpecError
from foretell.core.observation import CycleSearch, Observation, Recorded
from foretell.core.run import Allocation, Run, RunSpec, State
from foretell.core.serialization import to_record
from foretell.core.units import render_duration
from foretell.core.warning import PredictionWarning, build_warning, experimental
from foretell.core.work_folder import FOLDER, keep_file, make_kept_folder
from foretell.measure.consumption_sampler import INTERVAL_S, TICK_S, require_processes
from foretell.measure.machine import detect_machine
from foretell.measure.recording import build_recorded_record
from foretell.measure.watch import Watched, watch_command, watch_processes
from foretell.observations.cycles import search_cycle
from foretell.schedulers.slurm.observe_job import watch_job
from foretell.stores.opening import StoreLike, using_store

APP = "observe"  # what was looked at are its runs
_TYPES = {"subject": ParameterType.TEXT, "interval_ms": ParameterType.NUMBER}
OBSERVATIONS = "observations"
KEPT = Path(FOLDER)
SHORTEST_S, LONGEST_S = 0.005, 1.0  # between two samples
_APART = 0.05  # of the longer: how far periods of one job may differ
_FEW_SAMPLES = 6  # of a period: its durations are then known to a sample, not better
_GPU_S = 0.17  # how often, at the least, NVIDIA's driver makes new figures
_NO_REST = 0.2  # of what is used in bursts
_MOST_LATE = 1.5  # samples: the middle one of those that took longest


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
    """Run a command, or look at processes or a Slurm job that run already; what was seen, stored as a run.

    Bursts and idles shorter than ``least_s`` are taken for noise.

    Raises:
        SpecError: if not just one of command, pids and job is given, or the interval is none.
        RunnerError: if the command cannot be started.
        NotFoundError: if one of the processes is not there.
        SchedulerError: if the job does not run, or cannot be looked at.
        OutputError, StoreError: if what was seen cannot be kept.
    """
    _check(command, pids, job, interval_s=interval_s)
    with using_store(store, create=True):
        kept = _make_room(folder)  # where nothing can be kept, that is said before the job runs
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
    path = _keep(observation, kept / f"{run.id}.json")
    return replace(observation, run_id=run.id, path=str(path))


def _check(command: Sequence[str], pids: Collection[int], job: str | None, *, interval_s: float) -> None:
    given = [name for name, value in (("command", command), ("pid", pids), ("job", job)) if value]
    mistakes = []
    if len(given) != 1:
        found = " and ".join(given) or "nothing to look at"
        expected = "just one: a command after --, as in 'foretell observe -- python train.py', --pid, or --job"
        mistakes.append(Mistake(place="observe", found=found, expected=expected))
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        expected = f"{1000 * SHORTEST_S:g}ms to {LONGEST_S:g}s"
        mistakes.append(Mistake(place="interval", found=render_duration(interval_s), expected=expected))
    if mistakes:
        raise SpecError("options", mistakes)


def _search_cycles(recorded: Recorded, *, least_s: float) -> dict[Resource, CycleSearch]:
    grains_s = {} if recorded.gpus else {Resource.COMPUTE: recorded.grain_s}  # which the network's counters do not have
    return {
        resource: search_cycle(series, least_s=least_s, grain_s=grains_s.get(resource, 0.0))
        for resource, series in recorded.series.items()
    }


def _list_warnings(recorded: Recorded, cycles: Mapping[Resource, CycleSearch]) -> Iterator[PredictionWarning]:
    load = recorded.load
    if load.disturbs:
        by = "; ".join(f"{name}: {cores:.2f} cores" for name, cores in load.by.items())
        stolen = f", and {load.stolen:.2f} cores were stolen by other virtual machines" if load.stolen >= 0.01 else ""
        busy = f"others kept {load.others:.2f} of {load.cores} cores busy{f' ({by})' if by else ''}{stolen}"
        yield build_warning(
            "busy-machine",
            f"Disturbed: {busy}. Durations may be too long; bytes and amounts of bursts mostly stay.",
            busy_cores=load.others,
            stolen_cores=load.stolen,
            cores=load.cores,
        )
        compute = cycles[Resource.COMPUTE].cycle
        if compute is not None and not recorded.gpus and compute.idle_amount > _NO_REST * compute.burst_amount:
            yield build_warning(
                "cycle-of-others",
                "The cycle of compute may be that of others: the job never rested, and may have had less of a core.",
            )
    periods = {name: found.cycle.period_s for name, found in cycles.items() if found.cycle is not None}
    if periods and max(periods.values()) > (1 + _APART) * min(periods.values()):
        longest = max(periods, key=lambda name: periods[name])
        shortest = min(periods, key=lambda name: periods[name])
        yield build_warning(
            "periods-differ",
            f"The periods of {longest} and {shortest} differ: one of them may be of several iterations, or of a part.",
            periods_s={name.value: period_s for name, period_s in periods.items()},
        )
    coarse = [name for name, period_s in periods.items() if period_s < _FEW_SAMPLES * recorded.interval_s]
    if coarse:
        shorter = "a shorter --interval tells more"
        text = f"A period of {' and '.join(coarse)} has fewer than {_FEW_SAMPLES} samples: {shorter}."
        yield build_warning("few-samples", text, resources=[name.value for name in coarse])
    if Resource.COMPUTE in periods and recorded.grain_s > TICK_S:
        known = f"what those used that ended is known to {1000 * recorded.grain_s:g} ms"
        text = f"Processes came and went, and {known}: a short cycle of compute may be that of counting."
        yield build_warning("coarse-cpu-time", text, grain_s=recorded.grain_s)
    if recorded.gpus and recorded.interval_s < _GPU_S:
        text = "The driver makes new figures of GPUs up to 6 times a second only: their shorter bursts are smoothed."
        yield build_warning("coarse-gpu-time", text, interval_s=recorded.interval_s)
    if len(recorded.cpu.values) * recorded.interval_s * _MOST_LATE < recorded.elapsed_s:
        yield build_warning("late-samples", "Samples came late: others had the sampler's core.")


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


def _keep(observation: Observation, path: Path) -> Path:
    record = {
        "subject": observation.subject,
        "cycles": to_record(observation.cycles),
        "warnings": to_record(observation.warnings),
        "recorded": build_recorded_record(observation.recorded),
    }
    keep_file(path, json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return path


def _make_room(folder: Path) -> Path:
    path = make_kept_folder(folder, OBSERVATIONS)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); make room, or make it writable") from exc
    return path
