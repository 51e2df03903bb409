"""Cores of this machine that runs of any Foretell process of this user have, so that together they share none."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

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
