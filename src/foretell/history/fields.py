"""A field of many lines at once → values. Texts that recur are read once; all others are not kept."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from foretell.entities.run import State
from foretell.errors import SchedulerError
from foretell.history.layout import Layout
from foretell.history.lines import Lines, Places, split_fields
from foretell.history.numbers import LARGEST, LARGEST_COUNT, Read, as_list, read_figures, read_ids
from foretell.probes.slurm.fields import count_gpus, parse_clock, parse_size, parse_tres
from foretell.probes.slurm.states import parse_state

Texts = Sequence[str]
Problems = dict[int, str]
Number = TypeVar("Number", int, float)

_PROBLEM = (ValueError, OverflowError, OSError)
_MOST_TEXTS = 5000
_SHOWN = 60
_LONGEST_ID = 18
_EPOCH = datetime(1970, 1, 1)  # the cluster's own clock, which tells no zone
_UNKNOWN_MOMENTS = frozenset({"", "Unknown", "None", "N/A"})
_MINUTE = 60


class Columns:
    """Some columns of some lines. Neighbours are cut out together: what recurs in many lines is cut apart once."""

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
    """The first and last of each row of neighbours."""
    firsts = sorted(place for place in places if place - 1 not in places)
    lasts = sorted(place for place in places if place + 1 not in places)
    return list(zip(firsts, lasts, strict=True))


@dataclass(frozen=True, slots=True)
class Taken:
    """Texts of some lines, by column."""

    columns: Mapping[int, Texts]
    size: int

    def __len__(self) -> int:
        return self.size

    def take(self, place: int) -> Texts:
        return self.columns[place]


class Field:
    """Where a layout has a field, and what its texts mean; not known where it has none."""

    def __init__(self, layout: Layout, *names: str, parse: Callable[[str], Any]) -> None:
        self._at = layout.find(*names)
        self._memo = _Memo(parse)

    @property
    def places(self) -> list[int | None]:
        return [self._at]

    def read(self, columns: Taken, problems: Problems) -> Sequence[Any]:
        """The value of each line; ``None`` where it is not known, or was added to the problems by its place."""
        if self._at is None:
            return [None] * len(columns)
        texts = columns.take(self._at)
        try:
            return self._memo.read(texts)
        except _PROBLEM:
            return [_try(self._memo.__getitem__, text, place, problems) for place, text in enumerate(texts)]


class Figures:
    """A field of numbers, read from the bytes; what is none there is read from its text."""

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
        """The value of each line, as of any field."""
        if self._at is None:
            return [None] * len(rows)
        values, unread = self._read(lines, self._at, rows)
        found = as_list(values) if self._whole else values.astype(object).tolist()
        for place, fields in zip(unread.tolist(), lines.split(rows[unread]), strict=True):
            found[place] = _try(self._parse, fields[self._at], place, problems)
        return found


class JobIds:
    """The ids of jobs and their tasks, read from the bytes as :class:`Figures` are."""

    def __init__(self, layout: Layout) -> None:
        self._at = layout.job_id

    def read(self, lines: Lines, rows: Places, problems: Problems) -> tuple[list[int], list[int]]:
        found = read_ids(lines, self._at, rows)
        jobs, tasks = found.jobs.tolist(), found.tasks.tolist()
        for place, fields in zip(found.unread.tolist(), lines.split(rows[found.unread]), strict=True):
            jobs[place], tasks[place] = _try(parse_id, fields[self._at], place, problems) or (0, -1)
        return jobs, tasks


class Fields:
    """Several fields that only together mean something; what recurs is read once."""

    def __init__(self, layout: Layout, *names: tuple[str, ...], parse: Callable[[tuple[str, ...]], Any]) -> None:
        self.places = [layout.find(*one) for one in names]
        self._memo = _Memo(parse)

    def read(self, columns: Taken, problems: Problems) -> list[Any]:
        """The value of each line, as of a single field."""
        missing = [""] * len(columns)
        texts = [missing if place is None else columns.take(place) for place in self.places]
        together = list(zip(*texts, strict=True))
        try:
            return self._memo.read(together)
        except _PROBLEM:
            return [_try(self._memo.__getitem__, one, place, problems) for place, one in enumerate(together)]


class _Memo(dict[Any, Any]):
    """What each text means, once it was asked for."""

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


# Accounting has this word only for an attempt that ended: its job's next attempt is another record.
_ENDED_ATTEMPTS = {"REQUEUED": State.INTERRUPTED}


class Given(NamedTuple):
    """What a job had on all its nodes."""

    nodes: int
    cores: int
    gpus: int
    memory_bytes: int | None


def parse_final(text: str) -> tuple[str, bool]:
    """Our word for a state, and whether it is final.

    Raises:
        ValueError: if it is none we know.
    """
    try:
        state = _ENDED_ATTEMPTS.get(text) or parse_state(text)
    except SchedulerError:
        raise ValueError(f"Slurm's state {quote(text)} is unknown; please report it") from None
    return state.value, state.final


def parse_id(text: str) -> tuple[int, int]:
    """``12`` → 12 and no task; ``12_3`` and ``12+1`` with theirs; ``12_[3-9]`` never started and stays one job."""
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
        raise ValueError(f"{quote(text)} is no whole number")
    return _bounded(int(text), LARGEST_COUNT)


def parse_seconds(text: str) -> float | None:
    """A clock's time; no limit is not known."""
    seconds = parse_clock(text)
    return None if seconds is None or seconds == float("inf") else _bounded(seconds)


def parse_minutes(text: str) -> float | None:
    return _bounded(int(text) * _MINUTE) if text.isdecimal() else parse_seconds(text)


def parse_moment(text: str) -> int | None:
    if text in _UNKNOWN_MOMENTS:
        return None
    try:  # SLURM_TIME_FORMAT=%s makes it a number
        moment = datetime.fromtimestamp(int(text)) if text.isdecimal() else datetime.fromisoformat(text)
        seconds = (moment.replace(tzinfo=None) - _EPOCH) // timedelta(seconds=1)
    except _PROBLEM:
        seconds = -1
    if seconds < 0:
        raise ValueError(f"{quote(text)} is no moment as sacct writes them, for example 2025-01-31T12:00:00")
    return seconds


GIVEN_FIELDS = (
    ("AllocTRES",),
    ("ReqTRES",),
    ("AllocNodes", "NNodes"),
    ("AllocCPUS", "NCPUS", "ReqCPUS"),
    ("ReqMem",),
)


def parse_given(texts: tuple[str, ...]) -> Given:
    """What was allocated, from :data:`GIVEN_FIELDS`; of jobs that never started, what was asked for."""
    allocated, asked, nodes, cores, memory = texts
    tres = parse_tres(allocated or asked)
    all_nodes = parse_count(tres.get("node", "")) or parse_count(nodes) or 1
    all_cores = parse_count(tres.get("cpu", "")) or parse_count(cores) or 1
    size = parse_size(tres.get("mem", ""))
    if size is None and memory:
        # Older Slurms ask for memory per core (4Gc) or per node (4Gn); a bare number is in megabytes.
        size = parse_size(memory, unit="M")
        size = size and size * {"c": all_cores, "n": all_nodes}.get(memory[-1], 1)
    gpus = _bounded(count_gpus(tres), LARGEST_COUNT)
    return Given(nodes=all_nodes, cores=all_cores, gpus=gpus, memory_bytes=size and _bounded(size))


def _bounded(number: Number, limit: int = LARGEST) -> Number:
    if not 0 <= number < limit:
        raise ValueError(f"{number:.6g} is out of range; expected 0 to {limit:.2g}")
    return number


def quote(text: str) -> str:
    """A text for a message: control characters escaped, and not long."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
