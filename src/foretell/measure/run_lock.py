"""Locks the folder of a run for the process that makes it. The kernel frees the lock when that process ends."""

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

LOCK = ".lock"
_LOOKED_AT_S = 0.5  # a check of a lock holds it for a moment
_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class RunLock:
    """A lock held until :meth:`free` or the end of this process; without effect on a file system without locks."""

    descriptor: int
    is_new: bool  # no run was made in this folder before

    def free(self) -> None:
        """Release the folder."""
        os.close(self.descriptor)


def take_run_lock(directory: Path) -> RunLock | None:
    """Lock the folder of a run; return ``None`` if another process has it.

    Raises:
        OSError: if its file cannot be made.
    """
    descriptor, is_new = _open_lock(directory / LOCK)
    until_s = time.monotonic() + _LOOKED_AT_S
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > until_s:
            os.close(descriptor)
            return None
        time.sleep(_PAUSE_S)
    return RunLock(descriptor, is_new)


def is_run_locked(directory: Path) -> bool | None:
    """Return whether a live process makes a run in a folder; ``None`` if there is no lock."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH, raising=True)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags), False
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            path.unlink()  # removes a link, not its target
        elif exc.errno != errno.ENOENT:
            raise
    return os.open(path, flags | os.O_CREAT, 0o600), True


def _try_lock(descriptor: int, kind: int, *, raising: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if raising:
            raise
    return True
