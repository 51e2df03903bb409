"""Keeps what a run prints within a limit: the first and the last half of it stay, the middle goes.

While the run writes, the disk behind the middle is freed, which neither waits for the run nor moves what it writes.
File systems that cannot do that (some network ones) keep all until the run has ended; then the middle is cut out.
"""

import ctypes
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from foretell.core.app import Combine, Phase
from foretell.core.units import render_bytes
from foretell.probes.phases import read_phases
from foretell.runners._files import STDERR, STDOUT

_MARK = "left out here: log_limit is"
_LONGEST_LINE = 1 << 16
_BLOCK = 512  # the unit of st_blocks
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # https://man7.org/linux/man-pages/man2/fallocate.2.html
_OF_ALL_LINES = (Combine.MEAN, Combine.SUM, Combine.MAX, Combine.COUNT)


def free_middles(directory: Path, *, limit_bytes: int | None) -> None:
    """Free the disk behind the middles of a run's logs that have grown too large; never fails."""
    for path in _list_logs(directory, limit_bytes):
        with suppress(OSError), _opened(path) as (descriptor, facts):
            if limit_bytes is not None and facts.st_blocks * _BLOCK > limit_bytes:
                _punch(descriptor, limit_bytes // 2, facts.st_size - limit_bytes)


def cut_logs(directory: Path, *, limit_bytes: int | None) -> tuple[str, ...]:
    """Cut the middles out of the logs of a run that has ended; the names of those that lack theirs."""
    return tuple(path.name for path in _list_logs(directory, limit_bytes) if _cut(path, limit_bytes or 0))


def read_kept_phases(
    phases: Sequence[Phase], *, directory: Path, limit_bytes: int | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """As :func:`read_phases`, after the logs were cut: what is made of all lines is not read from some of them."""
    cut = STDOUT in cut_logs(directory, limit_bytes=limit_bytes)
    lost = [phase for phase in phases if cut and phase.pattern is not None and phase.combine in _OF_ALL_LINES]
    kept = [phase for phase in phases if phase not in lost]
    values, complaints = read_phases(kept, run_directory=directory, output=directory / STDOUT)
    return values, (*complaints, *(f"phase {phase.name!r}: {_explain_loss(limit_bytes or 0)}" for phase in lost))


def _explain_loss(limit_bytes: int) -> str:
    return f"the output was cut to {render_bytes(limit_bytes)}; raise 'log_limit', or write the number to a file"


def _list_logs(directory: Path, limit_bytes: int | None) -> list[Path]:
    return [] if limit_bytes is None else [directory / STDOUT, directory / STDERR]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """A log itself: the run may have put a link to some other file in its place."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            raise OSError(f"{path} is no longer a log of ours")
        yield descriptor, facts
    finally:
        os.close(descriptor)


def _cut(path: Path, limit_bytes: int) -> bool:
    half = limit_bytes // 2
    with suppress(OSError), _opened(path) as (descriptor, facts):
        if _is_cut(descriptor, half):
            return True
        if facts.st_size <= limit_bytes:
            return False
        first = os.pread(descriptor, half, 0).rpartition(b"\n")[0] + b"\n"
        last = os.pread(descriptor, half, facts.st_size - half).partition(b"\n")[2]
        left_out = facts.st_size - len(first) - len(last)
        note = f"[{render_bytes(left_out)} {_MARK} {render_bytes(limit_bytes)}]\n".encode()
        os.ftruncate(descriptor, len(first))
        os.pwrite(descriptor, note + last, len(first))
        return True
    return False


def _is_cut(descriptor: int, half: int) -> bool:
    """Whether it was cut before: then where its halves meet it says so."""
    start = max(0, half - _LONGEST_LINE)
    return _MARK.encode() in os.pread(descriptor, 2 * _LONGEST_LINE, start)


def _punch(descriptor: int, offset: int, length: int) -> None:
    if length > 0:
        _find_fallocate()(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length)


@cache
def _find_fallocate() -> "ctypes._NamedFuncPointer":
    fallocate = ctypes.CDLL(None).fallocate64
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return fallocate
