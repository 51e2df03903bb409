"""Hands runs to ``sbatch``: all of one allocation together, none twice, and no more than a user may have there."""

import fcntl
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import psutil

from foretell.core.batch import Batch
from foretell.core.errors import RunnerError, SchedulerError
from foretell.core.private_files import make_private_folder
from foretell.core.run import Allocation
from foretell.measure.machine import is_alive
from foretell.schedulers.run_files import prepare_run_directory, writing
from foretell.schedulers.slurm import accounting, queue
from foretell.schedulers.slurm.batches import Desk, Followed
from foretell.schedulers.slurm.commands import call
from foretell.schedulers.slurm.finished_runs import Task
from foretell.schedulers.slurm.job_array import (
    ENDED,
    LOGS,
    SCRIPT,
    build_batch,
    find_walltime_s,
    has_elements,
    render_array_script,
    render_task_script,
)

MARK = "FORETELL_BATCH"
_QUOTA = re.compile(r"submit\w*limit|MaxJobCount|slurmctld.*job limit|violates accounting/QOS policy", re.IGNORECASE)
# The same sentence is said of any limit: the word before it tells which.
_OTHER_LIMIT = re.compile(r"\b(Assoc|QOS)(?!\w*Submit)\w+Limit\w*")
_HINTS = {
    "invalid account": "name one of yours with --account; 'sacctmgr show associations user=$USER' lists them",
    "invalid partition": "'sinfo' lists the partitions; name one with --partition",
    "invalid qos": "'sacctmgr show qos' lists them; name one with --option qos=NAME",
    "time limit is invalid": "ask for less time: 'sinfo -o \"%P %l\"' shows each partition's most",
    "node configuration is not available": "ask for less: 'sinfo -Ne -o \"%P %c %m %G\"' shows what nodes have",
    "violates accounting/qos policy": "ask for less: 'sacctmgr show associations user=$USER' shows what you may have",
    "more processors requested": "ask for fewer cores: 'sinfo -Ne -o \"%P %c\"' shows what nodes have",
}
_CLOCKS_APART = timedelta(minutes=5)  # between this machine and the controller


class QuotaError(SchedulerError):
    """No more jobs may be submitted until some have ended."""


def submit(script: Path, *, batch_id: str, output: str, inherited: Iterable[str] = ()) -> str:
    """The id of the job; what it prints goes to ``output``, a pattern of sbatch's.

    It gets this process's environment without what is Foretell's own, but for the ``inherited`` names.

    Raises:
        QuotaError: if so many jobs may not be submitted at once.
        SchedulerError: if it is refused; ``transient`` if nobody knows whether it was taken.
    """
    words = ["sbatch", "--parsable", f"--output={output}", f"--chdir={script.parent}", str(script)]
    asked = {name: os.environ[name] for name in inherited if name in os.environ}
    try:
        answer = call(words, environment={**asked, MARK: batch_id}).strip().partition(";")[0]
    except SchedulerError as exc:
        raise _explain(exc) from exc
    if not answer.isdigit():
        raise SchedulerError(f"sbatch answered {answer!r}; expected a job's number", transient=True)
    return answer


def find_submitted(name: str, *, since: datetime, cluster: str | None = None, accounted: bool = True) -> str | None:
    """The id of the job of that name; ``None`` only if Slurm answered, and knows of none.

    Raises:
        SchedulerError: if it did not answer.
    """
    found = queue.find_by_name(name, cluster=cluster)
    if found is None and accounted:
        earliest = (since.astimezone() - _CLOCKS_APART).strftime("%Y-%m-%dT%H:%M:%S")
        found = accounting.find_by_name(name, since=earliest, cluster=cluster)
    return found


def stop_submitters(batch_id: str) -> int:
    """End the ``sbatch`` of this batch that somebody killed left behind on this machine; how many there were."""
    found = list(_find_submitters(batch_id))
    for process in found:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what a script in its place has started
    psutil.wait_procs(found, timeout=5)
    return len(found)


def _find_submitters(batch_id: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # Sites may have a script in its place. What the job starts has the mark, too, but no session of its own.
            is_sbatch = any(Path(word).name == "sbatch" for word in process.cmdline()[:3])
            is_ours = os.getsid(process.pid) == process.pid and process.environ().get(MARK) == batch_id
            if is_sbatch and is_ours:
                yield process


def _explain(exc: SchedulerError) -> SchedulerError:
    said = str(exc)
    if _QUOTA.search(said) and not _OTHER_LIMIT.search(said):
        return QuotaError(f"{said}; no more jobs may be submitted until some have ended", transient=True)
    hint = next((hint for words, hint in _HINTS.items() if words in said.lower()), None)
    return SchedulerError(f"{said}; {hint}", transient=exc.transient) if hint else exc


_PARTS = 4  # what the site's quota holds back goes on in so large parts of it, not one by one
_FULL_S = 30.0  # between two tries where not even one more job may be submitted
_SILENT_AFTER = timedelta(minutes=2)  # a submitter on another machine is given up
_LONGEST = timedelta(hours=1)  # sbatch is waited for two minutes: whoever has had longer got no answer


class Submitter:
    """Submits what is ``waiting``, as far as Slurm takes it."""

    def __init__(
        self, desk: Desk, *, directory: Path, partition: str, find_most: Callable[[], int], samples: bool
    ) -> None:
        self.waiting: dict[str, Task] = {}
        self._find_limit = find_most
        self._desk = desk
        self._directory = directory
        self._partition = partition
        self._samples = samples
        self._largest = self._chunk = self._find_largest_array()
        self._full_with, self._full_until = 0, 0.0

    @cached_property
    def most(self) -> int:
        """The most runs to have submitted at once; asked of Slurm only if something is to be submitted."""
        return self._find_limit()

    def submit(self) -> None:
        """Submit what there is room for.

        Raises:
            RunnerError: if it is refused, or its scripts cannot be written; then what was to be submitted is forgotten.
        """
        while self.waiting and (room := self._find_room()):
            allocation = self._allocation_of(next(iter(self.waiting.values())))
            tasks = [task for task in self.waiting.values() if self._allocation_of(task) == allocation]
            self._submit(allocation, tasks[:room])

    def settle(self, *, submit_lost: bool) -> None:
        """Find out what became of batches whose answer was lost; ``submit_lost``: those never taken are submitted."""
        for followed in [followed for followed in self._desk.followed.values() if not followed.batch.job_id]:
            try:
                self._settle(followed, submit_lost=submit_lost)
            except SchedulerError as exc:
                if not exc.transient:
                    raise
                self._desk.note(f"{exc}; whether batch {followed.batch.name} was taken is found out later")

    def find_busy(self) -> Batch | None:
        """A batch that another process is submitting right now."""
        lost = (followed.batch for followed in self._desk.followed.values() if not followed.batch.job_id)
        return next((batch for batch in lost if _is_being_submitted(batch)), None)

    def _find_largest_array(self) -> int:
        if not has_elements(self._desk.submission):
            self._desk.note("this site takes no job arrays: each run is submitted as a job of its own")
            return 1
        return max(1, min(self._desk.cluster.max_array_tasks, self._desk.cluster.max_array_size))

    def _find_room(self) -> int:
        """How many may be submitted now together; none while only a few could go, unless those are all."""
        under_way = self._desk.under_way
        most = self._find_most()
        room = min(most - under_way, self._chunk)
        wanted = min(len(self.waiting), self._chunk, max(1, most // _PARTS))
        return room if room >= wanted or (room > 0 and not under_way) else 0

    def _find_most(self) -> int:
        if self._full_until and time.monotonic() >= self._full_until:  # others' jobs may have ended: feel the way
            self._full_until, self._chunk = 0.0, max(1, len(self.waiting) // _PARTS)
        return self._full_with if self._full_until else self.most

    def _submit(self, allocation: Allocation, tasks: Sequence[Task]) -> None:
        new = build_batch(tasks[0].spec.app, directory=self._directory, submission=self._desk.submission)
        batch = self._desk.ledger.open(new, [task.spec for task in tasks])
        asked = {task.spec.id: task for task in tasks}
        for run_id in asked:
            del self.waiting[run_id]  # what is not ours is somebody else's
        if not batch.run_ids:
            return
        followed = Followed(batch, {index: asked[run_id] for index, run_id in enumerate(batch.run_ids)})
        try:
            for task in followed.tasks.values():  # only now: a folder is whose its run is
                prepare_run_directory(task.directory)
            self._write(followed, allocation)
            self._hand_over(followed)
        except QuotaError as exc:
            self._forget(followed)
            self._hold_back(followed.tasks.values(), exc)
        except RunnerError:
            self._forget(followed)
            raise

    def _write(self, followed: Followed, allocation: Allocation) -> None:
        sampler = _build_sampler() if self._samples else ()
        with writing(followed.directory):
            make_private_folder(followed.directory, top=followed.directory.parent.parent)
            for name in (ENDED, LOGS):
                (followed.directory / name).mkdir(exist_ok=True)
            for index, task in followed.tasks.items():
                script = render_task_script(task.launch, allocation=task.spec.allocation, sampler=sampler)
                _write_whole(followed.directory / f"task-{index}.sh", script)
            script = render_array_script(followed.batch, allocation=allocation, indices=followed.tasks)
            _write_whole(followed.directory / SCRIPT, script)

    def _hand_over(self, followed: Followed) -> None:
        batch = followed.batch
        folder = batch.directory.replace("%", "%%")  # sbatch reads it as a pattern
        name = "%a" if has_elements(batch.submission) else "0"
        output = f"{folder}/{LOGS}/{name}.log"
        inherited = {name for task in followed.tasks.values() for name in task.launch.inherited}
        try:
            job_id = submit(followed.directory / SCRIPT, batch_id=batch.id, output=output, inherited=inherited)
        except SchedulerError as exc:
            if not exc.transient or isinstance(exc, QuotaError):
                raise
            self._desk.note(f"{exc}; whether the jobs were taken is found out as soon as Slurm answers")
            job_id = ""
        followed.batch = replace(batch, job_id=job_id)
        self._desk.followed[batch.id] = followed
        if job_id:
            self._desk.ledger.keep_job_id(batch, job_id)

    def _forget(self, followed: Followed) -> None:
        self._desk.followed.pop(followed.batch.id, None)
        self._desk.ledger.forget(followed.batch)
        shutil.rmtree(followed.directory, ignore_errors=True)

    def _hold_back(self, tasks: Collection[Task], exc: QuotaError) -> None:
        """Try fewer at once; if it is not even one, so many as are there now are the most for a while."""
        self.waiting |= {task.spec.id: task for task in tasks}
        self._chunk = len(tasks) // 2
        if self._chunk == 0:
            self._chunk = self._largest
            self._full_with, self._full_until = self._desk.under_way, time.monotonic() + _FULL_S
            self._desk.note(f"{exc}; {len(self.waiting)} runs wait for that")

    # Batches whose answer was lost

    def _settle(self, followed: Followed, *, submit_lost: bool) -> None:
        with _locked(followed.directory) as is_ours:
            if not is_ours:
                return  # another process is just doing this
            batch = self._desk.ledger.find(followed.batch)
            if batch is None:  # all its runs were kept or given up by somebody else
                del self._desk.followed[followed.batch.id]
            elif batch.job_id:
                followed.batch = batch
            elif _is_being_submitted(batch):
                where = f"process {batch.submitter.pid} on {batch.submitter.hostname}"
                self._desk.note(f"batch {batch.name} is being submitted by {where}: it is left to that")
            else:
                self._recover(followed, submit_lost=submit_lost)

    def _recover(self, followed: Followed, *, submit_lost: bool) -> None:
        batch = followed.batch
        stop_submitters(batch.id)
        found = followed.find_first() or self._find_submitted(batch)
        if found is not None:
            followed.batch = replace(batch, job_id=found)
            self._desk.ledger.keep_job_id(batch, found)
            self._desk.note(f"batch {batch.name} had been taken as job {found}: its answer was lost, nothing else")
        elif submit_lost and followed.may_submit and (followed.directory / SCRIPT).exists():
            self._submit_again(followed)
        elif submit_lost:  # killed before it was written, or no longer what the app file asks for
            count = len(followed.tasks)
            self._forget(followed)
            self._desk.note(f"batch {batch.name} was never submitted; its {count} runs are free again")

    def _find_submitted(self, batch: Batch) -> str | None:
        cluster = self._desk.cluster
        age_s = (datetime.now(UTC) - batch.created_at).total_seconds()
        # So long the controller itself remembers even what has ended.
        accounted = cluster.accounting and age_s >= cluster.min_job_age_s
        where = batch.submission.cluster
        return find_submitted(batch.name, since=batch.created_at, cluster=where, accounted=accounted)

    def _submit_again(self, followed: Followed) -> None:
        """By scripts and options of now: what the store and the batch's folder say is not run."""
        followed.batch = replace(followed.batch, submission=self._desk.submission)
        try:
            self._write(followed, self._allocation_of(next(iter(followed.tasks.values()))))
            self._hand_over(followed)
        except QuotaError as exc:
            self._desk.note(f"{exc}; {len(followed.tasks)} runs wait for that")
        except RunnerError:
            self._forget(followed)
            raise
        else:
            if followed.batch.job_id:
                self._desk.note(f"batch {followed.batch.name} had never reached Slurm; it was submitted now")

    def _allocation_of(self, task: Task) -> Allocation:
        asked = task.spec.allocation
        return replace(
            asked,
            partition=asked.partition or self._partition,
            walltime_s=find_walltime_s(task.launch.time_limit_s, asked),
            node_type=None,
        )


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Whether a batch is ours to settle, while others may have the same in mind."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:  # never written: nobody can submit it
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the script itself sees to it that only one of two goes on
        return True
    return True


def _is_being_submitted(batch: Batch) -> bool:
    alive = is_alive(batch.submitter)
    age = datetime.now(UTC) - batch.created_at
    if alive and batch.submitter.pid == os.getpid():
        return False
    return age < _SILENT_AFTER if alive is None else alive and age < _LONGEST


def _write_whole(path: Path, text: str) -> None:
    """Whole or not at all: what is there will be submitted, whoever was killed meanwhile."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with draft.open("x", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    draft.replace(path)


def _build_sampler() -> tuple[str, ...]:
    # -P: what lies in the run's own directory is not taken for ours
    return (sys.executable, "-P", "-m", "foretell.measure.job_sampler", "--")
