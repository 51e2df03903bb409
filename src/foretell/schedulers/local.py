"""Runs commands on this machine, each on its own CPUs and in its own directory, and measures their process trees."""

import contextlib
import os
import queue
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from foretell.core.app import Phase
from foretell.core.errors import RunnerError, RunTakenError
from foretell.core.run import RUN_ID, Launch, Run, RunSpec
from foretell.core.units import render_bytes
from foretell.measure.gpus import Gpu, find_gpus
from foretell.measure.machine import detect_machine, kill_leftovers
from foretell.measure.process_tree import CpuTotal
from foretell.measure.run_lock import RunLock, take_run_lock
from foretell.schedulers._base import Runner
from foretell.schedulers.core_allocation import CoreLocks, CpuPool, find_lock_folder
from foretell.schedulers.local_job import Job, RunResources
from foretell.schedulers.run_files import make_run_directory, prepare_run_directory, read_finished, writing

__all__ = ["LocalRunner", "read_finished"]

_CORES_USED_ELSEWHERE = "runs of another Foretell process use cores of this machine; waiting for them"


class LocalRunner(Runner):
    """Runs at most ``jobs`` commands at once on the given CPUs (default: all that this process may use).

    Runs get their own GPUs and whole physical cores (:class:`CpuPool`), which they do not share with runs of other
    Foretell processes of this user either. Memory is shared by the requested amounts.

    A run over its time limit is terminated, then killed; a run over its requested memory is killed.
    The result of each run is written to its directory (:func:`read_finished`).

    Raises:
        RunnerError: if this process may not use all of those CPUs.
    """

    def __init__(self, *, cpus: Collection[int] | None = None, jobs: int | None = None) -> None:
        allowed = os.sched_getaffinity(0)
        if cpus is not None and not allowed.issuperset(cpus):
            raise RunnerError(f"this process may not use all of CPUs {sorted(cpus)}; choose from {sorted(allowed)}")
        self._most_jobs = jobs
        self._machine = detect_machine()
        # Inside a run that Foretell started, the cores are locked already.
        locks = CoreLocks(None if RUN_ID in os.environ else find_lock_folder())
        self._cpus = CpuPool(allowed if cpus is None else cpus, locks=locks)
        self._notes: dict[str, bool] = {}
        self._gpus = list(find_gpus())
        self._jobs: dict[str, Job] = {}
        self._ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._failures: list[BaseException] = []
        self._cpu_total = CpuTotal()

    @property
    def max_parallel(self) -> int:
        return min(self._cpus.cores, self._most_jobs or self._cpus.cores)

    @property
    def cores_used_elsewhere(self) -> int:
        return self._cpus.cores_used_elsewhere

    @property
    def running(self) -> tuple[RunSpec, ...]:
        return tuple(job.spec for job in self._jobs.values())

    def count_parallel(self, spec: RunSpec) -> int:
        asked, machine = spec.allocation, self._machine
        bounds = [self._most_jobs or sys.maxsize, self._cpus.count_parallel(asked.cores)]
        bounds += [machine.gpus // asked.gpus] if asked.gpus else []
        bounds += [(machine.memory_bytes or 0) // asked.memory_bytes] if asked.memory_bytes else []
        return max(1, min(bounds))

    def has_capacity(self, spec: RunSpec) -> bool:
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
        has_capacity = self._cpus.has_capacity(count)
        if self._cpus.waits_for_others:
            self._notes.setdefault(_CORES_USED_ELSEWHERE, False)
        return has_capacity

    def start(self, spec: RunSpec, launch: Launch, *, phases: Sequence[Phase] = ()) -> None:
        obstacle = self.find_obstacle(spec)
        if obstacle:
            raise RunnerError(f"run {spec.id} of {spec.app!r} cannot run here: {obstacle}; reduce its 'resources'")
        if spec.id in self._jobs or not self.has_capacity(spec):
            raise RunnerError(f"no capacity for run {spec.id} of {spec.app!r} now; poll until another run has ended")
        directory = Path(launch.run_directory).absolute()
        lock = _lock_directory(spec, directory)
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
            resources=RunResources(
                cpus=self._cpus.acquire(spec.allocation.cores), gpus=self._acquire_gpus(spec.allocation.gpus)
            ),
            machine=self._machine,
            cpu_total=self._cpu_total,
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
                runs += self._release(self._ended.get(timeout=wait_s) if wait_s > 0 else self._ended.get_nowait())
                wait_s = 0.0
        if self._failures and not runs:  # finished runs are returned first, so that none is lost
            raise self._failures.pop(0)
        return runs

    def take_notes(self) -> list[str]:
        fresh = [note for note, taken in self._notes.items() if not taken]
        self._notes |= dict.fromkeys(fresh, True)
        return fresh

    def stop(self) -> None:
        self._cpus.drop_reserved()
        for job in self._jobs.values():
            job.stop()
        for job in tuple(self._jobs.values()):
            job.join()
            self._release(job)
        self._ended = queue.SimpleQueue()  # an interrupted poll may have taken some jobs from the old one
        self._failures.clear()

    def find_obstacle(self, spec: RunSpec, *, time_limit_s: float | None = None) -> str | None:
        asked, machine = spec.allocation, self._machine
        if asked.nodes != 1:
            return f"it requests {asked.nodes} nodes; this is one machine"
        if not self._cpus.fits(asked.cores):
            return f"it requests {asked.cores} cores; there are {self._cpus.count}"
        if asked.gpus > machine.gpus:
            return f"it requests {asked.gpus} GPUs; there are {machine.gpus}"
        if (asked.memory_bytes or 0) > (machine.memory_bytes or 0):
            return (
                f"it requests {render_bytes(asked.memory_bytes or 0)} of memory; "
                f"there are {render_bytes(machine.memory_bytes or 0)}"
            )
        return None

    def _acquire_gpus(self, count: int) -> tuple[Gpu, ...]:
        acquired, self._gpus = self._gpus[:count], self._gpus[count:]
        return tuple(acquired)

    def _release(self, job: Job) -> list[Run]:
        del self._jobs[job.spec.id]
        job.lock.free()
        self._cpus.release(job.resources.cpus)
        self._gpus.extend(job.resources.gpus)
        if job.failure is not None:
            self._failures.append(job.failure)
        return [job.outcome] if job.outcome is not None else []


def _lock_directory(spec: RunSpec, directory: Path) -> RunLock:
    """Lock a run directory and kill what an earlier process left running there.

    Raises:
        RunTakenError: if another process uses it.
        RunnerError: if the folder cannot be written.
    """
    with writing(directory):
        make_run_directory(directory)
        lock = take_run_lock(directory)
    if lock is None:
        raise RunTakenError(
            f"another process makes run {spec.id} of {spec.app!r} in {str(directory)!r}; try again when it has ended"
        )
    if not lock.is_new:
        kill_leftovers(spec.id, run_directory=directory)
    return lock
