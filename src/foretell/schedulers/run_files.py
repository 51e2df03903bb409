"""Files in the directory of a run: logs with a size limit, and the result."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from foretell.core.app import Combine, Phase
from foretell.core.errors import OutputError, RunnerError
from foretell.core.private_files import make_own_folder
from foretell.core.run import SAMPLE, Run
from foretell.core.serialization import from_record, to_record
from foretell.core.units import render_bytes, render_duration

STDOUT, STDERR, SETUP, CLEANUP, RECORD = "stdout.log", "stderr.log", "setup.log", "cleanup.log", "run.json"
JOB_RECORD = "job.txt"  # written by the script of a scheduler's job

_TAIL_LINES = 40
_TAIL_BYTES = 1 << 14
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space: your quota is used up",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "choose a directory on a file system that is not read-only",
    errno.ENOTDIR: "move away the file that is in its place",
    errno.EEXIST: "move away the file that is in its place",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def make_run_directory(directory: Path) -> None:
    """Create the folder, owned by this user.

    Raises:
        OutputError: if it is a symbolic link, or belongs to another user.
        OSError: if it cannot be created.
    """
    make_own_folder(directory, top=directory.parent.parent)


def prepare_run_directory(directory: Path) -> None:
    """Remove Foretell's files of an earlier attempt; files of the run itself stay.

    Raises:
        RunnerError: if it cannot be written, is a symbolic link, or belongs to another user.
    """
    with writing(directory):
        make_run_directory(directory)
        for name in (RECORD, SETUP, CLEANUP, JOB_RECORD, SAMPLE, STDOUT, STDERR):
            (directory / name).unlink(missing_ok=True)  # removes a link, not its target
        for name in (STDOUT, STDERR):
            (directory / name).touch(exist_ok=False)


def write_finished(directory: Path, run: Run) -> None:
    """Write the result next to the logs, atomically.

    Raises:
        RunnerError: if it cannot be written.
    """
    path, draft = directory / RECORD, directory / f".{RECORD}.new"
    with writing(path):
        draft.unlink(missing_ok=True)
        with draft.open("x", encoding="utf-8") as file:
            json.dump(to_record(run), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_finished(run_directory: Path) -> Run | None:
    """Return the run that ended in this directory; ``None`` if none did."""
    try:
        return from_record(Run, json.loads((run_directory / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None  # absent or not readable: it has to run again


def read_tail(paths: Iterable[Path]) -> str:
    """Return the last lines of each file that has any, below its name."""
    tails = ((path, _last_lines(path)) for path in paths)
    return "\n".join(f"--- {path.name}\n{tail}" for path, tail in tails if tail)


def _last_lines(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    printable = text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL does not store NUL in text
    return "\n".join(deque(printable.splitlines(), maxlen=_TAIL_LINES))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the system into errors that name the path and a remedy."""
    try:
        yield
    except OutputError as exc:  # its message is complete
        raise RunnerError(str(exc)) from exc
    except (OSError, ValueError) as exc:
        number = exc.errno if isinstance(exc, OSError) else None
        remedy = _REMEDIES.get(number or 0, "choose another directory")
        cause = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise RunnerError(f"cannot write {str(path)!r}: {cause}; {remedy} and start again") from exc


_CUT_NOTE = "left out here: log_limit is"
_LONGEST_LINE = 1 << 16
_BLOCK = 512  # bytes, the unit of st_blocks
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # https://man7.org/linux/man-pages/man2/fallocate.2.html
_NEEDS_ALL_LINES = (Combine.MEAN, Combine.SUM, Combine.MAX, Combine.COUNT)


def free_middles(directory: Path, *, limit_bytes: int | None) -> None:
    """Free disk space in the middle of logs that have grown too large; never fails."""
    for path in _list_logs(directory, limit_bytes):
        with suppress(OSError), _opened(path) as (descriptor, facts):
            if limit_bytes is not None and facts.st_blocks * _BLOCK > limit_bytes:
                _punch(descriptor, limit_bytes // 2, facts.st_size - limit_bytes)


def cut_logs(directory: Path, *, limit_bytes: int | None) -> tuple[str, ...]:
    """Cut the middle out of large logs of a run that has ended; return the names of cut logs."""
    return tuple(path.name for path in _list_logs(directory, limit_bytes) if _cut(path, limit_bytes or 0))


def read_kept_phases(
    phases: Sequence[Phase], *, directory: Path, limit_bytes: int | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Cut the logs and return phases as :func:`read_phases`; those that need all lines are not read from a cut log."""
    cut = STDOUT in cut_logs(directory, limit_bytes=limit_bytes)
    lost = [phase for phase in phases if cut and phase.pattern is not None and phase.combine in _NEEDS_ALL_LINES]
    kept = [phase for phase in phases if phase not in lost]
    from foretell.measure.phases import read_phases

    values, complaints = read_phases(kept, run_directory=directory, output=directory / STDOUT)
    return values, (*complaints, *(f"phase {phase.name!r}: {_explain_loss(limit_bytes or 0)}" for phase in lost))


def _explain_loss(limit_bytes: int) -> str:
    return f"the output was cut to {render_bytes(limit_bytes)}; raise 'log_limit', or write the number to a file"


def _list_logs(directory: Path, limit_bytes: int | None) -> list[Path]:
    return [] if limit_bytes is None else [directory / STDOUT, directory / STDERR]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a log, but not a link or hard link that the run may have put in its place."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            raise OSError(f"{path} is no longer the log that Foretell created")
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
        note = f"[{render_bytes(left_out)} {_CUT_NOTE} {render_bytes(limit_bytes)}]\n".encode()
        os.ftruncate(descriptor, len(first))
        os.pwrite(descriptor, note + last, len(first))
        return True
    return False


def _is_cut(descriptor: int, half: int) -> bool:
    """Return whether it was cut before: then a note is where the halves meet."""
    start = max(0, half - _LONGEST_LINE)
    return _CUT_NOTE.encode() in os.pread(descriptor, 2 * _LONGEST_LINE, start)


def _punch(descriptor: int, offset: int, length: int) -> None:
    if length > 0:
        _find_fallocate()(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length)


@cache
def _find_fallocate() -> "ctypes._NamedFuncPointer":
    fallocate = ctypes.CDLL(None).fallocate64
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return fallocate


def render_time_limit(limit_s: float) -> str:
    return f"stopped at its time limit of {render_duration(limit_s)}"


def render_memory_limit(limit_bytes: int) -> str:
    return f"used more than the requested {render_bytes(limit_bytes)} of memory"


def render_exit(code: int) -> str:
    """Return how a command ended; a negative code is a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (perhaps the machine ran out of memory)" if -code == signal.SIGKILL else ""
    return f"ended with {name}{hint}"
