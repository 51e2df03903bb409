"""Runs commands as elements of Slurm job arrays."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from foretell.core.app import Phase, Submission
from foretell.core.batch import Batch, BatchStatus
from foretell.core.errors import RunnerError, SchedulerError
from foretell.core.run import Launch, Run, RunSpec
from foretell.schedulers._base import Runner
from foretell.schedulers.slurm import job_status
from foretell.schedulers.slurm.batch_journal import ActiveBatches, BatchJournal, MemoryJournal, TrackedBatch
from foretell.schedulers.slurm.cluster import Cluster, read_cluster, read_submit_limit
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.job_array import ARRAY, find_walltime_s, has_elements
from foretell.schedulers.slurm.partition_limits import PartitionLimits, choose_partition
from foretell.schedulers.slurm.submit import Submitter
from foretell.schedulers.slurm.tracking import PollInterval, Tracker

_MIN_INTERVAL_S = 3.0  # between two polls of Slurm
_FILE_CHECK_S = 0.2  # between two checks of the files that ended elements write
_STOP_S = 60.0


class SlurmRunner(Runner):
    """Runs on a Slurm cluster, each an element of a job array; :meth:`poll` submits started runs.

    Batches are recorded in the ``journal`` before they are submitted. Their scripts are written below ``directory``,
    which must be visible on all nodes. Slurm is polled at most every ``min_interval_s``, less often while idle.
    A ``read_only`` runner submits nothing and needs no partition.

    Raises:
        SchedulerError: if Slurm is not installed or does not respond.
        NotFoundError: if there is no partition of that name.
    """

    survives_exit = True

    def __init__(
        self,
        submission: Submission | None = None,
        *,
        directory: Path,
        journal: BatchJournal | None = None,
        min_interval_s: float | None = None,
        read_only: bool = False,
    ) -> None:
        asked = submission or Submission()
        cluster = read_cluster(cluster=asked.cluster)
        samples = asked.sample or not cluster.accounting
        self._limits = PartitionLimits(
            cluster, choose_partition(cluster, asked.partition) if read_only else asked.partition
        )
        self.partition = self._limits.partition
        self._batches = ActiveBatches(
            submission=_adapt(asked, cluster), cluster=cluster, journal=journal or MemoryJournal()
        )
        self._submitter = Submitter(
            self._batches,
            directory=directory.absolute(),
            partition=self.partition,
            find_limit=lambda: _find_max(asked, cluster),
            samples=samples,
        )
        self._tracker = Tracker(self._batches, limits=self._limits)
        if not cluster.accounting:
            self._batches.note("this cluster has no accounting; usage is measured by a sampler in each job")
        self._poll_interval = PollInterval(_MIN_INTERVAL_S if min_interval_s is None else min_interval_s)

    @property
    def cluster(self) -> str | None:
        """The name of the cluster; ``None`` for the local one."""
        return self._batches.submission.cluster

    @property
    def max_parallel(self) -> int:
        return self._limits.cores

    @property
    def running(self) -> tuple[RunSpec, ...]:
        waiting = [task.spec for task in self._submitter.waiting.values()]
        run_count = (task.spec for tracked in self._batches.by_id.values() for task in tracked.tasks.values())
        return (*waiting, *run_count)

    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        asked = spec.allocation
        return self._limits.find_obstacle(replace(asked, walltime_s=find_walltime_s(time_limit_s, asked)))

    def count_parallel(self, spec: RunSpec) -> int:
        return self._limits.count_parallel(spec.allocation, whole_nodes="exclusive" in self._batches.submission.options)

    def has_capacity(self, spec: RunSpec) -> bool:
        return self.fits(spec) and len(self._submitter.waiting) + self._batches.run_count < self._submitter.most

    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        obstacle = self.find_obstacle(spec, time_limit_s=launch.time_limit_s)
        if obstacle:
            where = spec.allocation.partition or self.partition
            raise RunnerError(
                f"run {spec.id} of {spec.app!r} cannot run in partition {where!r}: {obstacle}; "
                f"reduce 'resources' or 'time_limit', or choose another --partition"
            )
        run_id = spec.id
        if run_id in self._submitter.waiting or self._batches.has(run_id) or not self.has_capacity(spec):
            raise RunnerError(f"no capacity for run {run_id} of {spec.app!r} now; poll until another run has ended")
        self._submitter.waiting[run_id] = Task(spec=spec, launch=launch, phases=phases)

    def adopt(self, batch: Batch, tasks: Mapping[str, Task], *, may_submit: bool = True) -> None:
        """Track a batch that was submitted before; ``tasks`` are its runs that are not stored yet.

        ``may_submit``: these tasks are submitted if the batch never reached Slurm.
        """
        left = {index: tasks[run_id] for index, run_id in enumerate(batch.run_ids) if run_id in tasks}
        is_alike = has_elements(batch.submission) == has_elements(self._batches.submission)
        self._batches.by_id[batch.id] = TrackedBatch(batch, left, may_submit=may_submit and is_alike)

    def poll(self, timeout_s: float) -> list[Run]:
        deadline = time.monotonic() + timeout_s
        self._submitter.submit()
        while not (runs := self._collect_if_due()) and self.running and time.monotonic() < deadline:
            time.sleep(max(0.0, min(_FILE_CHECK_S, deadline - time.monotonic())))
        return runs

    def collect(self, *, submit_lost: bool = False) -> list[Run]:
        """Poll Slurm now and return runs that became final; ``submit_lost``: submit batches that never arrived again.

        Raises:
            SchedulerError: if the controller does not respond.
        """
        self._submitter.resolve_lost(submit_lost=submit_lost)
        return self._tracker.collect()

    def list_statuses(self) -> Iterator[BatchStatus]:
        """Return the state of each unfinished batch at the last poll."""
        return self._tracker.list_statuses()

    @property
    def queued(self) -> int:
        return len(self._submitter.waiting) + sum(status.queued for status in self.list_statuses())

    @property
    def held_back(self) -> int:
        return len(self._submitter.waiting)

    def stop(self) -> None:
        self._submitter.waiting.clear()
        self._submitter.resolve_lost(submit_lost=False)
        busy = self._submitter.find_busy()
        if busy is not None:
            raise SchedulerError(
                f"process {busy.submitter.pid} on {busy.submitter.hostname} is submitting batch {busy.name}; "
                "try again when it has finished",
                transient=True,
            )
        jobs = self._tracker.list_active()
        job_status.cancel(jobs, cluster=self._batches.submission.cluster)
        deadline = time.monotonic() + _STOP_S
        while jobs and self._tracker.list_active():
            if time.monotonic() > deadline:
                raise SchedulerError(
                    "jobs are still in the queue a minute after they were cancelled; see 'squeue --me'"
                )
            time.sleep(_FILE_CHECK_S)
        self._batches.by_id.clear()

    def note(self, sentence: str) -> None:
        """Add a message for the user; each is shown once."""
        self._batches.note(sentence)

    def take_notes(self) -> list[str]:
        return self._batches.take_notes()

    def _collect_if_due(self) -> list[Run]:
        ended = sum(tracked.count_ended() for tracked in self._batches.by_id.values())
        if not self._batches.by_id or not self._poll_interval.is_due(ended=ended, left=self._batches.run_count):
            return []
        try:
            runs = self.collect(submit_lost=True)
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._batches.note(f"{exc}; retrying")
            runs = []
        self._poll_interval.record(changed=bool(runs))
        return runs


def _adapt(submission: Submission, cluster: Cluster) -> Submission:
    """Return the submission without arrays if the cluster does not accept them."""
    if min(cluster.max_array_size, cluster.max_array_tasks) > 1 or ARRAY in submission.without:
        return submission
    return replace(submission, without=(*submission.without, ARRAY))


def _find_max(submission: Submission, cluster: Cluster) -> int:
    """Return how many submitted runs the site allows this user at once."""
    limit = read_submit_limit(
        cluster, account=submission.account, partition=submission.partition, qos=submission.options.get("qos")
    )
    return cluster.max_jobs if limit is None else limit
