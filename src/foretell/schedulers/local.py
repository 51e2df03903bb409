"""Runs on this machine: each in its own directory, on its own CPUs, measured as a whole process tree."""

import contextlib
import os
import queue
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from foretell.core.app import Phase
from foretell.core.errors import RunnerError, RunTakenError
from foretell.core.run import Launch, Run, RunSpec
from foretell.core.units import render_bytes
from foretell.measure.gpus import Gpu, find_gpus
from foretell.measure.machine import RUN_ID, detect_machine, kill_leftovers
from foretell.measure.process_tree import CpuLedger
from foretell.measure.run_lock import RunLock, take_run_lock
from foretell.schedulers._base import Runner
from foretell.schedulers.core_allocation import CoreLocks, CpuPool, find_lock_folder
from foretell.schedulers.local_job import Job, Place
from foretell.schedulers.run_files import make_run_directory, prepare_run_directory, read_finished, writing

__all__ = ["LocalRunner", "read_finished"]

_CORES_ELSEWHERE = "runs of another Foretell process have cores of this machine: waiting for them"


class LocalRunner(Runner):
    """Runs on this machine, on the given CPUs (default: all this process may use), at most ``jobs`` of them at once.

    Runs get whole physical cores (:class:`CpuPool`), which they share with no run of another Foretell process of this
    user either, GPUs of their own, and share the machine's memory by what they ask for.

    Past its time limit a run is asked to end, then killed; past the memory it asked for it is killed.
    A record of each run that ended is left in its directory (:func:`read_finished`).

    Raises:
        RunnerError: if this process may not use all of those CPUs.
    """

    def __init__(self, *, cpus: Collection[int] | None = None, jobs: int | None = None) -> None:
        allowed = os.sched_getaffinity(0)
        if cpus is not None and not allowed.issuperset(cpus):
            raise RunnerError(f"CPUs {sorted(cpus)} are not all ours to use; choose among {sorted(allowed)}")
        self._most_jobs = jobs
        self._machine = detect_machine()
        # Within a run of Foretell's, the cores are lent already.
        locks = CoreLocks(None if RUN_ID in os.environ else find_lock_folder())
        self._cpus = CpuPool(allowed if cpus is None else cpus, locks=locks)
        self._notes: dict[str, bool] = {}
        self._gpus = list(find_gpus())
        self._jobs: dict[str, Job] = {}
        self._ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._failures: list[BaseException] = []
        self._ledger = CpuLedger()

    @property
    def width(self) -> int:
        return min(self._cpus.cores, self._most_jobs or self._cpus.cores)

    @property
    def cores_elsewhere(self) -> int:
        return self._cpus.cores_elsewhere

    @property
    def running(self) -> tuple[RunSpec, ...]:
        return tuple(job.spec for job in self._jobs.values())

    def fit_at_once(self, spec: RunSpec) -> int:
        asked, machine = spec.allocation, self._machine
        bounds = [self._most_jobs or sys.maxsize, self._cpus.fit_at_once(asked.cores)]
        bounds += [machine.gpus // asked.gpus] if asked.gpus else []
        bounds += [(machine.memory_bytes or 0) // asked.memory_bytes] if asked.memory_bytes else []
        return max(1, min(bounds))

    def has_room(self, spec: RunSpec) -> bool:
        allocation = spec.allocation
        reserved_bytes = sum(job.spec.allocation.memory_bytes or 0 for job in self._jobs.values())
        return (
            self.fits(spec)
            and (self._most_jobs is None or len(self._jobs) < self._most_jobs)
            and allocation.gpus <= len(self._gpus)
            and reserved_bytes + (allocation.memory_bytes or 0) <= (self._machine.memory_bytes or 0)
            and self._has_cores(allocation.cores)
        )

    def _has_cores(self, count: int) -> bool:
        has_room = self._cpus.has_room(count)
        if self._cpus.waits_for_others:
            self._notes.setdefault(_CORES_ELSEWHERE, False)
        return has_room

    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        obstacle = self.find_obstacle(spec)
        if obstacle:
            raise RunnerError(f"run {spec.id} of {spec.app!r} cannot run here: {obstacle}; ask for less in 'resources'")
        if spec.id in self._jobs or not self.has_room(spec):
            raise RunnerError(f"no room for run {spec.id} of {spec.app!r} now; poll until a running one has ended")
        directory = Path(launch.run_directory).absolute()
        lock = _take_directory(spec, directory)
        try:
            prepare_run_directory(directory)
        except BaseException:
            lock.free()
            raise
        self._jobs[spec.id] = job = Job(
            spec=spec,
            launch=launch,
            directory=directory,
            lock=lock,
            phases=phases,
            place=Place(cpus=self._cpus.lend(spec.allocation.cores), gpus=self._lend_gpus(spec.allocation.gpus)),
            machine=self._machine,
            ledger=self._ledger,
            ended=self._ended,
        )
        job.start()

    def poll(self, timeout_s: float) -> list[Run]:
        self._cpus.drop_reserved()
        for job in self._jobs.values():
            job.free_logs()
        runs: list[Run] = []
        wait_s = timeout_s if self._jobs and not self._failures else 0.0
        with contextlib.suppress(queue.Empty):
            while True:
                runs += self._settle(self._ended.get(timeout=wait_s) if wait_s > 0 else self._ended.get_nowait())
                wait_s = 0.0
        if self._failures and not runs:  # what did end is given first, so that it is not lost
            raise self._failures.pop(0)
        return runs

    def take_notes(self) -> list[str]:
        fresh = [note for note, told in self._notes.items() if not told]
        self._notes |= dict.fromkeys(fresh, True)
        return fresh

    def stop(self) -> None:
        self._cpus.drop_reserved()
        for job in self._jobs.values():
            job.stop()
        for job in tuple(self._jobs.values()):
            job.join()
            self._settle(job)
        self._ended = queue.SimpleQueue()  # a poll that Ctrl-C cut short may have taken some from the old one
        self._failures.clear()

    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        asked, machine = spec.allocation, self._machine
        if asked.nodes != 1:
            return f"it asks for {asked.nodes} nodes; this is one machine"
        if not self._cpus.fits(asked.cores):
            return f"it asks for {asked.cores} cores; there are {self._cpus.count}"
        if asked.gpus > machine.gpus:
            return f"it asks for {asked.gpus} GPUs; there are {machine.gpus}"
        if (asked.memory_bytes or 0) > (machine.memory_bytes or 0):
            return (
                f"it asks for {render_bytes(asked.memory_bytes or 0)} of memory; "
                f"there are {render_bytes(machine.memory_bytes or 0)}"
            )
        return None

    def _lend_gpus(self, count: int) -> tuple[Gpu, ...]:
        lent, self._gpus = self._gpus[:count], self._gpus[count:]
        return tuple(lent)

    def _settle(self, job: Job) -> list[Run]:
        del self._jobs[job.spec.id]
        job.lock.free()
        self._cpus.give_back(job.place.cpus)
        self._gpus.extend(job.place.gpus)
        if job.failure is not None:
            self._failures.append(job.failure)
        return [job.outcome] if job.outcome is not None else []


def _take_directory(spec: RunSpec, directory: Path) -> RunLock:
    """Make sure that nobody else makes a run there, now or from an earlier start.

    Raises:
        RunTakenError: if a process that lives does.
        RunnerError: if the folder cannot be written.
    """
    with writing(directory):
        make_run_directory(directory)
        lock = take_run_lock(directory)
    if lock is None:
        raise RunTakenError(
            f"run {spec.id} of {spec.app!r} is being made by another process, in {str(directory)!r}; "
            "try again when it has ended"
        )
    if not lock.is_new:
        kill_leftovers(spec.id, run_directory=directory)
    return lock
