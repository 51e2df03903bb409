"""Builds the result of a job from accounting, the record of its script, its sample and its logs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from foretell.core.app import Phase
from foretell.core.batch import Job
from foretell.core.run import Launch, Machine, Run, RunSpec, State, Usage
from foretell.measure.job_recorder import Sample, find_sample
from foretell.schedulers.run_files import (
    STDERR,
    STDOUT,
    cut_logs,
    read_kept_phases,
    read_tail,
    render_exit,
    render_memory_limit,
    render_time_limit,
)
from foretell.schedulers.slurm.cluster import NodeGroup
from foretell.schedulers.slurm.job_array import find_own_limit_s, find_walltime_s, read_job_record

SOURCE = "slurm"
_SAME_S = 1.5  # accounting counts whole seconds: within this difference, the time of the script is more exact
_KILLED_BY_TIMEOUT = (124, 137)
# Without memory cgroups, only the log shows why the job was killed.
_OUT_OF_MEMORY = re.compile(r"exceeded (job |step )?memory limit|oom[-_ ]kill", re.IGNORECASE)
_LOG_STATES = {
    re.compile(r"\*\*\* (JOB|STEP) .* DUE TO TIME LIMIT"): State.TIMED_OUT,
    re.compile(r"\*\*\* (JOB|STEP) .* DUE TO (NODE FAILURE|PREEMPTION|JOB REQUEUE)"): State.INTERRUPTED,
    _OUT_OF_MEMORY: State.OUT_OF_MEMORY,
    re.compile(r"\*\*\* JOB .* CANCELLED AT "): State.CANCELLED,
}
_BY_THE_USER = re.compile(r"CANCELLED by (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One element of an array."""

    spec: RunSpec
    launch: Launch
    phases: Sequence[Phase] = ()

    @property
    def directory(self) -> Path:
        return Path(self.launch.run_directory)


def build_run(task: Task, job: Job, *, log: Path, node: NodeGroup | None = None, remark: str = "") -> Run:
    """Return the result of a job; ``remark`` says what is missing, and why."""
    record = read_job_record(task.directory)
    sample = find_sample(task.directory)
    state = _find_state(task, job, record=record, log=log)
    usage = _find_usage(task, job, state=state, record=record, sample=sample)
    phases, complaints = _read_phases(task, state)
    started_at, ended_at = _find_moments(job, record)
    return Run(
        spec=task.spec,
        state=state,
        usage=usage,
        phases=phases,
        machine=_describe_machine(job, record, node, sample),
        exit_code=_find_exit_code(job, record),
        log_tail=read_tail([task.directory / STDOUT, task.directory / STDERR, log]),
        reason="; ".join(filter(None, [_explain(task, job, state, record), *complaints, remark])),
        started_at=started_at,
        ended_at=ended_at,
        source=SOURCE,
        job_id=job.id,
        allocated=job.allocated if job.usage is not None else None,
    )


def build_job_without_accounting(job_id: str, *, word: str, state: State, task: Task, log: Path) -> Job:
    """Return a job that accounting has no record of, from the record of its script or Slurm's messages in its log.

    Without either, it is in that ``state``; ``word`` is its last state in the queue, if there is one.
    """
    record = read_job_record(task.directory)
    noted = record.get("job") == job_id and _find_code(record) is not None
    if noted and (state is State.CANCELLED or not word):  # the command had ended before
        state = State.COMPLETED if record["code"] == "0" else State.FAILED
    elif not word:
        state = _find_logged_state(log) or state
    asked = task.spec.allocation
    return Job(
        id=job_id,
        state=state,
        word=word,
        exit_code=_find_code(record) if noted else None,
        allocated=replace(asked, walltime_s=find_walltime_s(task.launch.time_limit_s, asked)),
        node_list=record.get("host", ""),
    )


def _find_logged_state(log: Path) -> State | None:
    """What Slurm wrote last into the job's log, if it was Slurm that ended it."""
    for line in reversed(_read_log(log).splitlines()):
        for pattern, state in _LOG_STATES.items():
            if pattern.search(line):
                return state
    return None


def _find_state(task: Task, job: Job, *, record: Mapping[str, str], log: Path) -> State:
    if job.state is State.FAILED and _exceeded_own_limit(task, record):
        return State.TIMED_OUT
    if job.state is State.FAILED and _OUT_OF_MEMORY.search(_read_log(log)):
        return State.OUT_OF_MEMORY
    return job.state


def _exceeded_own_limit(task: Task, record: Mapping[str, str]) -> bool:
    limit_s = find_own_limit_s(task.launch, task.spec.allocation)
    return limit_s is not None and _find_code(record) in _KILLED_BY_TIMEOUT and (_find_span_s(record) or 0) >= limit_s


def _find_usage(
    task: Task, job: Job, *, state: State, record: Mapping[str, str], sample: Sample | None
) -> Usage | None:
    span_s = _find_span_s(record)
    if job.usage is None and span_s is None and sample is not None:  # killed before its script could note its end
        span_s = sample.usage.elapsed_s
    if job.usage is None and span_s is None:
        return None
    usage = job.usage or Usage(elapsed_s=span_s or 0.0)
    if span_s is not None and abs(span_s - usage.elapsed_s) <= _SAME_S:
        usage = replace(usage, elapsed_s=span_s)
    usage = _add_sample(usage, sample)
    if state is State.TIMED_OUT and _exceeded_own_limit(task, record):
        usage = replace(usage, elapsed_s=find_own_limit_s(task.launch, task.spec.allocation) or usage.elapsed_s)
    if state is State.OUT_OF_MEMORY:
        reached = max(usage.peak_memory_bytes or 0, job.allocated.memory_bytes or 0)
        usage = replace(usage, peak_memory_bytes=reached or None)
    return usage


def _add_sample(usage: Usage, sample: Sample | None) -> Usage:
    """Add what the sampler measured; the elapsed time stays that of accounting, which is charged."""
    if sample is None:
        return usage
    sampled = sample.usage
    return Usage(
        elapsed_s=usage.elapsed_s,
        cpu_s=_largest(usage.cpu_s, sampled.cpu_s),
        peak_memory_bytes=_largest(usage.peak_memory_bytes, sampled.peak_memory_bytes),
        read_bytes=_largest(usage.read_bytes, sampled.read_bytes),
        written_bytes=_largest(usage.written_bytes, sampled.written_bytes),
        context_switches=sampled.context_switches,
        gpu_utilisation=sampled.gpu_utilisation,
        gpu_memory_bytes=sampled.gpu_memory_bytes,
    )


_Number = TypeVar("_Number", int, float)


def _largest(*figures: _Number | None) -> _Number | None:
    return max((figure for figure in figures if figure is not None), default=None)


def _read_phases(task: Task, state: State) -> tuple[dict[str, float], Sequence[str]]:
    if state is not State.COMPLETED:
        cut_logs(task.directory, limit_bytes=task.launch.log_limit_bytes)
        return {}, ()
    return read_kept_phases(task.phases, directory=task.directory, limit_bytes=task.launch.log_limit_bytes)


def _find_moments(job: Job, record: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """Return start and end, from accounting if known, because that is charged."""
    return job.started_at or _find_moment(record, "started"), job.ended_at or _find_moment(record, "ended")


def _find_moment(record: Mapping[str, str], name: str) -> datetime | None:
    seconds = _find_seconds(record, name)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _find_span_s(record: Mapping[str, str]) -> float | None:
    started_s, ended_s = _find_seconds(record, "started"), _find_seconds(record, "ended")
    return None if started_s is None or ended_s is None else max(0.0, ended_s - started_s)


def _find_seconds(record: Mapping[str, str], name: str) -> float | None:
    try:
        return float(record[name])
    except (KeyError, ValueError):
        return None


def _find_code(record: Mapping[str, str]) -> int | None:
    code = record.get("code", "")
    return int(code) if code.isdigit() else None


def _find_exit_code(job: Job, record: Mapping[str, str]) -> int | None:
    if job.signal:
        return -job.signal
    return _find_code(record) if job.exit_code is None else job.exit_code


def _describe_machine(job: Job, record: Mapping[str, str], node: NodeGroup | None, sample: Sample | None) -> Machine:
    """Return the machine as sampled; Slurm completes what is missing and the numbers of cores and GPUs."""
    sampled = sample.machine if sample else Machine()
    return Machine(
        hostname=record.get("host") or job.node_list or sampled.hostname,
        cpu_model=record.get("cpu") or sampled.cpu_model,
        cores=node.cores if node else None,
        cpu_mhz=sampled.cpu_mhz,
        memory_bytes=sampled.memory_bytes or (node.memory_bytes if node else None),
        gpu_model=sampled.gpu_model or (node.gpu_model if node else None),
        gpus=node.gpus if node else sampled.gpus,
        extra=sampled.extra,
    )


def _explain(task: Task, job: Job, state: State, record: Mapping[str, str]) -> str:
    if state is State.COMPLETED:
        return ""
    if state is State.TIMED_OUT:
        own_s = find_own_limit_s(task.launch, task.spec.allocation) if _exceeded_own_limit(task, record) else None
        return render_time_limit(own_s or job.allocated.walltime_s or 0.0)
    if state is State.OUT_OF_MEMORY:
        return render_memory_limit(job.allocated.memory_bytes or 0)
    if state is State.CANCELLED:
        by = _BY_THE_USER.match(job.word)
        return f"cancelled by user {by[1]}" if by else f"cancelled ({job.word})" if job.word else "cancelled"
    if state is State.INTERRUPTED:
        return f"{job.word.lower().replace('_', ' ')}{f' on {job.node_list}' if job.node_list else ''}"
    code = _find_exit_code(job, record)
    return "ended without an exit code" if code is None else render_exit(code)


def _read_log(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
