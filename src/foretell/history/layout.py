"""Which field of a line of accounting is what, and how a field of that name looks."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

from foretell.errors import ImportDataError

FREE_TEXTS = frozenset(
    {"JobName", "WorkDir", "SubmitLine", "Comment", "AdminComment", "SystemComment", "Container", "WCKey", "Extra"}
)
_JOB_ID = re.compile(r"\d+(_(\d+|\[[\d,:%-]*(\.\.\.)?\]))?(\+\d+)?(\.[\w+-]+)?")
_COUNT = re.compile(r"\d*")
_CLOCK = re.compile(r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?|UNLIMITED|Partition_Limit|INVALID|")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+|Unknown|None|")
_SIZE = re.compile(r"(\d+(\.\d+)?[KMGTPE]?[cn]?)?")
_LIST = re.compile(r"([\w/:.-]+=[^,|]*(,|$))*")
_SHAPES = {
    "JobID": _JOB_ID,
    "JobIDRaw": _JOB_ID,
    "State": re.compile(r"[A-Z_]+( by \d+)?"),
    **dict.fromkeys(("Submit", "Start", "End", "Eligible"), _MOMENT),
    **dict.fromkeys(("Elapsed", "Timelimit", "TotalCPU", "UserCPU", "SystemCPU", "CPUTime", "AveCPU"), _CLOCK),
    **dict.fromkeys(("ElapsedRaw", "NNodes", "AllocNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "NTasks"), _COUNT),
    "TimelimitRaw": re.compile(r"\d*|UNLIMITED|Partition_Limit"),
    **dict.fromkeys(("MaxRSS", "AveRSS", "ReqMem", "AveDiskRead", "AveDiskWrite", "MaxVMSize"), _SIZE),
    **dict.fromkeys(("ReqTRES", "AllocTRES"), _LIST),
    "ExitCode": re.compile(r"(\d+:\d+)?"),
    "": re.compile(""),  # what follows the last separator of --parsable
}
_STARTERS = ("sbatch", "srun", "salloc")
MOST_SURPLUS = 40  # separators in the free texts of one line; a command with more is not worth the search
_MOST_WAYS = 1000  # to share them among the free texts
_HINT = "save it with: sacct --parsable2 --format=JobID,JobIDRaw,State,Submit,ElapsedRaw,… > FILE"


@dataclass(frozen=True)
class Layout:
    """The names of a line's fields, in order."""

    names: tuple[str, ...]

    @cached_property
    def width(self) -> int:
        return len(self.names)

    @cached_property
    def job_id(self) -> int:
        return self.names.index("JobID")

    @cached_property
    def ends_in_text(self) -> bool:
        return self.names[-1] in FREE_TEXTS

    @cached_property
    def _free(self) -> tuple[int, ...]:
        return tuple(place for place, name in enumerate(self.names) if name in FREE_TEXTS)

    def find(self, *names: str) -> int | None:
        """Where the first of these is that there is."""
        return next((self.names.index(name) for name in names if name in self.names), None)

    def starts_record(self, line: str) -> bool:
        fields = line.split("|", self.job_id + 1)
        return len(fields) > self.job_id and _JOB_ID.fullmatch(fields[self.job_id]) is not None

    def starts_job(self, line: str, *, whole: bool = True) -> bool:
        """Whether it is of a job itself, not of a step; one that is not ``whole`` must at least have all of its id."""
        fields = line.split("|", self.job_id + 1)
        found = len(fields) > self.job_id + (not whole) and _JOB_ID.fullmatch(fields[self.job_id])
        return bool(found) and "." not in fields[self.job_id]

    def fit(self, line: str) -> list[str] | None:
        """The fields of a line; where free texts hold separators, as all other fields look right in one way only."""
        fields = line.split("|")
        surplus = len(fields) - self.width
        if surplus == 0:
            return fields if _JOB_ID.fullmatch(fields[self.job_id]) else None
        if not 0 < surplus <= MOST_SURPLUS or not self._free:
            return None
        if comb(surplus + len(self._free) - 1, surplus) > _MOST_WAYS:
            return None
        possible = [found for found in self._regroup(fields, surplus) if self._looks_right(found)]
        numbers = {tuple(text for place, text in enumerate(found) if place not in self._free) for found in possible}
        return max(possible, key=self._rate_texts) if len(numbers) == 1 else None

    def _regroup(self, fields: Sequence[str], surplus: int) -> Iterator[list[str]]:
        """Every way to share the surplus among the free texts, the last one first: commands hold most separators."""
        for owners in combinations_with_replacement(reversed(self._free), surplus):
            found, start = [], 0
            for place in range(self.width):
                end = start + 1 + owners.count(place)
                found.append("|".join(fields[start:end]))
                start = end
            yield found

    def _looks_right(self, fields: Sequence[str]) -> bool:
        shapes = zip(self.names, fields, strict=True)
        return all(name not in _SHAPES or _SHAPES[name].fullmatch(text) for name, text in shapes)

    def _rate_texts(self, fields: Sequence[str]) -> int:
        texts = dict(zip(self.names, fields, strict=True))
        folder, command = texts.get("WorkDir", ""), texts.get("SubmitLine", "")
        return 2 * (not folder or folder.startswith("/")) + (not command or command.startswith(_STARTERS))


def parse_layout(line: str, *, source: str) -> Layout:
    """The layout that a head line names, in any order and any case.

    Raises:
        ImportDataError: if it lacks what no job can do without.
    """
    known = {name.lower(): name for name in (*_SHAPES, *FREE_TEXTS)}
    names = tuple(known.get(word.strip().lower(), word.strip()) for word in line.strip("\r\n\ufeff").split("|"))
    missing = [name for name in ("JobID", "State") if name not in names]
    missing += [] if {"Elapsed", "ElapsedRaw"} & {*names} else ["ElapsedRaw"]
    if missing:
        shown = line.strip()[:80]
        raise ImportDataError(
            f"{source}: the first line {shown!r} names no {' and no '.join(missing)}; expected the head line of "
            f"sacct's columns. {_HINT}"
        )
    return Layout(names)
