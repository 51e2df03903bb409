"""Parses a field of many lines at once. Repeated texts are parsed once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.history.accounting_lines import Layout, Lines, Places, split_fields
from foretell.schedulers.slurm.commands import count_gpus, parse_clock, parse_size, parse_state, parse_tres

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Characters = NDArray[np.uint8]

_LONGEST = 18  # characters; longer fields are parsed one by one
_FACTORS = np.full(256, np.nan)
for _unit, _power in zip("KMGTP", range(10, 60, 10), strict=True):
    _FACTORS[ord(_unit)] = 2.0**_power
_MOMENT, _HOURS, _MINUTES = (
    np.frombuffer(shape, dtype=np.uint8) for shape in (b"0000-00-00T00:00:00", b"00:00:00", b"00:00.000")
)
_DOT, _ZERO, _NINE = ord("."), ord("0"), ord("9")
_BEFORE_TASK = tuple(map(ord, "_+"))
LARGEST = 2**62  # the largest integer that every database stores
LARGEST_COUNT = 2**31  # of cores, nodes, GPUs and tasks


class Read(NamedTuple):
    """Numbers, ``nan`` for empty fields, and the indices of fields that are not numbers."""

    values: Floats
    unread: Places


def read_figures(lines: Lines, column: int, rows: Places) -> Read:
    """Parse ``3``, ``12.5``, ``3120K`` and ``0.01M``: decimals with or without a unit."""
    begins = lines.begins_of(column)[rows]
    lengths = lines.ends[rows, column] - begins
    widest = min(int(lengths.max(initial=0)), _LONGEST)
    values, decimals = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int8)
    factors, dotted = np.ones(len(rows)), np.zeros(len(rows), dtype=bool)
    wrong = lengths > _LONGEST
    for place in range(widest):
        within = place < lengths
        character = lines.characters[np.where(within, begins + place, begins)]
        digit = within & (character >= _ZERO) & (character <= _NINE)
        values = np.where(digit, values * 10 + (character - _ZERO), values)
        decimals += digit & dotted
        other = within & ~digit
        if other.any():
            dot = other & (character == _DOT) & ~dotted
            dotted |= dot
            unit = other & (place == lengths - 1) & (place > 0)
            factors = np.where(unit, _FACTORS[character], factors)
            wrong |= other & ~dot & ~unit
    values = values * factors / 10.0**decimals
    unread = np.flatnonzero(wrong | ((np.isnan(values) | (values >= LARGEST)) & (lengths > 0)))
    return Read(np.where(lengths > 0, values, np.nan), unread)


class Ids(NamedTuple):
    """Job ids with their tasks, -1 without a task, and the indices of fields that are not job ids."""

    jobs: Whole
    tasks: Whole
    unread: Places


def read_ids(lines: Lines, column: int, rows: Places) -> Ids:
    """Parse ``12``, ``12_3`` and ``12+3``."""
    begins = lines.begins_of(column)[rows]
    lengths = lines.ends[rows, column] - begins
    jobs, tasks = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    wrong = (lengths == 0) | (lengths > _LONGEST)
    for place in range(min(int(lengths.max(initial=0)), _LONGEST)):
        within = place < lengths
        character = lines.characters[np.where(within, begins + place, begins)]
        digit, of_task = within & (character >= _ZERO) & (character <= _NINE), tasks >= 0
        figure = character.astype(np.int64) - _ZERO
        jobs = np.where(digit & ~of_task, jobs * 10 + figure, jobs)
        tasks = np.where(digit & of_task, tasks * 10 + figure, tasks)
        parts = within & np.isin(character, _BEFORE_TASK) & ~of_task & (place > 0) & (place < lengths - 1)
        tasks = np.where(parts, 0, tasks)
        wrong |= within & ~digit & ~parts
    return Ids(jobs, tasks, np.flatnonzero(wrong | (tasks >= LARGEST_COUNT)))


def read_moments(lines: Lines, column: int, rows: Places) -> Read:
    """Parse ``2025-01-31T12:00:00`` as seconds since 1970, without a time zone; other texts are unread."""
    right, digits = _match(_MOMENT, lines, column, rows)
    year = digits[:, :4] @ (1000, 100, 10, 1)
    month, day, hour, minute, second = (digits[:, at] * 10 + digits[:, at + 1] for at in (5, 8, 11, 14, 17))
    right &= (year >= 1970) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    days = _count_days(np.where(right, year, 1970), np.where(right, month, 1), day)
    return Read(((days * 24 + hour) * 60 + minute) * 60.0 + second, np.flatnonzero(~right))


def read_clocks(lines: Lines, column: int, rows: Places) -> Read:
    """Parse ``02:03:04`` and ``03:04.567`` as seconds; other texts are unread."""
    long, digits = _match(_HOURS, lines, column, rows)
    hours = digits @ (36000, 3600, 0, 600, 60, 0, 10, 1)
    short, digits = _match(_MINUTES, lines, column, rows)
    minutes = digits @ (600_000, 60_000, 0, 10_000, 1000, 0, 100, 10, 1) / 1000
    return Read(np.where(long, hours, np.where(short, minutes, np.nan)), np.flatnonzero(~long & ~short))


def _match(shape: Characters, lines: Lines, column: int, rows: Places) -> tuple[NDArray[np.bool_], Whole]:
    """Return which fields have a shape (0 is any digit), and their digits."""
    begins = lines.begins_of(column)[rows]
    right = lines.ends[rows, column] - begins == shape.size
    found = lines.characters[np.where(right, begins, 0)[:, None] + np.arange(shape.size)]
    right &= ((found == shape) | ((shape == _ZERO) & (found >= _ZERO) & (found <= _NINE))).all(axis=1)
    return right, (found - _ZERO).astype(np.int64)


def _count_days(year: Whole, month: Whole, day: Whole) -> Whole:
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int64) + day - 1


def has_dot(lines: Lines, column: int) -> NDArray[np.bool_]:
    """Return which lines have a dot in a field."""
    dots = np.flatnonzero(lines.characters == _DOT)
    begins = lines.begins_of(column)
    return np.asarray(np.searchsorted(dots, lines.ends[:, column]) > np.searchsorted(dots, begins))


def belong(lines: Lines, column: int, steps: Places, jobs: Places) -> NDArray[np.bool_]:
    """Return whether the id of each step is that of its job with a suffix after a dot."""
    begins, ends = lines.begins_of(column), lines.ends[:, column]
    lengths = ends[jobs] - begins[jobs]
    same: NDArray[np.bool_] = lines.characters[begins[steps] + lengths] == _DOT
    for place in range(int(lengths.max(initial=0))):
        within = place < lengths
        one, other = (lines.characters[begins[rows] + np.where(within, place, 0)] for rows in (steps, jobs))
        same &= one == other
    return same


def as_list(figures: Floats) -> list[Any]:
    """Return integers; ``None`` for unknown values, or those too large to be measured."""
    known = ~np.isnan(figures) & (figures < LARGEST)
    whole: NDArray[np.object_] = np.rint(np.where(known, figures, 0.0)).astype(np.int64).astype(object)
    whole[~known] = None
    return list(whole)


Texts = Sequence[str]
Problems = dict[int, str]
Number = TypeVar("Number", int, float)

_PROBLEM = (ValueError, OverflowError, OSError)
_MOST_TEXTS = 5000
_SHOWN = 60
_LONGEST_ID = 18
_EPOCH = datetime(1970, 1, 1)  # the cluster's local time, without a zone
_UNKNOWN_MOMENTS = frozenset({"", "Unknown", "None", "N/A"})
_MINUTE = 60


class Columns:
    """Some columns of some lines. Adjacent columns are cut out together, and repeated ones split once."""

    def __init__(self, places: Iterable[int | None]) -> None:
        self._runs = [
            (*run, _Memo(split_fields)) for run in _find_runs({place for place in places if place is not None})
        ]

    def read(self, lines: Lines, rows: Places) -> "Taken":
        found: dict[int, Texts] = {}
        for first, last, memo in self._runs:
            columns = zip(*memo.read(lines.cut(rows, first, last)), strict=True)
            found |= zip(range(first, last + 1), columns, strict=True)
        return Taken(found, len(rows))


def _find_runs(places: Collection[int]) -> list[tuple[int, int]]:
    """Return the first and last of each sequence of adjacent columns."""
    firsts = sorted(place for place in places if place - 1 not in places)
    lasts = sorted(place for place in places if place + 1 not in places)
    return list(zip(firsts, lasts, strict=True))


@dataclass(frozen=True, slots=True)
class Taken:
    """The texts of some lines, by column."""

    columns: Mapping[int, Texts]
    size: int

    def __len__(self) -> int:
        return self.size

    def take(self, place: int) -> Texts:
        return self.columns[place]


class Field:
    """A column of a layout and the parser of its texts; unknown if the layout has no such column."""

    def __init__(self, layout: Layout, *names: str, parse: Callable[[str], Any]) -> None:
        self._at = layout.find(*names)
        self._memo = _Memo(parse)

    @property
    def places(self) -> list[int | None]:
        return [self._at]

    def read(self, columns: Taken, problems: Problems) -> Sequence[Any]:
        """Return the value of each line; ``None`` if unknown, or if the problem was added by its index."""
        if self._at is None:
            return [None] * len(columns)
        texts = columns.take(self._at)
        try:
            return self._memo.read(texts)
        except _PROBLEM:
            return [_try(self._memo.__getitem__, text, place, problems) for place, text in enumerate(texts)]


class Figures:
    """A column of numbers, parsed from bytes; texts that fail are parsed one by one."""

    def __init__(
        self,
        layout: Layout,
        *names: str,
        parse: Callable[[str], Any],
        read: Callable[[Lines, int, Places], Read] = read_figures,
        whole: bool = True,
    ) -> None:
        self._whole = whole
        self._at = layout.find(*names)
        self._parse = parse
        self._read = read

    def read(self, lines: Lines, rows: Places, problems: Problems) -> list[Any]:
        """Return the value of each line, as for any field."""
        if self._at is None:
            return [None] * len(rows)
        values, unread = self._read(lines, self._at, rows)
        found = as_list(values) if self._whole else values.astype(object).tolist()
        for place, fields in zip(unread.tolist(), lines.split(rows[unread]), strict=True):
            found[place] = _try(self._parse, fields[self._at], place, problems)
        return found


class JobIds:
    """The ids of jobs and their tasks, parsed from bytes like :class:`Figures`."""

    def __init__(self, layout: Layout) -> None:
        self._at = layout.job_id

    def read(self, lines: Lines, rows: Places, problems: Problems) -> tuple[list[int], list[int]]:
        found = read_ids(lines, self._at, rows)
        jobs, tasks = found.jobs.tolist(), found.tasks.tolist()
        for place, fields in zip(found.unread.tolist(), lines.split(rows[found.unread]), strict=True):
            jobs[place], tasks[place] = _try(parse_id, fields[self._at], place, problems) or (0, -1)
        return jobs, tasks


class Fields:
    """Several columns that are parsed together; repeated ones are parsed once."""

    def __init__(self, layout: Layout, *names: tuple[str, ...], parse: Callable[[tuple[str, ...]], Any]) -> None:
        self.places = [layout.find(*one) for one in names]
        self._memo = _Memo(parse)

    def read(self, columns: Taken, problems: Problems) -> list[Any]:
        """Return the value of each line, as for a single field."""
        missing = [""] * len(columns)
        texts = [missing if place is None else columns.take(place) for place in self.places]
        together = list(zip(*texts, strict=True))
        try:
            return self._memo.read(together)
        except _PROBLEM:
            return [_try(self._memo.__getitem__, one, place, problems) for place, one in enumerate(together)]


class _Memo(dict[Any, Any]):
    """Parsed texts, cached."""

    def __init__(self, parse: Callable[[Any], Any]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: Any) -> Any:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        value = self[text] = self._parse(text)
        return value

    def read(self, texts: Sequence[Any]) -> list[Any]:
        return list(map(self.__getitem__, texts))


def _try(parse: Callable[[Any], Any], text: Any, place: int, problems: Problems) -> Any:
    try:
        return parse(text)
    except _PROBLEM as exc:
        problems[place] = str(exc)
        return None


# Accounting uses this state only for an attempt that ended: the next attempt of the job is another record.
_ENDED_ATTEMPTS = {"REQUEUED": State.INTERRUPTED}


class Given(NamedTuple):
    """What a job had on all its nodes."""

    nodes: int
    cores: int
    gpus: int
    memory_bytes: int | None


def parse_final(text: str) -> tuple[str, bool]:
    """Return the name of a state, and whether it is final.

    Raises:
        ValueError: if it is unknown.
    """
    try:
        state = _ENDED_ATTEMPTS.get(text) or parse_state(text)
    except SchedulerError:
        raise ValueError(f"Slurm's state {quote(text)} is unknown; please report it") from None
    return state.value, state.final


def parse_id(text: str) -> tuple[int, int]:
    """Parse ``12`` as 12 without task, ``12_3`` and ``12+1`` with theirs; ``12_[3-9]`` never started and is one job."""
    base, _, task = text.replace("+", "_").partition("_")
    if not base.isdecimal():
        raise ValueError("not understood")
    return _bounded(int(base)), _bounded(int(task), LARGEST_COUNT) if task.isdecimal() else -1


def parse_raw_id(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_ID else None


def parse_count(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{quote(text)} is not a whole number")
    return _bounded(int(text), LARGEST_COUNT)


def parse_seconds(text: str) -> float | None:
    """Return the seconds of a clock; ``None`` for no limit."""
    seconds = parse_clock(text)
    return None if seconds is None or seconds == float("inf") else _bounded(seconds)


def parse_minutes(text: str) -> float | None:
    return _bounded(int(text) * _MINUTE) if text.isdecimal() else parse_seconds(text)


def parse_moment(text: str) -> int | None:
    if text in _UNKNOWN_MOMENTS:
        return None
    try:  # SLURM_TIME_FORMAT=%s prints numbers
        moment = datetime.fromtimestamp(int(text)) if text.isdecimal() else datetime.fromisoformat(text)
        seconds = (moment.replace(tzinfo=None) - _EPOCH) // timedelta(seconds=1)
    except _PROBLEM:
        seconds = -1
    if seconds < 0:
        raise ValueError(f"{quote(text)} is not a time in sacct's format, for example 2025-01-31T12:00:00")
    return seconds


GIVEN_FIELDS = (
    ("AllocTRES",),
    ("ReqTRES",),
    ("AllocNodes", "NNodes"),
    ("AllocCPUS", "NCPUS", "ReqCPUS"),
    ("ReqMem",),
)


def parse_given(texts: tuple[str, ...]) -> Given:
    """Return what was allocated, from :data:`GIVEN_FIELDS`; for jobs that never started, what was requested."""
    allocated, asked, nodes, cores, memory = texts
    tres = parse_tres(allocated or asked)
    all_nodes = parse_count(tres.get("node", "")) or parse_count(nodes) or 1
    all_cores = parse_count(tres.get("cpu", "")) or parse_count(cores) or 1
    size = parse_size(tres.get("mem", ""))
    if size is None and memory:
        # Older versions request memory per core (4Gc) or per node (4Gn); a number without unit is in megabytes.
        size = parse_size(memory, unit="M")
        size = size and size * {"c": all_cores, "n": all_nodes}.get(memory[-1], 1)
    gpus = _bounded(count_gpus(tres), LARGEST_COUNT)
    return Given(nodes=all_nodes, cores=all_cores, gpus=gpus, memory_bytes=size and _bounded(size))


def _bounded(number: Number, limit: int = LARGEST) -> Number:
    if not 0 <= number < limit:
        raise ValueError(f"{number:.6g} is out of range; expected 0 to {limit:.2g}")
    return number


def quote(text: str) -> str:
    """Return a text for a message: escaped and shortened."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
