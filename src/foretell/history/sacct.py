"""Asks ``sacct`` for the jobs of some time, a window after the other: slurmdbd is never asked for all at once."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from foretell.probes.slurm.calls import stream

# Free texts come last: sacct does not escape the '|' and the newlines in them.
FIELDS = (
    "JobID", "JobIDRaw", "Cluster", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NNodes", "AllocCPUS", "ReqMem", "ReqTRES", "AllocTRES", "NTasks", "TotalCPU", "MaxRSS",
    "AveDiskRead", "AveDiskWrite", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip
_DAYS = 7
_DAYS_OF_ALL_USERS = 1
_LAG = timedelta(hours=1)  # what ended may take a while to reach the database
_MONDAY = datetime(1970, 1, 5)  # windows lie on the cluster's clock, which tells no zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Whose jobs are asked for, on which cluster; no user means one's own."""

    users: tuple[str, ...] = ()
    all_users: bool = False
    cluster: str | None = None

    def render(self) -> str:
        """The same for the same question."""
        who = "*" if self.all_users else ",".join(sorted(self.users))
        return f"sacct users={who} cluster={self.cluster or ''}"

    def list_windows(self, since: datetime, until: datetime) -> "Iterator[Window]":
        """Stretches of time on a fixed grid, so that another ``since`` meets the same ones."""
        step = timedelta(days=_DAYS_OF_ALL_USERS if self.all_users else _DAYS)
        start = _MONDAY + (since - _MONDAY) // step * step
        while start < until:
            yield Window(query=self, start=start, end=start + step)
            start += step


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Jobs that ran or waited at some moment between two: whoever goes on is met again in the next window."""

    query: Query
    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        return f"{self.query.render()} {self.start.isoformat()}/{self.end.isoformat()}"

    def is_past(self, now: datetime) -> bool:
        """Whether nothing new can happen in it."""
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
        """What sacct prints for it.

        Raises:
            SchedulerError: if sacct is not there, or does not answer.
        """
        return stream(self.build_command())
