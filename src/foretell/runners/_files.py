"""What a run leaves in its directory: logs, and in the end its record."""

import contextlib
import errno
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from foretell.core.errors import OutputError, RunnerError
from foretell.core.private_files import make_own_folder
from foretell.core.run import Run
from foretell.core.serialization import from_record, to_record
from foretell.probes.sample import SAMPLE

STDOUT, STDERR, SETUP, CLEANUP, RECORD = "stdout.log", "stderr.log", "setup.log", "cleanup.log", "run.json"
JOB_RECORD = "job.txt"  # of a run that is a job of a scheduler

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
    """A real folder of this user's own.

    Raises:
        OutputError: if it is a symbolic link, or belongs to somebody else.
        OSError: if it cannot be made.
    """
    make_own_folder(directory, top=directory.parent.parent)


def prepare_run_directory(directory: Path) -> None:
    """An empty set of files for a new attempt; what the run itself may have left stays.

    Raises:
        RunnerError: if it cannot be written, is a symbolic link, or belongs to somebody else.
    """
    with writing(directory):
        make_run_directory(directory)
        for name in (RECORD, SETUP, CLEANUP, JOB_RECORD, SAMPLE, STDOUT, STDERR):
            (directory / name).unlink(missing_ok=True)  # a link goes, what it points to stays
        for name in (STDOUT, STDERR):
            (directory / name).touch(exist_ok=False)


def write_finished(directory: Path, run: Run) -> None:
    """Keep the run's record beside its logs, whole or not at all.

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
    """The run that ended in this directory; ``None`` if none did."""
    try:
        return from_record(Run, json.loads((run_directory / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None  # absent, or not written by us: it has to run again


def read_tail(paths: Iterable[Path]) -> str:
    """The last lines of each file that has any, under its name."""
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
    printable = text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # not every store takes a NUL in a text
    return "\n".join(deque(printable.splitlines(), maxlen=_TAIL_LINES))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a path we write into an error that names it and what to do."""
    try:
        yield
    except OutputError as exc:  # which says it all
        raise RunnerError(str(exc)) from exc
    except (OSError, ValueError) as exc:
        number = exc.errno if isinstance(exc, OSError) else None
        remedy = _REMEDIES.get(number or 0, "choose another directory")
        cause = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise RunnerError(f"cannot write {str(path)!r}: {cause}; {remedy} and start again") from exc
