"""Counts bytes of network namespaces, and the load of other processes."""

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foretell.core.observation import Load
from foretell.measure.procfs import TICKS_PER_S, find_stat, find_text, pids

_MOST_NAMED = 3
_LEAST_NAMED = 0.02  # cores
_LEAST_S = 0.2  # in which the kernel counts enough ticks for shares


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWatch:
    """How busy some CPUs, and each process, were at its construction."""

    cpus: frozenset[int]
    busy_s: float
    stolen_s: float
    processes: dict[int, float] = field(repr=False)
    at_s: float

    @classmethod
    def start(cls, cpus: Collection[int]) -> "LoadWatch":
        busy_s, stolen_s = _read_busy(cpus)
        seconds = {pid: stat.own_cpu_s for pid in pids() if (stat := find_stat(pid)) is not None}
        return cls(cpus=frozenset(cpus), busy_s=busy_s, stolen_s=stolen_s, processes=seconds, at_s=time.perf_counter())

    def finish(self, *, job_cpu_s: float, job_pids: Collection[int]) -> Load:
        """Return what other processes used of these CPUs since then, on average; ``None`` if the time is too short.

        ``job_cpu_s`` is the job's own CPU time on them.
        """
        now = LoadWatch.start(self.cpus)
        seconds = now.at_s - self.at_s
        if seconds < _LEAST_S:
            return Load(cores=len(self.cpus))
        stolen = (now.stolen_s - self.stolen_s) / seconds
        others = (now.busy_s - self.busy_s - job_cpu_s) / seconds
        used = {
            pid: (cpu_s - self.processes.get(pid, 0.0)) / seconds
            for pid, cpu_s in now.processes.items()
            if pid not in job_pids and pid != os.getpid()
        }
        busiest = sorted(used, key=lambda pid: -used[pid])[:_MOST_NAMED]
        return Load(
            others=max(others, 0.0),
            stolen=max(stolen, 0.0),
            cores=len(self.cpus),
            by={f"{_find_name(pid)} ({pid})": used[pid] for pid in busiest if used[pid] >= _LEAST_NAMED},
        )


def _read_busy(cpus: Collection[int]) -> tuple[float, float]:
    """Return the seconds since boot in which these CPUs worked, and in which they were stolen."""
    wanted = {f"cpu{cpu}".encode() for cpu in cpus}
    busy = stolen = 0
    for line in (find_text("/proc/stat") or b"").splitlines():
        fields = line.split()
        if fields and fields[0] in wanted:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
            busy += user + nice + system + irq + softirq
            stolen += steal
    return busy / TICKS_PER_S, stolen / TICKS_PER_S


def _find_name(pid: int) -> str:
    return (find_text(f"/proc/{pid}/comm") or b"?").decode(errors="replace").strip()


_LARGEST, _HALF_A_PAGE = 1 << 16, 1 << 11
_RECEIVED, _SENT = 0, 8  # columns of a line of net/dev, after the name of the interface
_LOOPBACK = b"lo"
_INTERFACES = Path("/sys/class/net")
_FIRST = 1  # the process that always exists
_HIDDEN = 0  # the id of a namespace that is not readable

Counts = tuple[int, int, int, int]  # sent and received by all interfaces except the loopback, and by the loopback


@dataclass(slots=True)
class NetworkCounter:
    """Reads the counters of the namespaces of some processes, from when each entered until it left."""

    _open: dict[int, "_Namespace"] = field(default_factory=dict)  # by id
    _counted: Counts = (0, 0, 0, 0)  # in namespaces that were left, minus the counts when they were entered
    known: bool = False  # whether there is anything to read
    shared: bool = False  # whether one may be the machine's own, which counts the bytes of all processes

    def follow(self, pids: Iterable[int]) -> None:
        """Read only the namespaces that these processes are in now.

        Processes that have ended or are not readable are skipped; if none is left, nothing changes.
        """
        now = dict(_find_namespaces(pids))
        hidden = len(now) > 1 and now.pop(_HIDDEN, None) is not None  # most likely one of the others
        if not now:
            return
        for left in self._open.keys() - now.keys():
            namespace = self._open.pop(left)
            self._counted = _add(self._counted, namespace.read())
            namespace.close()
        for number in now.keys() - self._open.keys():
            self._enter(number, pid=now[number])
        self.known = bool(self._open)
        machines = _find_namespace(_FIRST)
        seen = {_HIDDEN, machines} & {*self._open, *([_HIDDEN] if hidden else [])}
        self.shared = self.known and (machines == _HIDDEN or bool(seen))

    def _enter(self, number: int, *, pid: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            descriptor = os.open(f"/proc/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            parts = _find_parts() if number == _find_namespace(os.getpid()) else frozenset[bytes]()
            self._open[number] = _Namespace(descriptor=descriptor, parts=parts)
            self._counted = _add(self._counted, self._open[number].read(), sign=-1)

    def read(self) -> Counts:
        """Return the bytes so far."""
        total = self._counted
        for namespace in self._open.values():
            total = _add(total, namespace.read())
        return total

    def close(self) -> None:
        for namespace in self._open.values():
            namespace.close()
        self._open.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Namespace:
    """Counters of a network; ``parts`` are interfaces that count the bytes of others again."""

    descriptor: int
    parts: frozenset[bytes]

    def read(self) -> Counts:
        sent = received = loop_sent = loop_received = 0
        for line in self._read_all().splitlines()[2:]:
            name, _, text = line.partition(b":")
            fields = text.split()
            if len(fields) <= _SENT:  # the rest of a line that grew by a digit since the previous page was read
                continue
            if name.strip() == _LOOPBACK:
                loop_received += int(fields[_RECEIVED])
                loop_sent += int(fields[_SENT])
            elif name.strip() not in self.parts:
                received += int(fields[_RECEIVED])
                sent += int(fields[_SENT])
        return sent, received, loop_sent, loop_received

    def _read_all(self) -> bytes:
        """Read the whole file; the kernel returns about a page at once, some thirty interfaces."""
        text = more = os.pread(self.descriptor, _LARGEST, 0)
        while len(more) > _HALF_A_PAGE:
            more = os.pread(self.descriptor, _LARGEST, len(text))
            text += more
        return text

    def close(self) -> None:
        os.close(self.descriptor)


def _add(counts: Counts, others: Counts, *, sign: int = 1) -> Counts:
    one, two, three, four = (mine + sign * theirs for mine, theirs in zip(counts, others, strict=True))
    return one, two, three, four


def _find_namespaces(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return namespaces by id, each with a process in it."""
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield _find_namespace(pid), pid


def _find_namespace(pid: int) -> int:
    """Return the id of a process's network namespace."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except PermissionError:
        return _HIDDEN
    except FileNotFoundError:
        if pid == _FIRST:  # it lives, but /proc may hide processes of others
            return _HIDDEN
        raise


def _find_parts() -> frozenset[bytes]:
    """Return interfaces that are parts of others (of a bond or a bridge), which count the same bytes again."""
    with contextlib.suppress(OSError):
        return frozenset(os.fsencode(each.name) for each in _INTERFACES.iterdir() if (each / "master").exists())
    return frozenset()
