"""Jobs that ended, by their names or ids: for scripts that Foretell wrote and that users submit themselves."""

import shutil
from collections.abc import Collection
from datetime import datetime

from foretell.core.batch import Job
from foretell.schedulers.slurm.commands import call
from foretell.schedulers.slurm.job_status import FIELDS, parse_jobs, read_jobs

_TIMEOUT_S = 30.0


def is_slurm_here() -> bool:
    """Whether this machine has the program that reads the accounting."""
    return shutil.which("sacct") is not None


def find_named_jobs(names: Collection[str], *, since: datetime, cluster: str | None = None) -> list[Job]:
    """Jobs of these names that have ended since then, in one call.

    Raises:
        SchedulerError: Accounting does not respond, is disabled, or its output is not understood.
    """
    if not names:  # sacct would list everything
        return []
    where = [f"--clusters={cluster}"] if cluster else []
    begin = since.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    options = ["--parsable2", "--noheader", f"--format={','.join(FIELDS)}", f"--starttime={begin}"]
    jobs = parse_jobs(call(["sacct", *options, f"--name={','.join(sorted(names))}", *where], timeout_s=_TIMEOUT_S))
    return [job for job in jobs.values() if _has_ended(job)]


def find_ended_job(job_id: str, *, cluster: str | None = None) -> Job | None:
    """The job of an id, if accounting knows it and it has ended.

    Raises:
        SchedulerError: As :func:`find_named_jobs`.
    """
    job = read_jobs([job_id], cluster=cluster).get(job_id)
    return job if job is not None and _has_ended(job) else None


def _has_ended(job: Job) -> bool:
    return job.state.final and job.ended_at is not None and job.usage is not None
