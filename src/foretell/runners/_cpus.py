"""CPUs lent to runs, in whole physical cores."""

from collections.abc import Collection
from itertools import chain, zip_longest

from foretell.probes.machine import group_cpus


class CpuPool:
    """Lends CPUs so that no two runs share a physical core.

    A run gets one hardware thread of each of its cores, the siblings stay idle: a busy sibling would slow it by an
    amount that depends on its neighbour. Only a run that asks for more CPUs than there are physical cores gets
    siblings, its own.
    """

    def __init__(self, cpus: Collection[int]) -> None:
        self._cores = group_cpus(cpus)
        self._free = list(self._cores)
        self.count = len(set(cpus))

    @property
    def cores(self) -> int:
        return len(self._cores)

    def fits(self, count: int) -> bool:
        return 1 <= count <= self.count

    def has_room(self, count: int) -> bool:
        return self.fits(count) and len(self._free) >= self._cores_for(count)

    def lend(self, count: int) -> tuple[int, ...]:
        assert self.has_room(count)
        needed = self._cores_for(count)
        lent, self._free = self._free[:needed], self._free[needed:]
        by_thread = chain.from_iterable(zip_longest(*lent))
        return tuple(cpu for cpu in by_thread if cpu is not None)[:count]

    def give_back(self, cpus: Collection[int]) -> None:
        returned = [core for core in self._cores if set(core) & set(cpus)]
        self._free = sorted({*self._free, *returned})

    def _cores_for(self, count: int) -> int:
        return min(count, len(self._cores))
