"""Runs as elements of Slurm job arrays: one ``sbatch`` for all of one allocation, one question about all of them."""

import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foretell.entities.app import Phase, Submission
from foretell.entities.job import Batch, Job, Standing
from foretell.entities.run import Allocation, Launch, Run, RunSpec, State
from foretell.errors import RunnerError, SchedulerError
from foretell.probes.machine import is_alive
from foretell.probes.slurm import queue
from foretell.probes.slurm.accounting import read_jobs
from foretell.probes.slurm.cluster import read_cluster, read_submit_limit
from foretell.probes.slurm.queue import Place
from foretell.probes.slurm.submission import QuotaError, find_submitted, stop_submitters, submit
from foretell.runners._base import Runner
from foretell.runners._files import prepare_run_directory, writing
from foretell.runners.slurm.array import (
    ENDED,
    LOGS,
    SCRIPT,
    build_batch,
    find_walltime_s,
    read_job_record,
    render_array_script,
    render_task_script,
)
from foretell.runners.slurm.collect import Task, build_job_without_accounting, build_run
from foretell.runners.slurm.ledger import Ledger, Unwritten
from foretell.runners.slurm.pace import Pace
from foretell.runners.slurm.room import Room

_SHORTEST_S = 3.0  # between two questions to Slurm
_GLANCE_S = 0.2  # between two looks at what has ended, which costs Slurm nothing
_LAG_S = 60.0  # accounting may know later than the queue that a job has ended
_OUTAGE_S = 600.0  # it may also be down for a while
_SILENT_AFTER = timedelta(minutes=2)  # a submitter on another machine is given up
_STOP_S = 60.0
_MOST_ASKED = 2000  # elements named in one question
_PARTS = 4  # what the site's quota holds back goes on in so large parts of it, not one by one


@dataclass(slots=True)
class _Followed:
    """A batch under way: what is left of it by index, and since when its elements are known to have ended."""

    batch: Batch
    tasks: dict[int, Task]
    gone_at: dict[int, float] = field(default_factory=dict)
    stamped: int = 0

    @property
    def directory(self) -> Path:
        return Path(self.batch.directory)

    def element(self, index: int) -> str:
        return f"{self.batch.job_id}_{index}"

    def log(self, index: int) -> Path:
        return self.directory / LOGS / f"{index}.log"


class SlurmRunner(Runner):
    """Runs on a Slurm cluster, each an element of a job array; what was started is submitted by the next poll.

    Batches are written down in the ``ledger`` before they are submitted. Their scripts are kept below ``directory``,
    which all nodes must see. Slurm is asked at most every ``shortest_s``, and less often while nothing happens.

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
        shortest_s: float = _SHORTEST_S,
    ) -> None:
        self._submission = submission or Submission()
        self._cluster = read_cluster(cluster=self._submission.cluster)
        self._room = Room(self._cluster, self._submission.partition)
        self.partition = self._room.partition
        self._directory = directory.absolute()
        self._ledger = ledger or Unwritten()
        self._most = self._most_at_first = self._find_most()
        self._largest_array = max(1, min(self._cluster.max_array_tasks, self._cluster.max_array_size))
        self._chunk = self._largest_array
        self._waiting: dict[str, Task] = {}
        self._followed: dict[str, _Followed] = {}
        self._places: Mapping[str, Place] = {}
        self._notes: dict[str, bool] = {}
        self._pace = Pace(shortest_s)

    @property
    def width(self) -> int:
        return self._room.cores

    @property
    def running(self) -> tuple[RunSpec, ...]:
        waiting = [task.spec for task in self._waiting.values()]
        return (*waiting, *(task.spec for followed in self._followed.values() for task in followed.tasks.values()))

    def fits(self, spec: RunSpec) -> bool:
        return self._room.find_obstacle(spec.allocation) is None

    def has_room(self, spec: RunSpec) -> bool:
        return self.fits(spec) and len(self.running) < self._most

    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        obstacle = self._room.find_obstacle(spec.allocation)
        if obstacle:
            where = spec.allocation.partition or self.partition
            raise RunnerError(
                f"run {spec.id} of {spec.app!r} cannot run in partition {where!r}: {obstacle}; "
                f"ask for less in 'resources', or choose another --partition"
            )
        if any(spec.id == other.id for other in self.running) or not self.has_room(spec):
            raise RunnerError(f"no room for run {spec.id} of {spec.app!r} now; poll until a running one has ended")
        prepare_run_directory(Path(launch.run_directory))
        self._waiting[spec.id] = Task(spec=spec, launch=launch, phases=phases)

    def adopt(self, batch: Batch, tasks: Mapping[str, Task]) -> None:
        """Follow a batch that was submitted before; ``tasks`` are those of its runs that have not been kept yet."""
        left = {index: tasks[run_id] for index, run_id in enumerate(batch.run_ids) if run_id in tasks}
        self._followed[batch.id] = _Followed(batch, left)

    def poll(self, timeout_s: float) -> list[Run]:
        deadline = time.monotonic() + timeout_s
        self._submit_waiting()
        while not (runs := self._look_if_due()) and self._followed and time.monotonic() < deadline:
            time.sleep(max(0.0, min(_GLANCE_S, deadline - time.monotonic())))
        return runs

    def look(self, *, submit_lost: bool = False) -> list[Run]:
        """Runs that became final; asks now. ``submit_lost``: batches that never arrived are submitted again.

        Raises:
            SchedulerError: if the controller does not answer.
        """
        self._settle_lost(submit_lost=submit_lost)
        self._places = self._read_queue()
        return self._gather(self._places)

    def list_standings(self) -> Iterator[Standing]:
        """How each batch stood when it was last looked at, as far as it is not all known."""
        for followed in self._followed.values():
            places = [self._places.get(followed.element(index)) for index in followed.tasks]
            waiting = [place for place in places if place is not None and place.state is State.QUEUED]
            yield Standing(
                batch=followed.batch,
                queued=len(waiting),
                running=sum(place is not None and place.state is State.RUNNING for place in places),
                unfinished=len(places),
                why=tuple(dict.fromkeys(place.why for place in waiting if place.why)),
            )

    @property
    def queued(self) -> int:
        return len(self._waiting) + sum(standing.queued for standing in self.list_standings())

    @property
    def held_back(self) -> int:
        return len(self._waiting)

    def stop(self) -> None:
        self._waiting.clear()
        self._settle_lost(submit_lost=False)
        deadline = time.monotonic() + _STOP_S
        submitted = [followed for followed in self._followed.values() if followed.batch.job_id]
        queue.cancel([followed.batch.job_id for followed in submitted], cluster=self._submission.cluster)
        while submitted and any(not place.state.final for place in self._read_queue().values()):
            if time.monotonic() > deadline:
                raise SchedulerError("jobs are still there a minute after they were cancelled; see 'squeue --me'")
            time.sleep(_GLANCE_S)
        self._followed.clear()

    def take_notes(self) -> list[str]:
        fresh = [note for note, told in self._notes.items() if not told]
        self._notes |= dict.fromkeys(fresh, True)
        return fresh

    # Submitting

    def _submit_waiting(self) -> None:
        while self._waiting and (room := self._find_room()):
            allocation = self._allocation_of(next(iter(self._waiting.values())))
            tasks = [task for task in self._waiting.values() if self._allocation_of(task) == allocation]
            self._submit(allocation, tasks[:room])

    def _find_room(self) -> int:
        """How many may be submitted now as one array; none while only a few could go, unless those are all."""
        under_way = len(self.running) - len(self._waiting)
        room = min(self._most - under_way, self._chunk)
        wanted = min(len(self._waiting), self._chunk, max(1, self._most // _PARTS))
        return room if room >= wanted or (room > 0 and not under_way) else 0

    def _submit(self, allocation: Allocation, tasks: Sequence[Task]) -> None:
        new = build_batch(tasks[0].spec.app, directory=self._directory, submission=self._submission)
        batch = self._ledger.open(new, [task.spec for task in tasks])
        own = {task.spec.id: task for task in tasks if task.spec.id in set(batch.run_ids)}
        for task in tasks:
            del self._waiting[task.spec.id]  # what is not ours is somebody else's
        if not own:
            return
        followed = _Followed(batch, {index: own[run_id] for index, run_id in enumerate(batch.run_ids)})
        try:
            self._write(followed, allocation)
            self._hand_over(followed)
        except QuotaError as exc:
            self._take_back(followed, exc)
        except RunnerError:
            self._ledger.forget(batch)
            raise

    def _write(self, followed: _Followed, allocation: Allocation) -> None:
        sampler = _build_sampler() if self._samples else ()
        with writing(followed.directory):
            for name in (ENDED, LOGS):
                (followed.directory / name).mkdir(parents=True)
            for index, task in followed.tasks.items():
                script = render_task_script(task.launch, allocation=task.spec.allocation, sampler=sampler)
                (followed.directory / f"task-{index}.sh").write_text(script, "utf-8", errors="surrogateescape")
            script = render_array_script(followed.batch, allocation=allocation)
            (followed.directory / SCRIPT).write_text(script, "utf-8", errors="surrogateescape")

    def _hand_over(self, followed: _Followed) -> None:
        batch = followed.batch
        folder = batch.directory.replace("%", "%%")  # sbatch reads it as a pattern
        try:
            job_id = submit(followed.directory / SCRIPT, batch_id=batch.id, output=f"{folder}/{LOGS}/%a.log")
        except SchedulerError as exc:
            if not exc.transient or isinstance(exc, QuotaError):
                raise
            self._note(f"{exc}; whether the jobs were taken is found out as soon as Slurm answers")
            job_id = ""
        followed.batch = replace(batch, job_id=job_id)
        self._followed[batch.id] = followed
        if job_id:
            self._ledger.keep_job_id(batch, job_id)

    def _take_back(self, followed: _Followed, exc: QuotaError) -> None:
        """Try fewer at once; if it is not even one, so many as are there now are the most."""
        self._ledger.forget(followed.batch)
        shutil.rmtree(followed.directory, ignore_errors=True)
        under_way = len(self.running) - len(self._waiting)
        self._waiting |= {task.spec.id: task for task in followed.tasks.values()}
        self._chunk = len(followed.tasks) // 2
        if self._chunk == 0:
            self._chunk, self._most = self._largest_array, under_way
            self._note(f"{exc}; {len(self._waiting)} runs wait for that")

    # Following

    def _look_if_due(self) -> list[Run]:
        if not self._followed or not self._pace.is_due(ended=sum(map(_count_stamps, self._followed.values()))):
            return []
        try:
            runs = self.look(submit_lost=True)
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._note(f"{exc}; asking again")
            runs = []
        self._pace.note(changed=bool(runs))
        return runs

    def _read_queue(self) -> dict[str, Place]:
        asked = [followed.batch.job_id for followed in self._followed.values() if followed.batch.job_id]
        return queue.read_queue(asked, cluster=self._submission.cluster)

    def _gather(self, places: Mapping[str, Place]) -> list[Run]:
        ended = list(self._list_ended(places))
        if not ended:
            return []
        jobs, answered = self._read_accounting([followed.element(index) for followed, index in ended])
        runs = []
        for followed, index in ended:
            job_id = followed.element(index)
            run = self._conclude(followed, index, jobs.get(job_id), places.get(job_id), answered=answered)
            if run is not None:
                del followed.tasks[index]
                runs.append(run)
        self._followed = {batch_id: followed for batch_id, followed in self._followed.items() if followed.tasks}
        if not self._followed:
            self._most = self._most_at_first  # whoever else had jobs there may have none now
        return runs

    def _list_ended(self, places: Mapping[str, Place]) -> Iterator[tuple[_Followed, int]]:
        now, count = time.monotonic(), 0
        for followed in self._followed.values():
            if not followed.batch.job_id:
                continue
            for index in followed.tasks:
                place = places.get(followed.element(index))
                if place is not None and not place.state.final:
                    followed.gone_at.pop(index, None)  # requeued, perhaps
                elif count < _MOST_ASKED:
                    followed.gone_at.setdefault(index, now)
                    count += 1
                    yield followed, index

    def _read_accounting(self, job_ids: Collection[str]) -> tuple[dict[str, Job], bool]:
        if not self._cluster.accounting:
            return {}, False
        try:
            return read_jobs(job_ids, cluster=self._submission.cluster), True
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._note(f"accounting does not answer ({exc}); asking again")
            return {}, False

    def _conclude(
        self, followed: _Followed, index: int, job: Job | None, place: Place | None, *, answered: bool
    ) -> Run | None:
        """The run, or nothing while it may still become clearer what came of it."""
        task = followed.tasks[index]
        log, node = followed.log(index), self._room.find_node(task.spec.allocation)
        if job is not None and job.state.final and job.ended_at is not None:
            return build_run(task, job, log=log, node=node)
        if self._cluster.accounting and self._gone_for_s(followed, index, place) < (_LAG_S if answered else _OUTAGE_S):
            return None
        word = place.word if place is not None and place.state.final else ""
        state = place.state if word and place is not None else State.CANCELLED
        guess = build_job_without_accounting(followed.element(index), word=word, state=state, task=task)
        return build_run(task, guess, log=log, node=node, doubt=self._explain_doubt(answered))

    def _gone_for_s(self, followed: _Followed, index: int, place: Place | None) -> float:
        """For how long it is known to have ended, by us, by its script, or because even the queue has forgotten it."""
        known = [time.monotonic() - followed.gone_at[index]]
        record = read_job_record(followed.tasks[index].directory)
        if record.get("job") == followed.element(index) and "ended" in record:
            known.append(time.time() - float(record["ended"]))
        if place is None:
            age = datetime.now(UTC) - followed.batch.created_at
            known.append(min(age.total_seconds(), self._cluster.min_job_age_s))
        return max(known)

    def _explain_doubt(self, answered: bool) -> str:
        if not self._cluster.accounting:
            return "" if self._samples else "accounting is off: only its time is known"
        if answered:
            return "accounting never heard of it: it left the queue before it started, or its record was lost"
        return "accounting did not answer: its own record was used"

    # Batches whose answer was lost

    def _settle_lost(self, *, submit_lost: bool) -> None:
        for followed in [followed for followed in self._followed.values() if not followed.batch.job_id]:
            if self._is_being_submitted(followed.batch):
                continue
            stop_submitters(followed.batch.id)
            batch = followed.batch
            found = find_submitted(
                batch.name, since=batch.created_at, cluster=batch.submission.cluster, accounted=self._cluster.accounting
            )
            if found is not None:
                followed.batch = replace(batch, job_id=found)
                self._ledger.keep_job_id(batch, found)
                self._note(f"batch {batch.name} had been taken as job {found}: its answer was lost, nothing else")
            elif submit_lost:
                self._submit_again(followed)

    def _submit_again(self, followed: _Followed) -> None:
        del self._followed[followed.batch.id]
        if (followed.directory / SCRIPT).exists():
            try:
                self._hand_over(followed)
            except QuotaError as exc:
                self._followed[followed.batch.id] = followed
                self._note(f"{exc}; {len(followed.tasks)} runs wait for that")
            return
        self._ledger.forget(followed.batch)  # killed before it was written: its runs are anybody's
        self._note(f"batch {followed.batch.name} was never submitted; its {len(followed.tasks)} runs are free again")

    def _is_being_submitted(self, batch: Batch) -> bool:
        alive = is_alive(batch.submitter)
        if alive and batch.submitter.pid == os.getpid():
            return False
        return bool(alive) or (alive is None and datetime.now(UTC) - batch.created_at < _SILENT_AFTER)

    # What the cluster is

    @property
    def _samples(self) -> bool:
        return self._submission.sample or not self._cluster.accounting

    def _find_most(self) -> int:
        """The most runs to have submitted at once: what the site allows, less what the user has there already."""
        submission = self._submission
        limit = read_submit_limit(
            account=submission.account,
            partition=submission.partition,
            qos=submission.options.get("qos"),
            cluster=submission.cluster,
        )
        return self._cluster.max_jobs if limit is None else limit

    def _allocation_of(self, task: Task) -> Allocation:
        asked = task.spec.allocation
        return replace(
            asked,
            partition=asked.partition or self.partition,
            walltime_s=find_walltime_s(task.launch, asked),
            node_type=None,
        )

    def _note(self, sentence: str) -> None:
        self._notes.setdefault(sentence, False)


def _count_stamps(followed: _Followed) -> int:
    """Elements that said they have ended and are still to be kept."""
    with suppress(OSError):
        return sum(int(path.name) in followed.tasks for path in (followed.directory / ENDED).iterdir())
    return 0


def _build_sampler() -> tuple[str, ...]:
    return (sys.executable, "-m", "foretell.probes.sampler")
