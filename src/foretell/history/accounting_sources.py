"""Reads saved files of ``sacct``, or calls it for one window of time after the other."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from foretell.core.errors import ImportDataError, NotFoundError
from foretell.history.accounting_lines import BLOCK, LONGEST_LINE, Layout, parse_layout
from foretell.schedulers.slurm.commands import stream

STDIN = "-"
_PRINT = 64 * 1024
_GZIP = b"\x1f\x8b"
_OTHER_PACKING = {
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "unzip",
    b"\x1f\x9d": "uncompress",
}


@contextmanager
def open_file(source: str) -> Iterator[BinaryIO]:
    """Open a saved text, decompressed if it is gzipped.

    Raises:
        NotFoundError: if there is no such file.
        ImportDataError: if it cannot be read, or its packing is damaged.
    """
    try:
        if source == STDIN:
            yield _unpack(cast("BufferedReader", sys.stdin.buffer), source="standard input")
        else:
            with Path(source).open("rb") as file:
                yield _unpack(file, source=source)
    except FileNotFoundError:
        raise NotFoundError("file", source, hint="Save one with 'sacct --parsable2 …', or leave it out.") from None
    except (OSError, EOFError, zlib.error) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ImportDataError(f"{source}: cannot be read to its end ({reason}); what was read before is kept") from exc


def _unpack(file: BufferedReader, *, source: str) -> BinaryIO:
    begin = file.peek(8)
    if begin.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    for magic, program in _OTHER_PACKING.items():
        if begin.startswith(magic):
            raise ImportDataError(
                f"{source}: is compressed, but not with gzip; decompress it with {program!r}, or pass it "
                f"decompressed on standard input: foretell history import -"
            )
    return file


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, BLOCK), b"")


def read_head(file: BinaryIO, *, source: str) -> Layout:
    """Return the layout that the first line names.

    Raises:
        ImportDataError: if it names none.
    """
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise ImportDataError(
            f"{source}: the first line is longer than {LONGEST_LINE:,} bytes; expected output of sacct"
        )
    return parse_layout(line.decode("utf-8", "replace"), source=source)


def print_file(source: str) -> str | None:
    """Return a fingerprint of a file, whatever its name: the hash of its start, and its size; ``None`` for pipes."""
    path = Path(source)
    if source == STDIN or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return f"file {hashlib.sha256(file.read(_PRINT)).hexdigest()[:32]} {path.stat().st_size}"
    except OSError:
        return None


# Free texts come last: sacct does not escape '|' and newlines in them.
FIELDS = (
    "JobID", "JobIDRaw", "Cluster", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NNodes", "AllocCPUS", "ReqMem", "ReqTRES", "AllocTRES", "NTasks", "TotalCPU", "MaxRSS",
    "AveDiskRead", "AveDiskWrite", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip
_DAYS = 7
_DAYS_OF_ALL_USERS = 1
_LAG = timedelta(hours=1)  # ended jobs may reach the database with a delay
_MONDAY = datetime(1970, 1, 5)  # windows are in the cluster's local time, which has no zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Users and cluster of a query; without users, one's own jobs."""

    users: tuple[str, ...] = ()
    all_users: bool = False
    cluster: str | None = None

    def render(self) -> str:
        """Return the same text for the same query."""
        who = "*" if self.all_users else ",".join(sorted(self.users))
        return f"sacct users={who} cluster={self.cluster or ''}"

    def list_windows(self, since: datetime, until: datetime) -> "Iterator[Window]":
        """Return windows on a fixed grid, so that another ``since`` gives the same ones."""
        step = timedelta(days=_DAYS_OF_ALL_USERS if self.all_users else _DAYS)
        start = _MONDAY + (since - _MONDAY) // step * step
        while start < until:
            yield Window(query=self, start=start, end=start + step)
            start += step


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Jobs that ran or waited between two times; jobs that continue are in the next window as well."""

    query: Query
    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        return f"{self.query.render()} {self.start.isoformat()}/{self.end.isoformat()}"

    def is_past(self, now: datetime) -> bool:
        """Return whether all jobs in it have ended."""
        return self.end + _LAG <= now

    def build_command(self) -> list[str]:
        query = self.query
        who = ["--allusers"] if query.all_users else [f"--user={','.join(query.users)}"] if query.users else []
        where = [f"--clusters={query.cluster}"] if query.cluster else []
        when = [f"--starttime={self.start.isoformat()}", f"--endtime={self.end.isoformat()}"]
        return [
            "sacct",
            "--parsable2",
            "--noheader",
            "--duplicates",
            f"--format={','.join(FIELDS)}",
            *when,
            *who,
            *where,
        ]

    def open(self) -> AbstractContextManager[Iterator[bytes]]:
        """Open the output of sacct for it.

        Raises:
            SchedulerError: if sacct is not there, or does not answer.
        """
        return stream(self.build_command())
