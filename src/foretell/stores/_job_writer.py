"""Writes past jobs within a transaction: each once, however many files contain it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa
import sqlalchemy.exc as sa_exc

from foretell.core.past_jobs import JobRow, JobRows
from foretell.core.run import FITTED_STATES
from foretell.stores._tables import history_counts, history_marks, job_clusters, job_kinds, jobs

Stored = tuple[Any, ...]
"""A row of the table: the number of its cluster, then the fields of a :class:`JobRow`."""

_FIELDS = ("cluster", *JobRow._fields)
CLUSTER, JOB, TASK, SUBMITTED, KIND, STATE, STARTED, ENDED, ELAPSED = (
    _FIELDS.index(name)
    for name in ("cluster", "job", "task", "submitted_at", "kind", "state", "started_at", "ended_at", "elapsed_s")
)
KEY = slice(CLUSTER, SUBMITTED + 1)


class Match(NamedTuple):
    """The stored rows that are the imported job; ``decided`` is false where they may be several jobs."""

    rows: Sequence[Stored]
    decided: bool = True


def find_same(new: Stored, stored: Sequence[Stored], *, unknown_cluster: int | None) -> Match:
    """Which of the stored rows, all with the id and task of a new one, are the same attempt of the same job.

    An attempt is known by its submission, or by its start where the submission is not given. Without either, its
    elapsed time and its state must agree. A cluster that is not given may be any.
    """
    same = [row for row in stored if row[KEY] == new[KEY] or (row[SUBMITTED] == new[SUBMITTED] != 0)]
    if not same and new[STARTED]:
        same = [row for row in stored if row[STARTED] == new[STARTED]]
    if same:
        return Match(same, decided=_count_clusters(same, unknown_cluster) <= 1)
    timeless = [row for row in stored if 0 in (row[SUBMITTED], new[SUBMITTED])]
    alike = [row for row in timeless if (row[ELAPSED], row[STATE]) == (new[ELAPSED], new[STATE])]
    return Match(alike, decided=len(alike) <= 1)


def _count_clusters(rows: Sequence[Stored], unknown: int | None) -> int:
    return len({row[CLUSTER] for row in rows} - {unknown})


def merge(
    new: Stored, old: Sequence[Stored], *, unknown_cluster: int | None, missing: Collection[str], kind: int
) -> Stored:
    """One row of what a file and the store know of a job: the newer value, but never "unknown" instead of a value."""
    merged = list(new)
    for row in old:
        for place, name in enumerate(_FIELDS):
            if merged[place] is None or name in missing:
                merged[place] = row[place]
    known = [row[CLUSTER] for row in (new, *old) if row[CLUSTER] != unknown_cluster]
    merged[CLUSTER] = known[0] if known else new[CLUSTER]
    # Where only the start was given it was taken for the submission, which is never later.
    merged[SUBMITTED] = min((row[SUBMITTED] for row in (new, *old) if row[SUBMITTED]), default=0)
    merged[KIND] = kind
    return tuple(merged)


# Jobs were imported from a file without some of their fields, so that another file may contain the same jobs.
PARTIAL = "partial jobs"
# Elements of arrays are stored under Slurm's own numbers, as versions before 0004 of the tables did.
RAW_IDS = "raw ids"

_COLUMNS = ("cluster", *JobRow._fields)
_KEY = ("cluster", "job", "task", "submitted_at")
_TEXTS = ("cluster", "user", "account", "partition", "name", "work_directory", "command")
_FITTED = frozenset(state.value for state in FITTED_STATES)
_MOST_ASKED = 500  # values in one question: every database takes so many
_MOST_KINDS = 200_000


class Added(NamedTuple):
    """How many jobs were new or known differently before, and how many may be one or another stored one."""

    changed: int = 0
    undecided: int = 0


class _Kind(NamedTuple):
    app: str
    texts: int


@dataclass(slots=True)
class Kinds:
    """The application of each kind, and how many of its texts are known; asked for once, up to some number."""

    _known: dict[int, _Kind] = field(default_factory=dict)

    def clear(self) -> None:
        self._known.clear()

    def find(self, connection: sa.Connection, numbers: Collection[int]) -> Mapping[int, _Kind]:
        if len(self._known) > _MOST_KINDS:
            self.clear()
        columns = [job_kinds.c[name] for name in ("id", "app", *_TEXTS)]
        for some in _part(set(numbers) - self._known.keys()):
            rows = connection.execute(sa.select(*columns).where(job_kinds.c.id.in_(some)))
            self._known |= {number: _Kind(app, len(texts) - texts.count("")) for number, app, *texts in rows}
        return self._known


@dataclass(frozen=True, slots=True)
class JobWriter:
    """Adds jobs to the tables of one connection; ``insert`` is the statement of its database."""

    connection: sa.Connection
    insert: Callable[[sa.Table], Any]
    kinds: Kinds

    def add(self, batch: JobRows) -> Added:
        """Keep jobs whose kinds are stored already."""
        cluster = self.find_cluster(batch.cluster)
        rows = [(cluster, *row) for row in {row[:3]: row for row in batch.rows}.values()]
        is_partial = bool(batch.missing or not batch.cluster)
        if is_partial:
            self.set_mark(PARTIAL, "yes")
        elif not self.has_mark(PARTIAL) and not self.has_mark(RAW_IDS) and self._insert(rows):
            self._count(rows)
            return Added(changed=len(rows))
        return self._merge(cluster, rows, batch)

    def find_cluster(self, name: str) -> int:
        """The number of a cluster, given to it now if need be."""
        values = self.insert(job_clusters).values(name=name)
        self.connection.execute(values.on_conflict_do_nothing(index_elements=["name"]))
        number = self.connection.scalar(sa.select(job_clusters.c.number).where(job_clusters.c.name == name))
        assert number is not None
        return int(number)

    def has_mark(self, name: str) -> bool:
        query = sa.select(history_marks.c.name).where(history_marks.c.name == name)
        return self.connection.scalar(query) is not None

    def set_mark(self, name: str, value: str) -> None:
        row = {"name": name, "value": value}
        statement = self.insert(history_marks).values(row)
        self.connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))

    def count(self, apps: Mapping[str, int]) -> None:
        """Add to the number of jobs that were received of each application."""
        statement = self.insert(history_counts)
        total = history_counts.c.jobs + statement.excluded.jobs
        statement = statement.on_conflict_do_update(index_elements=["app"], set_={"jobs": total})
        execute_many(self.connection, statement, ("app", "jobs"), list(apps.items()))

    def count_moved(self, assignments: Mapping[int, str]) -> None:
        """Count the jobs of kinds that leave their application for another, for both."""
        kinds = self.kinds.find(self.connection, assignments.keys())
        moved = [number for number, app in assignments.items() if kinds[number].app != app]
        totals: Counter[str] = Counter()
        for some in _part(moved):
            is_one = sa.and_(jobs.c.kind.in_(some), jobs.c.state.in_(sorted(_FITTED)), jobs.c.elapsed_s > 0)
            query = sa.select(jobs.c.kind, sa.func.count()).where(is_one).group_by(jobs.c.kind)
            for number, count in self.connection.execute(query):
                totals.update({kinds[number].app: count, assignments[number]: count})
        self.count(totals)

    def _insert(self, rows: Sequence[Stored]) -> bool:
        """Keep new jobs; false, and none kept, if one of them is there already."""
        try:
            with self.connection.begin_nested():
                execute_many(self.connection, sa.insert(jobs), _COLUMNS, rows)
        except sa_exc.IntegrityError:
            return False
        return True

    def _merge(self, cluster: int, rows: Sequence[Stored], batch: JobRows) -> Added:
        unknown = self._find_unknown()
        stored = self._find_stored(cluster, rows, batch.raw_ids, unknown)
        kinds = self.kinds.find(self.connection, {row[KIND] for some in (rows, *stored.values()) for row in some})
        changed: list[Stored] = []
        replaced: list[Stored] = []
        undecided = 0
        for row in rows:
            match = find_same(row, stored.get(row[1:3], ()), unknown_cluster=unknown)
            if not match.decided:
                undecided += 1
                continue
            numbers = [one[KIND] for one in (row, *match.rows)]
            kind = max(numbers, key=lambda number: kinds[number].texts)
            merged = merge(row, match.rows, unknown_cluster=unknown, missing=batch.missing, kind=kind)
            if [*match.rows] != [merged]:
                changed.append(merged)
                replaced += [old for old in match.rows if old[KEY] != merged[KEY]]
        self._replace(replaced, changed)
        return Added(changed=len(changed), undecided=undecided)

    def _find_unknown(self) -> int | None:
        """The number of the cluster of texts that name none."""
        return self.connection.scalar(sa.select(job_clusters.c.number).where(job_clusters.c.name == ""))

    def _find_stored(
        self, cluster: int, rows: Sequence[Stored], raw_ids: Mapping[tuple[int, int, int], int], unknown: int | None
    ) -> Mapping[tuple[int, int], list[Stored]]:
        """Every stored row that may be one of these jobs, by job and task."""
        clusters = self._list_clusters() if cluster == unknown else [number for number in (cluster, unknown) if number]
        found: dict[tuple[int, int], list[Stored]] = defaultdict(list)
        for row in self._select(clusters, {row[JOB] for row in rows}):
            found[row[1:3]].append(row)
        if self.has_mark(RAW_IDS):
            for key, row in self._find_by_raw_ids(clusters, rows, raw_ids):
                found[key].append(row)
        return found

    def _list_clusters(self) -> list[int]:
        return list(self.connection.scalars(sa.select(job_clusters.c.number)))

    def _select(self, clusters: Collection[int], ids: Collection[int]) -> Iterator[Stored]:
        columns = [jobs.c[name] for name in _COLUMNS]
        for some in _part(ids):
            query = sa.select(*columns).where(jobs.c.cluster.in_(clusters), jobs.c.job.in_(some))
            yield from map(tuple, self.connection.execute(query))

    def _find_by_raw_ids(
        self, clusters: Collection[int], rows: Sequence[Stored], raw_ids: Mapping[tuple[int, int, int], int]
    ) -> Iterator[tuple[tuple[int, int], Stored]]:
        """Elements of arrays that are stored under Slurm's own numbers, with the job and task they have in truth."""
        keys = {(raw_ids[row[1:4]], row[SUBMITTED]): row[1:3] for row in rows if row[1:4] in raw_ids}
        for row in self._select(clusters, {raw for raw, _ in keys}):
            key = keys.get((row[JOB], row[SUBMITTED]))
            if key is not None and row[TASK] < 0:
                yield key, row
        yield from self._find_by_moments(clusters, [row for row in rows if row[2] >= 0 and row[1:4] not in raw_ids])

    def _find_by_moments(
        self, clusters: Collection[int], rows: Sequence[Stored]
    ) -> Iterator[tuple[tuple[int, int], Stored]]:
        """The same for texts that do not give these numbers: submission, start, end and elapsed time must agree."""
        wanted: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            if row[STARTED]:
                wanted[_list_moments(row)].append(row[1:3])
        if not wanted:
            return
        submitted = [moments[0] for moments in wanted]
        query = sa.select(*(jobs.c[name] for name in _COLUMNS)).where(
            jobs.c.cluster.in_(clusters), jobs.c.task < 0, jobs.c.submitted_at.between(min(submitted), max(submitted))
        )
        for row in map(tuple, self.connection.execute(query.execution_options(yield_per=_MOST_ASKED))):
            keys = wanted.get(_list_moments(row))
            if keys and keys[-1][0] <= row[JOB]:
                yield keys.pop(), row

    def _replace(self, old: Sequence[Stored], new: Sequence[Stored]) -> None:
        gone = sa.delete(jobs).where(*(jobs.c[name] == sa.bindparam(f"old_{name}") for name in _KEY))
        if old:
            names = [f"old_{name}" for name in _KEY]
            self.connection.execute(gone, [dict(zip(names, row[KEY], strict=True)) for row in old])
        statement = self.insert(jobs)
        values = {name: statement.excluded[name] for name in _COLUMNS if name not in _KEY}
        statement = statement.on_conflict_do_update(index_elements=list(_KEY), set_=values)
        execute_many(self.connection, statement, _COLUMNS, new)
        self._count(new)

    def _count(self, rows: Sequence[Stored]) -> None:
        """Add the jobs that a model can learn from to the number received."""
        fitted = [row[KIND] for row in rows if row[STATE] in _FITTED and row[ELAPSED]]
        kinds = self.kinds.find(self.connection, set(fitted))
        self.count(Counter(kinds[kind].app for kind in fitted))


def _list_moments(row: Stored) -> tuple[Any, ...]:
    return row[SUBMITTED], row[STARTED], row[ENDED], row[ELAPSED]


def _part(values: Iterable[int]) -> Iterator[list[int]]:
    remaining = iter(values)
    while some := list(islice(remaining, _MOST_ASKED)):
        yield some


def execute_many(
    connection: sa.Connection, statement: Any, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """By the driver itself where it takes tuples: SQLAlchemy takes longer to hand rows on than SQLite to keep them."""
    if not rows:
        return
    compiled = statement.compile(dialect=connection.dialect, column_keys=names)
    if not compiled.positional:
        connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows])
        return
    assert tuple(compiled.positiontup) == tuple(names)
    connection.exec_driver_sql(str(compiled), list(rows))
