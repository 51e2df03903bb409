"""Lines of accounting → jobs, with their steps folded in; a column at a time, because there are many lines."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from foretell.core.past_jobs import JobKind, JobRows
from foretell.history import accounting_fields as fields
from foretell.history.accounting_fields import (
    Columns,
    Field,
    Fields,
    Figures,
    Floats,
    Given,
    JobIds,
    Problems,
    Taken,
    as_list,
    belong,
    has_dot,
    read_clocks,
    read_figures,
    read_moments,
)
from foretell.history.accounting_lines import LONGEST_TEXT, Complaints, Layout, Lines, Places

_TEXTS = ("Cluster", "User", "Account", "Partition", "JobName", "WorkDir", "SubmitLine")
_TRES = ("AllocTRES", "ReqTRES")
# Fields of a row that have a value even where the text does not give one, and the columns that give it.
_SOURCES = {
    "submitted_at": ("Submit",),
    "nodes": (*_TRES, "AllocNodes", "NNodes"),
    "cores": (*_TRES, "AllocCPUS", "NCPUS", "ReqCPUS"),
    "gpus": _TRES,
}
_MOST_KINDS = 200_000
_NOTHING = Given(nodes=1, cores=1, gpus=0, memory_bytes=None)
_LEFT_OUT = "", False
_HEAD = "JobID"
NO_JOB = "steps of a job that is not near them"


class _Parts(NamedTuple):
    """Where jobs and steps are, and at which place among the jobs the one of each step is."""

    jobs: Places
    steps: Places
    owners: Places


class Folder:
    """Folds the lines of one layout; counts the jobs that are not finished, which come with a later import.

    ``raw_ids`` asks for Slurm's own numbers of array elements, where the layout has them.
    """

    def __init__(self, layout: Layout, complaints: Complaints, *, cluster: str = "", raw_ids: bool = False) -> None:
        self.unfinished = 0
        self._missing = _find_missing(layout)
        self._raw_ids = Figures(layout, "JobIDRaw", parse=fields.parse_raw_id) if raw_ids else None
        self._layout = layout
        self._complaints = complaints
        self._jobs = _JobFields(layout)
        self._steps = _StepFields(layout)
        self._kinds = _KindFields(layout, cluster)
        self._columns = Columns([*self._jobs.places, *self._kinds.places])

    def fold(self, lines: Lines) -> Iterator[JobRows]:
        """The finished jobs among the lines, by cluster; of several with one key the last counts."""
        parts = self._split(lines)
        if not len(parts.jobs):
            return
        problems: Problems = {}
        jobs = self._columns.read(lines, parts.jobs)
        states, (ids, tasks, submitted, *rest) = self._jobs.read(lines, parts.jobs, jobs, problems)
        usages = self._steps.add_up(lines, parts, problems)
        raw_ids = self._raw_ids.read(lines, parts.jobs, problems) if self._raw_ids else []
        for place, reason in sorted(problems.items()):
            states[place] = _LEFT_OUT
            ((row, texts),) = zip(parts.jobs[[place]], lines.split(parts.jobs[[place]]), strict=True)
            if texts[self._layout.job_id] != _HEAD:  # of another file, put behind the first
                self._complaints.add(reason, line=lines.numbers[row], text="|".join(texts))
        words, kept = zip(*states, strict=True)
        self.unfinished += kept.count(False) - len(problems)
        clusters, kinds, new = self._kinds.read(jobs)
        rows = zip(ids, tasks, submitted, kinds, words, *rest, *usages, strict=True)
        keys = zip(ids, tasks, submitted, strict=True) if raw_ids else ()
        known = {key: raw for key, raw in zip(keys, raw_ids, strict=True) if key[1] >= 0 and raw}
        for cluster, found in _gather(list(compress(clusters, kept)), list(compress(rows, kept))).items():
            yield JobRows(cluster=cluster, rows=found, kinds=new, missing=self._missing, raw_ids=known)

    def _split(self, lines: Lines) -> _Parts:
        """A step belongs to the job before it, or else to any of its name among the lines."""
        at = self._layout.job_id
        is_step = has_dot(lines, at)
        jobs, steps = np.flatnonzero(~is_step), np.flatnonzero(is_step)
        owners = (np.cumsum(~is_step) - 1)[steps]
        if len(steps) and (owners[0] < 0 or not belong(lines, at, steps, jobs[owners]).all()):
            owners = self._find_owners(lines, jobs, steps, owners)
            steps, owners = steps[owners >= 0], owners[owners >= 0]
        return _Parts(jobs, steps, owners)

    def _find_owners(self, lines: Lines, jobs: Places, steps: Places, before: Places) -> Places:
        """The place of each step's job; -1, and told, where it is not there."""
        at = self._layout.job_id
        names = [texts[at] for texts in lines.split(jobs)]
        places = {name: place for place, name in enumerate(names)}
        owners = []
        for row, place, texts in zip(steps, before, lines.split(steps), strict=True):
            name = texts[at].partition(".")[0]
            owners.append(place if place >= 0 and names[place] == name else places.get(name, -1))
            if owners[-1] < 0:
                self._complaints.add(NO_JOB, line=lines.numbers[row], text="|".join(texts))
        return np.array(owners, dtype=np.intp)


def _find_missing(layout: Layout) -> frozenset[str]:
    lacking = {name for name, columns in _SOURCES.items() if layout.find(*columns) is None}
    return frozenset(lacking | ({"kind"} if any(layout.find(name) is None for name in _TEXTS[1:]) else set()))


def _gather(clusters: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Rows by cluster; of several with one key the last."""
    found: dict[str, dict[tuple[int, int, int], tuple[Any, ...]]] = {cluster: {} for cluster in clusters}
    if len(found) == 1:
        found[clusters[0]] = {row[:3]: row for row in rows}
    else:
        for cluster, row in zip(clusters, rows, strict=True):
            found[cluster][row[:3]] = row
    return {cluster: list(jobs.values()) for cluster, jobs in found.items()}


class _KindFields:
    """The texts of a job, and the key of those that many share."""

    def __init__(self, layout: Layout, cluster: str) -> None:
        self.places = [layout.find(name) for name in _TEXTS]
        self._cluster = cluster
        self._known: dict[int, int] = {}

    def read(self, jobs: Taken) -> tuple[Sequence[str], list[int], dict[int, JobKind]]:
        """Of each job its cluster and its kind; and the kinds that were not met before."""
        missing = [""] * len(jobs)
        columns = [missing if place is None else jobs.take(place) for place in self.places]
        if self.places[0] is None:
            columns[0] = [self._cluster] * len(jobs)
        texts = list(zip(*columns, strict=True))
        keys = list(map(hash, texts))  # keeping the texts themselves would take ten times the memory
        if len(self._known) >= _MOST_KINDS:
            self._known.clear()
        new = {key: one for key, one in zip(keys, texts, strict=True) if key not in self._known}
        found = [_build_kind(one) for one in new.values()]
        ids = [kind.id for kind in found]
        self._known |= zip(new, ids, strict=True)
        return columns[0], [self._known[key] for key in keys], dict(zip(ids, found, strict=True))


def _build_kind(texts: tuple[str, ...]) -> JobKind:
    cluster, user, account, partition, name, folder, command = (text[:LONGEST_TEXT] for text in texts)
    return JobKind(
        cluster=cluster,
        user=user,
        account=account,
        partition=partition,
        name=name,
        work_directory=folder,
        command=command,
    )


class _JobFields:
    """What the line of a job itself tells."""

    def __init__(self, layout: Layout) -> None:
        self._ids = JobIds(layout)
        self._state = Field(layout, "State", parse=fields.parse_final)
        self._moments = tuple(
            Figures(layout, name, parse=fields.parse_moment, read=read_moments) for name in ("Submit", "Start", "End")
        )
        self._elapsed = Figures(layout, "ElapsedRaw", "Elapsed", parse=fields.parse_seconds)
        self._limit = (
            Field(layout, "Timelimit", parse=fields.parse_seconds)
            if layout.find("TimelimitRaw") is None
            else Field(layout, "TimelimitRaw", parse=fields.parse_minutes)
        )
        self._given = Fields(layout, *fields.GIVEN_FIELDS, parse=fields.parse_given)
        self._cpu = Figures(layout, "TotalCPU", parse=fields.parse_seconds, read=read_clocks, whole=False)

    @property
    def places(self) -> list[int | None]:
        """The columns whose texts are read."""
        return [*self._state.places, *self._limit.places, *self._given.places]

    def read(
        self, lines: Lines, rows: Places, jobs: Taken, problems: Problems
    ) -> tuple[list[tuple[str, bool]], list[Sequence[Any]]]:
        """The states, and the other columns of a row in its order, but for the kind and what steps used."""
        submitted, started, ended = (moments.read(lines, rows, problems) for moments in self._moments)
        elapsed, limits = self._elapsed.read(lines, rows, problems), self._limit.read(jobs, problems)
        given = [one or _NOTHING for one in self._given.read(jobs, problems)]
        figures = [
            *self._ids.read(lines, rows, problems),
            [moment or start or 0 for moment, start in zip(submitted, started, strict=True)],
            started,
            ended,
            [int(time or 0) for time in elapsed],
            [None if limit is None else int(limit) for limit in limits],
            *zip(*given, strict=True),
            self._cpu.read(lines, rows, problems),
        ]
        return [*self._state.read(jobs, problems)], figures


class _StepFields:
    """What the lines of its steps tell of a job's usage."""

    def __init__(self, layout: Layout) -> None:
        self._tasks = layout.find("NTasks")
        self._nodes = layout.find("AllocNodes", "NNodes")
        self._sizes = [layout.find(name) for name in ("MaxRSS", "AveDiskRead", "AveDiskWrite")]

    def add_up(self, lines: Lines, parts: _Parts, problems: Problems) -> list[list[int | None]]:
        """Peak memory of a node, bytes read and bytes written, of each job.

        MaxRSS is of a step's largest task, the disk figures are means over its tasks. Steps may follow one another, so
        the largest counts for memory; what they read and wrote adds up. Processes that joined by ssh are in the extern
        step, and count against the job's memory like all others.
        """
        read = partial(_read_steps, lines, parts, problems)
        tasks, nodes = (np.maximum(np.nan_to_num(read(column), nan=1.0), 1.0) for column in (self._tasks, self._nodes))
        peaks, *disk = (read(column) for column in self._sizes)
        peak = np.zeros(len(parts.jobs))
        np.maximum.at(peak, parts.owners, np.nan_to_num(peaks * np.ceil(tasks / nodes)))
        totals = [_total(sizes * tasks, parts) for sizes in disk]
        return [as_list(np.where(peak > 0, peak, np.nan)), *map(as_list, totals)]


def _read_steps(lines: Lines, parts: _Parts, problems: Problems, column: int | None) -> Floats:
    if column is None:
        return np.full(len(parts.steps), np.nan)
    values, unread = read_figures(lines, column, parts.steps)
    for place, texts in zip(unread, lines.split(parts.steps[unread]), strict=True):
        problems[int(parts.owners[place])] = (
            f"{fields.quote(texts[column])} is no size as Slurm writes them, for example 3120K"
        )
    return values


def _total(sizes: Floats, parts: _Parts) -> Floats:
    known, jobs = ~np.isnan(sizes), len(parts.jobs)
    totals = np.bincount(parts.owners[known], weights=sizes[known], minlength=jobs)
    return np.where(np.bincount(parts.owners[known], minlength=jobs) > 0, totals, np.nan)
