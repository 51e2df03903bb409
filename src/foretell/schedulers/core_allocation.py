"""Allocates CPUs to runs in whole physical cores, also between processes of one user."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path

from foretell.measure.machine import group_cpus

_PRIVATE = 0o700


class CoreLocks:
    """One file lock for each core. The kernel frees it when the process ends, even if it is killed.

    Without a lock folder, every core counts as free.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}

    def take(self, core: int) -> bool:
        """Lock a core; return whether that succeeded."""
        if self._folder is None or core in self._held:
            return True
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._folder / f"core-{core}", flags, 0o600)
        except OSError:
            return True  # a full or missing lock folder must not prevent runs
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(descriptor)
            return not isinstance(exc, BlockingIOError)
        self._held[core] = descriptor
        return True

    def free(self, core: int) -> None:
        """Release a core."""
        if (descriptor := self._held.pop(core, None)) is not None:
            os.close(descriptor)

    def count_elsewhere(self, cores: Iterable[int]) -> int:
        """Return how many of these cores other processes have locked."""
        taken = 0
        for core in set(cores) - self._held.keys():
            if self.take(core):
                self.free(core)
            else:
                taken += 1
        return taken


def find_lock_folder() -> Path | None:
    """Return a local folder that only this user can write to; ``None`` if there is none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime) / "foretell"] if runtime else []
    for folder in (*candidates, Path(tempfile.gettempdir()) / f"foretell-{os.geteuid()}"):
        with suppress(OSError):
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
        with suppress(OSError):
            if _is_private(folder):
                return folder
    return None


def _is_private(folder: Path) -> bool:
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


_Core = tuple[int, ...]


class CpuPool:
    """Allocates CPUs so that no two runs share a physical core, also between processes with the same ``locks``.

    A run gets one hardware thread of each of its cores and the siblings stay idle: a busy sibling would slow it down
    by an unknown amount. Only a run that requests more CPUs than there are physical cores gets siblings, its own.

    Cores found by :meth:`has_capacity` stay reserved for the next :meth:`acquire`, or until :meth:`drop_reserved`.
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
    def cores_used_elsewhere(self) -> int:
        """Cores that runs of other processes use."""
        return self._locks.count_elsewhere(core[0] for core in self._cores)

    def fits(self, count: int) -> bool:
        return 1 <= count <= self.count

    def count_parallel(self, count: int) -> int:
        """Return how many runs of so many CPUs can run at once."""
        return len(self._cores) // self._cores_for(count)

    def has_capacity(self, count: int) -> bool:
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

    def acquire(self, count: int) -> tuple[int, ...]:
        assert self.has_capacity(count)
        needed = self._cores_for(count)
        acquired, self._reserved = self._reserved[:needed], self._reserved[needed:]
        self._free = [core for core in self._free if core not in acquired]
        by_thread = chain.from_iterable(zip_longest(*acquired))
        return tuple(cpu for cpu in by_thread if cpu is not None)[:count]

    def release(self, cpus: Collection[int]) -> None:
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
