"""Builds jobs from lines of accounting and adds their steps, one column at a time for speed."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from foretell.core.past_jobs import JobKind, JobRows
from foretell.history import accounting_fields
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
# Fields that always have a value, and the columns it is read from.
_SOURCES = {
    "submitted_at": ("Submit",),
    "nodes": (*_TRES, "AllocNodes", "NNodes"),
    "cores": (*_TRES, "AllocCPUS", "NCPUS", "ReqCPUS"),
    "gpus": _TRES,
}
_MAX_KINDS = 200_000
_NOTHING = Given(nodes=1, cores=1, gpus=0, memory_bytes=None)
_LEFT_OUT = "", False
_HEAD = "JobID"
NO_JOB = "steps without their job nearby"


class _Parts(NamedTuple):
    """The rows of jobs and of steps, and the index of each step's job among the jobs."""

    jobs: Places
    steps: Places
    owners: Places


class Folder:
    """Builds jobs from the lines of one layout; counts unfinished jobs, which a later import reads.

    ``raw_ids``: also read Slurm's own ids of array elements, if the layout has them.
    """

    def __init__(self, layout: Layout, complaints: Complaints, *, cluster: str = "", raw_ids: bool = False) -> None:
        self.unfinished = 0
        self._missing = _find_missing(layout)
        self._raw_ids = Figures(layout, "JobIDRaw", parse=accounting_fields.parse_raw_id) if raw_ids else None
        self._layout = layout
        self._complaints = complaints
        self._jobs = _JobFields(layout)
        self._steps = _StepFields(layout)
        self._kinds = _KindFields(layout, cluster)
        self._columns = Columns([*self._jobs.places, *self._kinds.places])

    def fold(self, lines: Lines) -> Iterator[JobRows]:
        """Return the finished jobs of the lines by cluster; of several with one key, the last."""
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
            if texts[self._layout.job_id] != _HEAD:  # the head line of another file that was appended
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
        """Assign each step to the job before it, or else to any job of that id."""
        at = self._layout.job_id
        is_step = has_dot(lines, at)
        jobs, steps = np.flatnonzero(~is_step), np.flatnonzero(is_step)
        owners = (np.cumsum(~is_step) - 1)[steps]
        if len(steps) and (owners[0] < 0 or not belong(lines, at, steps, jobs[owners]).all()):
            owners = self._find_owners(lines, jobs, steps, owners)
            steps, owners = steps[owners >= 0], owners[owners >= 0]
        return _Parts(jobs, steps, owners)

    def _find_owners(self, lines: Lines, jobs: Places, steps: Places, before: Places) -> Places:
        """Return the index of each step's job; -1, with a complaint, if it is missing."""
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
    """Return rows by cluster; of several with one key, the last."""
    found: dict[str, dict[tuple[int, int, int], tuple[Any, ...]]] = {cluster: {} for cluster in clusters}
    if len(found) == 1:
        found[clusters[0]] = {row[:3]: row for row in rows}
    else:
        for cluster, row in zip(clusters, rows, strict=True):
            found[cluster][row[:3]] = row
    return {cluster: list(jobs.values()) for cluster, jobs in found.items()}


class _KindFields:
    """The texts of a job, and their key, which many jobs share."""

    def __init__(self, layout: Layout, cluster: str) -> None:
        self.places = [layout.find(name) for name in _TEXTS]
        self._cluster = cluster
        self._known: dict[int, int] = {}

    def read(self, jobs: Taken) -> tuple[Sequence[str], list[int], dict[int, JobKind]]:
        """Return cluster and kind of each job, and the kinds that are new."""
        missing = [""] * len(jobs)
        columns = [missing if place is None else jobs.take(place) for place in self.places]
        if self.places[0] is None:
            columns[0] = [self._cluster] * len(jobs)
        texts = list(zip(*columns, strict=True))
        keys = list(map(hash, texts))  # the texts themselves would take ten times the memory
        if len(self._known) >= _MAX_KINDS:
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
    """The fields in the line of a job."""

    def __init__(self, layout: Layout) -> None:
        self._ids = JobIds(layout)
        self._state = Field(layout, "State", parse=accounting_fields.parse_final)
        self._moments = tuple(
            Figures(layout, name, parse=accounting_fields.parse_moment, read=read_moments)
            for name in ("Submit", "Start", "End")
        )
        self._elapsed = Figures(layout, "ElapsedRaw", "Elapsed", parse=accounting_fields.parse_seconds)
        self._limit = (
            Field(layout, "Timelimit", parse=accounting_fields.parse_seconds)
            if layout.find("TimelimitRaw") is None
            else Field(layout, "TimelimitRaw", parse=accounting_fields.parse_minutes)
        )
        self._given = Fields(layout, *accounting_fields.GIVEN_FIELDS, parse=accounting_fields.parse_given)
        self._cpu = Figures(layout, "TotalCPU", parse=accounting_fields.parse_seconds, read=read_clocks, whole=False)

    @property
    def places(self) -> list[int | None]:
        """The columns whose texts are read."""
        return [*self._state.places, *self._limit.places, *self._given.places]

    def read(
        self, lines: Lines, rows: Places, jobs: Taken, problems: Problems
    ) -> tuple[list[tuple[str, bool]], list[Sequence[Any]]]:
        """Return states, and the other columns of a row in order, without the kind and the usage of steps."""
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
    """The usage of a job in the lines of its steps."""

    def __init__(self, layout: Layout) -> None:
        self._tasks = layout.find("NTasks")
        self._nodes = layout.find("AllocNodes", "NNodes")
        self._sizes = [layout.find(name) for name in ("MaxRSS", "AveDiskRead", "AveDiskWrite")]

    def add_up(self, lines: Lines, parts: _Parts, problems: Problems) -> list[list[int | None]]:
        """Return peak memory per node, bytes read and bytes written of each job.

        MaxRSS is that of a step's largest task; disk figures are means over its tasks. Steps may run one after the
        other, so the largest gives the memory, and disk figures are added. Processes that joined by ssh are in the
        extern step, and count against the job's memory like all others.
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
            f"{accounting_fields.quote(texts[column])} is not a size in Slurm's format, for example 3120K"
        )
    return values


def _total(sizes: Floats, parts: _Parts) -> Floats:
    known, jobs = ~np.isnan(sizes), len(parts.jobs)
    totals = np.bincount(parts.owners[known], weights=sizes[known], minlength=jobs)
    return np.where(np.bincount(parts.owners[known], minlength=jobs) > 0, totals, np.nan)
