"""Usage of advised jobs that have ended, from the scheduler's accounting into the store of runs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foretell.advice.advised_jobs import AdvisedJob, list_advised_jobs
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_recording import record_usage
from foretell.core.batch import Job
from foretell.core.errors import ForetellError, NotFoundError
from foretell.core.run import State
from foretell.core.warning import PredictionWarning, build_warning
from foretell.schedulers.slurm.named_jobs import find_ended_job, find_named_jobs, is_slurm_here
from foretell.stores.opening import StoreLike, reading_store

_MOST = 50  # names that are asked for
_LONGEST = timedelta(days=180)  # after which nothing is asked any more


def collect_ended_jobs(identity: TrainingIdentity, *, folder: Path, store: StoreLike) -> list[PredictionWarning]:
    """Store what jobs that this advice led to have used; where the accounting cannot be read, that is a warning."""
    advised = [each for each in list_advised_jobs(identity, folder) if _is_recent(each)][:_MOST]
    if not advised or not is_slurm_here():
        return []
    try:
        known = _list_known(identity, store)
        found = [pair for pair in _find(advised) if pair[1].id not in known]
        return list(_store(found, identity, store))
    except ForetellError as exc:
        return [build_warning("accounting-unavailable", f"Jobs that were advised are not used: {exc}")]


def collect_job(job_id: str, identity: TrainingIdentity, *, folder: Path, store: StoreLike) -> list[PredictionWarning]:
    """Store what one job used, whatever its name; it is taken for the newest advice that it fits.

    Raises:
        NotFoundError: Accounting knows no such job that has ended, or no advice for this training fits it.
        SchedulerError: Accounting cannot be read.
    """
    advised = list_advised_jobs(identity, folder)
    clusters = dict.fromkeys(each.cluster for each in advised) or {None: None}
    found = (find_ended_job(job_id, cluster=cluster) for cluster in clusters)
    job = next((each for each in found if each is not None), None)
    if job is None:
        raise NotFoundError("ended job", job_id, hint="Does it still run? 'sacct -j' lists what accounting knows.")
    fitting = [each for each in advised if _differs(each, job) == ""]
    chosen = next((each for each in fitting if each.name == job.name), next(iter(fitting), None))
    if chosen is None:
        hint = f"Advice for this training is in {folder}, for other partitions, nodes or GPUs than the job had."
        raise NotFoundError("advice for job", job_id, hint=hint)
    if job.id in _list_known(identity, store):
        return []
    return list(_store([(chosen, job)], identity, store))


def _is_recent(job: AdvisedJob) -> bool:
    return job.created_at is not None and datetime.now(UTC) - job.created_at < _LONGEST


def _find(advised: Sequence[AdvisedJob]) -> Iterator[tuple[AdvisedJob, Job]]:
    """Jobs with what was advised for them, by one call for each cluster."""
    for cluster in dict.fromkeys(each.cluster for each in advised):
        named = {each.name: each for each in advised if each.cluster == cluster}
        since = min(each.created_at for each in named.values() if each.created_at is not None)
        for job in find_named_jobs(named.keys(), since=since - timedelta(minutes=5), cluster=cluster):
            if job.name in named:
                yield named[job.name], job


def _list_known(identity: TrainingIdentity, store: StoreLike) -> set[str]:
    with reading_store(store, or_empty=True) as opened:
        runs = opened.runs(identity.app) if identity.app in opened.app_names() else []
        return {run.job_id for run in runs if run.job_id}


def _store(
    found: Iterable[tuple[AdvisedJob, Job]], identity: TrainingIdentity, store: StoreLike
) -> Iterator[PredictionWarning]:
    for advised, job in found:
        reason = _differs(advised, job)
        if not reason and job.state is not State.COMPLETED:
            reason = f"it ended as {job.word.split()[0].lower().replace('_', ' ')}"
        if reason:
            yield build_warning("job-not-used", f"Job {job.id} of this training is not used: {reason}.", job=job.id)
        if _differs(advised, job):
            continue
        assert job.usage is not None
        record_usage(
            identity,
            advised.place,
            steps=advised.steps,
            usage=job.usage,
            other_s=advised.other_s,
            state=job.state,
            nodes=advised.allocation.nodes,
            job_id=job.id,
            source="slurm",
            store=store,
        )


def _differs(advised: AdvisedJob, job: Job) -> str:
    """Why a job is not the one that was advised; empty if it may be."""
    asked, had = advised.allocation, job.allocated
    if (asked.gpus, asked.nodes) != (had.gpus, had.nodes):
        return f"it had {had.nodes} x {had.gpus} GPUs, where {asked.nodes} x {asked.gpus} were advised"
    if asked.partition and had.partition and asked.partition != had.partition:
        return f"it ran in partition {had.partition}, where {asked.partition} was advised"
    return ""
