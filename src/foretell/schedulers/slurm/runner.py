"""Runs as elements of Slurm job arrays: one ``sbatch`` for all of one allocation, one question about all of them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from foretell.core.app import Phase, Submission
from foretell.core.batch import Batch, Standing
from foretell.core.errors import RunnerError, SchedulerError
from foretell.core.run import Launch, Run, RunSpec
from foretell.schedulers._base import Runner
from foretell.schedulers.slurm import queue
from foretell.schedulers.slurm.batches import Desk, Followed, Ledger, Unwritten
from foretell.schedulers.slurm.cluster import Cluster, read_cluster, read_submit_limit
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.job_array import ARRAY, find_walltime_s, has_elements
from foretell.schedulers.slurm.partition_limits import Room, choose_partition
from foretell.schedulers.slurm.submit import Submitter
from foretell.schedulers.slurm.tracking import Follower, Pace

_SHORTEST_S = 3.0  # between two questions to Slurm
_GLANCE_S = 0.2  # between two looks at what has ended, which costs Slurm nothing
_STOP_S = 60.0


class SlurmRunner(Runner):
    """Runs on a Slurm cluster, each an element of a job array; what was started is submitted by the next poll.

    Batches are written down in the ``ledger`` before they are submitted. Their scripts are kept below ``directory``,
    which all nodes must see. Slurm is asked at most every ``shortest_s``, and less often while nothing happens.
    One that ``only_follows`` submits nothing, and needs no partition.

    Raises:
        SchedulerError: if there is no Slurm here, or it does not answer.
        NotFoundError: if it has no partition of that name.
    """

    lasting = True

    def __init__(
        self,
        submission: Submission | None = None,
        *,
        directory: Path,
        ledger: Ledger | None = None,
        shortest_s: float | None = None,
        only_follows: bool = False,
    ) -> None:
        asked = submission or Submission()
        cluster = read_cluster(cluster=asked.cluster)
        samples = asked.sample or not cluster.accounting
        self._room = Room(cluster, choose_partition(cluster, asked.partition) if only_follows else asked.partition)
        self.partition = self._room.partition
        self._desk = Desk(submission=_adapt(asked, cluster), cluster=cluster, ledger=ledger or Unwritten())
        self._submitter = Submitter(
            self._desk,
            directory=directory.absolute(),
            partition=self.partition,
            find_most=lambda: _find_most(asked, cluster),
            samples=samples,
        )
        self._follower = Follower(self._desk, room=self._room)
        if not cluster.accounting:
            self._desk.note("this cluster keeps no accounts: what a run uses is what a sampler beside it sees")
        self._pace = Pace(_SHORTEST_S if shortest_s is None else shortest_s)

    @property
    def cluster(self) -> str | None:
        """The cluster that is asked; ``None``: the one here."""
        return self._desk.submission.cluster

    @property
    def width(self) -> int:
        return self._room.cores

    @property
    def running(self) -> tuple[RunSpec, ...]:
        waiting = [task.spec for task in self._submitter.waiting.values()]
        under_way = (task.spec for followed in self._desk.followed.values() for task in followed.tasks.values())
        return (*waiting, *under_way)

    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        asked = spec.allocation
        return self._room.find_obstacle(replace(asked, walltime_s=find_walltime_s(time_limit_s, asked)))

    def fit_at_once(self, spec: RunSpec) -> int:
        return self._room.fit_at_once(spec.allocation, whole_nodes="exclusive" in self._desk.submission.options)

    def has_room(self, spec: RunSpec) -> bool:
        return self.fits(spec) and len(self._submitter.waiting) + self._desk.under_way < self._submitter.most

    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        obstacle = self.find_obstacle(spec, time_limit_s=launch.time_limit_s)
        if obstacle:
            where = spec.allocation.partition or self.partition
            raise RunnerError(
                f"run {spec.id} of {spec.app!r} cannot run in partition {where!r}: {obstacle}; "
                f"ask for less in 'resources' or 'time_limit', or choose another --partition"
            )
        run_id = spec.id
        if run_id in self._submitter.waiting or self._desk.has(run_id) or not self.has_room(spec):
            raise RunnerError(f"no room for run {run_id} of {spec.app!r} now; poll until a running one has ended")
        self._submitter.waiting[run_id] = Task(spec=spec, launch=launch, phases=phases)

    def adopt(self, batch: Batch, tasks: Mapping[str, Task], *, may_submit: bool = True) -> None:
        """Follow a batch that was submitted before; ``tasks`` are those of its runs that have not been kept yet.

        ``may_submit``: if it never reached Slurm, these tasks are submitted.
        """
        left = {index: tasks[run_id] for index, run_id in enumerate(batch.run_ids) if run_id in tasks}
        is_alike = has_elements(batch.submission) == has_elements(self._desk.submission)
        self._desk.followed[batch.id] = Followed(batch, left, may_submit=may_submit and is_alike)

    def poll(self, timeout_s: float) -> list[Run]:
        deadline = time.monotonic() + timeout_s
        self._submitter.submit()
        while not (runs := self._look_if_due()) and self.running and time.monotonic() < deadline:
            time.sleep(max(0.0, min(_GLANCE_S, deadline - time.monotonic())))
        return runs

    def look(self, *, submit_lost: bool = False) -> list[Run]:
        """Runs that became final; asks now. ``submit_lost``: batches that never arrived are submitted again.

        Raises:
            SchedulerError: if the controller does not answer.
        """
        self._submitter.settle(submit_lost=submit_lost)
        return self._follower.look()

    def list_standings(self) -> Iterator[Standing]:
        """How each batch stood when it was last looked at, as far as it is not all known."""
        return self._follower.list_standings()

    @property
    def queued(self) -> int:
        return len(self._submitter.waiting) + sum(standing.queued for standing in self.list_standings())

    @property
    def held_back(self) -> int:
        return len(self._submitter.waiting)

    def stop(self) -> None:
        self._submitter.waiting.clear()
        self._submitter.settle(submit_lost=False)
        busy = self._submitter.find_busy()
        if busy is not None:
            raise SchedulerError(
                f"batch {busy.name} is being submitted by process {busy.submitter.pid} on {busy.submitter.hostname}; "
                "try again when that is done",
                transient=True,
            )
        jobs = self._follower.list_active()
        queue.cancel(jobs, cluster=self._desk.submission.cluster)
        deadline = time.monotonic() + _STOP_S
        while jobs and self._follower.list_active():
            if time.monotonic() > deadline:
                raise SchedulerError("jobs are still there a minute after they were cancelled; see 'squeue --me'")
            time.sleep(_GLANCE_S)
        self._desk.followed.clear()

    def note(self, sentence: str) -> None:
        """Have the user told, once."""
        self._desk.note(sentence)

    def take_notes(self) -> list[str]:
        return self._desk.take_notes()

    def _look_if_due(self) -> list[Run]:
        ended = sum(followed.count_stamps() for followed in self._desk.followed.values())
        if not self._desk.followed or not self._pace.is_due(ended=ended, left=self._desk.under_way):
            return []
        try:
            runs = self.look(submit_lost=True)
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._desk.note(f"{exc}; asking again")
            runs = []
        self._pace.note(changed=bool(runs))
        return runs


def _adapt(submission: Submission, cluster: Cluster) -> Submission:
    """What can be asked of a cluster that takes no arrays."""
    if min(cluster.max_array_size, cluster.max_array_tasks) > 1 or ARRAY in submission.without:
        return submission
    return replace(submission, without=(*submission.without, ARRAY))


def _find_most(submission: Submission, cluster: Cluster) -> int:
    """The most runs to have submitted at once: what the site allows this user."""
    limit = read_submit_limit(
        cluster, account=submission.account, partition=submission.partition, qos=submission.options.get("qos")
    )
    return cluster.max_jobs if limit is None else limit
