"""Follows batches to the ends of their runs: one question to the queue and one to accounting about all of them."""

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from foretell.core.batch import Job, Standing
from foretell.core.errors import SchedulerError
from foretell.core.run import Run, State
from foretell.schedulers.slurm import queue
from foretell.schedulers.slurm.accounting import read_jobs
from foretell.schedulers.slurm.batches import Desk, Followed
from foretell.schedulers.slurm.finished_runs import build_job_without_accounting, build_run
from foretell.schedulers.slurm.job_array import read_job_record
from foretell.schedulers.slurm.partition_limits import Room
from foretell.schedulers.slurm.queue import Place

_HELD = re.compile(r"held", re.IGNORECASE)
_LAG_S = 60.0  # accounting may know later than the queue that a job has ended
_OUTAGE_S = 600.0  # it may also be down for a while
_MOST_ASKED = 2000  # elements named in one question


class Follower:
    """Tells which runs of the batches on the desk have ended, and what came of them."""

    def __init__(self, desk: Desk, *, room: Room) -> None:
        self._desk = desk
        self._room = room
        self._places: Mapping[str, Place] = {}
        self._answering_since: float | None = None

    def look(self) -> list[Run]:
        """Runs that have ended; they are no longer on the desk.

        Raises:
            SchedulerError: if the controller does not answer, or Slurm says what we do not know.
        """
        self._places = self.read_queue()
        self._tell_of_held()
        ended = list(self._list_ended())
        if not ended:
            return []
        jobs = self._read_accounting(ended)
        idle = self._heed_first()
        known = {followed.batch.id for followed in self._desk.submitted if self._is_known(followed, jobs)}
        runs = []
        for followed, index in ended:
            run = None if followed.batch.id in idle else self._conclude(followed, index, jobs, known)
            if run is not None:
                del followed.tasks[index]
                runs.append(run)
        for followed in [followed for followed in self._desk.followed.values() if not followed.tasks]:
            del self._desk.followed[followed.batch.id]
        return runs

    def list_standings(self) -> Iterator[Standing]:
        """How each batch stood when it was last looked at, as far as it is not all known."""
        for followed in self._desk.followed.values():
            places = [self._places.get(followed.element(index)) for index in followed.tasks]
            waiting = [place for place in places if place is not None and place.state is State.QUEUED]
            yield Standing(
                batch=followed.batch,
                queued=len(waiting),
                running=sum(place is not None and place.state is State.RUNNING for place in places),
                unfinished=len(places),
                why=tuple(dict.fromkeys(place.why for place in waiting if place.why)),
            )

    def read_queue(self) -> dict[str, Place]:
        """Where our jobs stand, by name and user.

        A controller that lost its state may have given their numbers to others, and a store may name any number.
        """
        names = {followed.batch.job_id: followed.batch.name for followed in self._desk.submitted}
        places = queue.read_queue(names, cluster=self._desk.submission.cluster)
        return {
            job_id: place
            for job_id, place in places.items()
            if place.name == names.get(_find_array(job_id)) and place.user_id == os.getuid()
        }

    def list_active(self) -> list[str]:
        """Our jobs that have not ended."""
        active = (job_id for job_id, place in self.read_queue().items() if not place.state.final)
        return sorted({_find_array(job_id) for job_id in active})

    def _tell_of_held(self) -> None:
        """What is held waits for somebody, not for its turn."""
        held = {_find_array(job_id): place.why for job_id, place in self._places.items() if _HELD.search(place.why)}
        for job_id, why in held.items():
            self._desk.note(f"job {job_id} is held ({why}); it goes on when released: 'scontrol release {job_id}'")

    def _heed_first(self) -> set[str]:
        """Of a batch that was submitted twice, because an answer was lost, follow the job that does the work.

        What the others did before is no run's end: the ids of such batches.
        """
        idle = set()
        for followed in self._desk.submitted:
            batch, first = followed.batch, followed.find_first()
            if first is None or first == batch.job_id:
                continue
            if any(_find_array(job_id) == batch.job_id for job_id in self._places):
                queue.cancel([batch.job_id], cluster=batch.submission.cluster)
            followed.batch = replace(batch, job_id=first)
            self._desk.ledger.keep_job_id(batch, first)
            self._desk.note(f"batch {batch.name} had been taken as job {first}, too: job {batch.job_id} is cancelled")
            idle.add(batch.id)
        return idle

    def _list_ended(self) -> Iterator[tuple[Followed, int]]:
        now, count = time.monotonic(), 0
        for followed in self._desk.submitted:
            for index in followed.tasks:
                place = self._places.get(followed.element(index))
                if place is not None and not place.state.final:
                    followed.gone_at.pop(index, None)  # requeued, perhaps
                    followed.last_places.pop(index, None)
                elif count < _MOST_ASKED:
                    if place is not None:
                        followed.last_places[index] = place
                    followed.gone_at.setdefault(index, now)
                    count += 1
                    yield followed, index

    def _read_accounting(self, ended: Collection[tuple[Followed, int]]) -> Mapping[str, Job]:
        if not self._desk.cluster.accounting:
            return {}
        asked = {followed.element(index) for followed, index in ended}
        # What was cancelled in the queue is found by the array's number alone.
        asked |= {followed.batch.job_id for followed, index in ended if followed.may_have_waited(index)}
        try:
            jobs = read_jobs(asked, cluster=self._desk.submission.cluster)
        except SchedulerError as exc:
            if not exc.transient:
                raise
            self._desk.note(f"accounting does not answer ({exc}); asking again")
            self._answering_since = None
            return {}
        self._answering_since = self._answering_since or time.monotonic()
        return jobs

    def _conclude(self, followed: Followed, index: int, jobs: Mapping[str, Job], known: Collection[str]) -> Run | None:
        """The run, or nothing while it may still become clearer what came of it."""
        task, log = followed.tasks[index], followed.log(index)
        node = self._room.find_node(task.spec.allocation)
        job = _find_job(followed, index, jobs)
        if job is not None and job.ended_at is not None:
            return build_run(task, job, log=log, node=node)
        if not self._has_waited(followed, index, job):
            return None
        if job is not None and job.state.final:
            return build_run(task, job, log=log, node=node)
        place = followed.last_places.get(index)
        guess = build_job_without_accounting(
            followed.element(index),
            word=place.word if place else "",
            state=place.state if place else State.CANCELLED if followed.batch.id in known else State.INTERRUPTED,
            task=task,
            log=log,
        )
        return build_run(task, guess, log=log, node=node, doubt=self._explain_doubt(guess))

    def _has_waited(self, followed: Followed, index: int, job: Job | None) -> bool:
        """Whether accounting has had time enough to say what came of it."""
        if not self._desk.cluster.accounting:
            return True
        now = time.monotonic()
        gone_at = followed.gone_at[index]
        record = read_job_record(followed.tasks[index].directory)
        if record.get("job") != followed.element(index):
            record = {}
        if now - gone_at >= _OUTAGE_S or time.time() - float(record.get("ended", "inf")) >= _OUTAGE_S:
            return True
        if self._answering_since is None:
            return False
        if not record and index not in followed.last_places and (job is None or job.state is State.QUEUED):
            # It never started, and the queue has it no longer: there is nothing more to come.
            return (datetime.now(UTC) - followed.batch.created_at).total_seconds() >= _LAG_S
        return now - max(gone_at, self._answering_since) >= _LAG_S

    def _is_known(self, followed: Followed, jobs: Mapping[str, Job]) -> bool:
        """Whether Slurm knows anything of the batch; one cancelled element by element leaves a trace of the last."""
        job_id = followed.batch.job_id
        in_queue = any(_find_array(element) == job_id for element in self._places)
        ended = any(_find_array(element) == job_id and job.state.final for element, job in jobs.items())
        return in_queue or ended or len(followed.tasks) < len(followed.batch.run_ids)

    def _explain_doubt(self, job: Job) -> str:
        if job.state is State.INTERRUPTED and not job.word:
            return "Slurm knows nothing of it any more: its controller may have been killed just after it took the job"
        if not self._desk.cluster.accounting:
            return ""
        if self._answering_since is None:
            return "accounting did not answer: its own record was used"
        return "accounting never heard of it: it left the queue before it started, or its record was lost"


def _find_job(followed: Followed, index: int, jobs: Mapping[str, Job]) -> Job | None:
    """What accounting says of a run, if that is about this batch, and up to date."""
    job = jobs.get(followed.element(index))
    if job is None or job.state is State.QUEUED:
        job = _find_cancelled(followed, index, jobs) or job
    if job is None or (job.ended_at is not None and job.name != followed.batch.name):
        return None
    place = followed.last_places.get(index)
    was_requeued = job.state is State.INTERRUPTED and place is not None and place.state is not State.INTERRUPTED
    return None if was_requeued else job


def _find_cancelled(followed: Followed, index: int, jobs: Mapping[str, Job]) -> Job | None:
    """What is said of the last elements of an array that were cancelled in the queue: that has the array's number."""
    job = jobs.get(followed.batch.job_id)
    if job is None or index in followed.last_places:
        return None
    never_started = job.state is State.CANCELLED and job.started_at is None and job.ended_at is not None
    return replace(job, id=followed.element(index)) if never_started else None


def _find_array(job_id: str) -> str:
    return job_id.partition("_")[0]


_LONGEST_S = 30.0
_SLOWER = 1.5
# In times the shortest interval: ends come in bursts, so they are gathered until a burst is over.
_GATHER, _LONGEST_GATHER = 2, 6
_QUIET = 0.4
_SETTLE = 0.2  # accounting hears of an end a moment later than we do


class Pace:
    """Right after the last run ended, soon after some did, less and less often while none does.

    Never twice within ``shortest_s``.
    """

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = self._interval_s = shortest_s
        self._asked_at = self._ended_at = float("-inf")
        self._ended = self._ended_then = 0

    def is_due(self, *, ended: int, left: int) -> bool:
        """Whether to ask now: of the ``left`` ones still to be asked about, ``ended`` ones have said that they have."""
        now = time.monotonic()
        if ended != self._ended:
            self._ended, self._ended_at = ended, now
        return now - self._asked_at >= self._shortest_s and self._is_worth_it(now, left)

    def _is_worth_it(self, now: float, left: int) -> bool:
        passed_s, quiet_s = now - self._asked_at, now - self._ended_at
        if self._ended == self._ended_then:
            return passed_s >= self._interval_s
        if self._ended >= left:
            return quiet_s >= _SETTLE * self._shortest_s
        over = passed_s >= _GATHER * self._shortest_s and quiet_s >= _QUIET * self._shortest_s
        return over or passed_s >= _LONGEST_GATHER * self._shortest_s

    def note(self, *, changed: bool) -> None:
        """It was asked just now; ``changed``: something had happened."""
        self._asked_at = time.monotonic()
        self._ended_then = self._ended
        self._interval_s = self._shortest_s if changed else min(self._interval_s * _SLOWER, _LONGEST_S)
