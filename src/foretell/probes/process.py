"""What a whole process tree uses, from its start to its end, at almost no cost.

Exact where the kernel counts for us: when the first process has ended and before it is reaped, its I/O; on reaping it,
CPU time, context switches and the largest process, all including every descendant that somebody waited for. What the
kernel does not add up is sampled: memory of the whole tree at one moment (resident set sizes added, as Slurm does),
CPU time of descendants nobody waits for, GPUs.
"""

import contextlib
import enum
import os
import resource
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import psutil

from foretell.entities.run import Usage
from foretell.probes.gpus import Gpu, sample_gpus
from foretell.probes.procfs import Stat, find_children, find_high_water_bytes, find_io, find_stat
from foretell.probes.starter import Command, get_starter

__all__ = ["Command", "CpuLedger", "Ending", "Limits", "Measurement", "ProcessProbe"]

_CPU_SHARE = 0.0045  # of a core, for sampling one tree; the first millisecond is free, so that short runs are seen
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
    """When to end it. Past its time it is asked to end, then made to; past its memory it is killed."""

    time_s: float | None = None
    memory_bytes: int | None = None
    grace_s: float = _GRACE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What came of a process: a negative exit code is a signal's number, ``sampling_s`` the CPU time it took us."""

    usage: Usage
    exit_code: int
    ending: Ending
    sampling_s: float


@dataclass(slots=True)
class CpuLedger:
    """CPU time of all processes that report to it, so that theirs can be told from that of others."""

    total_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float) -> None:
        with self._lock:
            self.total_s += seconds


class ProcessProbe:
    """Starts a command in a session of its own and measures its process tree.

    Raises:
        OSError: if the command cannot be started.
        ValueError: if its words or environment cannot be passed to a process.
    """

    def __init__(
        self,
        command: Command,
        *,
        limits: Limits | None = None,
        gpus: Sequence[Gpu] = (),
        ledger: CpuLedger | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._gpus = gpus
        self._ledger = ledger or CpuLedger()
        self._lock = threading.Lock()
        self._reaped = False
        self._exited = threading.Event()
        self._elapsed_s = 0.0
        starter = get_starter()
        self._process = starter.start(command, on_exit=self._note_exit)
        self._started_s = time.perf_counter()  # a little late, so that no limit comes too soon
        self._inherited_bytes = find_high_water_bytes(starter.pid) or 0  # which the kernel counts as the child's
        self._tree = _Tree(self._process.pid)
        self._gpu = _GpuTotals()
        self._sampling_s = self._last_sampling_s = 0.0
        self._ending = Ending.EXITED
        self._kill_at_s = 0.0

    def wait(self) -> Measurement:
        """Sample until the first process ends; then whatever is left of its group is killed."""
        started_s = time.thread_time()
        while not self._exited.wait(self._pause_s()):
            self._sample()
            self._enforce()
            spent_s = time.thread_time() - started_s  # waking up included, which costs as much as looking
            self._last_sampling_s, self._sampling_s = spent_s - self._sampling_s, spent_s
        self._sample()
        self.kill()  # before its pid can mean another process
        return self._reap()

    def kill(self) -> None:
        """Kill the process and its group; may be called from any thread, at any time."""
        self._signal(signal.SIGKILL)

    def _note_exit(self, elapsed_s: float) -> None:
        self._elapsed_s = elapsed_s
        self._exited.set()

    def _pause_s(self) -> float:
        elapsed_s = time.perf_counter() - self._started_s
        longest_s = _LONGEST_PAUSE_S if self._limits.memory_bytes is None else _LONGEST_PAUSE_WITH_LIMIT_S
        usual_s = max(min(elapsed_s / 2, _EARLY_PAUSE_S), min(elapsed_s / 50, longest_s), _SHORTEST_PAUSE_S)
        affordable_s = (self._sampling_s + self._last_sampling_s - _FREE_CPU_S) / _CPU_SHARE - elapsed_s
        return min(max(usual_s, affordable_s), self._next_deadline_s(elapsed_s))

    def _next_deadline_s(self, elapsed_s: float) -> float:
        deadline_s = self._limits.time_s if self._ending is Ending.EXITED else self._kill_at_s
        if deadline_s is None or deadline_s > elapsed_s + threading.TIMEOUT_MAX / 2:
            return threading.TIMEOUT_MAX
        return max(deadline_s - elapsed_s, _SHORTEST_PAUSE_S)

    def _sample(self) -> None:
        known_cpu_s = self._tree.cpu_s
        self._tree.sample(self._inherited_bytes)
        self._ledger.add(self._tree.cpu_s - known_cpu_s)
        if self._gpus:
            self._gpu.add(self._gpus, pids=self._tree.pids, at_s=time.perf_counter())

    def _enforce(self) -> None:
        elapsed_s = time.perf_counter() - self._started_s
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

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._reaped:
                os.killpg(self._process.pid, number)

    def _reap(self) -> Measurement:
        moved = find_io(self._process.pid)
        with self._lock:
            exit_code, spent = self._process.reap()
            self._reaped = True
        cpu_s = max(spent.ru_utime + spent.ru_stime, self._tree.cpu_s)
        self._ledger.add(cpu_s - self._tree.cpu_s)
        return Measurement(
            usage=Usage(
                elapsed_s=self._elapsed_s,
                cpu_s=cpu_s,
                peak_memory_bytes=self._peak_memory_bytes(spent),
                read_bytes=moved[0] if moved else None,
                written_bytes=moved[1] if moved else None,
                context_switches=spent.ru_nvcsw + spent.ru_nivcsw,
                gpu_utilisation=self._gpu.mean_utilisation,
                gpu_memory_bytes=self._gpu.peak_bytes,
            ),
            exit_code=exit_code,
            ending=self._ending,
            sampling_s=self._sampling_s,
        )

    def _peak_memory_bytes(self, spent: resource.struct_rusage) -> int | None:
        largest_bytes = spent.ru_maxrss * 1024
        known_bytes = largest_bytes if largest_bytes > self._inherited_bytes else 0
        return max(known_bytes, self._tree.peak_bytes) or None


class _Tree:
    """A process and its descendants, also those that lost their parent since we first saw them."""

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
        if stats and self.peak_bytes <= inherited_bytes:  # beyond it, the kernel's last word is exact, and free
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
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []


@dataclass(slots=True)
class _GpuTotals:
    """Samples of GPUs added up, each weighing as long as it stood."""

    peak_bytes: int | None = None
    _busy_s: float = 0.0
    _seen_s: float = 0.0
    _last_s: float | None = None

    @property
    def mean_utilisation(self) -> float | None:
        return self._busy_s / self._seen_s if self._seen_s else None

    def add(self, gpus: Sequence[Gpu], *, pids: Collection[int], at_s: float) -> None:
        sample = sample_gpus(gpus, pids=pids)
        if sample is None:
            return
        self.peak_bytes = max(self.peak_bytes or 0, sample.memory_bytes)
        if self._last_s is not None:
            self._seen_s += at_s - self._last_s
            self._busy_s += (at_s - self._last_s) * sample.utilisation
        self._last_s = at_s
