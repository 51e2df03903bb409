"""One run on this machine: setup, command, cleanup, result."""

import dataclasses
import errno
import queue
import shlex
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from foretell.core.app import Phase
from foretell.core.run import RUN_DIRECTORY, RUN_ID, Launch, Machine, Run, RunSpec, State, Usage, build_environment
from foretell.measure.gpus import Gpu
from foretell.measure.machine import kill_leftovers, read_busy_s
from foretell.measure.process_tree import Command, CpuTotal, Ending, Limits, Measurement, ProcessProbe
from foretell.measure.run_lock import RunLock
from foretell.schedulers.run_files import (
    CLEANUP,
    SETUP,
    STDERR,
    STDOUT,
    cut_logs,
    free_middles,
    read_kept_phases,
    read_tail,
    render_exit,
    render_memory_limit,
    render_time_limit,
    write_finished,
    writing,
)

_SHORTEST_LOAD_S = 0.2  # the kernel counts busy time in ticks of 10 ms: too coarse for shorter runs
_CLEANUP_AFTER_STOP_S = 5.0

_START_ERRORS = {
    errno.ENOENT: "it, or the interpreter its first line names, was not found; give its full path or correct PATH",
    errno.EACCES: "it is not executable; chmod +x it, or name its interpreter first",
    errno.ENOEXEC: "it is not a program, and its first line names no interpreter (#!)",
    errno.E2BIG: "its arguments and environment are too long; pass the value in a file",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunResources:
    """The CPUs and GPUs of one run."""

    cpus: tuple[int, ...]
    gpus: tuple[Gpu, ...]


class _StopError(Exception):
    """The runner was stopped; there is no result."""


class _StepError(Exception):
    """A step of the run could not be started, or failed; the message says why."""


class Job(threading.Thread):
    """A thread that makes one run. It then puts itself on ``ended`` with its ``outcome`` or ``failure``.

    Both are set if the run ended but its result could not be written.
    """

    def __init__(
        self,
        *,
        spec: RunSpec,
        launch: Launch,
        directory: Path,
        lock: RunLock,
        phases: Sequence[Phase],
        resources: RunResources,
        machine: Machine,
        cpu_total: CpuTotal,
        ended: "queue.SimpleQueue[Job]",
    ) -> None:
        super().__init__(name=f"run {spec.id}", daemon=True)
        self.spec = spec
        self.resources = resources
        self.lock = lock  # of the directory, until the runner releases the job
        self.outcome: Run | None = None
        self.failure: Exception | None = None
        self._launch = launch
        self._log_limit = launch.log_limit_bytes
        self._directory = directory
        self._phases = phases
        self._machine = machine
        self._cpu_total = cpu_total
        self._ended = ended
        self._lock = threading.Lock()
        self._probe: ProcessProbe | None = None
        self._stopped = False
        self._cleaning = False

    def run(self) -> None:
        try:
            run = self._perform()
            if not self._stopped:
                self.outcome = run
                write_finished(self._directory, run)
        except _StopError:
            pass
        except Exception as exc:  # raised again by the thread that polls
            self.failure = exc
        finally:
            self._ended.put(self)

    def free_logs(self) -> None:
        """Free disk space of logs that have grown too large."""
        free_middles(self._directory, limit_bytes=self._log_limit)

    def stop(self) -> None:
        """Kill the running step; only the cleanup still runs."""
        with self._lock:
            self._stopped = True
            if self._probe is not None:
                self._probe.kill()

    def _perform(self) -> Run:
        started_at = datetime.now(UTC)
        try:
            run = self._attempt()
        finally:
            kill_leftovers(self.spec.id, run_directory=self._directory)
            complaint = self._clean_up()
        reason = "; ".join(filter(None, [run.reason, complaint]))
        return dataclasses.replace(run, reason=reason, started_at=started_at, ended_at=datetime.now(UTC))

    def _attempt(self) -> Run:
        try:
            for argv in self._launch.setup:
                self._run_step(argv, log=self._directory / SETUP, limits=Limits())
        except _StepError as exc:
            return self._build_run(State.FAILED, reason=f"setup: {exc}", logs=[SETUP])
        try:
            return self._run_command()
        except _StepError as exc:
            return self._build_run(State.FAILED, reason=str(exc))

    def _clean_up(self) -> str:
        self._cleaning = True
        complaints = []
        for argv in self._launch.cleanup:
            limits = Limits(time_s=_CLEANUP_AFTER_STOP_S if self._stopped else None)
            try:
                self._run_step(argv, log=self._directory / CLEANUP, limits=limits)
            except _StepError as exc:
                complaints.append(f"cleanup: {exc}")
        return "; ".join(complaints)

    def _run_step(self, argv: Sequence[str], *, log: Path, limits: Limits) -> None:
        with writing(log), log.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"$ {shlex.join(argv)}\n")
        measurement = self._measure(argv, stdout=log, stderr=log, limits=limits)
        if measurement.exit_code != 0:
            raise _StepError(f"{shlex.join(argv)} {render_exit(measurement.exit_code)}")

    def _run_command(self) -> Run:
        limits = Limits(time_s=self._time_limit_s(), memory_bytes=self.spec.allocation.memory_bytes)
        busy_s, own_s = read_busy_s(), self._own_cpu_s()
        measurement = self._measure(
            self._launch.argv, stdout=self._directory / STDOUT, stderr=self._directory / STDERR, limits=limits
        )
        others_s = (read_busy_s() - busy_s) - (self._own_cpu_s() - own_s)
        elapsed_s = measurement.usage.elapsed_s
        load = max(0.0, others_s) / elapsed_s if elapsed_s >= _SHORTEST_LOAD_S else None
        machine = dataclasses.replace(self._machine, load=load)
        return dataclasses.replace(self._build_result(measurement, limits), machine=machine)

    def _time_limit_s(self) -> float | None:
        limits = (self._launch.time_limit_s, self.spec.allocation.walltime_s)
        return min((limit for limit in limits if limit is not None), default=None)

    def _own_cpu_s(self) -> float:
        return self._cpu_total.total_s + time.process_time()

    def _build_result(self, measurement: Measurement, limits: Limits) -> Run:
        usage, code = measurement.usage, measurement.exit_code
        if measurement.ending is Ending.TIME_LIMIT:
            assert limits.time_s is not None
            # The time that termination took is no part of the run.
            usage = dataclasses.replace(usage, elapsed_s=min(usage.elapsed_s, limits.time_s))
            reason = render_time_limit(limits.time_s)
            return self._build_run(State.TIMED_OUT, reason=reason, usage=usage, exit_code=code)
        if measurement.ending is Ending.MEMORY_LIMIT:
            reason = render_memory_limit(limits.memory_bytes or 0)
            return self._build_run(State.OUT_OF_MEMORY, reason=reason, usage=usage, exit_code=code)
        if code != 0:
            return self._build_run(State.FAILED, reason=render_exit(code), usage=usage, exit_code=code)
        phases, complaints = read_kept_phases(self._phases, directory=self._directory, limit_bytes=self._log_limit)
        reason = "; ".join(complaints)
        return Run(spec=self.spec, state=State.COMPLETED, usage=usage, phases=phases, exit_code=code, reason=reason)

    def _build_run(
        self,
        state: State,
        *,
        reason: str,
        usage: Usage | None = None,
        exit_code: int | None = None,
        logs: Sequence[str] = (STDOUT, STDERR),
    ) -> Run:
        cut_logs(self._directory, limit_bytes=self._log_limit)
        return Run(
            spec=self.spec,
            state=state,
            usage=usage,
            machine=self._machine,
            exit_code=exit_code,
            log_tail=read_tail(self._directory / name for name in logs),
            reason=reason,
        )

    def _measure(self, argv: Sequence[str], *, stdout: Path, stderr: Path, limits: Limits) -> Measurement:
        command = Command(
            argv=argv,
            directory=Path(self._launch.working_directory).absolute(),
            environment=self._environment(),
            stdout=stdout,
            stderr=stderr,
            cpus=self.resources.cpus,
        )
        with self._lock:
            if self._stopped and not self._cleaning:
                raise _StopError
            self._probe = _start(command, limits=limits, gpus=self.resources.gpus, cpu_total=self._cpu_total)
        return self._probe.wait()

    def _environment(self) -> dict[str, str]:
        environment = {**build_environment(inherited=self._launch.inherited), **self._launch.environment}
        environment |= {RUN_ID: self.spec.id, RUN_DIRECTORY: str(self._directory)}
        if self._machine.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in self.resources.gpus)
        return environment


def _start(command: Command, *, limits: Limits, gpus: Sequence[Gpu], cpu_total: CpuTotal) -> ProcessProbe:
    if not command.argv:
        raise _StepError("there is no command to run")
    if not command.directory.is_dir():
        raise _StepError(
            f"there is no working directory {str(command.directory)!r}; create it, or correct 'working_directory'"
        )
    try:
        return ProcessProbe(command, limits=limits, gpus=gpus, cpu_total=cpu_total)
    except (OSError, ValueError) as exc:
        cause = _START_ERRORS.get(exc.errno or 0) if isinstance(exc, OSError) else None
        raise _StepError(f"{command.argv[0]!r} cannot be started: {cause or exc}") from exc
