"""Samples what a job consumes over time, many times a second at almost no cost.

The CPU time of a process with all its threads is one system call: the kernel's clock of that process, in nanoseconds.
Network counters are those of the process's network namespace, read through a descriptor that stays open. The search
for new children is limited to a small share of a core; CPU time that they used before they were found, or after they
were last read, is distributed over the interval in which it was used.
"""

import os
import threading
import time
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from foretell.core.errors import NotFoundError
from foretell.core.observation import Load, Recorded, Resource, Series
from foretell.core.warning import PredictionWarning, build_warning
from foretell.measure.counters import Counts, LoadWatch, NetworkCounter
from foretell.measure.gpus import Gpu, GpuLoad, find_gpus, find_used_gpus, read_load
from foretell.measure.procfs import TICKS_PER_S, find_children, find_stat

INTERVAL_S = 0.02
TICK_S = 0.004  # of most kernels: so often the CPU time of other running processes is updated
_SCAN_SHARE = 0.005  # share of a core for the search for new processes
_LONGEST_SCAN_S = 0.5  # between two searches, whatever they cost
_GPU_SCAN_S = 0.2
_WHOLE_TICKS_S = 3 / TICKS_PER_S  # in which a tick of each kind is counted, if other processes use a core
_MUCH_TICKED = 0.05  # share of the used CPU time: above it, the ticks in which parents count their children matter
_MOST_SAMPLES = 500_000
_LITTLE = 0.01  # share of the loopback's bytes: below it, the other interfaces carry nothing of the job
_CLOCK_OF_PROCESS = 2  # CPUCLOCK_SCHED of Linux' include/linux/posix-timers.h: the count of the scheduler


class Ending(Protocol):
    """An event of threading or multiprocessing that stops a sampler."""

    def wait(self, timeout: float | None = None) -> bool: ...


def sample(
    pids: Collection[int],
    *,
    interval_s: float = INTERVAL_S,
    until: Ending | None = None,
    longest_s: float | None = None,
) -> Recorded:
    """Return what these processes and their descendants consume, until stopped or all of the former have ended.

    It samples in the calling thread, which should be a thread or process of its own. ``until`` is an event of
    :mod:`threading` or :mod:`multiprocessing`.

    Raises:
        NotFoundError: if none of the processes exists.
    """
    return ConsumptionSampler(pids, interval_s=interval_s).run(until or threading.Event(), longest_s=longest_s)


class ConsumptionSampler:
    """Samples processes and their descendants; ready after construction.

    Raises:
        NotFoundError: if none of the processes is there.
    """

    def __init__(self, pids: Collection[int], *, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._processes = _Processes(roots=tuple(pids))
        self._network = NetworkCounter()
        self._visible, self._gpus = find_gpus(), tuple[Gpu, ...]()
        self._samples = _Samples()
        self._full, self._next_gpus_s = False, 0.0
        self._rescan(0.0)
        if not self._processes.clocks:
            raise _miss(pids)
        cpus = {cpu for pid in self._processes.clocks for cpu in _find_cpus(pid)}
        self._watch = LoadWatch.start(cpus or os.sched_getaffinity(0))

    def run(self, until: Ending, *, longest_s: float | None = None) -> Recorded:
        """Sample until stopped, until none of the first processes is left, or for so long."""
        own_s, started_s = time.thread_time(), time.perf_counter()
        before_s = self._processes.read_s()
        asked_s, most_s = longest_s or np.inf, _MOST_SAMPLES * self._interval_s
        try:
            self._loop(until, started_s=started_s, longest_s=min(asked_s, most_s))
            self._full = asked_s > most_s and self._samples.times_s[-1] >= most_s
            own_s = time.thread_time() - own_s
            spent_s = self._processes.read_s() - before_s + own_s
            load = self._watch.finish(job_cpu_s=spent_s, job_pids=self._processes.seen)
        finally:
            self._network.close()
        return self._build(load, started_s=started_s, sampling_cpu_s=own_s)

    def _loop(self, until: Ending, *, started_s: float, longest_s: float) -> None:
        next_scan_s, stopped, alive = 0.0, False, True
        while True:
            now_s = time.perf_counter() - started_s
            if now_s >= next_scan_s:
                alive, cost_s = self._rescan(now_s)
                next_scan_s = now_s + min(cost_s / _SCAN_SHARE, _LONGEST_SCAN_S)
            self._take(now_s)
            if stopped or not alive or now_s >= longest_s:
                break
            spent_s = time.perf_counter() - started_s
            stopped = until.wait(self._interval_s - spent_s % self._interval_s)
        if len(self._samples.times_s) == 1:  # it ended at once
            self._take(time.perf_counter() - started_s)

    def _take(self, now_s: float) -> None:
        gpus = read_load(self._gpus, pids=self._processes.clocks) if self._gpus else None
        cpu_s = self._processes.read_s()
        for before_s, late_s in self._processes.take_late():
            self._samples.spread(late_s, since_s=now_s - before_s, until_s=now_s)
        self._samples.add(now_s, cpu_s, self._network.read(), gpus)

    def _rescan(self, now_s: float) -> tuple[bool, float]:
        """Search for new processes; return whether any of the first is left, and the seconds of the search."""
        began_s = time.thread_time()
        alive = self._processes.rescan()
        self._network.follow(self._processes.clocks)
        cost_s = time.thread_time() - began_s
        if self._visible and now_s >= self._next_gpus_s:
            self._gpus = find_used_gpus(self._visible, pids=self._processes.clocks) or self._gpus
            self._next_gpus_s = now_s + _GPU_SCAN_S
        return alive, cost_s

    def _build(self, load: Load, *, started_s: float, sampling_cpu_s: float) -> Recorded:
        samples = self._samples
        sent, received, over_loopback = samples.choose_network()
        compute = samples.cpu if samples.gpu_busy is None else samples.gpu_busy
        series = {Resource.COMPUTE: compute, Resource.TRANSMIT: sent, Resource.RECEIVE: received}
        if samples.gpu_interface is not None:
            series[Resource.MEMORY] = samples.gpu_interface
        return Recorded(
            started_s=started_s,
            interval_s=self._interval_s,
            series=series,
            cpu=samples.cpu,
            gpu_memory=samples.gpu_memory,
            load=load,
            processes=self._processes.most,
            gpus=len(self._gpus) if samples.has_gpus else 0,
            grain_s=1 / TICKS_PER_S if self._processes.ticked_share > _MUCH_TICKED else TICK_S,
            sampling_cpu_s=sampling_cpu_s,
            warnings=tuple(self._list_warnings(over_loopback=over_loopback)),
        )

    def _list_warnings(self, *, over_loopback: bool) -> Iterator[PredictionWarning]:
        if self._full:
            most = f"{_MOST_SAMPLES:,} samples is the limit; use a longer --interval for longer jobs"
            seconds = _MOST_SAMPLES * self._interval_s
            yield build_warning("truncated", f"Only the first {seconds:g} s were sampled: {most}.", seconds=seconds)
        if not self._network.known:
            yield build_warning(
                "network-unknown",
                "The network of these processes could not be read, because they are not yours or had ended: "
                "sent and received bytes are unknown.",
            )
        if over_loopback:
            yield build_warning(
                "network-loopback",
                "Only the loopback moved a significant number of bytes: what is sent and received stayed on this "
                "machine and did not use a network link.",
            )
        if self._network.shared:
            yield build_warning(
                "network-shared",
                "The network may be shared by the whole machine: bytes of other processes are included.",
            )
        if self._gpus and not self._samples.has_gpus:
            yield build_warning(
                "gpu-unknown",
                "GPUs were used, but their driver does not report how busy they are: compute is that of CPU cores.",
            )
        elif not self._samples.has_gpus:
            yield build_warning(
                "no-gpu",
                "No GPU was used: compute is that of CPU cores, and there is no GPU memory interface.",
            )


@dataclass(slots=True)
class _Processes:
    """Some processes and their descendants, with the CPU clock of each.

    The CPU time of ended processes is known from the last reading, and from parents that waited for them: the latter
    includes processes that were never found, but is counted in ticks.
    """

    roots: tuple[int, ...]
    clocks: dict[int, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    most: int = 0
    _last_ns: dict[int, int] = field(default_factory=dict)
    _gone_s: float = 0.0  # of ended processes
    _ticked_s: float = 0.0  # the part of it that only parents report
    _before_ns: int = 0  # used by all when sampling started
    _waited_before_s: float = 0.0
    _scanned: bool = False  # since the clocks were last read
    _read_at_s: float = field(default_factory=time.perf_counter)  # when parents were last read
    _changed_s: float = field(default_factory=time.perf_counter)  # when parents last reported a change
    _late: list[tuple[float, float]] = field(default_factory=list)

    def read_s(self) -> float:
        """Return the CPU time of all processes since sampling started."""
        if self._read_clocks() or self._scanned:
            waited_s = self._read_waited_s()
            self._read_clocks()  # again, so that processes that ended meanwhile are not counted twice
            self._learn_waited(waited_s)
            self._scanned = False
        return (sum(self._last_ns.values()) - self._before_ns) / 1e9 + self._gone_s

    def _read_clocks(self) -> bool:
        """Read the clocks of all processes; return whether some have ended."""
        living = len(self.clocks)
        for pid, clock in list(self.clocks.items()):
            try:
                self._last_ns[pid] = time.clock_gettime_ns(clock)
            except OSError:
                del self.clocks[pid]
                self._gone_s += self._last_ns.pop(pid, 0) / 1e9
        return len(self.clocks) < living

    def _read_waited_s(self) -> float:
        stats = [find_stat(pid) for pid in self.clocks]
        return sum(stat.waited_cpu_s for stat in stats if stat is not None) - self._waited_before_s

    def _learn_waited(self, waited_s: float) -> None:
        now_s = time.perf_counter()
        if waited_s > self._gone_s:
            since_s = max(now_s - self._read_at_s, _WHOLE_TICKS_S)
            self._late.append((min(since_s, now_s - self._changed_s), waited_s - self._gone_s))
            self._ticked_s += waited_s - self._gone_s
            self._gone_s, self._changed_s = waited_s, now_s
        self._read_at_s = now_s

    @property
    def ticked_share(self) -> float:
        """The share of used CPU time that only parents report."""
        return self._ticked_s / max(self.read_s(), 1e-9)

    def take_late(self) -> list[tuple[float, float]]:
        """Return CPU time found late: the number of seconds until now in which it was used, and its amount."""
        late, self._late = self._late, []
        return late

    def rescan(self) -> bool:
        """Find new processes; return whether any of the first lives."""
        waiting, found = [*self.roots, *self.clocks], set[int]()
        while waiting:
            pid = waiting.pop()
            if pid not in found and (pid in self.clocks or self._add(pid)):
                found.add(pid)
                waiting.extend(find_children(pid) or ())
        self.most = max(self.most, len(self.clocks))
        self._scanned = True
        return any(_lives(pid) for pid in self.roots)

    def _add(self, pid: int) -> bool:
        clock = (~pid << 3) | _CLOCK_OF_PROCESS
        stat = find_stat(pid)
        try:
            spent_ns = time.clock_gettime_ns(clock)
        except OSError:
            return False
        if stat is None:
            return False
        self.clocks[pid], self._last_ns[pid] = clock, spent_ns
        if self.most:
            self._late.append((time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_s, spent_ns / 1e9))
        else:
            self._before_ns += spent_ns
            self._waited_before_s += stat.waited_cpu_s
        self.seen.add(pid)
        return True


def require_processes(pids: Collection[int]) -> None:
    """Check that each process exists.

    Raises:
        NotFoundError: if one does not.
    """
    missing = [pid for pid in pids if not _lives(pid)]
    if missing:
        raise _miss(missing)


def _miss(pids: Collection[int]) -> NotFoundError:
    named = ", ".join(map(str, pids))
    return NotFoundError("process", named, hint="It may have ended, or be of another container; see 'ps'.")


def _lives(pid: int) -> bool:
    stat = find_stat(pid)
    return stat is not None and not stat.zombie


def _find_cpus(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


@dataclass(slots=True)
class _Samples:
    """Totals at each time, in compact arrays: hours of them fit in memory."""

    times_s: "array[float]" = field(default_factory=lambda: array("d"))
    _cpu_s: "array[float]" = field(default_factory=lambda: array("d"))
    _network: "tuple[array[float], ...]" = field(default_factory=lambda: tuple(array("d") for _ in range(4)))
    _gpus: "tuple[array[float], ...]" = field(default_factory=lambda: tuple(array("d") for _ in range(3)))
    has_gpus: bool = False

    def add(self, now_s: float, cpu_s: float, network: Counts, gpus: GpuLoad | None) -> None:
        self.times_s.append(now_s)
        self._cpu_s.append(cpu_s)
        for column, total in zip(self._network, network, strict=True):
            column.append(total)
        self.has_gpus |= gpus is not None
        figures = (gpus.utilisation, gpus.interface, gpus.memory_bytes) if gpus else (0.0, 0.0, 0.0)
        for column, figure in zip(self._gpus, figures, strict=True):
            column.append(figure)

    def spread(self, cpu_s: float, *, since_s: float, until_s: float) -> None:
        """Distribute CPU time that was found at the end of an interval evenly over it."""
        for place in range(len(self.times_s) - 1, -1, -1):
            if self.times_s[place] <= since_s:
                break
            self._cpu_s[place] += cpu_s * (self.times_s[place] - since_s) / (until_s - since_s)

    @property
    def cpu(self) -> Series:
        return self._rate(self._cpu_s)

    @property
    def gpu_busy(self) -> Series | None:
        return self._level(0)

    @property
    def gpu_interface(self) -> Series | None:
        return self._level(1)

    @property
    def gpu_memory(self) -> Series | None:
        return self._level(2)

    def choose_network(self) -> tuple[Series, Series, bool]:
        """Return sent, received, and whether these are of the loopback, because the others moved almost nothing."""
        moved = [column[-1] - column[0] for column in self._network]
        over_loopback = sum(moved[2:]) > 0 and sum(moved[:2]) < _LITTLE * sum(moved[2:])
        sent, received = self._network[2:] if over_loopback else self._network[:2]
        return self._rate(sent), self._rate(received), over_loopback

    def _rate(self, totals: "array[float]") -> Series:
        times_s = np.array(self.times_s)
        return Series(times_s=times_s, values=np.maximum(np.diff(np.array(totals)), 0.0) / np.diff(times_s))

    def _level(self, column: int) -> Series | None:
        """Return levels: a value read at the end of an interval applies to it."""
        return (
            Series(times_s=np.array(self.times_s), values=np.array(self._gpus[column])[1:]) if self.has_gpus else None
        )
