"""The fake ``squeue``."""

import os
import sys
import time
from collections.abc import Callable

from tests.fake_slurm.control import check_controller
from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import USER, Batch, RefusalError, State, Task, find_fault, render_indexes, render_moment

NAMES = "states jobs format name user account partition"
FLAGS = "noheader array me all"
SHORT = "h=noheader r=array t=states j=jobs o=format n=name u=user A=account p=partition a=all"
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LETTERS = {
    "PENDING": "PD", "RUNNING": "R", "COMPLETED": "CD", "FAILED": "F", "TIMEOUT": "TO", "CANCELLED": "CA",
    "OUT_OF_MEMORY": "OOM", "NODE_FAIL": "NF", "PREEMPTED": "PR", "COMPLETING": "CG",
}  # fmt: skip


def main(words: list[str]) -> None:
    options, _ = parse_options(words, program="squeue", names=NAMES, flags=FLAGS, short=SHORT)
    check_controller("slurm_load_jobs error:")
    if find_fault("squeue-down") is not None:
        raise RefusalError("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    if "noheader" not in options:
        raise RefusalError("squeue: error: this fake writes no header; add -h")
    state = State()
    pattern = options.get("format", DEFAULT)
    for tasks in _group(_choose(state, options), separate="array" in options):
        sys.stdout.write(_render(pattern, state.batches[tasks[0].batch], tasks) + "\n")


def _choose(state: State, options: dict[str, str]) -> list[Task]:
    words = [word for word in options.get("jobs", "").split(",") if word]
    for word in words:
        if not 0 < int(word.partition("_")[0]) < 2**31:
            raise RefusalError(f"squeue: error: Invalid job id: {word}")
    asked = {task.id for word in words for task in state.find(word)}
    oldest = time.time() - float(find_fault("min-job-age") or 300)
    kept = [task for task in state.tasks if task.end_at is None or task.end_at >= oldest]
    if len(words) == 1 and not any(task.id in asked for task in kept):
        raise RefusalError("slurm_load_jobs error: Invalid job id specified")
    return [
        task
        for task in kept
        if (not words or task.id in asked)
        and _has_state(task, options.get("states"))
        and ("name" not in options or state.batches[task.batch].name in options["name"].split(","))
        and ("user" not in options or USER in options["user"].split(","))
        and ("account" not in options or state.batches[task.batch].account in options["account"].lower().split(","))
        and ("partition" not in options or state.batches[task.batch].partition in options["partition"].split(","))
    ]


def _has_state(task: Task, states: str | None) -> bool:
    if states is None:
        return task.is_active
    word = task.state.split()[0]
    return states.lower() == "all" or bool({word, _LETTERS[word]} & set(states.upper().split(",")))


def _group(tasks: list[Task], *, separate: bool) -> list[list[Task]]:
    """Elements of an array that never started stand in one line unless they were asked for one by one."""
    lines: dict[object, list[Task]] = {}
    for number, task in enumerate(tasks):
        together = task.start_at is None and task.index is not None and not separate
        lines.setdefault((task.batch, task.state, task.reason) if together else number, []).append(task)
    return list(lines.values())


def _render(pattern: str, batch: Batch, tasks: list[Task]) -> str:
    text, rest = "", pattern
    while rest:
        before, percent, rest = rest.partition("%")
        text += before
        if percent:
            width = rest[: len(rest) - len(rest.lstrip(".0123456789"))]
            letter, rest = rest[len(width)], rest[len(width) + 1 :]
            text += _pad(_FIELDS[letter](batch, tasks), width)
    return text


def _pad(value: str, width: str) -> str:
    if not width.strip("."):
        return value
    size = int(width.strip("."))
    return (value.rjust(size) if width.startswith(".") else value.ljust(size))[:size]


def _get_id(batch: Batch, tasks: list[Task]) -> str:
    if len(tasks) == 1 and (tasks[0].index is None or tasks[0].start_at is not None):
        return tasks[0].id
    indexes = render_indexes(task.index for task in tasks if task.index is not None)
    return tasks[0].id if len(tasks) == 1 else f"{batch.id}_[{indexes}]"


def _get_reason_or_nodes(batch: Batch, tasks: list[Task]) -> str:
    task = tasks[0]
    return f"({task.reason})" if task.state == "PENDING" or task.state == "FAILED" else task.node


def _get_used(task: Task) -> str:
    return _render_short(0 if task.start_at is None else (task.end_at or time.time()) - task.start_at)


def _get_end(batch: Batch, task: Task) -> str:
    if task.end_at is not None:
        return render_moment(task.end_at)
    return "N/A" if task.start_at is None else render_moment(task.start_at + batch.limit_min * 60)


def _render_short(seconds: float) -> str:
    """``0:05``, ``1:00:00``, ``7-00:00:00``."""
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest // 60 % 60
    clock = f"{hours}:{minutes:02}" if hours or days else str(minutes)
    clock = f"{clock}:{rest % 60:02}"
    return f"{days}-{clock.zfill(8)}" if days else clock


_FIELDS: dict[str, Callable[[Batch, list[Task]], str]] = {
    "i": _get_id,
    "F": lambda batch, tasks: str(batch.id),
    "K": lambda batch, tasks: _get_id(batch, tasks).partition("_")[2].strip("[]") or "N/A",
    "A": lambda batch, tasks: str(tasks[0].raw_id or batch.id),
    "j": lambda batch, tasks: batch.name,
    "T": lambda batch, tasks: tasks[0].state.split()[0],
    "t": lambda batch, tasks: _LETTERS[tasks[0].state.split()[0]],
    "r": lambda batch, tasks: tasks[0].reason,
    "R": _get_reason_or_nodes,
    "M": lambda batch, tasks: _get_used(tasks[0]),
    "l": lambda batch, tasks: _render_short(batch.limit_min * 60),
    "V": lambda batch, tasks: render_moment(tasks[0].submit_at),
    "S": lambda batch, tasks: "N/A" if tasks[0].start_at is None else render_moment(tasks[0].start_at),
    "e": lambda batch, tasks: _get_end(batch, tasks[0]),
    "u": lambda batch, tasks: USER,
    "U": lambda batch, tasks: str(os.getuid()),
    "a": lambda batch, tasks: batch.account,
    "P": lambda batch, tasks: batch.partition,
    "N": lambda batch, tasks: tasks[0].node,
    "C": lambda batch, tasks: str(batch.cpus),
    "D": lambda batch, tasks: str(batch.nodes),
    "k": lambda batch, tasks: batch.comment or "(null)",
    "Z": lambda batch, tasks: batch.folder,
    "%": lambda batch, tasks: "%",
}
