"""Samples running Slurm jobs: on this node, or on another node through a job step.

``python -m foretell.schedulers.slurm.observe_job JOB INTERVAL [LONGEST]`` samples the processes of a job
on this node and prints the result as one line.
"""

import os
import sys
from collections.abc import Sequence

from foretell.core.errors import ForetellError, SchedulerError
from foretell.measure.consumption_sampler import INTERVAL_S
from foretell.measure.procfs import find_children
from foretell.measure.watch import Watched, build_usage, parse_recorded, render_recorded, watch_processes
from foretell.schedulers.slurm.commands import call

_NODE = "SLURMD_NODENAME"  # several nodes may share one machine, which only this distinguishes
_LONGEST_S = 20 * 86400.0  # about the longest timeout that the system allows
_EXTRA_S = 120.0


def watch_job(job: str, *, interval_s: float = INTERVAL_S, longest_s: float | None = None) -> Watched:
    """Sample a running job: its processes on this node if it has any, else those on its first node.

    Raises:
        SchedulerError: if there is no such job, it does not run, or it cannot be sampled from here.
    """
    pids = find_job_processes(job)
    if pids:
        return watch_processes(pids, interval_s=interval_s, longest_s=longest_s)
    command = [sys.executable, "-m", "foretell.schedulers.slurm.observe_job", job, str(interval_s)]
    step = ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", "--input=none"]
    output = call([*step, *command, *([str(longest_s)] if longest_s else [])], timeout_s=_find_timeout(longest_s))
    return _read(output, job)


def find_job_processes(job: str) -> list[int]:
    """Return the job's processes on this node whose parents are not processes of the job."""
    node = os.environ.get(_NODE)
    try:
        output = call(["scontrol", "listpids", job, *([node] if node else [])])
    except SchedulerError as exc:
        if exc.transient or "was not found" in str(exc) or "finds no cluster" in str(exc):
            raise
        return []  # it runs on other nodes, or does not run
    return _find_roots(parse_pids(output) - {os.getpid(), os.getppid()})


def parse_pids(output: str) -> set[int]:
    """Return the processes that ``scontrol listpids`` prints, without those of the ``extern`` step."""
    rows = [line.split() for line in output.splitlines()[1:]]
    return {int(row[0]) for row in rows if len(row) > 2 and row[0].isdigit() and row[2] != "extern"}


def _find_roots(pids: set[int]) -> list[int]:
    children = {child for pid in pids for child in find_children(pid) or ()}
    return sorted(pids - children)


def _find_timeout(longest_s: float | None) -> float:
    return _LONGEST_S if longest_s is None else longest_s + _EXTRA_S


def _read(output: str, job: str) -> Watched:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    try:
        recorded = parse_recorded(lines[-1])
    except (IndexError, ValueError, TypeError, LookupError) as exc:
        printed = output.strip() or "nothing"
        raise SchedulerError(
            f"job {job} could not be sampled on its node, which printed: {printed}; is Foretell installed there?"
        ) from exc
    return Watched(recorded=recorded, usage=build_usage(recorded))


def main(words: Sequence[str]) -> int:
    """Sample a job's processes on this node and print the result."""
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
