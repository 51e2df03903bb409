"""Measures the usage of a whole process tree, at almost no cost.

Values that the kernel counts are exact: I/O, read after the first process has ended and before it is reaped; CPU time,
context switches and the largest process, read on reaping; all including every descendant that was waited for. The rest
is sampled: memory of the whole tree at one moment (the sum of resident set sizes, as Slurm does), CPU time of
descendants that are not waited for, GPUs.
"""

import contextlib
import enum
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from foretell.core.run import Usage
from foretell.measure.gpus import Gpu, GpuSample, sample_gpus
from foretell.measure.procfs import Stat, find_children, find_high_water_bytes, find_io, find_stat
from foretell.measure.starter import Command, get_starter

__all__ = ["Command", "CpuTotal", "Ending", "Limits", "Measurement", "ProcessProbe", "TreeProbe"]

_CPU_SHARE = 0.0045  # share of a core for sampling; the first millisecond is free, so that short runs are sampled
_FREE_CPU_S = 0.001
_SHORTEST_PAUSE_S, _EARLY_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.02, 1.0
_LONGEST_PAUSE_WITH_LIMIT_S = 0.1
_GRACE_S = 5.0


class Ending(enum.Enum):
    """Why a process tree ended."""

    EXITED = enum.auto()
    TIME_LIMIT = enum.auto()
    MEMORY_LIMIT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Over the time limit, a process tree is terminated, then killed; over the memory limit, it is killed."""

    time_s: float | None = None
    memory_bytes: int | None = None
    grace_s: float = _GRACE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The usage of a process; a negative exit code is a signal, ``sampling_s`` the CPU time of the sampler."""

    usage: Usage
    exit_code: int
    ending: Ending
    sampling_s: float


@dataclass(slots=True)
class CpuTotal:
    """CPU time of all processes that are measured, to distinguish it from that of others."""

    total_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float) -> None:
        with self._lock:
            self.total_s += seconds


class Process(Protocol):
    """A started process, a zombie until it is reaped.

    ``started_s`` is by ``time.perf_counter``; the kernel counts ``inherited_bytes`` as its memory in any case.
    """

    @property
    def pid(self) -> int: ...

    @property
    def started_s(self) -> float: ...

    @property
    def inherited_bytes(self) -> int: ...

    def reap(self) -> tuple[int, resource.struct_rusage]: ...


class TreeProbe:
    """Measures the process tree of what ``start`` returns; it neither limits nor ends it.

    ``start`` gets a function to call with the seconds that the process took, when it has ended.
    """

    def __init__(
        self,
        start: Callable[[Callable[[float], None]], Process],
        *,
        gpus: Sequence[Gpu] = (),
        cpu_total: CpuTotal | None = None,
    ) -> None:
        self._gpus = gpus
        self._cpu_total = cpu_total or CpuTotal()
        self._exited = threading.Event()
        self._ending = Ending.EXITED
        self._elapsed_s = 0.0
        self._process = start(self._note_exit)
        self._tree = _Tree(self._process.pid)
        self._gpu = _GpuTotals()
        self._sampling_s = self._last_sampling_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long it has been running."""
        return time.perf_counter() - self._process.started_s

    @property
    def memory_bytes(self) -> int:
        """Memory of the tree at the last sample."""
        return self._tree.resident_bytes

    @property
    def gpu(self) -> GpuSample | None:
        """GPU usage of the tree at the last sample."""
        return self._gpu.last

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return self._build_usage(
            elapsed_s=self.elapsed_s, cpu_s=self._tree.cpu_s, peak_memory_bytes=self._tree.peak_bytes or None
        )

    def wait(self) -> Measurement:
        """Sample until the first process ends."""
        started_s = time.thread_time()
        while not self._exited.wait(self._pause_s()):
            self._sample()
            self._after_sample()
            spent_s = time.thread_time() - started_s  # including waking up, which costs as much as a sample
            self._last_sampling_s, self._sampling_s = spent_s - self._sampling_s, spent_s
        self._sample()
        self._after_end()
        return self._reap()

    def _note_exit(self, elapsed_s: float) -> None:
        self._elapsed_s = elapsed_s
        self._exited.set()

    def _after_sample(self) -> None:
        """Called after each sample."""

    def _after_end(self) -> None:
        """Called before the pid can be reused."""

    def _pause_s(self) -> float:
        elapsed_s = self.elapsed_s
        longest_s = self._longest_pause_s()
        usual_s = max(min(elapsed_s / 2, _EARLY_PAUSE_S), min(elapsed_s / 50, longest_s), _SHORTEST_PAUSE_S)
        affordable_s = (self._sampling_s + self._last_sampling_s - _FREE_CPU_S) / _CPU_SHARE - elapsed_s
        return max(usual_s, affordable_s)

    def _longest_pause_s(self) -> float:
        return _LONGEST_PAUSE_S

    def _sample(self) -> None:
        known_cpu_s = self._tree.cpu_s
        self._tree.sample(self._process.inherited_bytes)
        self._cpu_total.add(self._tree.cpu_s - known_cpu_s)
        if self._gpus:
            self._gpu.add(self._gpus, pids=self._tree.pids, at_s=time.perf_counter())

    def _reap(self) -> Measurement:
        usage = self._build_usage(elapsed_s=self._elapsed_s, cpu_s=None, peak_memory_bytes=None)
        exit_code, spent = self._process.reap()
        cpu_s = max(spent.ru_utime + spent.ru_stime, self._tree.cpu_s)
        self._cpu_total.add(cpu_s - self._tree.cpu_s)
        return Measurement(
            usage=replace(
                usage,
                cpu_s=cpu_s,
                peak_memory_bytes=self._peak_memory_bytes(spent),
                context_switches=spent.ru_nvcsw + spent.ru_nivcsw,
            ),
            exit_code=exit_code,
            ending=self._ending,
            sampling_s=self._sampling_s,
        )

    def _build_usage(self, *, elapsed_s: float, cpu_s: float | None, peak_memory_bytes: int | None) -> Usage:
        moved = find_io(self._process.pid)
        return Usage(
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            peak_memory_bytes=peak_memory_bytes,
            read_bytes=moved[0] if moved else None,
            written_bytes=moved[1] if moved else None,
            gpu_utilisation=self._gpu.mean_utilisation,
            gpu_memory_bytes=self._gpu.peak_bytes,
        )

    def _peak_memory_bytes(self, spent: resource.struct_rusage) -> int | None:
        largest_bytes = spent.ru_maxrss * 1024
        known_bytes = largest_bytes if largest_bytes > self._process.inherited_bytes else 0
        return max(known_bytes, self._tree.peak_bytes) or None


class ProcessProbe(TreeProbe):
    """Starts a command in its own session, measures its process tree, and enforces its limits.

    When the first process has ended, whatever is left of its group is killed.

    Raises:
        OSError: if the command cannot be started.
        ValueError: if its arguments or environment cannot be passed to a process.
    """

    def __init__(
        self,
        command: Command,
        *,
        limits: Limits | None = None,
        gpus: Sequence[Gpu] = (),
        cpu_total: CpuTotal | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._reaped = False
        self._kill_at_s = 0.0
        super().__init__(partial(get_starter().start, command), gpus=gpus, cpu_total=cpu_total)

    def kill(self) -> None:
        """Kill the process and its group; thread-safe, at any time."""
        self._signal(signal.SIGKILL)

    def _after_sample(self) -> None:
        elapsed_s = self.elapsed_s
        limits = self._limits
        if self._ending is not Ending.EXITED:
            if elapsed_s >= self._kill_at_s:
                self.kill()
        elif limits.memory_bytes is not None and self._tree.resident_bytes > limits.memory_bytes:
            self._ending = Ending.MEMORY_LIMIT
            self.kill()
        elif limits.time_s is not None and elapsed_s >= limits.time_s:
            self._ending = Ending.TIME_LIMIT
            self._kill_at_s = elapsed_s + limits.grace_s
            self._signal(signal.SIGTERM)

    def _after_end(self) -> None:
        self.kill()

    def _pause_s(self) -> float:
        return min(super()._pause_s(), self._next_deadline_s(self.elapsed_s))

    def _longest_pause_s(self) -> float:
        return _LONGEST_PAUSE_S if self._limits.memory_bytes is None else _LONGEST_PAUSE_WITH_LIMIT_S

    def _next_deadline_s(self, elapsed_s: float) -> float:
        deadline_s = self._limits.time_s if self._ending is Ending.EXITED else self._kill_at_s
        if deadline_s is None or deadline_s > elapsed_s + threading.TIMEOUT_MAX / 2:
            return threading.TIMEOUT_MAX
        return max(deadline_s - elapsed_s, _SHORTEST_PAUSE_S)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._reaped:
                os.killpg(self._process.pid, number)

    def _reap(self) -> Measurement:
        with self._lock:
            self._reaped = True
        return super()._reap()


class _Tree:
    """A process and its descendants, also those that lost their parent since they were found."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._started_s: dict[int, float] = {}
        self.resident_bytes = 0
        self.peak_bytes = 0
        self.cpu_s = 0.0

    @property
    def pids(self) -> Collection[int]:
        return self._started_s.keys()

    def sample(self, inherited_bytes: int) -> None:
        stats = dict(self._walk())
        self._started_s = {pid: stat.started_s for pid, stat in stats.items()}
        self.resident_bytes = sum(stat.resident_bytes for stat in stats.values())
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)
        self.cpu_s = max(self.cpu_s, sum(stat.cpu_s for stat in stats.values()))
        if stats and self.peak_bytes <= inherited_bytes:  # beyond it, the kernel's final count is exact and free
            largest = max(stats, key=lambda pid: stats[pid].resident_bytes)
            self.peak_bytes = max(self.peak_bytes, find_high_water_bytes(largest) or 0)

    def _walk(self) -> Iterator[tuple[int, Stat]]:
        waiting = [self._root, *self._started_s]
        seen: set[int] = set()
        while waiting:
            pid = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            stat = find_stat(pid)
            if stat is None or self._started_s.get(pid, stat.started_s) != stat.started_s:
                continue
            yield pid, stat
            if not stat.zombie:
                waiting.extend(self._children(pid))

    def _children(self, pid: int) -> list[int]:
        children = find_children(pid)
        if children is not None:
            return children
        import psutil  # slow to import, and not needed with most kernels

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []


@dataclass(slots=True)
class _GpuTotals:
    """Samples of GPUs, weighted by their duration."""

    peak_bytes: int | None = None
    last: GpuSample | None = None
    _busy_s: float = 0.0
    _seen_s: float = 0.0
    _last_s: float | None = None

    @property
    def mean_utilisation(self) -> float | None:
        return self._busy_s / self._seen_s if self._seen_s else None

    def add(self, gpus: Sequence[Gpu], *, pids: Collection[int], at_s: float) -> None:
        sample = self.last = sample_gpus(gpus, pids=pids)
        if sample is None:
            return
        self.peak_bytes = max(self.peak_bytes or 0, sample.memory_bytes)
        if self._last_s is not None:
            self._seen_s += at_s - self._last_s
            self._busy_s += (at_s - self._last_s) * sample.utilisation
        self._last_s = at_s
