"""The fake ``sacct``."""

import sys
import time
from collections.abc import Iterator

from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import (
    USER,
    Batch,
    RefusalError,
    State,
    Task,
    find_fault,
    render_clock,
    render_indexes,
    render_moment,
)

NAMES = "jobs starttime endtime format name user accounts state partition clusters delimiter"
FLAGS = "noheader parsable2 allocations duplicates noconvert allusers array"
SHORT = (
    "n=noheader P=parsable2 X=allocations D=duplicates a=allusers j=jobs S=starttime E=endtime o=format u=user "
    "A=accounts s=state r=partition M=clusters"
)
_FIELDS = """
    JobID JobIDRaw JobName User Account Partition State ExitCode DerivedExitCode Submit Eligible Start
    End Elapsed ElapsedRaw Timelimit TimelimitRaw TotalCPU CPUTime CPUTimeRAW MaxRSS AveRSS AveDiskRead
    AveDiskWrite MaxDiskRead MaxDiskWrite NTasks NNodes AllocNodes AllocCPUS NCPUS ReqCPUS AllocTRES
    ReqTRES ReqMem NodeList WorkDir SubmitLine Reason Comment Cluster QOS Priority UID Group GID Flags
    Constraints Planned Reserved Suspended UserCPU SystemCPU AveCPU MaxVMSize AdminComment
"""
DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
# What a row lacks if a job's end was written before its start.
_LATE = ("Partition", "Timelimit", "TimelimitRaw", "SubmitLine", "WorkDir", "ReqTRES", "QOS")
_STATES = {
    "PD": "PENDING", "R": "RUNNING", "CD": "COMPLETED", "F": "FAILED", "TO": "TIMEOUT", "CA": "CANCELLED",
    "OOM": "OUT_OF_MEMORY", "NF": "NODE_FAIL", "RQ": "REQUEUED", "PR": "PREEMPTED",
}  # fmt: skip
_DOWN = (
    "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:127.0.0.1:6819: "
    "Connection refused\nsacct: error: Sending PersistInit msg: Connection refused\n"
    "sacct: error: Problem talking to the database: Connection refused"
)


def main(words: list[str]) -> None:
    options, _ = parse_options(words, program="sacct", names=NAMES, flags=FLAGS, short=SHORT)
    if find_fault("accounting-off") is not None:
        raise RefusalError("Slurm accounting storage is disabled")
    if find_fault("sacct-down") is not None:
        raise RefusalError(_DOWN)
    if "parsable2" not in options:
        raise RefusalError("sacct: error: this fake speaks --parsable2 only; add it")
    fields = _get_fields(options.get("format", DEFAULT))
    mark = options.get("delimiter", "|")
    lines = [] if "noheader" in options else [mark.join(fields)]
    steps = {word for word in _split(options, "jobs") if "." in word}
    rows = (row for row in _build_rows(options) if not steps or row["JobID"] in steps)
    lines += [mark.join(row.get(field, "") for field in fields) for row in rows]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _get_fields(text: str) -> list[str]:
    known = {name.lower(): name for name in _FIELDS.split()}
    fields = []
    for word in text.split(","):
        name = word.partition("%")[0]
        if name.lower() not in known:
            raise RefusalError(f'sacct: error: Invalid field requested: "{name}"')
        fields.append(known[name.lower()])
    return fields


def _build_rows(options: dict[str, str]) -> Iterator[dict[str, str]]:
    state = State()
    for tasks in _group(_choose(state, options)):
        batch = state.batches[tasks[0].batch]
        yield _build_job(batch, tasks, options)
        if "allocations" not in options and tasks[0].start_at is not None:
            yield _build_step(batch, tasks[0], "batch", options)
            yield _build_step(batch, tasks[0], "extern", options)


def _choose(state: State, options: dict[str, str]) -> list[Task]:
    """Tasks as accounting knows them, that were asked for, in order of their numbers."""
    known_at = time.time() - float(find_fault("lag") or 0)
    seen = [_look_back(task, known_at) for task in [*state.past, *state.tasks] if task.submit_at <= known_at]
    if "duplicates" not in options:
        seen = list({task.id: task for task in seen}.values())
    asked = {task.id for word in _split(options, "jobs") for task in state.find(word.partition(".")[0])}
    states = {_STATES.get(word, word) for word in _split(options, "state")}
    since, until = _parse_moment(options.get("starttime")), _parse_moment(options.get("endtime"))
    chosen = []
    for task in seen:
        batch = state.batches[task.batch]
        if (
            ("jobs" not in options or task.id in asked)
            and ("name" not in options or batch.name in _split(options, "name"))
            and ("accounts" not in options or batch.account in options["accounts"].lower().split(","))
            and ("user" not in options or USER in _split(options, "user"))
            and (not states or task.state.split()[0] in states)
            and (since is None or task.end_at is None or task.end_at >= since)
            and (until is None or task.submit_at <= until)
        ):
            chosen.append(task)
    return sorted(chosen, key=lambda task: (task.batch, -1 if task.index is None else task.index))


def _split(options: dict[str, str], name: str) -> list[str]:
    return [word for word in options.get(name, "").split(",") if word]


def _look_back(task: Task, moment: float) -> Task:
    """A task as it was, for an accounting that lags behind."""
    if task.start_at is not None and task.start_at > moment:
        return Task(batch=task.batch, index=task.index, submit_at=task.submit_at)
    if task.end_at is not None and task.end_at > moment:
        state = "PENDING" if task.start_at is None else "RUNNING"
        return Task(**(vars(task) | {"state": state, "end_at": None, "code": 0, "signal": 0, "reason": "None"}))
    return task


def _group(tasks: list[Task]) -> Iterator[list[Task]]:
    """Elements of an array that never started stand in one row, all others in one each."""
    rows: dict[object, list[Task]] = {}
    for number, task in enumerate(tasks):
        together = task.start_at is None and task.index is not None
        rows.setdefault((task.batch, task.state, task.reason) if together else number, []).append(task)
    yield from rows.values()


def _build_job(batch: Batch, tasks: list[Task], options: dict[str, str]) -> dict[str, str]:
    task = tasks[0]
    started = task.start_at is not None
    requested = _render_tres(batch, options)
    row = _build_common(batch, task) | {
        "JobID": task.id if started or task.index is None else f"{batch.id}_[{_render_tasks(tasks)}]",
        "JobIDRaw": str(task.raw_id or batch.id),
        "JobName": batch.name,
        "User": USER,
        "UID": "0",
        "Group": USER,
        "GID": "0",
        "Partition": batch.partition,
        "QOS": "normal",
        "DerivedExitCode": "0:0",
        "Timelimit": render_clock(batch.limit_min * 60),
        "TimelimitRaw": str(batch.limit_min),
        "AllocTRES": f"billing={batch.cpus},{requested}" if started else "",
        "ReqTRES": f"billing={batch.cpus},{requested}",
        "ReqMem": _render_memory(batch.memory_mb * 1024, options, unit="M"),
        "NodeList": task.node or "None assigned",
        "WorkDir": batch.folder,
        "SubmitLine": batch.line,
        "Reason": "None" if started else task.reason,
        "Comment": batch.comment,
    }
    if find_fault("half-rows") is not None and not task.is_active:
        row |= {"JobName": "allocation", "ReqMem": "16?"} | dict.fromkeys(_LATE, "")
    if not started and task.end_at is not None:
        row["Start"] = row["End"] if task.index is None else "None"
    return row


def _build_step(batch: Batch, task: Task, name: str, options: dict[str, str]) -> dict[str, str]:
    row = _build_common(batch, task) | {
        "JobID": f"{task.id}.{name}",
        "JobIDRaw": f"{task.raw_id}.{name}",
        "JobName": name,
        "NTasks": "1",
        "AllocTRES": f"{'billing=' + str(batch.cpus) + ',' if name == 'extern' else ''}{_render_tres(batch, options)}",
        "NodeList": task.node,
    }
    if name == "extern":
        row |= {"State": "RUNNING" if task.end_at is None else "COMPLETED", "ExitCode": "0:0", "TotalCPU": "00:00:00"}
    else:
        row |= {"State": _get_step_state(task), "ExitCode": _get_step_code(task)}
    if task.end_at is not None:
        peak = _render_memory(task.peak_kb if name == "batch" else 0, options)
        row |= {"MaxRSS": peak, "AveRSS": peak, "AveDiskRead": "0.01M", "AveDiskWrite": "0.00M"}
    return row


def _build_common(batch: Batch, task: Task) -> dict[str, str]:
    elapsed_s = 0 if task.start_at is None else int(task.end_at or time.time()) - int(task.start_at)
    return {
        "Account": batch.account,
        "Cluster": "osctest",
        "State": _get_state(task),
        "ExitCode": f"{task.code}:{task.signal}",
        "Submit": render_moment(task.submit_at),
        "Eligible": render_moment(task.submit_at),
        "Start": render_moment(task.start_at) if task.start_at is not None else "Unknown",
        "End": render_moment(task.end_at) if task.end_at is not None else "Unknown",
        "Elapsed": render_clock(elapsed_s),
        "ElapsedRaw": str(elapsed_s),
        "TotalCPU": _render_cpu_time(task.cpu_s if task.end_at is not None else 0),
        "CPUTime": render_clock(elapsed_s * batch.cpus),
        "CPUTimeRAW": str(elapsed_s * batch.cpus),
        "NNodes": str(batch.nodes),
        "AllocNodes": str(batch.nodes if task.start_at is not None else 0),
        "AllocCPUS": str(batch.cpus),
        "NCPUS": str(batch.cpus),
        "ReqCPUS": str(batch.cpus),
    }


def _get_state(task: Task) -> str:
    word = find_fault("unknown-state")
    return task.state if word is None or task.is_active else word


def _get_step_state(task: Task) -> str:
    stopped = task.state.split()[0] in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "REQUEUED", "PREEMPTED")
    return "CANCELLED" if stopped or task.signal not in (0, 125) else task.state


def _get_step_code(task: Task) -> str:
    if task.state == "NODE_FAIL":
        return ""
    stopped = task.state.split()[0] in ("CANCELLED", "TIMEOUT", "REQUEUED", "PREEMPTED")
    return "0:15" if stopped else f"{task.code}:{task.signal}"


def _render_tasks(tasks: list[Task]) -> str:
    return render_indexes(task.index for task in tasks if task.index is not None)


def _render_tres(batch: Batch, options: dict[str, str]) -> str:
    memory = _render_memory(batch.memory_mb * 1024, options, unit="M")
    kind, _, count = batch.gpus.rpartition(":")
    gpus = f"gres/gpu:{kind}={count},gres/gpu={count}," if kind else f"gres/gpu={count}," if count else ""
    return f"cpu={batch.cpus},{gpus}mem={memory},node={batch.nodes}"


def _render_memory(kilobytes: int, options: dict[str, str], *, unit: str = "K") -> str:
    """``3G``, ``3073M``: the largest unit that needs no fraction; unconverted, bytes or what was asked."""
    if "noconvert" in options:
        return f"{kilobytes // 1024}M" if unit == "M" else str(kilobytes * 1024)
    if not kilobytes:
        return "0"
    units = iter("KMGT")
    letter = next(units)
    while kilobytes % 1024 == 0:
        kilobytes, letter = kilobytes // 1024, next(units)
    return f"{kilobytes}{letter}"


def _render_cpu_time(seconds: float) -> str:
    if not seconds:
        return "00:00:00"
    return render_clock(seconds) if seconds >= 3600 else f"{int(seconds) // 60:02}:{seconds % 60:06.3f}"


def _parse_moment(text: str | None) -> float | None:
    if text is None:
        return None
    if text.startswith("now"):
        units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
        amount = text[3:].strip("-+") or "0s"
        digits = amount.rstrip("abcdefghijklmnopqrstuvwxyz")
        seconds = int(digits) * units[amount[len(digits) :][:1] or "s"]
        return time.time() + (seconds if "+" in text else -seconds)
    form = "%Y-%m-%dT%H:%M:%S" if "T" in text else "%Y-%m-%d"
    return time.mktime(time.strptime(text, form))
