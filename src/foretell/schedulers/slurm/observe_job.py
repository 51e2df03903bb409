"""Jobs of Slurm looked at while they run: on their own node, or from elsewhere through a step of theirs.

``python -m foretell.schedulers.slurm.observe_job JOB INTERVAL [LONGEST]`` looks at a job's processes
on the node where it is run, and prints what it saw as one line.
"""

import os
import sys
from collections.abc import Sequence

from foretell.core.errors import ForetellError, SchedulerError
from foretell.measure.consumption_sampler import INTERVAL_S
from foretell.measure.procfs import find_children
from foretell.measure.recording import parse_recorded, render_recorded
from foretell.measure.watch import Watched, build_usage, watch_processes
from foretell.schedulers.slurm.commands import call

_NODE = "SLURMD_NODENAME"  # where several nodes are one machine, only it tells which
_LONGEST_S = 20 * 86400.0  # the longest that can be waited for, about
_PATIENCE_S = 120.0


def watch_job(job: str, *, interval_s: float = INTERVAL_S, longest_s: float | None = None) -> Watched:
    """Look at a running job: at its processes here if it has any, else at those on its first node.

    Raises:
        SchedulerError: if there is no such job, it does not run, or it cannot be looked at from here.
    """
    pids = find_job_processes(job)
    if pids:
        return watch_processes(pids, interval_s=interval_s, longest_s=longest_s)
    command = [sys.executable, "-m", "foretell.schedulers.slurm.observe_job", job, str(interval_s)]
    step = ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", "--input=none"]
    answer = call([*step, *command, *([str(longest_s)] if longest_s else [])], timeout_s=_find_timeout(longest_s))
    return _read(answer, job)


def find_job_processes(job: str) -> list[int]:
    """Processes of the job on this node that nobody of the others started; none if there are none."""
    node = os.environ.get(_NODE)
    try:
        answer = call(["scontrol", "listpids", job, *([node] if node else [])])
    except SchedulerError as exc:
        if exc.transient or "not found:" in str(exc) or "finds no cluster" in str(exc):
            raise
        return []  # it is on other nodes, or on none
    return _find_roots(parse_pids(answer) - {os.getpid(), os.getppid()})


def parse_pids(answer: str) -> set[int]:
    """What ``scontrol listpids`` tells: a process in each line, with its step; not what only holds the job's place."""
    rows = [line.split() for line in answer.splitlines()[1:]]
    return {int(row[0]) for row in rows if len(row) > 2 and row[0].isdigit() and row[2] != "extern"}


def _find_roots(pids: set[int]) -> list[int]:
    children = {child for pid in pids for child in find_children(pid) or ()}
    return sorted(pids - children)


def _find_timeout(longest_s: float | None) -> float:
    return _LONGEST_S if longest_s is None else longest_s + _PATIENCE_S


def _read(answer: str, job: str) -> Watched:
    lines = [line for line in answer.splitlines() if line.startswith("{")]
    try:
        recorded = parse_recorded(lines[-1])
    except (IndexError, ValueError, TypeError, LookupError) as exc:
        said = answer.strip() or "nothing"
        raise SchedulerError(f"job {job} was looked at on its node, which said: {said}; is Foretell there?") from exc
    return Watched(recorded=recorded, usage=build_usage(recorded))


def main(words: Sequence[str]) -> int:
    """Look at a job's processes on this node, and print what was seen."""
    job, interval_s, longest_s = words[0], float(words[1]), float(words[2]) if len(words) > 2 else None
    try:
        pids = find_job_processes(job)
        if not pids:
            sys.stderr.write(f"error: job {job} has no process on this node; it may be about to start or to end\n")
            return 1
        watched = watch_processes(pids, interval_s=interval_s, longest_s=longest_s)
    except ForetellError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 1
    sys.stdout.write(render_recorded(watched.recorded) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
