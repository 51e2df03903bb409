"""What else keeps CPUs busy while a job is looked at: other processes, and other virtual machines."""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from foretell.core.observation import Load
from foretell.probes.procfs import TICKS_PER_S, find_stat, find_text, pids

_MOST_NAMED = 3
_LEAST_NAMED = 0.02  # cores
_LEAST_S = 0.2  # in which the kernel counts ticks enough to tell shares


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWatch:
    """How busy some CPUs, and each process, were when it was made."""

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
        """What others had of these CPUs since, on average; nothing where that is too short to tell.

        ``job_cpu_s`` is what the job used of them.
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
    """Seconds since boot for which these CPUs worked, and for which they were stolen."""
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
