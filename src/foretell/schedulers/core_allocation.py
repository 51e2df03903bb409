"""CPUs lent to runs, in whole physical cores."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path

from foretell.measure.machine import group_cpus

_OURS_ALONE = 0o700


class CoreLocks:
    """A lock for each core, held by an open file: the kernel frees it when the process that has it ends, however.

    Without a folder to keep them in, every core is free.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}

    def take(self, core: int) -> bool:
        """Whether the core is ours now."""
        if self._folder is None or core in self._held:
            return True
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._folder / f"core-{core}", flags, 0o600)
        except OSError:
            return True  # a full or vanished folder is no reason not to run
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(descriptor)
            return not isinstance(exc, BlockingIOError)
        self._held[core] = descriptor
        return True

    def free(self, core: int) -> None:
        """Leave it to others."""
        if (descriptor := self._held.pop(core, None)) is not None:
            os.close(descriptor)

    def count_elsewhere(self, cores: Iterable[int]) -> int:
        """How many of these are another process's at the moment."""
        taken = 0
        for core in set(cores) - self._held.keys():
            if self.take(core):
                self.free(core)
            else:
                taken += 1
        return taken


def find_lock_folder() -> Path | None:
    """A folder of this user on this machine, that nobody else can write to; ``None`` if there is none."""
    said = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(said) / "foretell"] if said else []
    for folder in (*places, Path(tempfile.gettempdir()) / f"foretell-{os.geteuid()}"):
        with suppress(OSError):
            folder.mkdir(mode=_OURS_ALONE, exist_ok=True)
        with suppress(OSError):
            if _is_ours(folder):
                return folder
    return None


def _is_ours(folder: Path) -> bool:
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


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
