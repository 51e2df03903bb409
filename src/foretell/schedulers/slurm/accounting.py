"""What Slurm's accounting says of jobs: ``sacct``'s rows for a job and its steps, folded into one :class:`Job`."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from foretell.core.batch import Job
from foretell.core.errors import SchedulerError
from foretell.core.run import Allocation, State, Usage
from foretell.schedulers.slurm.commands import call
from foretell.schedulers.slurm.fields import count_gpus, parse_clock, parse_moment, parse_size, parse_state, parse_tres

FIELDS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "State", "ExitCode", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "TotalCPU", "MaxRSS", "AveDiskRead", "AveDiskWrite", "NTasks", "NNodes", "AllocTRES",
    "ReqTRES", "NodeList", "Cluster",
)  # fmt: skip
_PENDING = re.compile(r"(\d+)_\[([\d,-]+)(?::\d+)?(?:%\d+)?\]")
_NO_NODES = "None assigned"

Row = Mapping[str, str]


def read_jobs(job_ids: Collection[str], *, cluster: str | None = None) -> dict[str, Job]:
    """What accounting knows of these jobs and of all elements of these arrays, by ``12`` or ``12_3``; one call for all.

    One that has ended, and of which not all is written yet, is not said to have ``ended_at`` any time.

    Raises:
        SchedulerError: if accounting does not answer (``transient``), is switched off, or says what we do not know.
    """
    if not job_ids:  # sacct would list everything
        return {}
    where = [f"--clusters={cluster}"] if cluster else []
    named = ",".join(sorted(job_ids))
    return parse_jobs(
        call(["sacct", "--parsable2", "--noheader", f"--format={','.join(FIELDS)}", f"--jobs={named}", *where])
    )


def find_by_name(name: str, *, since: str, cluster: str | None = None) -> str | None:
    """The id of the job or array of that name, as far as accounting knows of one.

    Raises:
        SchedulerError: if accounting does not answer, or is switched off.
    """
    where = [f"--clusters={cluster}"] if cluster else []
    options = ["--parsable2", "--noheader", "--allocations", "--format=JobID", f"--name={name}", f"--starttime={since}"]
    found = {line.partition("_")[0] for line in call(["sacct", *options, *where]).split()}
    return min(found, key=int, default=None)


def parse_jobs(text: str) -> dict[str, Job]:
    """Jobs by their ids, from ``sacct --parsable2 --noheader`` with :data:`FIELDS`.

    Raises:
        SchedulerError: if a line is none of sacct's, or has a state we do not know.
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
        raise SchedulerError(f"sacct answered {line!r}; expected {len(FIELDS)} fields. Please report it")
    return dict(zip(FIELDS, words, strict=True))


def _list_ids(job_id: str) -> Iterator[str]:
    """Elements that did not start share a row: ``12_[3-5,8%2]``."""
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
    # A very short job's end may be written before its start: for a moment the row lacks what was asked for.
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
        raise SchedulerError(f"sacct said of job {job_id}: {exc}. Please report it") from exc


def _read_allocation(job: Row) -> Allocation:
    """Per node, as we ask for it; Slurm adds up."""
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
    """What a step took of one node: MaxRSS is its largest task's. None where it ended before it was looked at."""
    size = parse_size(step["MaxRSS"])
    return size * _tasks_per_node(step) if size else None


def _tasks_per_node(step: Row) -> int:
    tasks, nodes = int(step["NTasks"] or 1), int(step["NNodes"] or 1)
    return -(-tasks // max(nodes, 1)) or 1


def _total(steps: Iterable[Row], field: str) -> int | None:
    """Slurm has the mean over a step's tasks."""
    sizes = [(parse_size(step[field]), int(step["NTasks"] or 1)) for step in steps]
    known = [size * tasks for size, tasks in sizes if size is not None]
    return sum(known) if known else None


def _only_known(values: Iterable[int | None]) -> Iterator[int]:
    return (value for value in values if value is not None)
