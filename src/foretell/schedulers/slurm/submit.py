"""Submits runs with ``sbatch``: one array for each allocation, no run twice, within the site's limits."""

import fcntl
import logging
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
from foretell.schedulers.slurm import job_status
from foretell.schedulers.slurm.batch_journal import ActiveBatches, TrackedBatch
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
# Slurm reports every limit with the same sentence; the name before it distinguishes them.
_OTHER_LIMIT = re.compile(r"\b(Assoc|QOS)(?!\w*Submit)\w+Limit\w*")
_HINTS = {
    "invalid account": "name one of yours with --account; 'sacctmgr show associations user=$USER' lists them",
    "invalid partition": "'sinfo' lists the partitions; name one with --partition",
    "invalid qos": "'sacctmgr show qos' lists them; name one with --option qos=NAME",
    "time limit is invalid": "request less time: 'sinfo -o \"%P %l\"' shows the limit of each partition",
    "node configuration is not available": "request less: 'sinfo -Ne -o \"%P %c %m %G\"' shows what nodes have",
    "violates accounting/qos policy": "request less: 'sacctmgr show associations user=$USER' shows your limits",
    "more processors requested": "request fewer cores: 'sinfo -Ne -o \"%P %c\"' shows what nodes have",
}
_CLOCK_SKEW = timedelta(minutes=5)  # between this machine and the controller

_log = logging.getLogger(__name__)


class QuotaError(SchedulerError):
    """The limit of submitted jobs is reached."""


def submit(script: Path, *, batch_id: str, output: str, inherited: Iterable[str] = ()) -> str:
    """Submit a script and return the job id; its output goes to ``output``, a file name pattern of sbatch.

    The job gets this process's environment without Foretell's own variables, except the ``inherited`` ones.

    Raises:
        QuotaError: if so many jobs may not be submitted at once.
        SchedulerError: if it is refused; ``transient`` if it is unknown whether it was accepted.
    """
    words = ["sbatch", "--parsable", f"--output={output}", f"--chdir={script.parent}", str(script)]
    asked = {name: os.environ[name] for name in inherited if name in os.environ}
    try:
        job_id = call(words, environment={**asked, MARK: batch_id}).strip().partition(";")[0]
    except SchedulerError as exc:
        raise _explain(exc) from exc
    if not job_id.isdigit():
        raise SchedulerError(f"sbatch printed {job_id!r}; expected a job id", transient=True)
    return job_id


def find_submitted(name: str, *, since: datetime, cluster: str | None = None, accounted: bool = True) -> str | None:
    """Return the id of the job of that name; ``None`` if Slurm has none.

    Raises:
        SchedulerError: if Slurm does not respond.
    """
    found = job_status.find_in_queue(name, cluster=cluster)
    if found is None and accounted:
        earliest = (since.astimezone() - _CLOCK_SKEW).strftime("%Y-%m-%dT%H:%M:%S")
        found = job_status.find_in_accounting(name, since=earliest, cluster=cluster)
    return found


def stop_submitters(batch_id: str) -> int:
    """End ``sbatch`` processes of this batch whose parent was killed; return how many there were."""
    found = list(_find_submitters(batch_id))
    for process in found:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # sbatch may be a wrapper script with children
    psutil.wait_procs(found, timeout=5)
    return len(found)


def _find_submitters(batch_id: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # Sites may wrap sbatch in a script. Processes of the job have the mark too, but are not session leaders.
            is_sbatch = any(Path(word).name == "sbatch" for word in process.cmdline()[:3])
            is_ours = os.getsid(process.pid) == process.pid and process.environ().get(MARK) == batch_id
            if is_sbatch and is_ours:
                yield process


def _explain(exc: SchedulerError) -> SchedulerError:
    message = str(exc)
    if _QUOTA.search(message) and not _OTHER_LIMIT.search(message):
        return QuotaError(f"{message}; the limit of submitted jobs is reached until some have ended", transient=True)
    hint = next((hint for words, hint in _HINTS.items() if words in message.lower()), None)
    return SchedulerError(f"{message}; {hint}", transient=exc.transient) if hint else exc


_PARTS = 4  # deferred runs are submitted in parts of the limit, not one by one
_FULL_S = 30.0  # between two attempts while not even one more job may be submitted
_SILENT_AFTER = timedelta(minutes=2)  # after which a submitter on another machine counts as dead
_LONGEST = timedelta(hours=1)  # sbatch times out after two minutes, so an older submission has failed


class Submitter:
    """Submits ``waiting`` tasks within the limits of the site."""

    def __init__(
        self, batches: ActiveBatches, *, directory: Path, partition: str, find_limit: Callable[[], int], samples: bool
    ) -> None:
        self.waiting: dict[str, Task] = {}
        self._find_limit = find_limit
        self._batches = batches
        self._directory = directory
        self._partition = partition
        self._samples = samples
        self._largest = self._chunk = self._find_largest_array()
        self._full_with, self._full_until = 0, 0.0

    @cached_property
    def most(self) -> int:
        """How many runs may be submitted at once; read from Slurm only if there is something to submit."""
        return self._find_limit()

    def submit(self) -> None:
        """Submit as many waiting tasks as the limits allow.

        Raises:
            RunnerError: if they are refused, or their scripts cannot be written; then these tasks are dropped.
        """
        while self.waiting and (free := self._count_free()):
            allocation = self._allocation_of(next(iter(self.waiting.values())))
            tasks = [task for task in self.waiting.values() if self._allocation_of(task) == allocation]
            self._submit(allocation, tasks[:free])

    def resolve_lost(self, *, submit_lost: bool) -> None:
        """Find the jobs of batches whose id is unknown; ``submit_lost``: submit those that never arrived again."""
        for tracked in [tracked for tracked in self._batches.by_id.values() if not tracked.batch.job_id]:
            try:
                self._resolve(tracked, submit_lost=submit_lost)
            except SchedulerError as exc:
                if not exc.transient:
                    raise
                self._batches.note(f"{exc}; it is checked later whether batch {tracked.batch.name} was submitted")

    def find_busy(self) -> Batch | None:
        """Return a batch that another process is submitting now."""
        lost = (tracked.batch for tracked in self._batches.by_id.values() if not tracked.batch.job_id)
        return next((batch for batch in lost if _is_being_submitted(batch)), None)

    def _find_largest_array(self) -> int:
        if not has_elements(self._batches.submission):
            self._batches.note("this site does not accept job arrays: each run is submitted as a separate job")
            return 1
        return max(1, min(self._batches.cluster.max_array_tasks, self._batches.cluster.max_array_size))

    def _count_free(self) -> int:
        """Return how many tasks to submit together now; none while only a few could be, unless these are all."""
        run_count = self._batches.run_count
        most = self._find_max()
        free = min(most - run_count, self._chunk)
        wanted = min(len(self.waiting), self._chunk, max(1, most // _PARTS))
        return free if free >= wanted or (free > 0 and not run_count) else 0

    def _find_max(self) -> int:
        if self._full_until and time.monotonic() >= self._full_until:  # other jobs may have ended: try a small part
            self._full_until, self._chunk = 0.0, max(1, len(self.waiting) // _PARTS)
        return self._full_with if self._full_until else self.most

    def _submit(self, allocation: Allocation, tasks: Sequence[Task]) -> None:
        new = build_batch(tasks[0].spec.app, directory=self._directory, submission=self._batches.submission)
        batch = self._batches.journal.open(new, [task.spec for task in tasks])
        asked = {task.spec.id: task for task in tasks}
        for run_id in asked:
            del self.waiting[run_id]  # also those that another process makes
        if not batch.run_ids:
            return
        tracked = TrackedBatch(batch, {index: asked[run_id] for index, run_id in enumerate(batch.run_ids)})
        try:
            for task in tracked.tasks.values():  # only now that no other process makes these runs
                prepare_run_directory(task.directory)
            self._write(tracked, allocation)
            self._submit_script(tracked)
        except QuotaError as exc:
            self._forget(tracked)
            self._defer(tracked.tasks.values(), exc)
        except RunnerError:
            self._forget(tracked)
            raise

    def _write(self, tracked: TrackedBatch, allocation: Allocation) -> None:
        sampler = _build_sampler() if self._samples else ()
        with writing(tracked.directory):
            make_private_folder(tracked.directory, top=tracked.directory.parent.parent)
            for name in (ENDED, LOGS):
                (tracked.directory / name).mkdir(exist_ok=True)
            for index, task in tracked.tasks.items():
                script = render_task_script(task.launch, allocation=task.spec.allocation, sampler=sampler)
                _write_whole(tracked.directory / f"task-{index}.sh", script)
            script = render_array_script(tracked.batch, allocation=allocation, indices=tracked.tasks)
            _write_whole(tracked.directory / SCRIPT, script)

    def _submit_script(self, tracked: TrackedBatch) -> None:
        batch = tracked.batch
        folder = batch.directory.replace("%", "%%")  # sbatch expands % in it
        name = "%a" if has_elements(batch.submission) else "0"
        output = f"{folder}/{LOGS}/{name}.log"
        inherited = {name for task in tracked.tasks.values() for name in task.launch.inherited}
        try:
            job_id = submit(tracked.directory / SCRIPT, batch_id=batch.id, output=output, inherited=inherited)
        except SchedulerError as exc:
            if not exc.transient or isinstance(exc, QuotaError):
                raise
            self._batches.note(f"{exc}; it is checked whether the jobs were submitted as soon as Slurm responds")
            job_id = ""
        tracked.batch = replace(batch, job_id=job_id)
        self._batches.by_id[batch.id] = tracked
        if job_id:
            _log.info("batch %s is job %s with %d runs", batch.name, job_id, len(tracked.tasks))
            self._batches.journal.keep_job_id(batch, job_id)

    def _forget(self, tracked: TrackedBatch) -> None:
        self._batches.by_id.pop(tracked.batch.id, None)
        self._batches.journal.forget(tracked.batch)
        shutil.rmtree(tracked.directory, ignore_errors=True)

    def _defer(self, tasks: Collection[Task], exc: QuotaError) -> None:
        """Submit fewer at once; if not even one is accepted, wait before the next attempt."""
        self.waiting |= {task.spec.id: task for task in tasks}
        self._chunk = len(tasks) // 2
        if self._chunk == 0:
            self._chunk = self._largest
            self._full_with, self._full_until = self._batches.run_count, time.monotonic() + _FULL_S
            self._batches.note(f"{exc}; {len(self.waiting)} runs wait for it")

    def _resolve(self, tracked: TrackedBatch, *, submit_lost: bool) -> None:
        with _locked(tracked.directory) as is_ours:
            if not is_ours:
                return  # another process does this now
            batch = self._batches.journal.find(tracked.batch)
            if batch is None:  # another process has stored or released all of its runs
                del self._batches.by_id[tracked.batch.id]
            elif batch.job_id:
                tracked.batch = batch
            elif _is_being_submitted(batch):
                where = f"process {batch.submitter.pid} on {batch.submitter.hostname}"
                self._batches.note(f"{where} is submitting batch {batch.name}")
            else:
                self._recover(tracked, submit_lost=submit_lost)

    def _recover(self, tracked: TrackedBatch, *, submit_lost: bool) -> None:
        batch = tracked.batch
        stop_submitters(batch.id)
        found = tracked.find_first() or self._find_submitted(batch)
        if found is not None:
            tracked.batch = replace(batch, job_id=found)
            self._batches.journal.keep_job_id(batch, found)
            self._batches.note(f"batch {batch.name} was submitted as job {found}; only the reply of sbatch was lost")
        elif submit_lost and tracked.may_submit and (tracked.directory / SCRIPT).exists():
            self._submit_again(tracked)
        elif submit_lost:  # killed before its scripts were written, or the app file has changed
            count = len(tracked.tasks)
            self._forget(tracked)
            self._batches.note(f"batch {batch.name} was never submitted; its {count} runs can be made again")

    def _find_submitted(self, batch: Batch) -> str | None:
        cluster = self._batches.cluster
        age_s = (datetime.now(UTC) - batch.created_at).total_seconds()
        # The controller itself still lists ended jobs of this age.
        accounted = cluster.accounting and age_s >= cluster.min_job_age_s
        where = batch.submission.cluster
        return find_submitted(batch.name, since=batch.created_at, cluster=where, accounted=accounted)

    def _submit_again(self, tracked: TrackedBatch) -> None:
        """Submit with newly written scripts and current options: those in the store and folder are not trusted."""
        tracked.batch = replace(tracked.batch, submission=self._batches.submission)
        try:
            self._write(tracked, self._allocation_of(next(iter(tracked.tasks.values()))))
            self._submit_script(tracked)
        except QuotaError as exc:
            self._batches.note(f"{exc}; {len(tracked.tasks)} runs wait for it")
        except RunnerError:
            self._forget(tracked)
            raise
        else:
            if tracked.batch.job_id:
                self._batches.note(f"batch {tracked.batch.name} had not reached Slurm and was submitted again")

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
    """Lock a batch's folder; yield whether no other process has it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:  # never written, so no process can submit it
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
    except OSError:  # a file system without locks: the script ensures that only one of two jobs continues
        return True
    return True


def _is_being_submitted(batch: Batch) -> bool:
    alive = is_alive(batch.submitter)
    age = datetime.now(UTC) - batch.created_at
    if alive and batch.submitter.pid == os.getpid():
        return False
    return age < _SILENT_AFTER if alive is None else alive and age < _LONGEST


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically: an incomplete script must never be submitted."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with draft.open("x", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    draft.replace(path)


def _build_sampler() -> tuple[str, ...]:
    # -P: modules in the run's directory must not replace ours
    return (sys.executable, "-P", "-m", "foretell.measure.job_sampler", "--")
