"""Tracks submitted batches with one call of squeue and one of sacct for all of them, at adaptive intervals."""

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from foretell.core.batch import BatchStatus, Job
from foretell.core.errors import SchedulerError
from foretell.core.run import Run, State
from foretell.schedulers.slurm import job_status
from foretell.schedulers.slurm.batch_journal import ActiveBatches, TrackedBatch
from foretell.schedulers.slurm.finished_runs import build_job_without_accounting, build_run
from foretell.schedulers.slurm.job_array import read_job_record
from foretell.schedulers.slurm.job_status import QueueEntry, read_jobs
from foretell.schedulers.slurm.partition_limits import PartitionLimits

_HELD = re.compile(r"held", re.IGNORECASE)
_LAG_S = 60.0  # accounting may learn later than the queue that a job has ended
_OUTAGE_S = 600.0  # accounting may be down for so long
_MAX_QUERIED = 2000  # elements in one call of sacct


class Tracker:
    """Finds runs that have ended, and their results."""

    def __init__(self, batches: ActiveBatches, *, limits: PartitionLimits) -> None:
        self._batches = batches
        self._limits = limits
        self._entries: Mapping[str, QueueEntry] = {}
        self._answering_since: float | None = None

    def collect(self) -> list[Run]:
        """Return runs that have ended and stop tracking them.

        Raises:
            SchedulerError: if the controller does not respond, or Slurm's output is not understood.
        """
        self._entries = self.read_queue()
        self._note_held_jobs()
        ended = list(self._list_ended())
        if not ended:
            return []
        jobs = self._read_accounting(ended)
        idle = self._follow_first_job()
        known = {tracked.batch.id for tracked in self._batches.submitted if self._is_known(tracked, jobs)}
        runs = []
        for tracked, index in ended:
            run = None if tracked.batch.id in idle else self._build_finished(tracked, index, jobs, known)
            if run is not None:
                del tracked.tasks[index]
                runs.append(run)
        for tracked in [tracked for tracked in self._batches.by_id.values() if not tracked.tasks]:
            del self._batches.by_id[tracked.batch.id]
        return runs

    def list_statuses(self) -> Iterator[BatchStatus]:
        """Return the state of each unfinished batch at the last poll."""
        for tracked in self._batches.by_id.values():
            entries = [self._entries.get(tracked.element(index)) for index in tracked.tasks]
            waiting = [entry for entry in entries if entry is not None and entry.state is State.QUEUED]
            yield BatchStatus(
                batch=tracked.batch,
                queued=len(waiting),
                running=sum(entry is not None and entry.state is State.RUNNING for entry in entries),
                unfinished=len(entries),
                why=tuple(dict.fromkeys(entry.why for entry in waiting if entry.why)),
            )

    def read_queue(self) -> dict[str, QueueEntry]:
        """Return the queue entries of our jobs, checked by name and user.

        A controller that lost its state may have given their ids to other jobs, and a store may contain any id.
        """
        names = {tracked.batch.job_id: tracked.batch.name for tracked in self._batches.submitted}
        entries = job_status.read_queue(names, cluster=self._batches.submission.cluster)
        return {
            job_id: entry
            for job_id, entry in entries.items()
            if entry.name == names.get(_find_array(job_id)) and entry.user_id == os.getuid()
        }

    def list_active(self) -> list[str]:
        """Return the ids of our jobs that have not ended."""
        active = (job_id for job_id, entry in self.read_queue().items() if not entry.state.final)
        return sorted({_find_array(job_id) for job_id in active})

    def _note_held_jobs(self) -> None:
        """Report held jobs, which do not start until a user releases them."""
        held = {_find_array(job_id): entry.why for job_id, entry in self._entries.items() if _HELD.search(entry.why)}
        for job_id, why in held.items():
            self._batches.note(f"job {job_id} is held ({why}); release it with 'scontrol release {job_id}'")

    def _follow_first_job(self) -> set[str]:
        """Where a lost reply led to two submissions of a batch, track the job that started first and cancel the other.

        Return the ids of such batches: until the next poll, nothing is known about their runs.
        """
        idle = set()
        for tracked in self._batches.submitted:
            batch, first = tracked.batch, tracked.find_first()
            if first is None or first == batch.job_id:
                continue
            if any(_find_array(job_id) == batch.job_id for job_id in self._entries):
                job_status.cancel([batch.job_id], cluster=batch.submission.cluster)
            tracked.batch = replace(batch, job_id=first)
            self._batches.journal.keep_job_id(batch, first)
            self._batches.note(f"batch {batch.name} was also submitted as job {first}; job {batch.job_id} is cancelled")
            idle.add(batch.id)
        return idle

    def _list_ended(self) -> Iterator[tuple[TrackedBatch, int]]:
        now, count = time.monotonic(), 0
        for tracked in self._batches.submitted:
            for index in tracked.tasks:
                entry = self._entries.get(tracked.element(index))
                if entry is not None and not entry.state.final:
                    tracked.gone_at.pop(index, None)  # requeued, perhaps
                    tracked.last_entries.pop(index, None)
                elif count < _MAX_QUERIED:
                    if entry is not None:
                        tracked.last_entries[index] = entry
                    tracked.gone_at.setdefault(index, now)
                    count += 1
                    yield tracked, index

    def _read_accounting(self, ended: Collection[tuple[TrackedBatch, int]]) -> Mapping[str, Job]:
        if not self._batches.cluster.accounting:
            return {}
        asked = {tracked.element(index) for tracked, index in ended}
        # Elements that were cancelled in the queue are found only by the array's id.
        asked |= {tracked.batch.job_id for tracked, index in ended if tracked.may_have_waited(index)}
        try:
            jobs = read_jobs(asked, cluster=self._batches.submission.cluster)
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._batches.note(f"accounting does not respond ({exc}); retrying")
            self._answering_since = None
            return {}
        self._answering_since = self._answering_since or time.monotonic()
        return jobs

    def _build_finished(
        self, tracked: TrackedBatch, index: int, jobs: Mapping[str, Job], known: Collection[str]
    ) -> Run | None:
        """Return the result of a run; ``None`` while accounting may still complete it."""
        task, log = tracked.tasks[index], tracked.log(index)
        node = self._limits.find_node(task.spec.allocation)
        job = _find_job(tracked, index, jobs)
        if job is not None and job.ended_at is not None:
            return build_run(task, job, log=log, node=node)
        if not self._has_waited(tracked, index, job):
            return None
        if job is not None and job.state.final:
            return build_run(task, job, log=log, node=node)
        entry = tracked.last_entries.get(index)
        guess = build_job_without_accounting(
            tracked.element(index),
            word=entry.word if entry else "",
            state=entry.state if entry else State.CANCELLED if tracked.batch.id in known else State.INTERRUPTED,
            task=task,
            log=log,
        )
        return build_run(task, guess, log=log, node=node, remark=self._explain_missing(guess))

    def _has_waited(self, tracked: TrackedBatch, index: int, job: Job | None) -> bool:
        """Return whether accounting has had enough time for a record of the run."""
        if not self._batches.cluster.accounting:
            return True
        now = time.monotonic()
        gone_at = tracked.gone_at[index]
        record = read_job_record(tracked.tasks[index].directory)
        if record.get("job") != tracked.element(index):
            record = {}
        if now - gone_at >= _OUTAGE_S or time.time() - float(record.get("ended", "inf")) >= _OUTAGE_S:
            return True
        if self._answering_since is None:
            return False
        if not record and index not in tracked.last_entries and (job is None or job.state is State.QUEUED):
            # It never started and has left the queue: there will be no further record.
            return (datetime.now(UTC) - tracked.batch.created_at).total_seconds() >= _LAG_S
        return now - max(gone_at, self._answering_since) >= _LAG_S

    def _is_known(self, tracked: TrackedBatch, jobs: Mapping[str, Job]) -> bool:
        """Return whether Slurm knows the batch; of elements cancelled one by one, it records only the last."""
        job_id = tracked.batch.job_id
        in_queue = any(_find_array(element) == job_id for element in self._entries)
        ended = any(_find_array(element) == job_id and job.state.final for element, job in jobs.items())
        return in_queue or ended or len(tracked.tasks) < len(tracked.batch.run_ids)

    def _explain_missing(self, job: Job) -> str:
        if job.state is State.INTERRUPTED and not job.word:
            return "Slurm has no record of it: its controller may have been killed right after it accepted the job"
        if not self._batches.cluster.accounting:
            return ""
        if self._answering_since is None:
            return "accounting did not respond: the record of the job script was used"
        return "accounting has no record of it: it left the queue before it started, or its record was lost"


def _find_job(tracked: TrackedBatch, index: int, jobs: Mapping[str, Job]) -> Job | None:
    """Return accounting's record of a run, if it belongs to this batch and is up to date."""
    job = jobs.get(tracked.element(index))
    if job is None or job.state is State.QUEUED:
        job = _find_cancelled(tracked, index, jobs) or job
    if job is None or (job.ended_at is not None and job.name != tracked.batch.name):
        return None
    entry = tracked.last_entries.get(index)
    was_requeued = job.state is State.INTERRUPTED and entry is not None and entry.state is not State.INTERRUPTED
    return None if was_requeued else job


def _find_cancelled(tracked: TrackedBatch, index: int, jobs: Mapping[str, Job]) -> Job | None:
    """Return the record of elements that were cancelled in the queue, which has the id of the array."""
    job = jobs.get(tracked.batch.job_id)
    if job is None or index in tracked.last_entries:
        return None
    never_started = job.state is State.CANCELLED and job.started_at is None and job.ended_at is not None
    return replace(job, id=tracked.element(index)) if never_started else None


def _find_array(job_id: str) -> str:
    return job_id.partition("_")[0]


_LONGEST_S = 30.0
_SLOWER = 1.5
# In units of the shortest interval: runs end in bursts, so polling waits until a burst is over.
_MIN_BURST, _MAX_BURST = 2, 6
_BURST_GAP = 0.4
_ACCOUNTING_DELAY = 0.2  # accounting learns of an end a moment later than we do


class PollInterval:
    """When to poll: right after the last run ended, soon after some did, less and less often while none does.

    Never twice within ``min_interval_s``.
    """

    def __init__(self, min_interval_s: float) -> None:
        self._min_interval_s = self._interval_s = min_interval_s
        self._polled_at = self._ended_at = float("-inf")
        self._ended = self._ended_then = 0

    def is_due(self, *, ended: int, left: int) -> bool:
        """Return whether to poll now: of the ``left`` tracked runs, ``ended`` have written that they ended."""
        now = time.monotonic()
        if ended != self._ended:
            self._ended, self._ended_at = ended, now
        return now - self._polled_at >= self._min_interval_s and self._is_worth_it(now, left)

    def _is_worth_it(self, now: float, left: int) -> bool:
        passed_s, idle_s = now - self._polled_at, now - self._ended_at
        if self._ended == self._ended_then:
            return passed_s >= self._interval_s
        if self._ended >= left:
            return idle_s >= _ACCOUNTING_DELAY * self._min_interval_s
        over = passed_s >= _MIN_BURST * self._min_interval_s and idle_s >= _BURST_GAP * self._min_interval_s
        return over or passed_s >= _MAX_BURST * self._min_interval_s

    def record(self, *, changed: bool) -> None:
        """Record that Slurm was polled now; ``changed``: runs had ended."""
        self._polled_at = time.monotonic()
        self._ended_then = self._ended
        self._interval_s = self._min_interval_s if changed else min(self._interval_s * _SLOWER, _LONGEST_S)
