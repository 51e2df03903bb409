"""CPUs lent to runs, in whole physical cores."""

from collections.abc import Collection
from itertools import chain, zip_longest

from foretell.probes.machine import group_cpus
from foretell.runners._core_locks import CoreLocks

_Core = tuple[int, ...]


class CpuPool:
    """Lends CPUs so that no two runs share a physical core, be they of other processes with the same ``locks``.

    A run gets one hardware thread of each of its cores, the siblings stay idle: a busy sibling would slow it by an
    amount that depends on its neighbour. Only a run that asks for more CPUs than there are physical cores gets
    siblings, its own.

    What :meth:`has_room` has found stays reserved for the next :meth:`lend`, or until :meth:`drop_reserved`.
    """

    def __init__(self, cpus: Collection[int], *, locks: CoreLocks | None = None) -> None:
        self._cores = group_cpus(cpus)
        self._free = list(self._cores)
        self._reserved: list[_Core] = []
        self._locks = locks or CoreLocks(None)
        self.count = len(set(cpus))
        self.waits_for_others = False

    @property
    def cores(self) -> int:
        return len(self._cores)

    @property
    def cores_elsewhere(self) -> int:
        """How many cores runs of other processes have."""
        return self._locks.count_elsewhere(core[0] for core in self._cores)

    def fits(self, count: int) -> bool:
        return 1 <= count <= self.count

    def fit_at_once(self, count: int) -> int:
        """How many runs of so many CPUs fit side by side."""
        return len(self._cores) // self._cores_for(count)

    def has_room(self, count: int) -> bool:
        needed = self._cores_for(count)
        if not self.fits(count) or len(self._free) < needed:
            return False
        for core in self._free:
            if len(self._reserved) < needed and core not in self._reserved and self._locks.take(core[0]):
                self._reserved.append(core)
        self.waits_for_others = len(self._reserved) < needed
        if self.waits_for_others:
            self.drop_reserved()
        return not self.waits_for_others

    def lend(self, count: int) -> tuple[int, ...]:
        assert self.has_room(count)
        needed = self._cores_for(count)
        lent, self._reserved = self._reserved[:needed], self._reserved[needed:]
        self._free = [core for core in self._free if core not in lent]
        by_thread = chain.from_iterable(zip_longest(*lent))
        return tuple(cpu for cpu in by_thread if cpu is not None)[:count]

    def give_back(self, cpus: Collection[int]) -> None:
        returned = [core for core in self._cores if set(core) & set(cpus)]
        self._free = sorted({*self._free, *returned})
        for core in returned:
            self._locks.free(core[0])

    def drop_reserved(self) -> None:
        for core in self._reserved:
            self._locks.free(core[0])
        self._reserved = []

    def _cores_for(self, count: int) -> int:
        return min(count, len(self._cores))
