"""Reads the state of jobs from the queue (``squeue``) and from accounting (``sacct``)."""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from foretell.core.batch import Job
from foretell.core.errors import SchedulerError
from foretell.core.run import Allocation, State, Usage
from foretell.schedulers.slurm.commands import (
    call,
    count_gpus,
    parse_clock,
    parse_moment,
    parse_size,
    parse_state,
    parse_tres,
)

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "State", "ExitCode", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "TotalCPU", "MaxRSS", "AveDiskRead", "AveDiskWrite", "NTasks", "NNodes", "AllocTRES",
    "ReqTRES", "NodeList", "Cluster",
)  # fmt: skip
_PENDING = re.compile(r"(\d+)_\[([\d,-]+)(?::\d+)?(?:%\d+)?\]")
_NO_NODES = "None assigned"

Row = Mapping[str, str]


def read_jobs(job_ids: Collection[str], *, cluster: str | None = None) -> dict[str, Job]:
    """Return accounting's records of these jobs and all elements of these arrays, by ``12`` or ``12_3``; one call.

    ``ended_at`` is unknown for a job that has ended but whose record is not complete yet.

    Raises:
        SchedulerError: if accounting does not respond (``transient``), is disabled, or its output is not understood.
    """
    if not job_ids:  # sacct would list everything
        return {}
    where = [f"--clusters={cluster}"] if cluster else []
    named = ",".join(sorted(job_ids))
    return parse_jobs(
        call(["sacct", "--parsable2", "--noheader", f"--format={','.join(FIELDS)}", f"--jobs={named}", *where])
    )


def find_in_accounting(name: str, *, since: str, cluster: str | None = None) -> str | None:
    """Return the id of the job or array of that name in accounting, if there is one.

    Raises:
        SchedulerError: if accounting does not respond, or is disabled.
    """
    where = [f"--clusters={cluster}"] if cluster else []
    options = ["--parsable2", "--noheader", "--allocations", "--format=JobID", f"--name={name}", f"--starttime={since}"]
    found = {line.partition("_")[0] for line in call(["sacct", *options, *where]).split()}
    return min(found, key=int, default=None)


def parse_jobs(text: str) -> dict[str, Job]:
    """Return jobs by id from the output of ``sacct --parsable2 --noheader`` with :data:`FIELDS`.

    Raises:
        SchedulerError: if a line has other fields, or an unknown state.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for line in text.splitlines():
        row = _parse_row(line)
        for job_id in _list_ids(row["JobID"].partition(".")[0]):
            groups[job_id].append(row)
    return {job_id: _fold(job_id, rows) for job_id, rows in groups.items()}


def _parse_row(line: str) -> Row:
    words = line.split("|")
    if len(words) != len(FIELDS):
        raise SchedulerError(f"sacct printed {line!r}; expected {len(FIELDS)} fields. Please report it")
    return dict(zip(FIELDS, words, strict=True))


def _list_ids(job_id: str) -> Iterator[str]:
    """Yield the ids of a row; elements that did not start share one: ``12_[3-5,8%2]``."""
    match = _PENDING.fullmatch(job_id)
    if match is None:
        yield job_id
        return
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        for index in range(int(first), int(last or first) + 1):
            yield f"{match[1]}_{index}"


def _fold(job_id: str, rows: Sequence[Row]) -> Job:
    job, *steps = rows
    state = parse_state(job["State"])
    # The end of a very short job may be written before its start; until then, the row lacks the request.
    is_whole = bool(job["TimelimitRaw"])
    code, _, signal = job["ExitCode"].partition(":")
    try:
        return Job(
            id=job_id,
            state=state,
            word=job["State"],
            name=job["JobName"],
            exit_code=int(code) if code else None,
            signal=int(signal or 0),
            submitted_at=parse_moment(job["Submit"]),
            started_at=parse_moment(job["Start"]),
            ended_at=parse_moment(job["End"]) if is_whole else None,
            allocated=_read_allocation(job),
            usage=_add_up(job, steps) if state is not State.QUEUED else None,
            node_list="" if job["NodeList"] == _NO_NODES else job["NodeList"],
        )
    except ValueError as exc:
        raise SchedulerError(f"sacct's record of job {job_id}: {exc}. Please report it") from exc


def _read_allocation(job: Row) -> Allocation:
    """Return the allocation per node; Slurm reports totals."""
    tres = parse_tres(job["AllocTRES"] or job["ReqTRES"])
    nodes = int(tres.get("node") or job["NNodes"] or 1) or 1
    memory = parse_size(tres.get("mem", ""))
    minutes = job["TimelimitRaw"]
    return Allocation(
        cores=max(1, round(int(tres.get("cpu") or 1) / nodes)),
        memory_bytes=None if memory is None else memory // nodes,
        gpus=count_gpus(tres) // nodes,
        nodes=nodes,
        partition=job["Partition"] or None,
        walltime_s=float(minutes) * 60 if minutes.isdigit() else None,
    )


def _add_up(job: Row, steps: Sequence[Row]) -> Usage:
    return Usage(
        elapsed_s=float(job["ElapsedRaw"] or 0),
        cpu_s=parse_clock(job["TotalCPU"]),
        peak_memory_bytes=max(_only_known(map(_find_memory, steps)), default=None),
        read_bytes=_total(steps, "AveDiskRead"),
        written_bytes=_total(steps, "AveDiskWrite"),
    )


def _find_memory(step: Row) -> int | None:
    """Return a step's memory per node: MaxRSS is that of its largest task, empty if it ended before it was sampled."""
    size = parse_size(step["MaxRSS"])
    return size * _tasks_per_node(step) if size else None


def _tasks_per_node(step: Row) -> int:
    tasks, nodes = int(step["NTasks"] or 1), int(step["NNodes"] or 1)
    return -(-tasks // max(nodes, 1)) or 1


def _total(steps: Iterable[Row], field: str) -> int | None:
    """Return the total over all tasks; Slurm reports the mean over the tasks of a step."""
    sizes = [(parse_size(step[field]), int(step["NTasks"] or 1)) for step in steps]
    known = [size * tasks for size, tasks in sizes if size is not None]
    return sum(known) if known else None


def _only_known(values: Iterable[int | None]) -> Iterator[int]:
    return (value for value in values if value is not None)


_UNKNOWN_ID = "Invalid job id specified"  # unlike "Invalid job id: 0", after which squeue lists no other job either


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """The state of a job in the queue, and ``why`` it waits."""

    state: State
    word: str
    why: str = ""
    name: str = ""
    user_id: int | None = None


def read_queue(job_ids: Collection[str], *, cluster: str | None = None) -> dict[str, QueueEntry]:
    """Return queue entries of these jobs and all elements of these arrays, by ``12`` or ``12_3``; one call.

    Jobs that ended longer ago than the controller keeps them are missing.

    Raises:
        SchedulerError: if the controller does not respond (``transient``), or its output is not understood.
    """
    if not job_ids:
        return {}
    where = [f"--clusters={cluster}"] if cluster else []
    options = [
        "--noheader",
        "--array",
        "--states=all",
        "--format=%F|%K|%T|%U|%r|%j",
        f"--jobs={','.join(sorted(job_ids))}",
    ]
    try:
        return parse_queue(call(["squeue", *options, *where]))
    except SchedulerError as exc:
        if _UNKNOWN_ID in str(exc):
            return {}
        raise


def find_in_queue(name: str, *, cluster: str | None = None) -> str | None:
    """Return the id of this user's job or array of that name in the queue, if there is one.

    Raises:
        SchedulerError: if the controller does not respond.
    """
    where = [f"--clusters={cluster}"] if cluster else []
    printed = call(["squeue", "--noheader", "--states=all", "--format=%F|%U", f"--name={name}", *where])
    jobs = (line.split("|") for line in printed.split() if "|" in line)
    return min((job_id for job_id, user in jobs if user == str(os.getuid())), key=int, default=None)


def parse_queue(text: str) -> dict[str, QueueEntry]:
    """Return queue entries by job id from ``squeue --noheader --array --format=%F|%K|%T|%U|%r|%j``.

    Raises:
        SchedulerError: if a line has other fields, or an unknown state.
    """
    entries = {}
    for line in text.splitlines():
        if line.startswith("CLUSTER:") or not line.strip():
            continue
        try:
            array, index, word, user, why, name = line.split("|", 5)
            user_id = int(user)
        except ValueError:
            raise SchedulerError(f"squeue printed {line!r}; expected 6 fields. Please report it") from None
        job_id = array if index in ("", "N/A") else f"{array}_{index}"
        entries[job_id] = QueueEntry(
            state=parse_state(word), word=word, why="" if why == "None" else why, name=name, user_id=user_id
        )
    return entries


def cancel(job_ids: Collection[str], *, cluster: str | None = None) -> None:
    """Cancel jobs, arrays or elements of arrays; those that have ended are ignored.

    Raises:
        SchedulerError: if the controller does not respond.
    """
    if job_ids:
        where = [f"--clusters={cluster}"] if cluster else []
        call(["scancel", "--quiet", *where, *sorted(job_ids)])
