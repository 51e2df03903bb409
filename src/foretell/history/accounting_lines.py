"""Splits blocks of bytes into lines and fields. Lines that free texts broke apart are joined again."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import ImportDataError
from foretell.core.past_jobs import Complaint, Mark

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
    "": re.compile(""),  # text after the last separator of --parsable
}
_STARTERS = ("sbatch", "srun", "salloc")
MAX_SURPLUS = 40  # separators in the free texts of one line; the search is not worth it for more
_MAX_WAYS = 1000  # to distribute them over the free texts
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
        """Return the index of the first of these names that exists."""
        return next((self.names.index(name) for name in names if name in self.names), None)

    def starts_record(self, line: str) -> bool:
        fields = line.split("|", self.job_id + 1)
        return len(fields) > self.job_id and _JOB_ID.fullmatch(fields[self.job_id]) is not None

    def starts_job(self, line: str, *, whole: bool = True) -> bool:
        """Return whether a line is of a job, not of a step; one that is not ``whole`` must have at least a whole id."""
        fields = line.split("|", self.job_id + 1)
        found = len(fields) > self.job_id + (not whole) and _JOB_ID.fullmatch(fields[self.job_id])
        return bool(found) and "." not in fields[self.job_id]

    def fit(self, line: str) -> list[str] | None:
        """Return the fields of a line; separators in free texts are found if only one way makes all fields valid."""
        fields = line.split("|")
        surplus = len(fields) - self.width
        if surplus == 0:
            return fields if _JOB_ID.fullmatch(fields[self.job_id]) else None
        if not 0 < surplus <= MAX_SURPLUS or not self._free:
            return None
        if comb(surplus + len(self._free) - 1, surplus) > _MAX_WAYS:
            return None
        possible = [found for found in self._regroup(fields, surplus) if self._is_valid(found)]
        numbers = {tuple(text for place, text in enumerate(found) if place not in self._free) for found in possible}
        return max(possible, key=self._rate_texts) if len(numbers) == 1 else None

    def _regroup(self, fields: Sequence[str], surplus: int) -> Iterator[list[str]]:
        """Yield every distribution of the surplus over the free texts, the last first: commands have most of them."""
        for owners in combinations_with_replacement(reversed(self._free), surplus):
            found, start = [], 0
            for place in range(self.width):
                end = start + 1 + owners.count(place)
                found.append("|".join(fields[start:end]))
                start = end
            yield found

    def _is_valid(self, fields: Sequence[str]) -> bool:
        shapes = zip(self.names, fields, strict=True)
        return all(name not in _SHAPES or _SHAPES[name].fullmatch(text) for name, text in shapes)

    def _rate_texts(self, fields: Sequence[str]) -> int:
        texts = dict(zip(self.names, fields, strict=True))
        folder, command = texts.get("WorkDir", ""), texts.get("SubmitLine", "")
        return 2 * (not folder or folder.startswith("/")) + (not command or command.startswith(_STARTERS))


def parse_layout(line: str, *, source: str) -> Layout:
    """Return the layout that a head line names, in any order and case.

    Raises:
        ImportDataError: if it lacks a required column.
    """
    known = {name.lower(): name for name in (*_SHAPES, *FREE_TEXTS)}
    names = tuple(known.get(word.strip().lower(), word.strip()) for word in line.strip("\r\n\ufeff").split("|"))
    missing = [name for name in ("JobID", "State") if name not in names]
    missing += [] if {"Elapsed", "ElapsedRaw"} & {*names} else ["ElapsedRaw"]
    if missing:
        shown = line.strip()[:80]
        raise ImportDataError(
            f"{source}: the first line {shown!r} does not name {' and '.join(missing)}; expected the names of "
            f"sacct's columns. {_HINT}"
        )
    return Layout(names)


Places = NDArray[np.intp]

BLOCK = 2**20
LONGEST_LINE = 2**20
LONGEST_TEXT = 4000  # characters of a free text that are stored
_MAX_HELD = 8 * 2**20  # of one job with its steps
_SHOWN = 80
_LONGEST_REASON = 200
_MAX_REASONS = 20
_SEPARATOR, _NEWLINE = ord("|"), ord("\n")
# Replaces separators and newlines within a text while many lines are processed together.
_REPLACEMENTS = {"|": "\ue07c", "\n": "\ue00a"}
_HIDE, _SHOW = str.maketrans(_REPLACEMENTS), str.maketrans({value: key for key, value in _REPLACEMENTS.items()})

NOT_UNDERSTOOD = "not understood"
CUT_OFF = "the text ends without a newline, so its last line may be incomplete and its job is left out"
TOO_LONG = f"longer than {LONGEST_LINE:,} bytes"
OTHER = "for other reasons"


@dataclass(slots=True)
class Complaints:
    """What was left out, by reason; with the first example of each, and a limited number of reasons."""

    found: dict[str, Complaint] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(complaint.count for complaint in self.found.values())

    def add(self, reason: str, *, line: int = 0, text: str = "", count: int = 1) -> None:
        reason = reason[:_LONGEST_REASON]
        reason = reason if reason in self.found or len(self.found) < _MAX_REASONS else OTHER
        known = self.found.get(reason) or Complaint(reason=reason, count=0, line=line, text=text[:_SHOWN])
        self.found[reason] = replace(known, count=known.count + count)


@dataclass(frozen=True)
class Lines:
    """Whole lines with their numbers; ``ends`` has a row for each line and a column for each field.

    ``upto`` is the end of these lines in the text.
    """

    data: bytes
    ends: Places
    numbers: Sequence[int]
    upto: Mark

    @cached_property
    def characters(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def begins(self) -> Places:
        """The start of each line."""
        return np.concatenate([np.zeros(1, dtype=np.intp), self.ends[:-1, -1] + 1])[: len(self.ends)]

    def begins_of(self, column: int) -> Places:
        return self.begins if column == 0 else self.ends[:, column - 1] + 1

    def split(self, rows: Places) -> list[list[str]]:
        """Return the fields of some lines."""
        places = zip(self.begins[rows].tolist(), self.ends[rows, -1].tolist(), strict=True)
        return [split_fields(self.data[begin:end]) for begin, end in places]

    def cut(self, rows: Places, first: int, last: int) -> list[bytes]:
        """Return adjacent fields of some lines, not split."""
        places = zip(self.begins_of(first)[rows].tolist(), self.ends[rows, last].tolist(), strict=True)
        return [self.data[begin:end] for begin, end in places]


def split_fields(data: bytes) -> list[str]:
    """Return the original texts of fields."""
    if data.isascii():
        return data.decode("ascii").split("|")
    return [text.translate(_SHOW) for text in data.decode("utf-8", "replace").split("|")]


def read_lines(blocks: Iterable[bytes], layout: Layout, complaints: Complaints, *, start: Mark) -> Iterator[Lines]:
    """Yield the lines of a text, block by block, in bounded memory; a job and its steps stay together."""
    reader = _Reader(layout, complaints)
    held = _Held(layout, start)
    for block in blocks:
        held.add(block)
        cut = held.find_cut()
        if cut:
            yield reader.read(*held.take(cut))
        if held.is_too_long:
            complaints.add(TOO_LONG, line=held.mark.lines + 1, text=held.skip_line())
    number, rest = held.mark.lines + held.data.count(b"\n") + 1, held.data[held.whole :].decode("utf-8", "replace")
    if held.whole and (not rest or layout.starts_job(rest, whole=False)):
        yield reader.read(*held.take(held.whole))
    if rest:
        complaints.add(CUT_OFF, line=number, text=rest)


@dataclass(slots=True)
class _Held:
    """The part of a text that is not processed yet; ``mark`` is its start."""

    layout: Layout
    mark: Mark
    data: bytes = b""
    _searched: int = 0
    _skips: bool = False

    @property
    def whole(self) -> int:
        """The start of the last line, which has no end yet."""
        return self.data.rfind(b"\n") + 1

    @property
    def is_too_long(self) -> bool:
        """Whether only an incomplete line is held that is too long already."""
        return len(self.data) > LONGEST_LINE and b"\n" not in self.data

    def add(self, block: bytes) -> None:
        if self._skips:
            end = block.find(b"\n") + 1
            self._pass(end or len(block), lines=1 if end else 0)
            self._skips, block = not end, block[end:] if end else b""
        self.data += block

    def skip_line(self) -> str:
        """Drop the held line and the rest of it that is still to come; return its beginning."""
        begin = self.data[: 4 * _SHOWN].decode("utf-8", "replace")
        self._pass(len(self.data), lines=0)
        self.data, self._skips = b"", True
        return begin

    def find_cut(self) -> int:
        """Return the start of the last job, because its steps may still come; 0 to wait for more."""
        whole = end = self.whole
        while (start := self.data.rfind(b"\n", 0, max(end - 1, 0)) + 1) > self._searched:
            if self.layout.starts_job(self.data[start : start + 1024].decode("utf-8", "replace")):
                return start
            end = start
        self._searched = self.data.rfind(b"\n", 0, max(whole - 1, 0)) + 1
        is_full = len(self.data) > _MAX_HELD or len(self.data) - whole > LONGEST_LINE
        return whole if is_full else 0

    def take(self, size: int) -> tuple[bytes, Mark]:
        """Return the first bytes, and where they begin."""
        taken, mark = self.data[:size], self.mark
        self.data, self._searched = self.data[size:], 0
        self._pass(size, lines=taken.count(b"\n"))
        return taken, mark

    def _pass(self, size: int, *, lines: int) -> None:
        self.mark = Mark(position=self.mark.position + size, lines=self.mark.lines + lines)


@dataclass(frozen=True, slots=True)
class _Reader:
    layout: Layout
    complaints: Complaints

    def read(self, data: bytes, start: Mark) -> Lines:
        count = data.count(b"\n")
        upto = Mark(position=start.position + len(data), lines=start.lines + count)
        data = data.replace(b"\r\n", b"\n") if b"\r" in data else data
        ends = self._find_ends(data, count)
        if ends is not None and np.diff(ends[:, -1], prepend=-1).max(initial=0) <= LONGEST_LINE + 1:
            return Lines(data, ends, range(start.lines + 1, upto.lines + 1), upto)
        joined = list(_Joiner(self.layout, self.complaints).join(data.split(b"\n")[:-1], start.lines + 1))
        whole = "".join("|".join(text.translate(_HIDE) for text in fields) + "\n" for _, fields in joined).encode()
        ends = self._find_ends(whole, len(joined))
        assert ends is not None
        return Lines(whole, ends, [number for number, _ in joined], upto)

    def _find_ends(self, data: bytes, count: int) -> Places | None:
        """Return the end of each field of each line; ``None`` if a line has more or fewer fields."""
        characters = np.frombuffer(data, dtype=np.uint8)
        found = np.flatnonzero((characters == _SEPARATOR) | (characters == _NEWLINE))
        if len(found) != count * self.layout.width:
            return None
        ends = found.reshape(count, self.layout.width)
        return ends if (characters[ends[:, -1]] == _NEWLINE).all() else None


@dataclass(slots=True)
class _Begun:
    """A record of which only the first lines were read."""

    number: int
    lines: list[str] = field(default_factory=list)
    separators: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.separators += line.count("|")


@dataclass(slots=True)
class _Joiner:
    """Joins lines that a newline in a free text broke apart, and finds separators that belong to free texts."""

    layout: Layout
    complaints: Complaints
    _whole: tuple[int, list[str]] | None = None
    _begun: _Begun | None = None

    def join(self, lines: Iterable[bytes], first: int) -> Iterator[tuple[int, list[str]]]:
        """Yield each valid line with its number, as fields."""
        for number, data in enumerate(lines, start=first):
            line = data[: LONGEST_LINE + 1].decode("utf-8", "replace")
            if len(data) > LONGEST_LINE:
                yield from self._finish()
                self.complaints.add(TOO_LONG, line=number, text=line)
            elif (fields := self.layout.fit(line)) is not None:
                yield from self._finish()
                self._whole = number, fields
            elif self.layout.starts_record(line):
                yield from self._finish()
                self._begun = _Begun(number)
                self._begun.add(line)
            else:
                self._continue(number, line)
        yield from self._finish()

    def _continue(self, number: int, line: str) -> None:
        if self._begun is not None:
            self._extend(self._begun, line)
        elif self._whole is not None and self.layout.ends_in_text and not line.startswith("sacct: "):
            if len(self._whole[1][-1]) < LONGEST_TEXT:
                self._whole[1][-1] += f"\n{line}"
        elif line.strip():
            self.complaints.add(NOT_UNDERSTOOD, line=number, text=line)

    def _extend(self, begun: _Begun, line: str) -> None:
        """Add a line to a record, which is complete once it has its separators; free texts may contain some more."""
        begun.add(line)
        if "|" not in line or begun.separators < self.layout.width - 1:
            return
        fields = self.layout.fit("\n".join(begun.lines))
        if fields is not None:
            self._whole, self._begun = (begun.number, fields), None
        elif begun.separators - self.layout.width > MAX_SURPLUS:
            self._give_up(begun)

    def _finish(self) -> Iterator[tuple[int, list[str]]]:
        if self._whole is not None:
            yield self._whole
        if self._begun is not None:
            self._give_up(self._begun)
        self._whole = None

    def _give_up(self, begun: _Begun) -> None:
        self.complaints.add(NOT_UNDERSTOOD, line=begun.number, text=begun.lines[0])
        self._begun = None
